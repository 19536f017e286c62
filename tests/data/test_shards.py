"""WebDataset's shards, on disk and at an address: each image once, as it is in its archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest
import torch
from tests.data.test_stream import encoded, photograph
from torch import Tensor

from attnlab._errors import InputError, OptionError
from attnlab.data import (
    Batch,
    Data,
    DataConfig,
    archives,
    data_checksum,
    load_data,
    samples,
    shards,
)
from attnlab.data.batches import training_chunks
from attnlab.lab.training import Recipe, RunConfig, train

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=1, batch_size=5, lr=0.1)
ADDRESS = "memory://shards-of-a-test"


def shard(first: int, number: int, classes: int = 3) -> bytes:
    """An archive as WebDataset's writer makes it: the members of a sample side by side."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for index in range(first, first + number):
            add(archive, f"{index:05d}.cls", str(index % classes).encode())
            add(archive, f"{index:05d}.jpg", encoded(photograph(index)))
            add(archive, f"{index:05d}.json", b"{}")
    return buffer.getvalue()


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


FILES = {
    "train-000.tar": shard(0, 7),
    "train-001.tar": shard(7, 7),
    "train-002.tar": shard(14, 4),
    "val-000.tar": shard(100, 6),
}


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "shards"
    root.mkdir()
    for name, content in FILES.items():
        (root / name).write_bytes(content)
    return str(root)


@pytest.fixture
def address() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    for name, content in FILES.items():
        system.pipe_file(f"/shards-of-a-test/{name}", content)
    yield ADDRESS
    system.rm("/shards-of-a-test", recursive=True)


def config(root: str, **settings: object) -> DataConfig:
    given = {"size": 16, "augmentation": {"crop": "resized"}, **settings}
    return DataConfig(name="shards", root=root, **given)


def epoch_of(data: Data, epoch: int = 0) -> tuple[Tensor, Tensor]:
    chunks = training_chunks(data.order(0, epoch), RECIPE)
    batches = list(data.training(chunks, 0, epoch, CPU))
    return torch.cat([b.inputs for b in batches]), torch.cat([b.targets for b in batches])


def test_every_image_once_with_its_class(local: str) -> None:
    data = load_data(config(local))
    assert (data.facts.train, data.facts.test, data.facts.outputs) == (18, 6, 3)
    assert data.facts.name == "shards"
    order = data.order(0, 0)
    assert sorted(order.tolist()) == list(range(18))
    _, targets = epoch_of(data)
    assert targets.tolist() == [number % 3 for number in order.tolist()]
    tested = next(data.testing([torch.arange(6)], CPU))
    assert tested.targets.tolist() == [number % 3 for number in range(100, 106)]


def test_the_content_is_that_of_the_archive(local: str) -> None:
    found = shards.find_shards(config(local)).train
    contents = found.read([16, 0, 7])
    assert contents == [encoded(photograph(number)) for number in (16, 0, 7)]
    assert found.name(16) == f"{local}/train-002.tar:00016"


def test_an_address_gives_the_same_images_and_the_same_id(local: str, address: str) -> None:
    here, there = load_data(config(local)), load_data(config(address))
    assert here.facts.checksum == there.facts.checksum == data_checksum(config(address))
    for one, other in zip(epoch_of(here), epoch_of(there), strict=True):
        assert torch.equal(one, other)


def test_a_shard_is_gone_through_once_until_it_changes(
    local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    through: list[str] = []
    really = archives._gone_through
    monkeypatch.setattr(
        archives,
        "_gone_through",
        lambda s, file, label: through.append(file) or really(s, file, label),
    )
    shards.find_shards(config(local))
    assert len(through) == 4
    first = data_checksum(config(local))
    assert len(through) == 4
    (Path(local) / "train-001.tar").write_bytes(shard(7, 8))
    assert data_checksum(config(local)) != first
    assert len(through) == 5


def test_few_shards_at_a_time(local: str) -> None:
    data = load_data(config(local, options={"together": 1}))
    order = data.order(0, 0)
    files = torch.tensor([0] * 7 + [1] * 7 + [2] * 4)[order]
    assert len(torch.unique_consecutive(files)) == 3
    assert sorted(order.tolist()) == list(range(18))


def test_a_subset_is_the_same_share_of_every_shard(local: str) -> None:
    data = load_data(config(local, train_subset=9))
    assert data.facts.train == 9
    assert data.facts.checksum != load_data(config(local)).facts.checksum


@pytest.mark.slow
def test_a_run_on_shards_stops_and_goes_on_to_the_bit(local: str, tmp_path: Path) -> None:
    settings = {
        "data": config(local, options={"together": 2}),
        "backbone": "resnet20",
        "recipe": {"epochs": 2, "batch_size": 6, "lr": 0.05},
    }
    run = RunConfig(**settings)
    train(run, tmp_path / "whole", progress=lambda _: None)
    stopped = tmp_path / "stopped"

    def stop(*_: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, stopped, progress=lambda _: None, each_epoch=stop, save_steps=1)
    train(run, stopped, progress=lambda _: None)
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "stopped")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_the_order_does_not_depend_on_how_many_processes_share_it(
    local: str, address: str, processes: int
) -> None:
    recipe = Recipe(epochs=1, batch_size=7, lr=0.1)

    def steps(root: str, rank: int, of: int) -> list[Batch]:
        data = load_data(config(root))  # each process has its own
        chunks = training_chunks(data.order(3, 1), recipe, rank, of)
        return list(data.training(chunks, 3, 1, CPU))

    for root in (local, address):
        parts = zip(*(steps(root, rank, processes) for rank in range(processes)), strict=True)
        for whole, part in zip(steps(local, 0, 1), parts, strict=True):
            # Pixels too: the part of a photograph that is cut out goes with it, not with a process.
            assert torch.equal(whole.inputs, torch.cat([each.inputs for each in part]))
            assert torch.equal(whole.targets, torch.cat([each.targets for each in part]))


def wrong(tmp_path: Path, content: bytes, **options: str) -> str:
    (tmp_path / "train-0.tar").write_bytes(content)
    (tmp_path / "val-0.tar").write_bytes(shard(0, 3))
    with pytest.raises(InputError) as caught:
        shards.find_shards(config(str(tmp_path), options=options))
    return str(caught.value).replace(str(tmp_path), "DIR")


def archive_of(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            add(archive, name, content)
    return buffer.getvalue()


def test_wrong_shards_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    image = encoded(photograph(0))
    assert wrong(tmp_path, archive_of(("a.jpg", image))) == (
        "'DIR/train-0.tar': 1 of 1 images have no member .cls with the number of their class: a. "
        "data.options.label says how it ends."
    )
    assert wrong(tmp_path, archive_of(("a.jpg", image), ("a.cls", b"cat"))) == (
        "'DIR/train-0.tar': expected 'a.cls' to hold the number of a class but got b'cat'."
    )
    assert wrong(tmp_path, archive_of(("a.txt", b"1"))) == (
        "'DIR/train-0.tar' has no image. Expected members that end in .jpg, .jpeg, .png, .bmp, "
        ".webp, .ppm, .pgm, .tif, .tiff."
    )
    double = archive_of(("a.jpg", image), ("a.png", image), ("a.cls", b"1"))
    assert wrong(tmp_path, double) == "'DIR/train-0.tar' has two images of the key 'a'."
    twice = archive_of(("a.jpg", image), ("a.cls", b"1"), ("a.cls", b"2"))
    assert wrong(tmp_path, twice) == "'DIR/train-0.tar' has two classes of the key 'a'."
    unread = archive_of(("a.jpg", image), ("a.cls", b"1"), ("b.heic", b"?"), ("b.cls", b"2"))
    assert wrong(tmp_path, unread) == (
        "'DIR/train-0.tar': 1 of 2 classes have no image: b. Expected beside each a member that "
        "ends in .jpg, .jpeg, .png, .bmp, .webp, .ppm, .pgm, .tif, .tiff and is no link: convert "
        "the images that end otherwise, or take the classes out."
    )
    whole = shard(0, 4)
    end = len(whole) - len(whole.rstrip(b"\0"))
    at_member = archive_of(("a.jpg", image), ("a.cls", b"1"))
    cut = at_member[: len(at_member.rstrip(b"\0")) // 512 * 512 + 512]
    assert wrong(tmp_path, cut) == (
        "'DIR/train-0.tar' does not end as a tar archive does: it was cut off, or is still written."
    )
    assert "is not a whole tar archive" in wrong(tmp_path, whole[: (len(whole) - end) // 2])
    assert "is not a whole tar archive" in wrong(tmp_path, b"\x1f\x8b" + os.urandom(600))


def test_an_archive_that_is_damaged_inside_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's reader takes what it cannot read for the end, and so would half of the images."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    whole = shard(0, 4)
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        header = archive.getmember("00002.cls").offset
    damaged = bytearray(whole)
    damaged[header + 150] ^= 1  # in the checksum of the header
    with tarfile.open(fileobj=io.BytesIO(damaged)) as archive:
        assert len(archive.getnames()) == 6  # of 12, without a word
    assert wrong(tmp_path, bytes(damaged)) == (
        f"'DIR/train-0.tar' is damaged at byte {header}: there is neither a member nor the end of "
        f"the archive. Write it anew."
    )
    end = len(whole.rstrip(b"\0"))
    assert wrong(tmp_path, whole + shard(4, 3)) == (
        f"'DIR/train-0.tar' goes on after its end at byte {-(-end // 512) * 512}, as archives do "
        f"that were written one after the other into one file. What comes there would not be read: "
        f"write them to files of their own."
    )


def test_wrong_options_and_addresses(local: str) -> None:
    with pytest.raises(InputError, match=r"no shard 'train-9\*' in .*; it has train-000.tar, "):
        load_data(config(local, options={"train": "train-9*"}))
    with pytest.raises(InputError, match="There is no folder 'memory://nowhere'"):
        load_data(config("memory://nowhere"))
    with pytest.raises(InputError, match="The address 'nosuch://x' cannot be opened"):
        load_data(config("nosuch://x"))
    with pytest.raises(OptionError, match=r"has no option .lable.\. Did you mean .label."):
        load_data(config(local, options={"lable": "cls"}))
    with pytest.raises(OptionError, match="together to be at least 1 but got 0"):
        load_data(config(local, options={"together": 0}))
    with pytest.raises(OptionError, match="needs a folder or an address"):
        load_data(DataConfig(name="shards", size=8))
    with pytest.raises(OptionError, match="needs the side of the images, size = 224"):
        load_data(DataConfig(name="shards", root=local))


def test_a_shard_that_is_cut_off_while_it_is_used_is_named(local: str) -> None:
    found = shards.find_shards(config(local)).train
    file = Path(local) / "train-000.tar"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(InputError, match="is not the file that it was when the training began"):
        found.read([3])


def test_a_shard_at_an_address_that_is_cut_off_while_it_is_used_is_named(address: str) -> None:
    found = shards.find_shards(config(address)).train
    system = fsspec.filesystem("memory")
    system.pipe_file("/shards-of-a-test/train-000.tar", FILES["train-000.tar"][:1000])
    with pytest.raises(InputError, match="is shorter than when the training began"):
        found.read([3])


def test_a_shard_that_is_written_anew_while_it_is_used_is_refused(local: str) -> None:
    """As large as before and whole, with other images in the same places."""
    bitmaps = [encoded(photograph(each), "BMP") for each in (1, 2)]

    def of(*order: int) -> bytes:
        members = [((f"{n}.bmp", bitmaps[k]), (f"{n}.cls", b"%d" % k)) for n, k in enumerate(order)]
        return archive_of(*(member for pair in members for member in pair))

    file = Path(local) / "train-000.tar"
    file.write_bytes(of(0, 1))
    found = shards.find_shards(config(local)).train
    assert found.read([0, 1]) == bitmaps
    file.write_bytes(of(1, 0))
    with pytest.raises(InputError) as error:
        found.read([0, 1])
    assert str(error.value) == (
        f"{str(file)!r} is not the file that it was when the training began: it was written anew. "
        f"Do not change data while they are used; start again, which looks through them."
    )


def test_what_lies_at_an_address_of_http_is_looked_at_again_when_it_changes(local: str) -> None:
    """Of such an address fsspec's own key is the address alone."""
    handler = partial(SimpleHTTPRequestHandler, directory=local)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        there = config(f"http://127.0.0.1:{server.server_port}/")
        before = shards.find_shards(there).train.labels[:7]
        changed = shard(0, 7, classes=2)
        assert len(changed) == len(FILES["train-000.tar"])
        file = Path(local) / "train-000.tar"
        file.write_bytes(changed)
        os.utime(file, (2e9, 2e9))  # a server tells times in whole seconds
        after = shards.find_shards(there).train.labels[:7]
        server.shutdown()
    assert before.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert after.tolist() == [0, 1, 0, 1, 0, 1, 0]


def test_shards_that_are_sorted_by_class_are_noted(local: str) -> None:
    image = encoded(photograph(0))
    for number in range(6):
        members = [
            ((f"{each}.jpg", image), (f"{each}.cls", b"%d" % (number // 2))) for each in range(4)
        ]
        whole = archive_of(*(member for pair in members for member in pair))
        (Path(local) / f"sorted-{number}.tar").write_bytes(whole)
    options = {"train": "sorted-*.tar", "test": "val-*.tar"}
    notes = load_data(config(local, options={**options, "together": 1})).facts.notes
    # 3 (1 - (2/3)^4), the classes of four images drawn from three classes, is 2.4.
    assert notes == (
        "Sorted by class: images of 1 files or row groups are shuffled at a time, which have 1 "
        "classes, and would have 2 in random order. Write the files in random order, or set "
        "data.options.together to more.",
    )
    for together in ({}, {"together": 6}):
        assert load_data(config(local, options={**options, **together})).facts.notes == ()
    assert load_data(config(local, options={"together": 1})).facts.notes == ()


def test_what_is_left_of_a_set_is_refused(local: str) -> None:
    root = Path(local)
    for number, of in ((0, 3), (1, 3), (2, 3)):
        old, new = f"train-{number:03d}.tar", f"train-{number:05d}-of-{of:05d}.tar"
        (root / old).rename(root / new)
    assert len(shards.find_shards(config(local)).train) == 18
    first = {"train": "train-00000-of*"}
    assert len(shards.find_shards(config(local, options=first)).train) == 7
    (root / "train-00001-of-00003.tar").unlink()
    for options in ({}, first):
        with pytest.raises(InputError) as error:
            shards.find_shards(config(local, options=options))
        assert str(error.value) == (
            f"{local!r} has 2 of the 3 files 'train-…-of-00003…', and not number 1. Get the "
            f"others, or rename those that are there if they are all you want."
        )
    (root / "train-00000-of-00003.tar").rename(root / "train-00003-of-00003.tar")
    with pytest.raises(InputError, match=r"has 2 of the 3 files .*, and not number 1\."):
        shards.find_shards(config(local))


def test_a_lost_connection_is_an_error_and_not_an_image(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shards.find_shards(config(address)).train
    system = fsspec.filesystem("memory")

    def broken(*_: object, **__: object) -> list[BaseException]:
        return [TimeoutError("no answer")]

    monkeypatch.setattr(type(system), "cat_ranges", broken)
    with pytest.raises(InputError, match=r"cannot be read at \d+ \(no answer\)"):
        found.read([3])


def test_content_is_sampled_of_many(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data_checksum(config(local))
    monkeypatch.setattr(samples, "ALL_READ", 10)
    monkeypatch.setattr(samples, "SOME_READ", 4)
    assert data_checksum(config(local)) != whole == data_checksum(config(local, hash_all=True))
    assert "the content of 4 of 18" in load_data(config(local)).facts.notes[-1]
