"""Bright rectangles on dark ground, in YOLO's format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 64


def write_boxes(folder: Path, number: int = 8) -> Path:
    """The data set's YAML."""
    draw = np.random.default_rng(0)
    for part in ("train", "val"):
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True)
        for index in range(number):
            image = np.full((SIZE, SIZE, 3), draw.integers(0, 60), np.uint8)
            (x, y), (w, h) = draw.integers(2, 30, 2), draw.integers(14, 30, 2)
            image[y : y + h, x : x + w] = draw.integers(120, 255, 3)
            Image.fromarray(image).save(folder / "images" / part / f"{index}.png")
            box = [(x + w / 2) / SIZE, (y + h / 2) / SIZE, w / SIZE, h / SIZE]
            line = " ".join(["0", *(f"{value:.6f}" for value in box)])
            (folder / "labels" / part / f"{index}.txt").write_text(line + "\n")
    file = folder / "boxes.yaml"
    file.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{0: box}}\n")
    return file
