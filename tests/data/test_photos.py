"""Photographs for style transfer, and pictures whose style is learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attnlab._errors import InputError
from attnlab.data import DataConfig, data_checksum, load_data
from attnlab.data.photos import read_painting
from attnlab.data.pictures import png, scaled
from attnlab.tasks import TaskConfig, build_task

CPU = torch.device("cpu")


def pixels(data, number: int, which: str) -> torch.Tensor:  # type: ignore[no-untyped-def]
    """Images 0 to 255, with no augmentation."""
    chunk = torch.arange(number)
    if which == "test":
        batch = next(data.testing([chunk], CPU))
    else:
        from attnlab.data.batches import Chunk

        batch = next(data.training([Chunk(chunk, 1.0)], 0, 0, CPU))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (data.facts.mean, data.facts.std))
    return 255 * (batch.inputs * std + mean)


def test_embedded_halves_do_not_meet() -> None:
    from sklearn.datasets import load_sample_images

    plain = {"crop": "none", "flip": False}
    data = load_data(DataConfig(name="photos", size=48, augmentation=plain))
    assert (data.facts.train, data.facts.test, data.facts.targets) == (96, 2, "nothing")
    assert data.facts.shape == (3, 64, 64)
    photos = load_sample_images().images
    held_out = pixels(data, 2, "test")
    for photo, found in zip(photos, held_out, strict=True):
        left = Image.fromarray(photo).crop((0, 0, 320, 427))
        small = left.resize((64, round(427 * 64 / 320)), Image.Resampling.BICUBIC)
        top = (small.height - 64) // 2
        expected = torch.from_numpy(np.asarray(small.crop((0, top, 64, top + 64))).copy())
        torch.testing.assert_close(found, expected.permute(2, 0, 1).float(), atol=1e-3, rtol=0)
    # Each training part is somewhere in the right half of its photograph.
    parts = pixels(data, 96, "train").round()
    for place in (0, 17, 50, 95):
        right = Image.fromarray(photos[place // 48]).crop((320, 0, 640, 427))
        small = torch.from_numpy(np.asarray(scaled(right, 64)).copy()).permute(2, 0, 1).float()
        windows = small.unfold(1, 48, 1).unfold(2, 48, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
        assert (windows == parts[place]).all((1, 2, 3)).any()


def photographs(folder: Path, number: int) -> None:
    folder.mkdir(parents=True)
    for place in range(number):
        colour = (10 * place, 100, 200)
        Image.new("RGB", (50 + place, 40), colour).save(folder / f"{place:02d}.png")


def test_every_fifth_of_a_folder_is_held_out(tmp_path: Path) -> None:
    photographs(tmp_path / "photos", 11)
    config = DataConfig(name="photos", root=str(tmp_path / "photos"), size=24)
    data = load_data(config)
    # Nine photographs make at least 96 parts: eleven of each.
    assert (data.facts.train, data.facts.test, data.facts.shape) == (99, 2, (3, 32, 32))
    assert pixels(data, 2, "test")[:, 0, 0, 0].round().tolist() == [40, 90]
    photographs(tmp_path / "both" / "train", 3)
    photographs(tmp_path / "both" / "test", 1)
    data = load_data(DataConfig(name="photos", root=str(tmp_path / "both"), size=24))
    assert (data.facts.train, data.facts.test) == (96, 1)


def test_checksum_is_of_the_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        photographs(tmp_path / name, 5)
    one, two = (DataConfig(name="photos", root=str(tmp_path / n), size=24) for n in ("one", "two"))
    assert data_checksum(one) == data_checksum(two)
    Image.new("RGB", (50, 40), (1, 2, 3)).save(tmp_path / "two" / "00.png")
    assert data_checksum(one) != data_checksum(two)


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError) as missing:
        load_data(DataConfig(name="photos", root="nowhere"))
    assert str(missing.value) == "There is no folder 'nowhere'. Expected one with photographs."
    photographs(tmp_path / "few", 3)
    with pytest.raises(InputError) as few:
        load_data(DataConfig(name="photos", root=str(tmp_path / "few")))
    assert str(few.value) == (
        f"Expected at least 5 photographs in {str(tmp_path / 'few')!r}, of which every fifth is "
        f"held out, but found 3 files that end in .jpg, .jpeg, .png, .bmp, .webp, .ppm, .pgm, "
        f".tif, .tiff. Add some, or divide them into folders train and test."
    )
    with pytest.raises(InputError) as learns:
        build_task(TaskConfig(), load_data(DataConfig(name="photos", size=24)).facts)
    assert str(learns.value) == (
        "Task Classification learns classes, but data 'photos' has nothing. Set another task or "
        "other data."
    )


def test_style_pictures(tmp_path: Path) -> None:
    Image.new("RGB", (300, 100), (255, 0, 0)).save(tmp_path / "red.png")
    red = read_painting(str(tmp_path / "red.png"), 50)
    assert red.shape == (3, 50, 150)
    assert red.mean((1, 2)).tolist() == [1, 0, 0]
    with pytest.raises(InputError) as missing:
        read_painting("stroke", 50)
    assert str(missing.value) == (
        "There is no style picture 'stroke'. Did you mean 'strokes'? Expected the path of a "
        "picture, or one of attnlab's own: strokes, glass."
    )
    Image.new("RGB", (300, 20)).save(tmp_path / "thin.png")
    with pytest.raises(InputError) as thin:
        read_painting(str(tmp_path / "thin.png"), 50)
    assert str(thin.value) == (
        f"The style picture {str(tmp_path / 'thin.png')!r} is 300×20, expected at least 32×32: "
        f"there is no texture to learn in less."
    )
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(InputError, match=r"text.png' is not a readable image"):
        read_painting(str(tmp_path / "text.png"), 50)


def test_png_rounds_to_the_nearest(tmp_path: Path) -> None:
    made = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0)) * 1.2 - 0.1
    (tmp_path / "made.png").write_bytes(png(made))
    with Image.open(tmp_path / "made.png") as picture:
        found = np.asarray(picture)
    expected = np.rint(np.clip(made.numpy(), 0, 1) * 255).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, expected)
