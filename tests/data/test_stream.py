"""Images that are read while they are used: the same pixels and the same order whoever reads them,
by workers that live on."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from attnlab._errors import InputError
from attnlab.data import Data, DataConfig, data_checksum, load_data, samples
from attnlab.data.batches import Chunk, shuffled, training_chunks
from attnlab.data.decoding import drawing, random_part
from attnlab.data.samples import (
    Packed,
    PartSamples,
    parts_checksum,
    read_files,
    read_first,
    sampled_note,
)
from attnlab.data.stream import UndividedData
from attnlab.lab.training import Recipe
from attnlab.networks.preprocessing import Preprocessing

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=1, batch_size=5, lr=0.1)


def photograph(seed: int, width: int = 60, height: int = 45, mode: str = "RGB") -> Image.Image:
    """Something smooth with edges, as photographs are."""
    numbers = np.random.default_rng(seed)
    small = numbers.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, kind: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def make_folder(root: Path, train: int = 13, test: int = 6) -> None:
    for part, number in (("train", train), ("val", test)):
        for index in range(number):
            file = root / part / f"class{index % 2}" / f"{index}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encoded(photograph(index)))


def streamed(root: Path, **settings: object) -> Data:
    given = {"size": 16, "augmentation": {"crop": "resized"}, **settings}
    return load_data(DataConfig(name="folder", root=str(root), **given))


def epoch_of(data: Data, seed: int, epoch: int) -> list[Tensor]:
    chunks = training_chunks(data.order(seed, epoch), RECIPE)
    return [batch.inputs for batch in data.training(chunks, seed, epoch, CPU)]


@pytest.mark.parametrize("size", [(500, 375), (90, 131), (20, 30)])
@pytest.mark.parametrize(("kind", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB")])
def test_a_random_part_is_torchvisions(size: tuple[int, int], kind: str, mode: str) -> None:
    content = encoded(photograph(3, *size, mode), kind)
    reference = v2.Compose(
        [v2.RandomResizedCrop(64, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    )
    for seed in range(8):
        torch.manual_seed(seed)
        expected = reference(Image.open(io.BytesIO(content)).convert("RGB")).int()
        with drawing(seed):
            found = random_part(content, "x", (64, 64), True).int()
        assert found.shape == (3, 64, 64)
        difference = (found - expected).abs()
        # A part that is at least twice as large as needed is decoded at a half or a quarter of its
        # size, and its edges lie on whole pixels there.
        shrunk = size == (500, 375) and kind == "JPEG"
        assert difference.max() <= 2 or (shrunk and difference.float().mean() < 4)


def test_a_jpeg_with_four_channels_is_what_pillow_says() -> None:
    content = encoded(photograph(3, 40, 30, "CMYK"))
    with drawing(0):
        found = random_part(content, "x", (24, 24), False)
    torch.manual_seed(0)
    whole = Image.open(io.BytesIO(content)).convert("RGB")
    expected = v2.Compose([v2.RandomResizedCrop(24, antialias=True), v2.PILToTensor()])(whole)
    assert (found.int() - expected.int()).abs().max() <= 1


def test_drawing_leaves_torchs_numbers_as_they_were() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with drawing(1):
        torch.rand(7)
    assert torch.equal(torch.rand(3), expected)


def test_images_and_order_do_not_depend_on_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path)
    found = []
    for cores in (1, 2, 3):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        found.append(torch.cat(epoch_of(streamed(tmp_path), 3, 1)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_workers_live_through_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    data = streamed(tmp_path)
    before = children()
    first = epoch_of(data, 0, 0)
    workers = children() - before
    assert len(workers) == 2
    tested = [batch.targets for batch in data.testing([torch.arange(6)], CPU)]
    began = time.perf_counter()
    again = epoch_of(data, 0, 0)
    assert time.perf_counter() - began < 1
    assert children() - before == workers
    assert torch.equal(torch.cat(first), torch.cat(again))
    assert tested[0].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_second_reading_does_not_get_the_answers_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    data = streamed(tmp_path)
    expected = epoch_of(data, 0, 0)
    chunks = training_chunks(data.order(0, 0), RECIPE)
    reading: Iterator = data.training(chunks, 0, 0, CPU)
    found = [next(reading).inputs]
    tests = [batch.targets.tolist() for batch in data.testing([torch.arange(6)], CPU)]
    found += [batch.inputs for batch in reading]
    assert tests == [[0, 0, 0, 1, 1, 1]]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    # One that is given up in the middle leaves nothing behind.
    reading = data.training(chunks, 0, 0, CPU)
    next(reading)
    del reading
    assert all(torch.equal(a, b) for a, b in zip(epoch_of(data, 0, 0), expected, strict=True))


def test_data_go_to_other_processes_without_their_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    data = streamed(tmp_path)
    first = epoch_of(data, 0, 0)
    copy = pickle.loads(pickle.dumps(data))
    assert all(torch.equal(a, b) for a, b in zip(first, epoch_of(copy, 0, 0), strict=True))


def test_a_network_tests_on_images_as_it_was_trained(tmp_path: Path) -> None:
    """Also if the images are not read into memory: crop and interpolation are its own."""
    make_folder(tmp_path)
    own = Preprocessing((3, 16, 16), (0.0,) * 3, (1.0,) * 3, 0.8, "bicubic")
    config = DataConfig(
        name="folder", root=str(tmp_path), size=16, augmentation={"crop": "resized"}
    )
    found = next(load_data(config, own).testing([torch.tensor([0])], CPU)).inputs[0] * 255
    image = Image.open(tmp_path / "val" / "class0" / "0.jpg")
    wanted = v2.Compose(
        [
            v2.Resize(20, interpolation=v2.InterpolationMode.BICUBIC, antialias=True),
            v2.CenterCrop(16),
            v2.PILToTensor(),
        ]
    )(image)
    assert torch.equal(found.round().int(), wanted.int())


def test_a_folder_of_photographs_for_a_network_of_one_channel(tmp_path: Path) -> None:
    """Pillow's brightness, its short side resized and the middle cut out; with one folder there
    are no classes."""
    for number in range(3):
        photograph(number).save(tmp_path / f"{number}.png")
    own = Preprocessing((1, 20, 16), (0.5,), (0.25,), interpolation="bilinear")
    data = UndividedData(tmp_path, own)
    assert (data.facts.targets, data.facts.outputs, data.facts.train) == ("nothing", 0, 3)
    assert data.facts.shape == (1, 20, 16)
    resized = v2.Resize(own.short_side, antialias=True)
    wanted = v2.Compose([resized, v2.CenterCrop((20, 16)), v2.PILToTensor()])
    batches = (
        next(data.testing([torch.tensor([2, 0])], CPU)),
        next(data.training([Chunk(torch.tensor([2, 0]), 1.0)], 0, 0, CPU)),
    )
    for batch in batches:
        for image, number in zip(batch.inputs, (2, 0), strict=True):
            grey = wanted(Image.open(tmp_path / f"{number}.png").convert("L"))
            torch.testing.assert_close(image, (grey / 255 - 0.5) / 0.25, atol=1e-5, rtol=0)
    for channels in (2, 4):
        wrong = Preprocessing((channels, 20, 16), (0.5,) * channels, (0.25,) * channels)
        with pytest.raises(InputError) as caught:
            UndividedData(tmp_path, wrong)
        assert str(caught.value) == (
            f"The network takes images of {channels} channels, and photographs have 3. Expected a "
            f"network of 1 or 3 channels."
        )


def test_shuffling_over_few_files_keeps_them_together() -> None:
    groups = torch.arange(60) // 6  # ten files of six images
    order = shuffled(60, 1, 0, groups, 2)
    assert sorted(order.tolist()) == list(range(60))
    for start in range(0, 60, 12):
        assert len(set(groups[order[start : start + 12]].tolist())) == 2
    assert not torch.equal(order, shuffled(60, 1, 1, groups, 2))
    assert torch.equal(order, shuffled(60, 1, 0, groups, 2))
    firsts = {int(shuffled(60, 1, epoch, groups, 2)[0]) for epoch in range(40)}
    assert len(firsts) > 20


def test_many_images_are_told_apart_by_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path)
    config = DataConfig(
        name="folder", root=str(tmp_path), size=16, augmentation={"crop": "resized"}
    )
    every = config.model_copy(update={"hash_all": True})
    whole = data_checksum(config)
    assert data_checksum(every) == whole  # the same where all are read anyway
    monkeypatch.setattr(samples, "ALL_READ", 10)
    monkeypatch.setattr(samples, "SOME_READ", 3)
    some = data_checksum(config)
    assert some != whole == data_checksum(every)
    assert load_data(config).facts.notes == (
        "Told from other data by the name, size and class of every image and the content of "
        "3 of 19; data.hash_all = true takes the content of all.",
    )
    other = tmp_path / "train" / "class0" / "4.jpg"
    content = other.read_bytes()
    other.write_bytes(content + b"\0")  # a size that differs is seen of every file
    assert data_checksum(config) != some
    other.write_bytes(content)
    assert data_checksum(config) == some
    other.rename(other.with_name("44.jpg"))
    assert data_checksum(config) != some


def test_up_to_twenty_thousand_images_are_all_read_first() -> None:
    assert read_first(range(20_000)) == range(20_000)
    some = read_first(range(20_001))
    assert (len(some), some[0], some[-1]) == (2_000, 0, 20_000)
    assert max(b - a for a, b in itertools.pairwise(some)) <= 11  # evenly spread
    assert read_first(range(20_001), every=True) == range(20_001)


def parts(folder: Path, contents: list[bytes], labels: list[int]) -> PartSamples:
    """Images one after the other in one file, with two bytes before the first."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "all.bin").write_bytes(b"--" + b"".join(contents))
    starts = [2 + sum(map(len, contents[:number])) for number in range(len(contents))]
    places = np.array([[0, start, len(c)] for start, c in zip(starts, contents, strict=True)])
    names = [f"{number}.jpg" for number in range(len(contents))]
    return PartSamples(names, torch.tensor(labels), [str(folder / "all.bin")], places)


def test_parts_of_a_file_are_told_from_others_by_every_name_size_class_and_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum, written out: a line for each image, then the content of those read first."""
    contents = [bytes([65 + number]) * (number + 1) for number in range(5)]
    one, other = (parts(tmp_path / name, contents, [0, 1, 0, 1, 2]) for name in "ab")
    lines = [f"all.bin/{n}.jpg\t{n + 1}\t{label}\n" for n, label in enumerate([0, 1, 0, 1, 2])]

    def written(numbers: list[int]) -> str:
        whole = hashlib.sha256()
        for samples_of in (range(5), range(5)):
            whole.update(f"{len(samples_of)} images\n".encode() + "".join(lines).encode())
            for number in numbers:
                whole.update(hashlib.sha256(contents[number]).digest())
        return whole.hexdigest()

    assert parts_checksum([one, other], every=False) == written([0, 1, 2, 3, 4])
    monkeypatch.setattr(samples, "ALL_READ", 4)
    monkeypatch.setattr(samples, "SOME_READ", 3)
    assert parts_checksum([one, other], every=False) == written([0, 2, 4])
    assert parts_checksum([one, other], every=True) == written([0, 1, 2, 3, 4])


def test_parts_of_a_file_by_number(tmp_path: Path) -> None:
    contents = [b"first", b"", b"third!"]
    whole = parts(tmp_path, contents, [3, 1, 2])
    assert len(whole) == 3
    assert whole.read([2, 0, 1]) == [b"third!", b"first", b""]
    assert whole.name(2) == f"{tmp_path / 'all.bin'}:2.jpg"
    assert whole.groups().tolist() == [0, 0, 0]
    some = whole.some([2, 1])
    assert (some.read([0]), some.labels.tolist(), some.name(0)) == (
        [b"third!"],
        [2, 1],
        f"{tmp_path / 'all.bin'}:2.jpg",
    )
    assert whole.read([]) == read_files([]) == []


def test_a_file_that_is_cut_off_or_written_anew_is_refused(tmp_path: Path) -> None:
    whole = parts(tmp_path, [b"first", b"second"], [0, 1])
    file = tmp_path / "all.bin"
    stamp = file.stat()
    file.write_bytes(b"--firstsecone")  # longer
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    file.write_bytes(b"--firstsecond!")
    with pytest.raises(InputError, match="is not the file that it was when the training began"):
        whole.read([0])
    file.write_bytes(b"--firstsecond")
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert whole.read([1]) == [b"second"]
    file.write_bytes(b"--Firstsecond")
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    with pytest.raises(InputError, match="it was written anew"):
        whole.read([0])
    short = PartSamples(["a"], torch.tensor([0]), [str(file)], np.array([[0, 10, 9]]))
    with pytest.raises(InputError) as caught:
        short.read([0])
    assert str(caught.value) == (
        f"{str(file)!r} is shorter than when the training began: 9 bytes at 10 were there, and 3 "
        f"are. Do not write data anew while they are used."
    )
    file.unlink()
    with pytest.raises(InputError) as gone:
        short.read([0])
    assert str(gone.value) == (
        f"{str(file)!r} cannot be read (No such file or directory), and was there when the "
        f"training began."
    )


def test_how_it_is_said_that_only_some_were_read() -> None:
    assert sampled_note(5, 5) == []
    assert sampled_note(1_281_167, 2_000, "the names") == [
        "Told from other data by the names and the content of 2,000 of 1,281,167; data.hash_all = "
        "true takes the content of all."
    ]


def test_a_file_that_went_away_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path)
    data = streamed(tmp_path)
    (tmp_path / "train" / "class0" / "4.jpg").unlink()
    with pytest.raises(InputError, match=r"4\.jpg' cannot be read \(No such file"):
        epoch_of(data, 0, 0)


def test_packed_names_are_the_names() -> None:
    names = ["", "a", "ü/b", "c\udcff", "d" * 300, ""]
    packed = Packed(names)
    assert [packed[number] for number in range(len(packed))] == names


def children() -> set[int]:
    """The processes that this one started."""
    own = os.getpid()
    return {int(each) for each in Path(f"/proc/{own}/task/{own}/children").read_text().split()}
