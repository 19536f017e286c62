"""Images with boxes: made in code and from files."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from tests.detection import written

from attnlab._errors import InputError, OptionError, UnknownNameError
from attnlab.data import Augmentation, DataConfig, data_checksum, load_data, yolo_files
from attnlab.data.batches import Chunk
from attnlab.data.box_checks import BoxNote, FoundBox, box_problem
from attnlab.data.boxes import as_target
from attnlab.data.orientation import Orientations, orientation, shown_size
from attnlab.data.shapes import mask_box, object_mask

WHOLE = Augmentation(crop="none", flip=False)
CPU = torch.device("cpu")


def loaded(name: str, root: Path, options: dict | None = None):
    config = DataConfig(name=name, root=str(root), options=options or {}, augmentation=WHOLE)
    return load_data(config)


def batch_of(data, number: int):
    return next(data.testing([torch.tensor([number])], CPU))


def test_shapes_boxes_are_tight():
    rows, columns = np.mgrid[0:50, 0:50].astype(np.float32)
    for label in (1, 2, 3):
        mask = object_mask(label, columns - 22.3, rows - 27.9, 17.2)
        inside = [(x, y) for y in range(50) for x in range(50) if mask[y, x]]
        xs, ys = zip(*inside, strict=True)
        assert mask_box(mask) == [min(xs), min(ys), max(xs) + 1, max(ys) + 1]
        assert 17 <= max(xs) + 1 - min(xs) <= 18


def test_shapes_boxes_lie_where_the_objects_are():
    # A square has one colour and noise of 0.06, up to its last pixel and no further.
    data = load_data(DataConfig(name="shapes", test_subset=60, augmentation=WHOLE))
    squares = 0
    for batch in data.testing(list(torch.arange(60).split(20)), CPU):
        for image, target in zip(batch.inputs, batch.targets, strict=True):
            for box, label in zip(target["boxes"].int().tolist(), target["labels"], strict=True):
                left, top, right, bottom = box
                inside = image[:, top:bottom, left:right].flatten(1)
                rim = image[:, top - 1 : bottom + 1, left - 1 : left].flatten(1)
                mean = inside.median(1, keepdim=True).values
                far = ((rim - mean).abs() > 0.3).any(0).float().mean() > 0.9
                if label == 2 and far:
                    squares += 1
                    edges = torch.cat(
                        [
                            image[:, top:bottom, left],
                            image[:, top:bottom, right - 1],
                            image[:, top, left:right],
                            image[:, bottom - 1, left:right],
                        ],
                        1,
                    )
                    assert ((edges - mean).abs() < 0.3).float().mean() > 0.99
    assert squares >= 20


def test_shapes_are_the_same_each_time_and_training_is_not_testing():
    config = DataConfig(name="shapes", train_subset=4, test_subset=4, augmentation=WHOLE)
    one, other = load_data(config), load_data(config)
    assert torch.equal(batch_of(one, 2).inputs[0], batch_of(other, 2).inputs[0])
    train = next(one.training([Chunk(torch.tensor([2]), 1.0)], 0, 0, CPU))
    assert not torch.equal(train.inputs[0], batch_of(one, 2).inputs[0])
    assert one.facts.categories == ("disc", "square", "triangle")
    assert one.facts.checksum == data_checksum(config) == "shapes-1:96:4:4"


def test_mirrored_images_have_mirrored_boxes(tmp_path):
    options = written.write_coco(tmp_path)
    plain = loaded("coco", tmp_path, options)
    config = DataConfig(
        name="coco",
        root=str(tmp_path),
        options=options,
        augmentation=Augmentation(crop="none", flip=True),
    )
    data = load_data(config)
    chunk = Chunk(torch.tensor([0]), 1.0)
    original = batch_of(plain, 0).inputs[0]
    seen = set()
    for epoch in range(12):
        batch = next(data.training([chunk], 0, epoch, CPU))
        (image,), (target,) = batch
        flipped = torch.equal(image, original.flip(2)) and not torch.equal(image, original)
        seen.add(flipped)
        # 10…30 of 60 pixels, from the other side 30…50; the crowd is not trained on.
        expected = [30.0, 5.0, 50.0, 15.0] if flipped else [10.0, 5.0, 30.0, 15.0]
        assert target["boxes"].tolist() == [expected]
    assert seen == {True, False}


@pytest.mark.parametrize("name", ["coco", "voc", "yolo"])
def test_formats_say_the_same(tmp_path, name):
    options = getattr(written, f"write_{name}")(tmp_path)
    data = loaded(name, tmp_path, options)
    assert data.facts.shape == (3, 40, 60)
    assert data.facts.categories == ("car", "dog")
    assert (data.facts.train, data.facts.test, data.facts.outputs) == (2, 2, 2)
    (image,), (target,) = batch_of(data, 0)
    assert tuple(image.shape) == (3, 40, 60)
    assert 0.99 < image.max() <= 1
    order = target["labels"].argsort()
    boxes = target["boxes"][order]
    torch.testing.assert_close(
        boxes, torch.tensor([[0.0, 0, 60, 40], [10, 5, 30, 15]]), atol=1e-5, rtol=0
    )
    assert target["labels"][order].tolist() == [1, 2]
    # YOLO knows no crowds; VOC's difficult objects and COCO's crowds do not count.
    assert target["iscrowd"][order].tolist() == [0 if name == "yolo" else 1, 0]
    area = 150.0 if name == "coco" else 200.0
    assert target["area"][order].tolist() == pytest.approx([2400.0, area])
    (image,), (target,) = batch_of(data, 1)
    assert tuple(image.shape) == (3, 50, 50)
    assert target["boxes"].shape == (0, 4)


def test_images_that_are_read_while_they_are_used(tmp_path, monkeypatch):
    options = written.write_coco(tmp_path)
    expected = batch_of(loaded("coco", tmp_path, options), 0)
    monkeypatch.setattr("attnlab.data.box_load.MEMORY_LIMIT", 0)
    found = batch_of(loaded("coco", tmp_path, options), 0)
    assert torch.equal(found.inputs[0], expected.inputs[0])
    assert torch.equal(found.targets[0]["boxes"], expected.targets[0]["boxes"])


def test_checksum_is_of_the_content(tmp_path):
    options = written.write_coco(tmp_path)
    config = DataConfig(name="coco", root=str(tmp_path), options=options, augmentation=WHOLE)
    before = data_checksum(config)
    assert load_data(config).facts.checksum == before
    written.write_image(tmp_path / "pictures" / "b.png", 51, 50)
    assert data_checksum(config) != before


BAD = {
    "no area": (
        {"bbox": [1, 2, 0, 5]},
        "has no area: left 1, top 2, right 1, bottom 7",
    ),
    "outside": (
        {"bbox": [50, 2, 20, 5]},
        "is outside of the image, which is 60×40: left 50, top 2, right 70, bottom 7",
    ),
    "far away": (
        {"bbox": [-20, 2, 20, 5]},
        "is outside of the image, which is 60×40: left -20, top 2, right 0, bottom 7",
    ),
    "not finite": (
        {"bbox": [1, float("nan"), 2, 5]},
        "is not finite: left 1, top nan, right 3, bottom nan",
    ),
    "category": (
        {"category_id": 4},
        "has the category 4, which is not one of 3, 18, …",
    ),
    "numbers": ({"bbox": [1, 2, 3]}, "has 3 numbers, expected 4"),
    "area": ({"area": float("nan")}, "has the area nan"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_boxes_are_named(tmp_path, name):
    changed, reason = BAD[name]
    content = written.coco_content()
    content["annotations"][0] |= changed
    options = written.write_coco(tmp_path, content)
    expected = (
        f"coco (training): 1 of 2 boxes cannot be used:\n"
        f"  boxes.json, annotation 0 (id 1) of 'a.png' {reason}.\n"
        f'Repair them, or set data.options.bad = "drop" to leave them out.'
    )
    with pytest.raises(InputError, match=re.escape(expected)):
        loaded("coco", tmp_path, options)
    with pytest.warns(BoxNote, match=re.escape("1 of 2 boxes are left out:\n  boxes.json, anno")):
        data = loaded("coco", tmp_path, {**options, "bad": "drop"})
    assert batch_of(data, 0).targets[0]["labels"].tolist() == [1]


@pytest.mark.parametrize(
    ("edges", "fine"),
    [
        ((-1.0, 2.0, 5.0, 9.0), True),  # a pixel outside, as rounded boxes are
        ((2.0, -1.0, 5.0, 9.0), True),
        ((2.0, 2.0, 61.0, 9.0), True),
        ((2.0, 2.0, 5.0, 41.0), True),
        ((-1.1, 2.0, 5.0, 9.0), False),
        ((2.0, -1.1, 5.0, 9.0), False),
        ((2.0, 2.0, 61.1, 9.0), False),
        ((2.0, 2.0, 5.0, 41.1), False),
        ((-1.0, 2.0, 0.0, 9.0), False),  # not a pixel of it is inside
        ((60.0, 2.0, 61.0, 9.0), False),
        ((2.0, -1.0, 9.0, 0.0), False),
        ((2.0, 40.0, 9.0, 41.0), False),
        ((0.0, 0.0, 60.0, 40.0), True),
    ],
)
def test_how_far_a_box_may_stick_out(edges, fine):
    reason = box_problem(FoundBox("here", "dog", edges), 60, 40, {"dog": 1})
    if fine:
        assert reason == ""
    else:
        assert reason.startswith("is outside of the image, which is 60×40: left ")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"edges": (3.0, 2.0, 3.0, 9.0)}, "has no area: left 3, top 2, right 3, bottom 9"),
        ({"edges": (3.0, 9.0, 5.0, 9.0)}, "has no area: left 3, top 9, right 5, bottom 9"),
        ({"area": -1.0}, "has the area -1.0"),
        ({"area": 0.0}, ""),
        ({"area": float("inf")}, "has the area inf"),
        ({"outline": (1.0, float("nan"))}, "has an outline or points that are not finite"),
        ({"points": (float("inf"), 1.0)}, "has an outline or points that are not finite"),
        ({"category": 9}, "has the category 9, which is not one of dog, …"),
    ],
)
def test_what_a_box_cannot_be(changed, reason):
    given = {"place": "here", "category": "dog", "edges": (1.0, 2.0, 5.0, 9.0), **changed}
    assert box_problem(FoundBox(**given), 60, 40, {"dog": 1}) == reason


def test_a_box_that_sticks_out_is_cut_off_and_its_area_is_what_is_left(tmp_path):
    content = written.coco_content()
    content["annotations"][0] |= {"bbox": [-1, -1, 11, 5]}
    content["annotations"][0].pop("area", None)
    data = loaded("coco", tmp_path, written.write_coco(tmp_path, content))
    target = batch_of(data, 0).targets[0]
    first = target["labels"].tolist().index(2)
    assert target["boxes"][first].tolist() == [0, 0, 10, 4]
    assert float(target["area"][first]) == 40


def test_objects_without_an_area_have_that_of_their_boxes():
    target = as_target(torch.tensor([[1.0, 2.0, 4.0, 8.0]]), torch.tensor([3]))
    assert (target["area"].tolist(), target["iscrowd"].tolist()) == ([18.0], [0])
    assert as_target(torch.zeros(0), torch.zeros(0))["boxes"].shape == (0, 4)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("kpt_shape: [2, 4]", "expected kpt_shape to be a list of the number of points and 2 or 3"),
        ("kpt_shape: [0, 2]", r"the numbers for each, but got \[0, 2\]"),
        ("kpt_shape: [2]", r"the numbers for each, but got \[2\]"),
        ("kpt_shape: 2", "the numbers for each, but got 2"),
        (
            "kpt_shape: [2, 3]\nflip_idx: [0, 0]",
            r"expected flip_idx to have each of 0 to 1 once but got \[0, 0\]",
        ),
        (
            "kpt_shape: [2, 3]\nkpt_oks_sigmas: [0.1]",
            r"expected kpt_oks_sigmas to be 2 positive numbers but got \[0.1\]",
        ),
        (
            "kpt_shape: [2, 3]\nkpt_oks_sigmas: [0.1, 0]",
            r"expected kpt_oks_sigmas to be 2 positive numbers but got \[0.1, 0\]",
        ),
    ],
)
def test_points_that_a_yaml_cannot_have(tmp_path, said, message):
    written.write_yolo(tmp_path)
    file = tmp_path / "data.yaml"
    file.write_text(f"{file.read_text()}\n{said}\n")
    with pytest.raises(InputError, match=message):
        loaded("yolo", tmp_path)


def test_points_are_read_in_pixels(tmp_path):
    """Of an image of 60 × 40 pixels; the third number of a point is not a share."""
    written.write_yolo(tmp_path)
    file = tmp_path / "data.yaml"
    points = "kpt_shape: [2, 3]\nflip_idx: [1, 0]\nkpt_oks_sigmas: [0.1, 0.2]\n"
    file.write_text(f"{file.read_text()}\n{points}")
    label = "0 0.5 0.5 0.5 0.5 0.25 0.5 2 0.75 0.25 1\n"
    for text in (tmp_path / "labels").rglob("*.txt"):
        text.write_text(label)
    data = loaded("yolo", tmp_path)
    image = next(each for each in data.train if each.pixels().shape == (3, 40, 60))
    assert image.target["boxes"].tolist() == [[15, 10, 45, 30]]
    assert image.points.tolist() == [[[15, 20, 2], [45, 10, 1]]]


def test_which_folder_has_the_labels():
    """The last folder that is called images on the way."""
    for image, label in (
        ("/a/images/train/x.jpg", "/a/labels/train/x.txt"),
        ("/images/b/images/x.png", "/images/b/labels/x.txt"),
        ("/a/pictures/x.jpg", "/a/pictures/x.txt"),
        ("/a/images", "/a/images.txt"),
    ):
        assert yolo_files._label(Path(image)) == Path(label)


def test_pictures_that_exif_turns():
    """From the fifth orientation on, height and width change places."""
    for number in range(10):
        picture = Image.new("RGB", (6, 4))
        picture.getexif()[ExifTags.Base.Orientation] = number
        assert orientation(picture) == (number if 2 <= number <= 8 else 1)
        assert shown_size(picture) == ((4, 6) if 5 <= number <= 8 else (6, 4))


def test_which_way_annotations_are_of_turned_pictures():
    turned = Image.new("RGB", (6, 4))
    turned.getexif()[ExifTags.Base.Orientation] = 6
    straight = Image.new("RGB", (6, 4))
    shown, stored, both = Orientations(), Orientations(), Orientations()
    assert shown.notes("x") == ()
    assert shown.fits("a", straight, (6, 4))
    assert not shown.fits("a", straight, (4, 6))
    assert shown.notes("x") == ()
    assert shown.fits("a", turned, (4, 6))
    assert shown.as_shown("x")
    assert shown.notes("x") == (
        "x: EXIF turns 1 image; annotations are taken to be of images as they are shown.",
    )
    assert stored.fits("a", turned, (6, 4))
    assert stored.fits("b", turned, (6, 4))
    assert not stored.fits("c", turned, (5, 5))
    assert not stored.as_shown("x")
    assert stored.notes("x") == (
        "x: EXIF turns 3 images; annotations are taken to be of images as they are stored, and are "
        "not turned.",
    )
    for name, size in (("a", (4, 6)), ("b", (6, 4)), ("c", (4, 6)), ("d", (6, 4))):
        both.fits(name, turned, size)
    with pytest.raises(InputError, match=r"x: EXIF turns 'a', .* as it is shown, and 'b', whose"):
        both.as_shown("x")


def test_many_bad_boxes_are_counted(tmp_path):
    content = written.coco_content()
    wrong = {"image_id": 9, "category_id": 3, "bbox": [0, 0, 0, 0]}
    content["annotations"] += [{"id": 10 + n, **wrong} for n in range(9)]
    options = written.write_coco(tmp_path, content)
    with pytest.raises(InputError, match=r"9 of 11 boxes(.|\n)*annotation 6 (.|\n)*  and 4 more"):
        loaded("coco", tmp_path, options)


def test_broken_files_are_named(tmp_path):
    options = written.write_coco(tmp_path)

    def refused(change, expected):
        content = written.coco_content()
        change(content)
        (tmp_path / "boxes.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=re.escape(expected)):
            loaded("coco", tmp_path, options)

    file = str(tmp_path / "boxes.json")
    refused(
        lambda c: c["images"][1].update(id=7),
        f"{file!r}: 1 id of images occurs more than once, the first of them 7.",
    )
    refused(
        lambda c: c["annotations"][1].update(id=1),
        f"{file!r}: 1 id of annotations occurs more than once, the first of them 1.",
    )
    refused(
        lambda c: c["annotations"][1].update(image_id=8),
        f"{file!r}: 1 of 2 annotations are of images that it does not list:\n"
        f"  boxes.json, annotation 1 (id 2) is of image 8.",
    )
    refused(
        lambda c: c["images"][1].update(file_name="c.png"),
        f"coco (training): 1 of 2 images are not there:\n"
        f"  {str(tmp_path / 'pictures' / 'c.png')!r}",
    )
    refused(
        lambda c: c["images"][1].update(width=49),
        f"{str(tmp_path / 'pictures' / 'b.png')!r} is 50×50, but its annotation says 49×50.",
    )
    refused(
        lambda c: c.pop("categories"),
        f"{file!r} is not a file of COCO annotations: it has no list 'categories'.",
    )
    refused(lambda c: c.update(annotations=[]), "coco (training) has no box in 2 images.")
    (tmp_path / "pictures" / "b.png").write_bytes(b"no image")
    refused(lambda _: None, "coco (training): 1 of 2 images cannot be used:\n")


def test_voc_and_yolo_name_their_files(tmp_path):
    written.write_voc(tmp_path / "voc")
    file = tmp_path / "voc" / "Annotations" / "a.xml"
    text = file.read_text()
    file.write_text(text.replace("<xmin>11<", "<xmin>x<"))
    with pytest.raises(InputError, match=r"a number as bndbox/xmin of object 0 but got 'x'\."):
        loaded("voc", tmp_path / "voc", {"train": "all.txt", "test": "all.txt"})
    file.write_text('<!DOCTYPE a [<!ENTITY b "c">]>' + text)
    with pytest.raises(InputError, match="declares entities, which no annotation needs"):
        loaded("voc", tmp_path / "voc", {"train": "all.txt", "test": "all.txt"})
    written.write_yolo(tmp_path / "yolo")
    file = tmp_path / "yolo" / "labels" / "val" / "a.txt"
    file.write_text("1 0.5 0.5 0.2 0.2\n2 0.5 0.5 0.2 0.2\n")
    expected = "a.txt, line 2 of 'a.png' has the category '2', which is not one of 0, 1, …"
    with pytest.raises(InputError, match=re.escape(expected)):
        loaded("yolo", tmp_path / "yolo")


def test_settings_that_are_not_for_boxes(tmp_path):
    with pytest.raises(OptionError, match="crop = 'padded' would cut boxes"):
        load_data(DataConfig(name="shapes"))
    with pytest.raises(OptionError, match=r"tokens and shards; 'shapes' has none\."):
        DataConfig(name="shapes", options={"train": "x"})
    written.write_coco(tmp_path)
    with pytest.raises(OptionError, match=r"Data 'coco' has no option 'trian'\. Did you mean"):
        loaded("coco", tmp_path, {"trian": "boxes.json"})
    with pytest.raises(UnknownNameError, match=r"Unknown option bad = 'ignore'"):
        loaded("coco", tmp_path, {"bad": "ignore"})
    with pytest.raises(OptionError, match=r"data\.size is not for 'coco'"):
        load_data(DataConfig(name="coco", root=str(tmp_path), size=64, augmentation=WHOLE))
    with pytest.raises(OptionError, match=r"Data 'voc' needs its folder"):
        load_data(DataConfig(name="voc", augmentation=WHOLE))


@written.needs_voc100
def test_photographs_in_two_formats(tmp_path):
    # The JSON was made of the XML with VOC's pixel numbers as they are: 1 to the right and below.
    names = sorted(file.stem for file in (written.VOC100 / "annotations").glob("*.xml"))
    (tmp_path / "all.txt").write_text("\n".join(names))
    for folder in ("annotations", "images"):
        (tmp_path / folder).symlink_to((written.VOC100 / folder).resolve())
    everything = {"train": "all.txt", "test": "all.txt"}
    voc = loaded("voc", tmp_path, {**everything, "annotations": "annotations", "images": "images"})
    coco = loaded(
        "coco",
        written.VOC100,
        {
            "train": "instances.json",
            "test": "instances.json",
            "train_images": "images",
            "test_images": "images",
        },
    )
    assert sorted(voc.facts.categories) == sorted(coco.facts.categories)
    found = []
    for data, moved in ((voc, 0.0), (coco, 1.0)):
        (batch,) = data.testing([torch.arange(100)], CPU)
        names = ("", *data.facts.categories)
        found.append(
            Counter(
                (names[label], *(box - moved * torch.tensor([1.0, 1, 0, 0])).clamp_min(0).tolist())
                for target in batch.targets
                for box, label in zip(target["boxes"], target["labels"].tolist(), strict=True)
            )
        )
    assert found[0] == found[1]
    assert found[0].total() == 273


def test_boxes_of_a_photograph_that_exif_turns_lie_where_it_shows_them(tmp_path):
    shown = np.zeros((40, 60, 3), np.uint8)
    shown[5:15, 10:30] = 255  # the dog of `written`
    exif = Image.Exif()
    exif[274] = 6  # turned to the right before it is shown
    for name, write in (("yolo", written.write_yolo), ("voc", written.write_voc)):
        root = tmp_path / name
        root.mkdir()
        options = write(root)
        for file in root.rglob("a.png"):
            Image.fromarray(np.rot90(shown).copy()).save(file, exif=exif)
        data = loaded(name, root, options)
        batch = batch_of(data, 0)
        assert batch.inputs[0].shape == (3, 40, 60)
        dog = [data.facts.categories[n - 1] for n in batch.targets[0]["labels"]].index("dog")
        left, top, right, bottom = batch.targets[0]["boxes"][dog].round().int().tolist()
        inside = batch.inputs[0][:, top:bottom, left:right]
        assert inside.numel() == 600
        assert inside.min() == 1
        assert batch.inputs[0].sum() == 600
        assert any("EXIF turns 1 image" in note for note in data.facts.notes)


def moved(root, train, val, path=None):
    """The data of `write_yolo`, described in another way."""
    file = root / "data.yaml"
    lines = [f"train: {train}", f"val: {val}", "names: {0: car, 1: dog}"]
    file.write_text("\n".join([*lines, *([f"path: {path}"] if path else [])]))


def as_theirs(file):
    """Which boxes Ultralytics' own reader finds, by category, for images of both parts in order."""
    pytest.importorskip("ultralytics")
    from attnlab.bridges.yolo_study.offline import import_offline, offline

    import_offline()
    from ultralytics.data import YOLODataset
    from ultralytics.data.utils import check_det_dataset

    with offline():  # no font is fetched
        found = check_det_dataset(str(file), autodownload=False)
    parts = []
    for part in ("train", "val"):
        data = YOLODataset(img_path=found[part], data=found, task="detect", augment=False)
        parts.append(
            [
                (
                    Path(label["im_file"]).name,
                    sorted(
                        (found["names"][int(c)], *(round(float(n), 4) for n in box))
                        for c, box in zip(label["cls"].flatten(), label["bboxes"], strict=True)
                    ),
                )
                for label in data.labels
            ]
        )
    return parts


def as_ours(data):
    parts = []
    for images in (data.train, data.test):
        parts.append([])
        for image in images:
            height, width = image.pixels().shape[1:]
            boxes = []
            for box, label in zip(image.target["boxes"], image.target["labels"], strict=True):
                left, top, right, bottom = box.tolist()
                numbers = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
                shares = (n / side for n, side in zip(numbers, (width, height) * 2, strict=True))
                name = data.facts.categories[int(label) - 1]
                boxes.append((name, *(round(each, 4) for each in shares)))
            parts[-1].append(sorted(boxes))
    return parts


@pytest.mark.parametrize(
    "how", ["plain", "relative path", "elsewhere", "roboflow", "lists", "several", "marks"]
)
def test_a_yaml_is_read_as_ultralytics_reads_it(tmp_path, monkeypatch, how):
    """Which images, and which boxes: with what people's files say, against its own reader."""
    root = tmp_path / "mine"
    written.write_yolo(root)
    (root / "labels" / "train" / "b.txt").write_text("0 0.25 0.5 0.2 0.2\n")
    (root / "labels" / "val" / "b.txt").write_text("")  # no object
    given = root
    if how == "relative path":
        moved(root, "train", "val", path="images")
        monkeypatch.chdir(root)  # theirs is relative to where they are started
    elif how == "elsewhere":
        given = tmp_path / "other"
        shutil.copytree(root, given)  # with the same names, so that the wrong ones can be read
        (given / "labels" / "train" / "a.txt").write_text("0 0.5 0.5 0.1 0.1\n")
        moved(given, "images/train", "images/val", path=root)
    elif how == "roboflow":
        for part, folder in (("train", "train"), ("val", "valid")):
            for kind in ("images", "labels"):
                (root / folder).mkdir(exist_ok=True)
                (root / kind / part).rename(root / folder / kind)
        moved(root, "../train/images", "../valid/images")
    elif how == "lists":
        (root / "train.txt").write_text("./images/train/b.png\n\n./images/train/a.png\n")
        (root / "val.txt").write_text(f"\ufeff{root / 'images/val/b.png'}\n")
        moved(root, "train.txt", "val.txt")
        (root / "labels" / "val" / "b.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    elif how == "several":
        moved(root, "[images/train, images/val]", "[images/val]")
    elif how == "marks":
        file = root / "labels" / "train" / "a.txt"
        file.write_text("\ufeff" + file.read_text())
    data = loaded("yolo", given)
    theirs = as_theirs(given / "data.yaml")
    assert [[boxes for _, boxes in part] for part in theirs] == as_ours(data)
    assert sum(len(boxes) for part in theirs for _, boxes in part) > 2
    assert len(data.facts.checksum) == 64
    monkeypatch.chdir(tmp_path)
    near = DataConfig(name="yolo", root=given.name, augmentation=WHOLE)
    assert load_data(near).facts.checksum == data.facts.checksum


def test_a_path_that_is_not_there_is_said(tmp_path):
    written.write_yolo(tmp_path)
    before = loaded("yolo", tmp_path)
    moved(tmp_path, "images/train", "images/val", path="/content/drive/boxes")
    data = loaded("yolo", tmp_path)
    assert as_ours(data) == as_ours(before)
    said = "data.yaml has path '/content/drive/boxes', which is not there: root is taken for it."
    assert said in data.facts.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: 3\nval: a\nnames: [a]", r"expected train and val, .* but train is 3"),
        ("train: a\nval: []\nnames: [a]", r"but val is \[\]"),
        ("train: a\nval: a\nnames: a", r"expected names, a list or a table, .* names is 'a'"),
        ("train: a\nval: a\nnames: [a]\npath: [b]", r"path is \['b'\]"),
        ("train: data.yaml\nval: a\nnames: [a]", r"neither a folder nor a list of images"),
        ("train: images/trian\nval: images/val\nnames: [a]", r"There is no folder .*trian'"),
        ("train: images/train\nval: images/val\nnames: [a, a]", r"the name 'a' is that of 2"),
    ],
)
def test_a_yaml_that_says_something_else(tmp_path, text, message):
    written.write_yolo(tmp_path)
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        loaded("yolo", tmp_path)
