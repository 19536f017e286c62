"""Text as windows of tokens: against the text itself, cut by hand."""

from __future__ import annotations

import ast
import json
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnlab._errors import InputError, OptionError
from attnlab.data import DataConfig, data_checksum, load_data
from attnlab.data.batches import Chunk

CPU = torch.device("cpu")


def text(root: Path, **settings: object) -> DataConfig:
    options = settings.pop("options", {"context": 8})
    return DataConfig(name="text", root=str(root), options=options, **settings)  # type: ignore[arg-type]


def all_windows(config: DataConfig) -> tuple[list[bytes], list[bytes]]:
    """Inputs with the last target after them, of training and of validation."""
    data = load_data(config)
    chunks = [Chunk(torch.arange(data.facts.train), 1.0)]
    found = []
    for batch in (
        next(data.training(chunks, 0, 0, CPU)),
        next(data.testing([torch.arange(data.facts.test)], CPU)),
    ):
        assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
        rows = torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1)
        found.append([bytes(row) for row in rows.tolist()])
    return found[0], found[1]


def test_windows_are_the_text_cut_by_hand(tmp_path: Path) -> None:
    content = bytes(range(1, 201))[:127] + b"x" * 73
    (tmp_path / "a.txt").write_bytes(content)
    train, test = all_windows(text(tmp_path / "a.txt"))
    whole = content + b"\0"  # the end of the file
    cut = 181  # nine tenths of 201 bytes, rounded up
    assert train == [whole[i : i + 9] for i in range(0, cut - 8, 8)]
    assert test == [whole[i : i + 9] for i in range(cut, 201 - 8, 8)]


def test_no_window_crosses_from_one_part_to_the_other(tmp_path: Path) -> None:
    """Training text of one letter and validation text of another never meet."""
    for part, letter in (("train", b"a"), ("validation", b"b")):
        (tmp_path / part).mkdir()
        (tmp_path / part / "file.txt").write_bytes(letter * 100)
    train, test = all_windows(text(tmp_path))
    assert set(b"".join(train)) <= set(b"a\0")
    assert set(b"".join(test)) <= set(b"b\0")


def test_files_are_joined_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "late.txt").write_bytes(b"33333333")
    (tmp_path / "a.txt").write_bytes(b"11111\r\n1")
    (tmp_path / ".hidden").write_bytes(b"\xff")
    train, _ = all_windows(text(tmp_path, options={"context": 1, "validation": 0.2}))
    assert b"".join(window[:1] for window in train) == b"11111\n1\x0033333"[:13]


def test_a_subset_is_spread_over_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(1, 101)))
    data = load_data(text(tmp_path / "a.txt", options={"context": 1}, train_subset=3))
    batch = next(data.training([Chunk(torch.arange(3), 1.0)], 0, 0, CPU))
    assert batch.inputs.flatten().tolist() == [1, 31, 61]  # of 90 windows


def test_the_identity_is_the_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_bytes(b"the same text, twice " * 9)
    one, two = (data_checksum(text(tmp_path / f"{name}.txt")) for name in ("one", "two"))
    assert one == two
    (tmp_path / "two.txt").write_bytes(b"the same text, twice " * 8 + b"the same text, Twice ")
    assert data_checksum(text(tmp_path / "two.txt")) != one


def test_the_library_of_python_is_whole_files() -> None:
    """Every training file, found in the windows again, is Python; none is in both parts."""
    data = load_data(DataConfig(name="stdlib", options={"context": 64}))
    assert (data.facts.outputs, data.facts.bytes_per_token) == (256, 1.0)
    batch = next(data.testing([torch.arange(data.facts.test)], CPU))
    files = bytes(batch.inputs.flatten().tolist()).split(b"\0")[:-1]
    assert len(files) == 8  # the ninth is cut at the end of the last window
    folder = Path(sysconfig.get_paths()["stdlib"])
    assert files[0] == (folder / "argparse.py").read_bytes().replace(b"\r\n", b"\n")
    assert all(ast.parse(file) for file in files)
    train = next(data.training([Chunk(torch.arange(data.facts.train), 1.0)], 0, 0, CPU))
    seen = bytes(train.inputs.flatten().tolist())
    assert not any(file[:500] in seen for file in files)


def test_files_of_tokens_are_mapped(tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    tokens[:100].tofile(tmp_path / "validation.bin")
    config = DataConfig(
        name="tokens", root=str(tmp_path), options={"vocabulary": 1000, "context": 10}
    )
    data = load_data(config)
    assert isinstance(data._rows.train, np.memmap)  # type: ignore[attr-defined]
    batch = next(data.training([Chunk(torch.tensor([7]), 1.0)], 0, 0, CPU))
    assert batch.inputs.tolist() == [list(range(70, 80))]
    assert batch.targets.tolist() == [list(range(71, 81))]
    small = config.model_copy(update={"options": {"vocabulary": 990, "context": 10}})
    with pytest.raises(InputError, match="has token 990, but its vocabulary is said to have 990"):
        next(load_data(small).training([Chunk(torch.tensor([98]), 1.0)], 0, 0, CPU))


def test_a_tokenizer_makes_tokens(tmp_path: Path) -> None:
    """Words by a tokenizer of words, and bytes per token counted by hand."""
    pytest.importorskip("tokenizers")
    words = {"red": 0, "green": 1, "blue": 2, "?": 3}
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "pre_tokenizer": {"type": "WhitespaceSplit"},
                "model": {"type": "WordLevel", "vocab": words, "unk_token": "?"},
            }
        )
    )
    for part, content in (("train", "red green blue " * 4), ("validation", "blue red ")):
        (tmp_path / "text" / part).mkdir(parents=True)
        (tmp_path / "text" / part / "a.txt").write_text(content)
    options = {"context": 2, "tokenizer": str(tmp_path / "tokenizer.json")}
    data = load_data(text(tmp_path / "text", options=options))
    batch = next(data.testing([torch.tensor([0])], CPU))
    assert (batch.inputs.tolist(), batch.targets.tolist()) == ([[2, 0]], [[0, 3]])
    assert data.facts.outputs == 4
    assert data.facts.bytes_per_token == 10 / 3  # nine bytes and the end of the file


def rows_of(root: Path, column: str = "text", **options: object) -> DataConfig:
    return text(root, options={"context": 2, "column": column, **options})


def test_the_rows_of_a_data_set_are_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `datasets` saves it and as Parquet files beside each other: the rows, joined by hand."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    content = {"train": ["ab\r\ncd", "", "efg"], "validation": ["hij"], "test": ["never"]}
    made = {
        name: datasets.Dataset.from_dict({"text": lines, "n": list(range(len(lines)))})
        for name, lines in content.items()
    }
    datasets.DatasetDict(made).save_to_disk(tmp_path / "saved")
    (tmp_path / "hub").mkdir()
    for name, split in made.items():
        split.to_parquet(tmp_path / "hub" / f"{name}-00000-of-00001.parquet")
    for folder in ("saved", "hub"):
        train, test = all_windows(rows_of(tmp_path / folder))
        whole = b"ab\ncd\0\0efg\0"
        assert train == [whole[i : i + 3] for i in range(0, len(whole) - 2, 2)]
        assert test == [b"hij"]
        notes = load_data(rows_of(tmp_path / folder)).facts.notes
        assert notes == ("the split test is not used",)
    made["train"].save_to_disk(tmp_path / "one")  # no other split: a share is held out
    train, test = all_windows(rows_of(tmp_path / "one", validation=0.5, context=1))
    assert (b"".join(w[:1] for w in train), b"".join(w[:1] for w in test)) == (
        b"ab\ncd",
        b"\0efg",  # without the last byte of each part, which is a target only
    )
    for config, message in (
        (rows_of(tmp_path / "saved", "txt"), "has no column of text 'txt'. Did you mean 'text'?"),
        (rows_of(tmp_path / "saved", "n"), "has no column of text 'n'. It has: text."),
        (rows_of(tmp_path / "saved", pattern="*.txt"), "Option pattern is for files of text"),
        (rows_of(tmp_path / "gone"), "There is no data set"),
    ):
        with pytest.raises((InputError, OptionError)) as error:
            load_data(config)
        assert message in str(error.value)
    holes = datasets.Dataset.from_dict({"text": ["a", None]})
    holes.save_to_disk(tmp_path / "holes")
    with pytest.raises(InputError, match=r"Row 1 of column 'text' of .* is empty \(None\)"):
        load_data(rows_of(tmp_path / "holes"))
    datasets.Dataset.from_dict({"text": ["a", "b\0c"]}).save_to_disk(tmp_path / "ends")
    with pytest.raises(InputError, match=r"Row 1 of column 'text' of .* has the byte 0, at byte 1"):
        load_data(rows_of(tmp_path / "ends"))


def test_a_tokenizer_that_transformers_saved(tmp_path: Path) -> None:
    """Trained here, on the text: its own tokens, in windows, and the vocabulary in the identity."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    lines = ["the cat sat on the mat", "the dog sat on the log"] * 20
    (tmp_path / "a.txt").write_text("\n".join(lines))
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet)
    made.train_from_iterator(lines, trainer)
    saved = transformers.PreTrainedTokenizerFast(tokenizer_object=made)
    saved.save_pretrained(tmp_path / "tokenizer")
    options = {"context": 4, "tokenizer": str(tmp_path / "tokenizer")}
    data = load_data(text(tmp_path / "a.txt", options=options))
    whole = "\n".join(lines) + "\0"
    cut = -(-len(whole) * 9 // 10)
    wanted = saved(whole[:cut])["input_ids"]
    batch = next(data.training([Chunk(torch.arange(data.facts.train), 1.0)], 0, 0, CPU))
    assert batch.inputs.flatten().tolist() == wanted[: data.facts.train * 4]
    size = len(saved)
    assert data.facts.outputs == size > 256
    before = data.facts.checksum
    made.add_tokens(["[never]"])  # no token of the text changes, but the network has one more
    made.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    again = load_data(text(tmp_path / "a.txt", options=options)).facts
    assert again.outputs == size + 1
    assert again.checksum != before
    with pytest.raises(InputError, match="There is no tokenizer at"):
        load_data(text(tmp_path / "a.txt", options={"tokenizer": str(tmp_path)}))


def test_a_tokenizer_that_loses_text_has_no_bits_per_byte(tmp_path: Path) -> None:
    """An unknown word is one token whatever it is, so that its loss says nothing of its bytes; nor
    does that of letters without case. Numbers of added tokens may leave a gap."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {"red": 0, "green": 1, "?": 2, "blue": 9}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    (tmp_path / "train").mkdir()
    (tmp_path / "validation").mkdir()
    (tmp_path / "train" / "a.txt").write_text("red green blue " * 4)
    options = {"context": 2, "tokenizer": str(tmp_path / "tokenizer.json"), "pattern": "*.txt"}
    lower = tokenizers.normalizers.Lowercase()
    for content, normalizer, size in (
        ("blue red ", None, 10 / 3),
        ("blue purple ", None, None),
        ("Blue red ", lower, None),
        ("blue red ", lower, 10 / 3),
    ):
        if normalizer is not None:
            made.normalizer = normalizer
        made.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "validation" / "a.txt").write_text(content)
        facts = load_data(text(tmp_path, options=options)).facts
        assert facts.outputs == 10
        assert facts.bytes_per_token == size
        assert any("does not give the validation text back" in n for n in facts.notes) != bool(size)


def test_the_parts_are_cut_between_characters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("é" * 50, encoding="utf-8")
    train, test = all_windows(text(tmp_path / "a.txt", options={"context": 1, "validation": 0.5}))
    # 51 of the 101 bytes would end in the middle of the 26th character.
    rows = [b"".join(w[:1] for w in part) + part[-1][1:] for part in (train, test)]
    assert [row.decode("utf-8") for row in rows] == ["é" * 26, "é" * 24 + "\0"]


def test_what_is_in_both_parts_is_told(tmp_path: Path) -> None:
    long = "a line that is longer than any two texts have in common by chance, or so"
    for part, texts in (("train", ["short", long, "x" * 80]), ("validation", ["short", long])):
        (tmp_path / part).mkdir()
        for number, content in enumerate(texts):
            (tmp_path / part / f"{part}{number}.txt").write_text(content)
    notes = load_data(text(tmp_path)).facts.notes
    assert notes == (
        "1 of 1 validation texts of 64 bytes or more are in the training text too: the loss is "
        "lower for that",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contxt": 4}, "Data 'text' has no option 'contxt'. Did you mean 'context' or 'column'?"),
        ({"context": 0}, "Expected context to be at least 1 but got 0."),
        ({"validation": 1.5}, "Expected validation to be between 0 and 1 but got 1.5."),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict, message: str) -> None:
    (tmp_path / "a.txt").write_text("some text")
    with pytest.raises(OptionError) as error:
        load_data(text(tmp_path / "a.txt", options=options))
    assert str(error.value).startswith(message)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(InputError, match=r"\(training\) has 6 tokens, too few for one window of 8"):
        load_data(text(tmp_path / "a.txt"))
    (tmp_path / "picture.png").write_bytes(b"text" + b"\xff\xfe")
    with pytest.raises(InputError, match=r"is not, at byte 4\. Leave it out by a pattern"):
        load_data(text(tmp_path))
    (tmp_path / "wide.txt").write_bytes("words of two bytes each".encode("utf-16-le"))
    with pytest.raises(InputError, match=r"wide.txt' has the byte 0, at byte 1, .*UTF-16 looks so"):
        load_data(text(tmp_path / "wide.txt"))
    with pytest.raises(InputError, match="needs a file or folder of text"):
        load_data(text(tmp_path / "gone"))
    with pytest.raises(OptionError, match=r"needs options = \{ vocabulary = N \}"):
        load_data(DataConfig(name="tokens", root=str(tmp_path)))
    with pytest.raises(OptionError, match="is text, and size is a setting of images"):
        load_data(text(tmp_path / "a.txt", size=3))


class MadeUp(dict[str, list[str]]):
    """Columns of text as `datasets` hands them out."""

    @property
    def features(self) -> dict[str, SimpleNamespace]:
        return {name: SimpleNamespace(dtype="string") for name in self}


@pytest.mark.parametrize(
    ("splits", "used", "notes"),
    [
        (("train", "validation", "test"), b"validation\0", ("the split test is not used",)),
        (("test", "train"), b"test\0", ()),
    ],
)
def test_beside_training_the_validation_rows_are_used_or_the_test_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    splits: tuple[str, ...],
    used: bytes,
    notes: tuple[str, ...],
) -> None:
    """Each split has its own name as its text; what is left over is said."""
    found = {name: MadeUp(text=[name]) for name in splits}
    monkeypatch.setattr("attnlab.data.text.hub_splits", lambda *_: found)
    config = rows_of(tmp_path, context=2)
    train, test = all_windows(config)
    assert train == [b"tra", b"ain"]
    assert test == [used[i : i + 3] for i in range(0, len(used) - 2, 2)]
    assert load_data(config).facts.notes == notes
