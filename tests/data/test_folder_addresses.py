"""Folders of photographs at an address: the same images and the same id as on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import torch
from tests.data.test_stream import RECIPE, encoded, epoch_of, make_folder, photograph

from attnlab._errors import InputError
from attnlab.data import Data, DataConfig, MemoryData, data_checksum, load_data, samples
from attnlab.data.batches import training_chunks
from attnlab.data.folder import class_names
from attnlab.data.stream import StreamData

PLACE = "/a folder of a tést"
ADDRESS = f"memory:/{PLACE}"


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """One folder, on disk and at an address."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / PLACE.strip("/")
    make_folder(root)
    # What a folder may hold besides.
    (root / "train" / "class0" / "deeper").mkdir()
    (root / "train" / "class0" / "deeper" / "ü 1.png").write_bytes(encoded(photograph(50), "PNG"))
    (root / "train" / "class1" / "x.gif").write_bytes(b"?")
    (root / "train" / ".hidden").mkdir()
    (root / "train" / ".hidden" / "1.jpg").write_bytes(b"?")
    (root / "train" / "loose.jpg").write_bytes(b"?")
    system = fsspec.filesystem("memory")
    system.put(str(root), PLACE, recursive=True)
    yield str(root), ADDRESS
    system.rm(PLACE, recursive=True)


def config(root: str, crop: str = "resized") -> DataConfig:
    return DataConfig(name="folder", root=root, size=16, augmentation={"crop": crop})


def test_the_same_images_in_the_same_order(both: tuple[str, str]) -> None:
    here, there = (load_data(config(root)) for root in both)
    assert isinstance(there, StreamData)
    assert there.facts == here.facts
    assert there.facts.train == 14
    assert len(there.facts.notes) == 3  # what is hidden, what is not read, what is in no class
    for epoch in (0, 1):
        found, expected = epoch_of(there, 0, epoch), epoch_of(here, 0, epoch)
        assert all(a.equal(b) for a, b in zip(found, expected, strict=True))
    assert class_names(config(both[1]), 2) == ("class0", "class1")


def test_in_memory_too(both: tuple[str, str]) -> None:
    here, there = (load_data(config(root, "none")) for root in both)
    assert isinstance(there, MemoryData)
    assert there.facts == here.facts

    def batches(data: Data) -> list[torch.Tensor]:
        chunks = training_chunks(data.order(0, 0), RECIPE)
        return [each.inputs for each in data.training(chunks, 0, 0, torch.device("cpu"))]

    assert all(a.equal(b) for a, b in zip(batches(here), batches(there), strict=True))


def test_the_id_is_that_of_the_disk_also_if_some_are_read(
    both: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = both
    whole = data_checksum(config(here))
    assert data_checksum(config(there)) == whole
    monkeypatch.setattr(samples, "ALL_READ", 10)
    monkeypatch.setattr(samples, "SOME_READ", 3)
    some = data_checksum(config(here))
    assert data_checksum(config(there)) == some != whole
    system = fsspec.filesystem("memory")
    other = f"{PLACE}/train/class0/4.jpg"
    system.pipe_file(other, system.cat_file(other) + b"\0")
    assert data_checksum(config(there)) != some


def test_what_is_wrong_at_an_address_is_named(both: tuple[str, str]) -> None:
    _, there = both
    system = fsspec.filesystem("memory")
    data = load_data(config(there))
    system.rm_file(f"{PLACE}/train/class0/4.jpg")
    with pytest.raises(InputError) as error:
        epoch_of(data, 0, 0)
    assert f"'memory://{PLACE}/train/class0/4.jpg' cannot be read (" in str(error.value)
    system.pipe_file(f"{PLACE}/train/class0/4.jpg", b"no image")
    for crop in ("resized", "none"):
        with pytest.raises(InputError) as error:
            load_data(config(there, crop))
        assert str(error.value).startswith(
            f"'memory://{PLACE}/train/class0/4.jpg' is not a readable image"
        )
    system.rm(f"{PLACE}/val", recursive=True)
    with pytest.raises(InputError) as error:
        load_data(config(there))
    assert str(error.value) == (
        f"Expected folders train and test (or val) in '{ADDRESS}', each with one folder per class, "
        f"but found train."
    )
    with pytest.raises(InputError, match=r"There is no folder 'memory://nowhere', or nothing"):
        load_data(config("memory://nowhere"))
