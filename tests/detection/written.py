"""Small data sets in the formats that people have, and where real ones are."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

VOC100 = Path(os.environ.get("ATTNLAB_TEST_DATA", "../shared/data")) / "voc100"
needs_voc100 = pytest.mark.skipif(
    not VOC100.is_dir(),
    reason="100 photographs of VOC are not here: set ATTNLAB_TEST_DATA to the folder of voc100",
)


def write_image(path: Path, width: int, height: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0)
    pixels = numbers.integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def coco_content() -> dict:
    """Two images, 60×40 and 50×50, of which the second has no box."""
    return {
        "images": [
            {"id": 7, "file_name": "a.png", "width": 60, "height": 40},
            {"id": 9, "file_name": "b.png", "width": 50, "height": 50},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 18, "bbox": [10, 5, 20, 10], "area": 150},
            {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 60.4, 40], "iscrowd": 1},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
    }


def write_coco(root: Path, content: dict | None = None) -> dict[str, str]:
    """The same images for training and testing; returns the options of the data."""
    write_image(root / "pictures" / "a.png", 60, 40)
    write_image(root / "pictures" / "b.png", 50, 50)
    (root / "boxes.json").write_text(json.dumps(content or coco_content()))
    return {
        "train": "boxes.json",
        "test": "boxes.json",
        "train_images": "pictures",
        "test_images": "pictures",
    }


def write_voc(root: Path) -> dict[str, str]:
    write_image(root / "JPEGImages" / "a.png", 60, 40)
    write_image(root / "JPEGImages" / "b.png", 50, 50)
    objects = (
        "<object><name>dog</name><difficult>0</difficult><bndbox><xmin>11</xmin><ymin>6</ymin>"
        "<xmax>30</xmax><ymax>15</ymax></bndbox></object>"
        "<object><name>car</name><difficult>1</difficult><bndbox><xmin>1</xmin><ymin>1</ymin>"
        "<xmax>60</xmax><ymax>40</ymax></bndbox></object>"
    )
    (root / "Annotations").mkdir()
    for name, (width, height), found in (("a", (60, 40), objects), ("b", (50, 50), "")):
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><filename>{name}.png</filename><size><width>{width}</width>"
            f"<height>{height}</height></size>{found}</annotation>"
        )
    (root / "all.txt").write_text("a\nb\n")
    return {"train": "all.txt", "test": "all.txt"}


def write_yolo(root: Path) -> dict[str, str]:
    for split in ("train", "val"):
        write_image(root / "images" / split / "a.png", 60, 40)
        write_image(root / "images" / split / "b.png", 50, 50)
        (root / "labels" / split).mkdir(parents=True)
        (root / "labels" / split / "a.txt").write_text(
            f"1 {20 / 60} {10 / 40} {20 / 60} {10 / 40}\n0 0.5 0.5 1 1\n"
        )
    (root / "data.yaml").write_text(
        "train: images/train\nval: images/val\nnames:\n  0: car\n  1: dog\n"
    )
    return {}
