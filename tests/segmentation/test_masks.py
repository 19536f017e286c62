"""Images with masks: what is read, cut and refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from attnlab._errors import InputError, OptionError
from attnlab.data import DataConfig, load_data
from attnlab.data.batches import Chunk
from attnlab.data.masks import IGNORED, crop
from attnlab.data.shapes import CATEGORIES
from attnlab.tasks import TaskConfig, build_task

CPU = torch.device("cpu")


def write(folder, sizes=((20, 30), (20, 30), (16, 16)), parts=("train", "test"), classes=3):
    """Photographs whose red channel is 10 times the class, so that images and masks can be told
    to belong together after any cut."""
    numbers = np.random.default_rng(0)
    for part in parts:
        for number, (height, width) in enumerate(sizes):
            mask = numbers.integers(0, classes, (height, width)).astype(np.uint8)
            mask[0, 0] = IGNORED
            pixels = np.stack([np.where(mask == IGNORED, 0, 10 * mask)] * 3, -1).astype(np.uint8)
            for kind, array in (("images", pixels), ("masks", mask)):
                place = folder / part / kind
                place.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(place / f"{number}.png")
    return folder


def read(file):
    with Image.open(file) as image:
        return np.asarray(image).copy()


def config(folder, **settings):
    given = {"name": "masks", "root": str(folder), "size": 16, **settings}
    return DataConfig(**given)


def test_a_folder(tmp_path):
    data = load_data(config(write(tmp_path)))
    facts = data.facts
    assert (facts.targets, facts.outputs, facts.train, facts.test) == ("masks", 3, 3, 3)
    assert facts.shape == (3, 20, 30)
    assert facts.name == tmp_path.name
    (same,) = data.testing([torch.tensor([0, 1])], CPU)
    assert same.inputs.shape == (2, 3, 20, 30)
    (mixed,) = data.testing([torch.tensor([0, 2])], CPU)
    assert [tuple(each.shape) for each in mixed.inputs] == [(3, 20, 30), (3, 16, 16)]
    assert [tuple(each.shape) for each in mixed.targets] == [(20, 30), (16, 16)]


def test_cuts_and_mirrors_move_image_and_mask_together(tmp_path):
    data = load_data(config(write(tmp_path), size=18))
    mean, std = (torch.tensor(each)[:, None, None] for each in (data.facts.mean, data.facts.std))
    seen = set()
    for epoch in range(6):
        (batch,) = data.training([Chunk(torch.arange(3), 1.0)], 0, epoch, CPU)
        assert batch.inputs.shape == (3, 3, 18, 18)
        for image, mask in zip(batch.inputs, batch.targets, strict=True):
            known = mask != IGNORED
            pixels = (image * std + mean)[0] * 255
            torch.testing.assert_close(pixels[known], 10.0 * mask[known], rtol=0, atol=1e-3)
            assert known.sum() >= 14 * 14 - 1
            seen.add(tuple(mask.flatten().tolist()))
    assert len(seen) > 12  # places and mirrors differ from epoch to epoch


def test_what_is_added_around_a_small_image_is_grey_and_does_not_count():
    image, mask = torch.full((3, 4, 6), 9, dtype=torch.uint8), torch.ones(4, 6).byte()
    part, classes, known = crop(image, mask, (8, 8), 0, (0.0, 0.0))
    assert part.shape == (3, 8, 8)
    assert torch.equal(classes == IGNORED, known == 0)
    assert known.sum() == 4 * 6
    assert int((part * known.byte()).sum()) == 9 * 3 * 24


@pytest.mark.parametrize(("place", "expected"), [(0.0, 0), (0.5, 2), (0.99999, 4)])
def test_every_place_of_a_crop_is_reached(place, expected):
    image = torch.arange(8).byte().expand(3, 8, 8).contiguous()
    part, _, _ = crop(image, image[0], (4, 4), 0, (0.0, place))
    assert part[0, 0, 0] == expected


def test_shapes_have_the_masks_of_their_boxes():
    few = {"train_subset": 12, "test_subset": 8}
    masks = load_data(DataConfig(name="shape-masks", augmentation={"crop": "none"}, **few))
    boxes = load_data(DataConfig(name="shapes", augmentation={"crop": "none"}, **few))
    assert masks.facts.categories == ("background", *CATEGORIES)
    (one,) = masks.testing([torch.arange(8)], CPU)
    (other,) = boxes.testing([torch.arange(8)], CPU)
    for image, mask, pixels, target in zip(*one, *other, strict=True):
        torch.testing.assert_close(image * 0.25 + 0.5, pixels, rtol=0, atol=1e-6)
        inside = torch.zeros_like(mask).bool()
        for (left, top, right, bottom), label in zip(
            target["boxes"].long().tolist(), target["labels"].tolist(), strict=True
        ):
            part = mask[top:bottom, left:right]
            inside[top:bottom, left:right] = True
            assert set(part.unique().tolist()) <= {0, label}
            object_ = part == label  # the tightest box: every edge of it touches the object
            assert all(
                edge.any() for edge in (object_[0], object_[-1], object_[:, 0], object_[:, -1])
            )
        assert (mask[~inside] == 0).all()


def test_voc(tmp_path):
    lists = tmp_path / "ImageSets" / "Segmentation"
    for folder in (lists, tmp_path / "JPEGImages", tmp_path / "SegmentationClass"):
        folder.mkdir(parents=True)
    for part, name in (("train", "a"), ("val", "b")):
        (lists / f"{part}.txt").write_text(f"{name}\n")
        Image.fromarray(np.zeros((12, 15, 3), np.uint8)).save(
            tmp_path / "JPEGImages" / f"{name}.jpg"
        )
        mask = Image.fromarray(np.repeat([[0], [20]], 6, 0).repeat(15, 1).astype(np.uint8))
        mask.putpalette(bytes(range(256)) * 3)  # colours: the numbers count
        mask.save(tmp_path / "SegmentationClass" / f"{name}.png")
    given = DataConfig(name="voc-masks", root=str(tmp_path))
    data = load_data(given)
    assert data.facts.outputs == 21
    assert data.facts.categories[20] == "tvmonitor"
    (batch,) = data.testing([torch.tensor([0])], CPU)
    assert set(batch.targets.unique().tolist()) == {0, 20}
    assert any("19 of 21 classes have no training image" in note for note in data.facts.notes)
    more = {"masks": "SegmentationClassAug"}  # as the list trainaug of others needs
    with pytest.raises(
        InputError, match=r"SegmentationClassAug/a\.png.*are not there|2 files|1 file"
    ):
        load_data(given.model_copy(update={"options": more}))
    (tmp_path / "SegmentationClass").rename(tmp_path / "SegmentationClassAug")
    assert load_data(given.model_copy(update={"options": more})).facts.outputs == 21


@pytest.mark.parametrize("made", [True, False])
def test_what_is_reached_without_looking_is_what_one_class_everywhere_reaches(tmp_path, made):
    few = DataConfig(name="shape-masks", size=24, test_subset=5)
    data = load_data(few if made else config(write(tmp_path)))
    found = {}
    for number in range(data.facts.outputs):
        meters = build_task(TaskConfig(name="segmentation"), data.facts).meters(CPU)
        for batch in data.testing([torch.tensor([n]) for n in range(data.facts.test)], CPU):
            logits = torch.zeros(data.facts.outputs, *batch.targets.shape[-2:])
            logits[number] = 1
            meters.update([logits], batch.targets)
        found[number] = meters.compute()
    commonest = max(found.values(), key=lambda values: values["pixel_accuracy"])
    assert data.facts.blind == pytest.approx(commonest["miou"], rel=1e-6)
    assert 0.1 < data.facts.blind < 0.5


def test_names_of_classes(tmp_path):
    (write(tmp_path) / "classes.txt").write_text("sky\nsea\nsky\n")
    with pytest.raises(InputError, match=r"the name 'sky' is that of 2 classes\. Expected another"):
        load_data(config(tmp_path))
    (write(tmp_path) / "classes.txt").write_text("sky\nsea\nland\nboat\n")
    facts = load_data(config(tmp_path)).facts
    assert facts.categories == ("sky", "sea", "land", "boat")
    assert "1 of 4 classes has no training image: boat." in facts.notes


def test_content_is_the_identity(tmp_path):
    root = write(tmp_path)
    before = load_data(config(root)).facts.checksum
    mask = root / "train" / "masks" / "0.png"
    changed = np.asarray(Image.open(mask)).copy()
    changed[3, 3] = (changed[3, 3] + 1) % 3
    Image.fromarray(changed).save(mask)
    assert load_data(config(root)).facts.checksum != before


def broken(tmp_path, how):
    root = write(tmp_path)
    mask = root / "train" / "masks" / "1.png"
    if how == "missing":
        mask.unlink()
    elif how == "size":
        Image.fromarray(np.zeros((5, 5), np.uint8)).save(mask)
    elif how == "colours":
        Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(mask)
    elif how == "gap":
        Image.fromarray(np.full((20, 30), 7, np.uint8)).save(mask)
    elif how == "beyond":
        Image.fromarray(np.full((20, 30), 7, np.uint8)).save(root / "test" / "masks" / "1.png")
    elif how == "binary":
        for file in root.glob("*/masks/*.png"):
            Image.fromarray(np.where(read(file) == 1, 255, 0).astype(np.uint8)).save(file)
    elif how == "rgba":
        Image.fromarray(np.zeros((20, 30, 4), np.uint8)).save(mask)
    elif how == "wide":
        Image.fromarray(np.full((20, 30), 300, np.uint16)).save(mask)
    elif how == "bytes":
        mask.write_bytes(b"no image")
    elif how == "photograph":
        (root / "train" / "images" / "1.png").write_bytes(b"no image")
    return root


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", r"1 files are not there: .*1\.png.* Expected a mask of the same name"),
        ("size", r"1\.png' is 5×5, but its image is 30×20"),
        ("colours", r"1\.png' is not a mask: it has colours \(mode RGB\)"),
        ("gap", r"no pixel of the training masks has class 3, 4, 5 and 6|has class 3, 4, 5, 6"),
        ("beyond", r"has class 7, but there are only 3 classes, 0 to 2"),
        ("binary", r"no pixel of the training masks has another class than 0; .* write 255 as 1"),
        ("rgba", r"1\.png' is not a mask: it has colours \(mode RGBA\)"),
        ("wide", r"1\.png' has numbers from 300 to 300\. Expected classes from 0 to 254"),
        ("bytes", r"1\.png' is not a readable image"),
        ("photograph", r"images/1\.png' is not a readable image"),
    ],
)
def test_bad_files_are_named(tmp_path, how, message):
    with pytest.raises(InputError, match=message):
        load_data(config(broken(tmp_path, how)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": None}, "training images have different sizes, 30×20 the first. Set data.size"),
        ({"augmentation": {"crop": "resized"}}, "crop = 'resized' is for data 'folder' only"),
        ({"augmentation": {"transform": "torch.nn.Identity"}}, "masks take none"),
        ({"options": {"pictures": "x"}}, "has no option 'pictures'"),
        ({"root": None}, "needs its folder"),
    ],
)
def test_bad_settings(tmp_path, settings, message):
    with pytest.raises(OptionError, match=message):
        load_data(config(write(tmp_path), **settings))


def test_masks_of_16_bits_and_of_palettes_are_numbers(tmp_path):
    root = write(tmp_path)
    before = [item.classes() for item in load_data(config(root))._train]
    first, second = (root / "train" / "masks" / f"{number}.png" for number in (0, 1))
    wide = Image.fromarray(read(first).astype(np.uint16))
    assert wide.mode.startswith("I")
    wide.save(first)
    coloured = Image.fromarray(read(second))
    coloured.putpalette(bytes(reversed(range(256))) * 3)
    assert coloured.mode == "P"
    coloured.save(second)
    after = [item.classes() for item in load_data(config(root))._train]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


STORED = {  # of a picture as it is shown, by the numbers of EXIF
    2: np.fliplr,
    3: lambda shown: np.rot90(shown, 2),
    4: np.flipud,
    5: lambda shown: np.swapaxes(shown, 0, 1),
    6: lambda shown: np.rot90(shown, 1),
    7: lambda shown: np.rot90(np.swapaxes(shown, 0, 1), 2),
    8: lambda shown: np.rot90(shown, -1),
}


def lie(file, orientation):
    """Store an image as a camera does that was turned: lying, and EXIF says so."""
    shown = read(file)
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(np.ascontiguousarray(STORED[orientation](shown))).save(file, exif=exif)


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("in_memory", [True, False])
def test_an_image_that_exif_turns_lies_on_its_mask(tmp_path, monkeypatch, orientation, in_memory):
    monkeypatch.setattr("attnlab.data.mask_load.MEMORY_LIMIT", 2**30 if in_memory else 0)
    root = write(tmp_path)
    lie(root / "test" / "images" / "0.png", orientation)
    data = load_data(config(root))
    (batch,) = data.testing([torch.tensor([0, 1])], CPU)
    pixels = data.facts.pixels(batch.inputs)[:, 0] * 255
    known = batch.targets != IGNORED
    torch.testing.assert_close(pixels[known], 10.0 * batch.targets[known], rtol=0, atol=1e-3)
    said = "EXIF turns 1 image; annotations are taken to be of images as they are shown."
    assert any(note.endswith(said) for note in data.facts.notes)


def test_a_mask_of_the_stored_image_lies_on_it_too(tmp_path):
    root = write(tmp_path)
    lie(root / "test" / "images" / "0.png", 6)
    mask = root / "test" / "masks" / "0.png"
    Image.fromarray(np.rot90(read(mask)).copy()).save(mask)
    data = load_data(config(root))
    (batch,) = data.testing([torch.tensor([0])], CPU)
    assert batch.targets.shape == (1, 30, 20)
    pixels = data.facts.pixels(batch.inputs)[:, 0] * 255
    known = batch.targets != IGNORED
    torch.testing.assert_close(pixels[known], 10.0 * batch.targets[known], rtol=0, atol=1e-3)
    lie(root / "test" / "images" / "1.png", 6)
    with pytest.raises(InputError, match=r"EXIF turns .*1\.png.* as it is shown, and .*0\.png"):
        load_data(config(root))
