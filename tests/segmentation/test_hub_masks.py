"""Masks of data sets that `datasets` reads, against the same images as files."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from tests.segmentation.test_masks import lie, write

from attnlab._errors import InputError, OptionError
from attnlab.data import DataConfig, data_checksum, load_data
from attnlab.data.batches import Chunk

datasets = pytest.importorskip("datasets")
CPU = torch.device("cpu")
NAMES = {"train": "train", "test": "validation"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def splits(files, columns=("image", "mask")):
    """The images of a folder of files as a data set, the bytes of every file as they are."""
    features = datasets.Features(
        {**{c: datasets.Image() for c in columns}, "n": datasets.Value("int8")}
    )
    made = {}
    for part, name in NAMES.items():
        content = {"n": []}
        for column, kind in zip(columns, ("images", "masks"), strict=True):
            found = sorted((files / part / kind).glob("*.png"))
            content[column] = [{"bytes": f.read_bytes(), "path": None} for f in found]
            content["n"] = list(range(len(found)))
        made[name] = datasets.Dataset.from_dict(content, features=features)
    return datasets.DatasetDict(made)


def config(place, name="hf-masks", **settings):
    return DataConfig(**{"name": name, "root": str(place), "size": 18, **settings})


def batches(data):
    yield from data.training([Chunk(torch.arange(data.facts.train), 1.0)], 3, 1, CPU)
    yield from data.testing([torch.tensor([0, 1]), torch.tensor([0, 2])], CPU)


def same(one, other):
    for first, second in zip(batches(one), batches(other), strict=True):
        for a, b in zip(first, second, strict=True):
            assert len(a) == len(b)
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("stored", ["saved", "parquet", "files"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_rows_are_the_same_images_as_files(tmp_path, monkeypatch, stored, in_memory):
    monkeypatch.setattr("attnlab.data.mask_load.MEMORY_LIMIT", 2**30 if in_memory else 0)
    files = write(tmp_path / "files")
    lie(files / "test" / "images" / "0.png", 6)  # EXIF is read as for files
    root = tmp_path / "made"
    if stored == "saved":
        splits(files).save_to_disk(root)
    elif stored == "parquet":
        root.mkdir()
        for name, split in splits(files).items():
            split.to_parquet(root / f"{name}-00000-of-00001.parquet")
    else:  # a folder of files with a table of them, of which a row has paths and no bytes
        for part, name in NAMES.items():
            place = root / name
            place.mkdir(parents=True)
            lines = []
            for file in sorted((files / part / "images").glob("*.png")):
                mask = files / part / "masks" / file.name
                (place / file.name).write_bytes(file.read_bytes())
                (place / f"m{file.name}").write_bytes(mask.read_bytes())
                lines.append(
                    json.dumps({"file_name": file.name, "mask_file_name": f"m{file.name}"})
                )
            (place / "metadata.jsonl").write_text("\n".join(lines))
    found, expected = load_data(config(root)), load_data(config(files, "masks"))
    same(found, expected)
    assert (found.facts.name, found.facts.categories) == ("made", ("0", "1", "2"))
    assert any("EXIF turns 1 image" in note for note in found.facts.notes)


def test_what_tells_them_from_others(tmp_path):
    files = write(tmp_path / "files")
    splits(files).save_to_disk(tmp_path / "one")
    splits(files, ("picture", "labels")).save_to_disk(tmp_path / "two")
    one = data_checksum(config(tmp_path / "one"))
    other = config(tmp_path / "two", options={"image": "picture", "mask": "labels"})
    assert data_checksum(other) == one == load_data(other).facts.checksum  # not the columns' names
    assert data_checksum(config(tmp_path / "one", train_subset=2)) != one
    (tmp_path / "one" / "classes.txt").write_text("sky\nsea\nland\n")
    assert load_data(config(tmp_path / "one")).facts.categories == ("sky", "sea", "land")
    assert data_checksum(config(tmp_path / "one")) != one
    names = tmp_path / "one" / "classes.txt"
    assert load_data(
        config(tmp_path / "two", options={**other.options, "classes": str(names)})
    ).facts.categories == ("sky", "sea", "land")
    mask = files / "test" / "masks" / "1.png"
    with Image.open(mask) as image:
        changed = np.asarray(image).copy()
    changed[3, 3] = (changed[3, 3] + 1) % 3
    Image.fromarray(changed).save(mask)
    splits(files).save_to_disk(tmp_path / "three")
    assert data_checksum(config(tmp_path / "three")) != one


def test_which_splits(tmp_path):
    made = splits(write(tmp_path / "files"))
    made["extra"] = made["validation"].select([2, 0])
    made.save_to_disk(tmp_path / "made")
    notes = load_data(config(tmp_path / "made")).facts.notes
    assert "The split extra is not used: testing is on validation." in notes
    data = load_data(config(tmp_path / "made", options={"test": "extra"}))
    assert (data.facts.test, data.facts.shape) == (2, (3, 16, 16))


def encoded(array):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def row(mask):
    """The first row has this mask."""
    return lambda rows: rows.map(
        lambda r, n: {"mask": mask if n == 0 else r["mask"]},
        with_indices=True,
        features=rows.features,
    )


COLOURS, SMALL = (encoded(np.zeros(sides, np.uint8)) for sides in ((20, 30, 3), (5, 5)))


def option(**options):
    return {"options": options}


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (None, option(mask="masc"), r"no column of images 'masc'\. Did you mean 'mask'"),
        (None, option(image="n"), r"no column of images 'n'\. Its columns of images are"),
        (None, option(imag="n"), r"has no option 'imag'\. Did you mean 'image'"),
        (None, option(test="test"), r"Expected splits train and test in .* but it has train"),
        (None, option(classes="gone.txt"), r"There is no file 'gone\.txt'"),
        (None, {"root": None}, "needs the name or folder of a data set"),
        (lambda rows: rows.remove_columns("mask"), {}, r"images beside 'image', .*none"),
        (row(None), {}, r"\(train, column mask\), row 0' holds no image"),
        (row(COLOURS), {}, r"column mask\), row 0' is not a mask: it has colours"),
        (row(SMALL), {}, r"column mask\), row 0' is 5×5, but its image is 30×20"),
        (row({"bytes": b"no", "path": None}), {}, r"row 0' is not a readable image .* of the data"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, change, settings, message):
    made = splits(write(tmp_path / "files"))
    if change is not None:
        made["train"] = change(made["train"])
    made.save_to_disk(tmp_path / "made")
    with pytest.raises((InputError, OptionError), match=message):
        load_data(config(tmp_path / "made", **settings))


@pytest.mark.parametrize("how", ["parquet", "saved"])
def test_a_damaged_data_set_is_not_called_missing(tmp_path, how):
    root = tmp_path / "made"
    made = splits(write(tmp_path / "files"))
    if how == "saved":
        made.save_to_disk(root)
        (file,) = (root / "train").glob("*.arrow")
    else:
        root.mkdir()
        made["train"].to_parquet(root / "train-00000-of-00001.parquet")
        (file,) = root.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(InputError, match=r"^`datasets` cannot read .*made' \(.*Expected a folder"):
        load_data(config(root))
    with pytest.raises(InputError, match=r"There is no data set .*gone' on this machine"):
        load_data(config(tmp_path / "gone"))
