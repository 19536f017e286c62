"""Parquet files as the Hugging Face hub stores images: each image once, as it is in its row."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.data.test_shards import RECIPE, config, epoch_of
from tests.data.test_stream import encoded, photograph

from attnlab._errors import InputError, OptionError
from attnlab.data import data_checksum, load_data, parquet, samples, shards
from attnlab.data.batches import training_chunks
from attnlab.lab.training import RunConfig, train

CPU = torch.device("cpu")
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["a", "b", "c"], "_type": "ClassLabel"},
    "width": {"dtype": "int32", "_type": "Value"},
}


def table(first: int, number: int, said: bool = True) -> pa.Table:
    """Rows as `push_to_hub` writes them, with another column of whole numbers."""
    numbers = range(first, first + number)
    images = [{"bytes": encoded(photograph(n)), "path": f"{n}.jpg"} for n in numbers]
    columns = {
        "image": pa.array(images, IMAGE),
        "label": pa.array([n % 3 for n in numbers], pa.int64()),
        "width": pa.array([20] * number, pa.int32()),
    }
    described = {"huggingface": json.dumps({"info": {"features": FEATURES}})} if said else None
    return pa.table(columns).replace_schema_metadata(described)


def file(content: pa.Table, rows: int = 3) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(content, buffer, row_group_size=rows)
    return buffer.getvalue()


FIRST = "train-00000-of-00002.parquet"
FILES = {
    "train-00000-of-00002.parquet": file(table(0, 10)),
    "train-00001-of-00002.parquet": file(table(10, 8)),
    "test-00000-of-00001.parquet": file(table(100, 6)),
}


@pytest.fixture
def local(tmp_path: Path) -> str:
    root = tmp_path / "hub"
    root.mkdir()
    for name, content in FILES.items():
        (root / name).write_bytes(content)
    return str(root)


@pytest.fixture
def address() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    for name, content in FILES.items():
        system.pipe_file(f"/parquet-of-a-test/{name}", content)
    yield "memory://parquet-of-a-test"
    system.rm("/parquet-of-a-test", recursive=True)


def test_every_image_once_with_its_class(local: str) -> None:
    data = load_data(config(local))
    assert (data.facts.train, data.facts.test, data.facts.outputs) == (18, 6, 3)
    order = data.order(0, 0)
    assert sorted(order.tolist()) == list(range(18))
    _, targets = epoch_of(data)
    assert targets.tolist() == [number % 3 for number in order.tolist()]
    tested = next(data.testing([torch.arange(6)], CPU))
    assert tested.targets.tolist() == [number % 3 for number in range(100, 106)]


def test_the_content_is_that_of_the_row(local: str) -> None:
    found = shards.find_shards(config(local)).train
    assert found.read([16, 0, 7, 16]) == [encoded(photograph(n)) for n in (16, 0, 7, 16)]
    assert found.name(16) == f"{local}/train-00001-of-00002.parquet:row group 2, row 0"


def test_the_same_images_in_an_archive_give_the_same_batches(local: str, tmp_path: Path) -> None:
    """The other reader of shards is the reference: training sees the same bits."""
    from tests.data.test_shards import shard

    other = tmp_path / "archives"
    other.mkdir()
    (other / "train-0.tar").write_bytes(shard(0, 18))
    (other / "val-0.tar").write_bytes(shard(100, 6))
    rows, archive = load_data(config(local)), load_data(config(str(other)))
    order = rows.order(0, 0)
    for one, two in zip(
        rows.training(training_chunks(order, RECIPE), 0, 0, CPU),
        archive.training(training_chunks(order, RECIPE), 0, 0, CPU),
        strict=True,
    ):
        assert torch.equal(one.inputs, two.inputs)
        assert torch.equal(one.targets, two.targets)


def test_an_address_gives_the_same_images_and_the_same_id(local: str, address: str) -> None:
    here, there = load_data(config(local)), load_data(config(address))
    assert here.facts.checksum == there.facts.checksum == data_checksum(config(address))
    for one, other in zip(epoch_of(here), epoch_of(there), strict=True):
        assert torch.equal(one, other)


def test_few_row_groups_at_a_time_and_each_read_once(
    local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shards.find_shards(config(local, options={"together": 2}))
    assert found.together == 2
    read: list[int] = []
    really = parquet._Table._read
    monkeypatch.setattr(
        parquet._Table,
        "_read",
        lambda self, group: read.append(self.groups.index(group)) or really(self, group),
    )
    order = load_data(config(local, options={"together": 2})).order(0, 0).tolist()
    read.clear()
    for start in range(0, 18, 2):  # two divide no row group of three
        found.train.read(order[start : start + 2])
        assert len(found.train._table._kept) <= 2
    # 10 images are groups of 3, 3, 3, 1 and 8 are 3, 3, 2; a batch may lie across two windows.
    assert set(read) == set(range(7))
    assert len(read) <= 7 + 3


def test_kept_rows_are_not_copied_to_workers(local: str) -> None:
    found = shards.find_shards(config(local)).train
    before = len(pickle.dumps(found))
    found.read([0, 5, 9])
    assert len(pickle.dumps(found)) == before


def test_a_subset_is_spread_over_all_files(local: str) -> None:
    data = load_data(config(local, train_subset=9))
    assert data.facts.train == 9
    assert sorted(data.order(0, 0).tolist()) == list(range(9))
    assert data.facts.checksum != load_data(config(local)).facts.checksum
    some = shards.find_shards(config(local, train_subset=2)).train
    assert some.groups().tolist() == [0, 1]


def test_columns_are_found_without_the_library_s_note(tmp_path: Path) -> None:
    plain = table(0, 4, said=False)
    for name in ("train", "test"):
        (tmp_path / f"{name}.parquet").write_bytes(file(plain.drop_columns(["width"])))
    assert load_data(config(str(tmp_path))).facts.train == 4
    (tmp_path / "train.parquet").write_bytes(file(plain))
    with pytest.raises(InputError) as caught:
        shards.find_shards(config(str(tmp_path)))
    assert str(caught.value).replace(str(tmp_path), "DIR") == (
        "Expected 'DIR/train.parquet' to have one column for the label but label, width of "
        "image, label, width could be it. Set data.options.label to its name."
    )
    (tmp_path / "test.parquet").write_bytes(file(plain))
    chosen = config(str(tmp_path), options={"label": "label", "image": "image"})
    assert shards.find_shards(chosen).train.labels.tolist() == [0, 1, 2, 0]


def refused(tmp_path: Path, content: bytes, **options: str) -> str:
    (tmp_path / "train-0.parquet").write_bytes(content)
    (tmp_path / "test-0.parquet").write_bytes(file(table(0, 3)))
    with pytest.raises((InputError, OptionError)) as caught:
        load_data(config(str(tmp_path), options=options))
    return str(caught.value).replace(str(tmp_path), "DIR")


def test_wrong_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = file(table(0, 4))
    assert refused(tmp_path, whole[:-100]).startswith(
        "'DIR/train-0.parquet' is not a whole Parquet file ("
    )
    assert refused(tmp_path, whole, image="picture") == (
        "'DIR/train-0.parquet' has no column 'picture', which data.options.image names. "
        "It has image, label, width."
    )
    assert refused(tmp_path, whole, label="image") == (
        "Expected the column 'image' of 'DIR/train-0.parquet' to hold the numbers of the classes "
        "but it is of type struct<bytes: binary, path: string>."
    )
    rows = table(0, 4)
    lacking = rows.set_column(1, "label", pa.array([0, None, 1, None], pa.int64()))
    assert refused(tmp_path, file(lacking)) == (
        "'DIR/train-0.parquet' has 2 images without a class in 'label'. Expected the number of one "
        "for each."
    )
    paths = pa.array([{"bytes": None, "path": "0.jpg"}] * 4, IMAGE)
    assert refused(tmp_path, file(rows.set_column(0, "image", paths))) == (
        "DIR/train-0.parquet:row group 0, row 0 holds no image, at most the path of one. Expected "
        "the encoded images in the file, as push_to_hub and embed_external_files write."
    )
    hidden = rows.set_column(1, "label", pa.array([-1] * 4, pa.int64()))
    (tmp_path / "train-0.parquet").write_bytes(whole)
    (tmp_path / "test-0.parquet").write_bytes(file(hidden))
    with pytest.raises(InputError, match=r"Expected classes from 0 to 2, .* has class -1"):
        load_data(config(str(tmp_path)))
    monkeypatch.setattr(parquet, "MOST_HELD", 1000)
    assert refused(tmp_path, whole).startswith("8 row groups of 'DIR/train-0.parquet' and the ")


def test_files_of_two_kinds_or_two_forms_are_refused(local: str) -> None:
    (Path(local) / "train-x.tar").write_bytes(b"")
    with pytest.raises(InputError, match=r"matches 2 Parquet files and 1 others: .*train-x.tar"):
        shards.find_shards(config(local, options={"train": "train*"}))
    renamed = table(0, 3).rename_columns(["picture", "label", "width"])
    renamed = renamed.replace_schema_metadata(None).drop_columns(["width"])
    (Path(local) / "train-00002.parquet").write_bytes(file(renamed))
    with pytest.raises(InputError, match="Expected the same columns in all files"):
        shards.find_shards(config(local, options={"train": "train*.parquet"}))
    with pytest.raises(OptionError, match=r"names a column of Parquet files, and these are tar"):
        shards.find_shards(config(local, options={"train": "*.tar", "image": "image"}))


def test_a_file_that_changes_while_it_is_used_is_named(local: str, address: str) -> None:
    found = shards.find_shards(config(address)).train
    fsspec.filesystem("memory").pipe_file("/parquet-of-a-test/" + FIRST, b"PAR1")
    with pytest.raises(InputError, match="cannot be read in row group 1 "):
        found.read([4])
    found = shards.find_shards(config(local)).train
    whole = Path(local, FIRST).read_bytes()
    Path(local, FIRST).write_bytes(whole)  # as large and as good as before, perhaps of others
    with pytest.raises(InputError, match="is not the file that it was when the training began"):
        found.read([4])


def test_content_of_whole_row_groups_is_sampled_of_many(
    local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = data_checksum(config(local))
    monkeypatch.setattr(samples, "ALL_READ", 10)
    monkeypatch.setattr(samples, "SOME_READ", 6)
    train = shards.find_shards(config(local)).train
    # 6 of 18 are a third of the seven row groups: two, whole.
    first = train.read_first(False)
    assert len({int(train.groups()[n]) for n in first}) == 2
    assert 3 <= len(first) <= 6
    assert data_checksum(config(local)) != whole == data_checksum(config(local, hash_all=True))
    assert load_data(config(local)).facts.notes[-1] == (
        f"Told from other data by the class of every image, the size of every row group and the "
        f"content of {len(first)} of 18; data.hash_all = true takes the content of all."
    )


@pytest.mark.slow
def test_a_run_on_rows_stops_and_goes_on_to_the_bit(local: str, tmp_path: Path) -> None:
    settings = {
        "data": config(local, options={"together": 2}),
        "backbone": "resnet20",
        "recipe": {"epochs": 2, "batch_size": 6, "lr": 0.05},
    }
    run = RunConfig(**settings)
    train(run, tmp_path / "whole", progress=lambda _: None)

    def stop(*_: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "stopped", progress=lambda _: None, each_epoch=stop, save_steps=1)
    train(run, tmp_path / "stopped", progress=lambda _: None)
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "stopped")]
    assert weights[0] == weights[1]
