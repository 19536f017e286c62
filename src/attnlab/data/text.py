"""Text as a row of tokens: Python's own library, text files, and files of tokens.

Training and validation are two rows of tokens. A window is `context` tokens and the one after them;
windows are cut from one row each and do not overlap, so none crosses from one part to the other.
"""

from __future__ import annotations

import hashlib
import math
import platform
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from attnlab._checked import check_whole
from attnlab._checksums import file_checksum
from attnlab._errors import InputError, OptionError, check_options, nearest
from attnlab._extras import needs
from attnlab._words import listed
from attnlab.data.batches import Batch, Chunk, Data, Facts
from attnlab.data.config import DataConfig
from attnlab.data.known import hub_splits

CONTEXT: Final = 128
"""The tokens of a window, unless told."""
BYTES: Final = 256
"""The vocabulary of text that is read byte by byte."""
_STRINGS: Final = ("string", "large_string")
"""What the column of a data set that holds text is said to be."""
_END: Final = b"\0"
"""After every file, so that a network can know that another one begins."""
_LONG: Final = 64
"""Bytes of a text that is not the same as another by chance: a heading or a brace is."""
_TYPES: Final = {"uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32}

# Modules that Python 3.11 to 3.14 have as one file each, so that versions differ little. Whole
# files are held out, of several kinds: no text of a validation file is in training.
# As a text: sixty names are easier to read in a few lines.
_TRAINING: Final = (
    "_pydecimal _pyio ast bdb codecs configparser contextlib dataclasses difflib dis doctest enum "
    "fileinput fractions functools gettext gzip imaplib inspect ipaddress mailbox mimetypes "
    "modulefinder ntpath optparse os pdb pickle pickletools pkgutil platform plistlib poplib "
    "posixpath pprint profile pstats pydoc random runpy selectors shutil smtplib socket "
    "socketserver ssl subprocess tarfile tempfile threading timeit tokenize trace traceback turtle "
    "typing uuid warnings weakref webbrowser"
)
_VALIDATION: Final = "argparse base64 calendar csv ftplib heapq shlex statistics textwrap"


@dataclass(frozen=True)
class TokenRows:
    """The two rows of tokens, which may be memory-mapped files."""

    train: np.ndarray
    test: np.ndarray
    vocabulary: int
    context: int
    """The tokens of a window."""
    checksum: str
    bytes_per_token: float | None = None
    """Bytes per token of the validation text, the mean; None if nobody said it."""
    notes: tuple[str, ...] = ()


def load_text(config: DataConfig) -> TokenData:
    """The windows of `config`."""
    _refuse_settings(config)
    return TokenData(config, read_token_rows(config))


def text_checksum(config: DataConfig) -> str:
    """SHA-256 of the tokens of both parts, or of their files."""
    return read_token_rows(config).checksum


def read_token_rows(config: DataConfig) -> TokenRows:
    """The tokens of both parts, whole."""
    read: Callable[..., TokenRows] = {"stdlib": _stdlib, "text": _text, "tokens": _tokens}[
        config.name
    ]
    check_options(f"Data {config.name!r}", read, config.options, skip=("root", "config"))
    rows = read(config, **config.options)
    check_whole("context", rows.context, 1)
    return rows


def _refuse_settings(config: DataConfig) -> None:
    """Settings of images that would do nothing."""
    kept = ("size",) if "column" in config.options else ("size", "download")
    set_ = [name for name in kept if getattr(config, name)]
    if config.augmentation.transform is not None:
        set_.append("augmentation.transform")
    if set_:
        raise OptionError(
            f"Data {config.name!r} is text, and {set_[0]} is a setting of images. Leave it out."
        )


def _stdlib(config: DataConfig, context: int = CONTEXT) -> TokenRows:
    """Python's own library, byte by byte. Its text differs from version to version."""
    if config.root is not None:
        raise OptionError(
            f"Data 'stdlib' is the library of the running Python, but got root = "
            f"{config.root!r}. For a folder of text set name = 'text'."
        )
    folder = Path(sysconfig.get_paths()["stdlib"])
    train, test = (_modules(folder, text.split()) for text in (_TRAINING, _VALIDATION))
    note = f"the text is that of Python {platform.python_version()}; other versions differ a little"
    return _of_bytes(train, test, context, (note,))


def _modules(folder: Path, names: Sequence[str]) -> bytes:
    missing = [name for name in names if not (folder / f"{name}.py").is_file()]
    if missing:
        raise InputError(
            f"Data 'stdlib' reads the source of Python's library, but {str(folder)!r} lacks "
            f"{missing[0]}.py ({len(missing)} of {len(names)} are missing). Use a Python that "
            f"comes with its source, or data 'text' with a folder of your own."
        )
    return _joined([folder / f"{name}.py" for name in names])


def _text(
    config: DataConfig,
    context: int = CONTEXT,
    validation: float = 0.1,
    pattern: str = "*",
    tokenizer: str | None = None,
    column: str | None = None,
) -> TokenRows:
    """A file, or all files below a folder whose name fits `pattern`, in the order of their names;
    with `column`, the rows of a data set that `datasets` reads. The last share `validation` of the
    text is held out, or the folder validation/ beside train/, or a split that the data set has."""
    if not 0 < validation < 1:
        raise OptionError(f"Expected validation to be between 0 and 1 but got {validation!r}.")
    notes: tuple[str, ...] = ()
    if column is None:
        parts = _of_files(config.root, pattern)
    elif pattern != "*":
        raise OptionError(
            f"Option pattern is for files of text, and column = {column!r} says that root is a "
            f"data set. Leave one out."
        )
    else:
        parts, notes = _of_rows(config, column)
    if len(parts) == 1:
        cut = math.ceil(len(parts[0]) * (1 - validation))
        while cut < len(parts[0]) and parts[0][cut] & 0xC0 == 0x80:  # in the middle of a character
            cut += 1
        parts = [parts[0][:cut], parts[0][cut:]]
    else:
        notes = (*notes, *_in_both(*parts))
    if tokenizer is not None:
        return _encoded(parts[0], parts[1], context, tokenizer, notes)
    return _of_bytes(parts[0], parts[1], context, notes)


def _in_both(train: bytes, test: bytes) -> tuple[str, ...]:
    """A note on texts of validation that are in training too, of those that are long enough not to
    be so by chance."""
    texts = [text for text in test.split(_END) if len(text) >= _LONG]
    known = {text for text in train.split(_END) if len(text) >= _LONG}
    again = sum(text in known for text in texts)
    if not again:
        return ()
    return (
        f"{again} of {len(texts)} validation texts of {_LONG} bytes or more are in the training "
        f"text too: the loss is lower for that",
    )


def _of_files(root: str | None, pattern: str) -> list[bytes]:
    """The text of a file or folder: of training and validation if it is divided, else all."""
    if root is None or not Path(root).exists():
        raise InputError(
            f"Data 'text' needs a file or folder of text, root = 'books/', but got {root!r}, which "
            f"is not there."
        )
    path = Path(root)
    if (path / "train").is_dir() and (path / "validation").is_dir():
        return [_joined(_files(path / part, pattern)) for part in ("train", "validation")]
    return [_joined([path] if path.is_file() else _files(path, pattern))]


def _of_rows(config: DataConfig, column: str) -> tuple[list[bytes], tuple[str, ...]]:
    """The rows of a data set's column, each with its end, of training and of validation (or test)
    if it has such a split, else all; and which splits are not used."""
    if config.root is None:
        raise OptionError("Data 'text' with a column needs the folder or name of a data set: root.")
    splits = hub_splits(config, config.root)
    testing = next((name for name in ("validation", "test") if name in splits), None)
    if "train" not in splits:
        raise InputError(
            f"Expected a split train in {config.root!r} but it has {', '.join(splits)}."
        )
    used = ["train"] if testing is None else ["train", testing]
    unused = [name for name in splits if name not in used]
    notes = (f"the split {listed(unused)} is not used",) if unused else ()
    return [_rows(splits[name], column, config.root) for name in used], notes


def _rows(split: Any, column: str, root: str) -> bytes:
    texts = [
        name for name, kind in split.features.items() if getattr(kind, "dtype", None) in _STRINGS
    ]
    if column not in texts:
        raise InputError(
            f"{root!r} has no column of text {column!r}.{nearest(column, texts)} It has: "
            f"{', '.join(texts) or 'none'}."
        )
    missing = next((n for n, text in enumerate(split[column]) if text is None), None)
    if missing is not None:
        raise InputError(
            f"Row {missing} of column {column!r} of {root!r} is empty (None). Expected text in "
            f"every row; `dataset.filter` leaves rows out."
        )
    lines = [text.replace("\r\n", "\n").encode() for text in split[column]]
    for number, line in enumerate(lines):
        _check_no_end(line, f"Row {number} of column {column!r} of {root!r}")
    return b"".join(line + _END for line in lines)


def _files(folder: Path, pattern: str) -> list[Path]:
    inside = (path.relative_to(folder) for path in folder.rglob(pattern) if path.is_file())
    # By their parts, so that the order is the same under every system's separator.
    found = sorted(p.parts for p in inside if not any(part.startswith(".") for part in p.parts))
    if not found:
        raise InputError(f"There is no file {pattern!r} below {str(folder)!r}.")
    return [folder.joinpath(*parts) for parts in found]


def _joined(files: Sequence[Path]) -> bytes:
    """The text of `files`, each with its end; lines end in one byte on every system."""
    return b"".join(_read(file) + _END for file in files)


def _read(file: Path) -> bytes:
    content = file.read_bytes()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"Expected text in UTF-8 but {str(file)!r} is not, at byte {error.start}. Leave it out "
            f"by a pattern, as in options = {{ pattern = '*.txt' }}."
        ) from None
    _check_no_end(content, repr(str(file)))
    return content.replace(b"\r\n", b"\n")


def _check_no_end(text: bytes, what: str) -> None:
    """Refuse a text with the byte that stands between texts: UTF-16 has it at every second place,
    and is UTF-8 as well."""
    place = text.find(_END)
    if place >= 0:
        raise InputError(
            f"{what} has the byte 0, at byte {place}, which stands for the end of a text. Expected "
            f"text in UTF-8: UTF-16 looks so, and files that are not text."
        )


def _of_bytes(train: bytes, test: bytes, context: int, notes: tuple[str, ...] = ()) -> TokenRows:
    rows = [np.frombuffer(part, dtype=np.uint8) for part in (train, test)]
    return TokenRows(rows[0], rows[1], BYTES, context, _digest(rows), 1.0, notes)


def _encoded(
    train: bytes, test: bytes, context: int, file: str, notes: tuple[str, ...] = ()
) -> TokenRows:
    """Both parts by a tokenizer's file, tokenizer.json, or the folder that it was saved in; nothing
    is fetched."""
    with needs("huggingface"):
        from tokenizers import Tokenizer
    if Path(file).is_dir():
        file = str(Path(file) / "tokenizer.json")
    if not Path(file).is_file():
        raise InputError(
            f"There is no tokenizer at {file!r}. Expected a tokenizer.json, or the folder that "
            f"`save_pretrained` of a fast tokenizer made."
        )
    try:
        tokenizer = Tokenizer.from_file(file)
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{file!r} is not a tokenizer.json: {error}.") from None
    texts = [part.decode("utf-8", errors="replace") for part in (train, test)]
    rows = [
        np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.uint32)
        for text in texts
    ]
    share: float | None = len(test) / max(len(rows[1]), 1)
    if not _gives_back(tokenizer, rows[1], texts[1]):
        share = None
        notes = (
            *notes,
            "the tokenizer does not give the validation text back (unknown words, letters without "
            "case or accents): the loss is of what it keeps, and there are no bits per byte",
        )
    # The largest number, and not how many there are: added tokens may leave gaps.
    vocabulary = max(tokenizer.get_vocab().values()) + 1
    # With the vocabulary: the same tokens of a larger one are another network.
    checksum = _digest(rows, f"vocabulary {vocabulary}\n")
    return TokenRows(rows[0], rows[1], vocabulary, context, checksum, share, notes)


def _gives_back(tokenizer: Any, tokens: np.ndarray, text: str) -> bool:
    """Whether the text can be read off its tokens, but for spaces at its ends, and with whatever
    the tokenizer makes of the ends of texts."""
    end = _END.decode()
    made = tokenizer.encode(end, add_special_tokens=False).ids
    wanted = text.replace(end, tokenizer.decode(made, skip_special_tokens=False))
    back = tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
    return bool(back.strip() == wanted.strip())


def _digest(rows: Sequence[np.ndarray], first: str = "") -> str:
    digest = hashlib.sha256(first.encode())
    for row in rows:
        digest.update(f"{row.dtype} {len(row)}\n".encode())
        digest.update(row.data)
    return digest.hexdigest()


def _tokens(
    config: DataConfig,
    context: int = CONTEXT,
    vocabulary: int | None = None,
    dtype: str = "uint16",
    bytes_per_token: float | None = None,
) -> TokenRows:
    """train.bin and validation.bin of a folder, plain numbers one after the other, which are
    mapped into memory and not read."""
    if dtype not in _TYPES:
        raise OptionError(f"Expected dtype to be one of {', '.join(_TYPES)} but got {dtype!r}.")
    if vocabulary is None or vocabulary < 2:
        raise OptionError(
            f"Data 'tokens' needs options = {{ vocabulary = N }}, how many tokens there can be, at "
            f"least 2, but got {vocabulary!r}."
        )
    root = config.root
    folder = Path(root or "")
    files = [folder / f"{part}.bin" for part in ("train", "validation")]
    for file in files:
        if root is None or not file.is_file():
            raise InputError(
                f"Data 'tokens' needs a folder with train.bin and validation.bin, but there is no "
                f"{str(file)!r}."
            )
        if not file.stat().st_size or file.stat().st_size % np.dtype(_TYPES[dtype]).itemsize:
            raise InputError(
                f"{str(file)!r} has {file.stat().st_size} bytes, which is not a whole number of "
                f"{dtype} tokens. Set dtype to what the file holds."
            )
    rows = [np.memmap(file, dtype=_TYPES[dtype], mode="r") for file in files]
    checksum = hashlib.sha256("\n".join(file_checksum(file) for file in files).encode())
    return TokenRows(rows[0], rows[1], vocabulary, context, checksum.hexdigest(), bytes_per_token)


class TokenData(Data):
    """Windows of two rows of tokens: inputs (N, context), and as targets the token after each."""

    def __init__(self, config: DataConfig, rows: TokenRows) -> None:
        self._rows, self._context, context = rows, rows.context, rows.context
        name = config.title
        self._train = _windows(rows.train, context, config.train_subset, f"{name} (training)")
        self._test = _windows(rows.test, context, config.test_subset, f"{name} (validation)")
        self.facts = Facts(
            name,
            "tokens",
            rows.vocabulary,
            (context,),
            len(self._train),
            len(self._test),
            (),
            (),
            rows.checksum,
            notes=rows.notes,
            bytes_per_token=rows.bytes_per_token,
        )

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        del seed, epoch  # nothing is drawn: the order of the windows is that of the chunks
        for chunk in chunks:
            yield self._batch(self._rows.train, self._train[chunk.images], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        for chosen in chunks:
            yield self._batch(self._rows.test, self._test[chosen], device)

    def _batch(self, row: np.ndarray, windows: Tensor, device: torch.device) -> Batch:
        places = windows.numpy()[:, None] * self._context + np.arange(self._context + 1)
        found = torch.from_numpy(row[places].astype(np.int64))
        largest = int(found.max())
        if largest >= self.facts.outputs:
            raise InputError(
                f"{self.facts.name} has token {largest}, but its vocabulary is said to have "
                f"{self.facts.outputs} tokens. Set vocabulary, or dtype, to what the file holds."
            )
        found = found.to(device)
        return Batch(found[:, :-1], found[:, 1:])


def _windows(row: np.ndarray, context: int, number: int | None, what: str) -> Tensor:
    """The numbers of the windows that are used, evenly spread over the row."""
    there = (len(row) - 1) // context
    if there < 1:
        raise InputError(
            f"{what} has {len(row)} tokens, too few for one window of {context} and the token "
            f"after it. Set a smaller context, or give more text."
        )
    if number is not None and number > there:
        raise InputError(f"{what} has {there} windows but a subset of {number} was asked for.")
    # Whole numbers: a row of tokens may have more windows than a float32 can count.
    return torch.arange(there) if number is None else torch.arange(number) * there // number
