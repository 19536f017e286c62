"""Photographs in Parquet files as the Hugging Face hub stores them: a column with the encoded
images, one with their classes.

Files are compressed by row groups, so that an image is read with all of its group. A group is kept
as long as its images are in use; what lies in memory does not grow with the data.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from attnlab._address import FileSystem
from attnlab._errors import InputError, OptionError, nearest
from attnlab._extras import needs
from attnlab._words import listed
from attnlab.data.samples import ShardSamples, Stamp, addresses, check_unchanged, read_first

ENDING = ".parquet"
TOGETHER = 8
"""Row groups whose images are shuffled together if nobody says how many. Many files of the hub have
100 images in a group, 90 MB of ImageNet's in eight; `datasets` 5.2 writes groups of 100 MB, so that
every worker holds 0.8 GB."""
MOST_HELD = 2 * 2**30
"""Bytes that one worker may hold. Eight of them with more would fill a usual machine's memory."""


class _Group(NamedTuple):
    """Where a row group lies."""

    file: int
    number: int


class _Columns(NamedTuple):
    """Which columns hold the images and the classes."""

    image: str
    label: str


def read_row_groups(
    system: FileSystem, files: Sequence[str], label: str | None, image: str | None, together: int
) -> RowSamples:
    """The images of Parquet files, of which the ends and the classes are read. `label` and `image`
    name the columns, those that say what they are when None."""
    with needs("parquet"):
        import pyarrow.parquet as pq

    found = [_footer(pq, system, file) for file in files]
    columns = _columns(found[0].schema.to_arrow_schema(), files[0], label, image)
    sizes, labels = [], []
    for file, footer in zip(files, found, strict=True):
        there = _columns(footer.schema.to_arrow_schema(), file, label, image)
        if there != columns:
            raise InputError(
                f"{file!r} has its images in {there.image!r} and its classes in {there.label!r}, "
                f"and {files[0]!r} in {columns.image!r} and {columns.label!r}. Expected the same "
                f"columns in all files; data.options.image and label name them."
            )
        sizes += [
            _bytes_of(footer.row_group(n), columns.image) for n in range(footer.num_row_groups)
        ]
        labels.append(_labels(pq, system, file, footer, columns.label))
    groups = [_Group(f, n) for f, footer in enumerate(found) for n in range(footer.num_row_groups)]
    rows = [found[group.file].row_group(group.number).num_rows for group in groups]
    held = sum(sorted(sizes)[-together:])
    if held > MOST_HELD:
        raise OptionError(
            f"{together} row groups of {files[0]!r} and the files beside it hold up to "
            f"{held / 2**30:.1f} GiB, and a worker may hold {MOST_HELD / 2**30:.1f}. Set "
            f"data.options.together to less, or write the files with smaller row groups "
            f"(row_group_size=100)."
        )
    return RowSamples(
        _Table(addresses(system, files), groups, sizes, columns.image, together),
        np.stack([np.repeat(np.arange(len(rows)), rows), _counted(rows)], 1),
        torch.from_numpy(np.concatenate(labels)),
    )


def _counted(rows: Sequence[int]) -> np.ndarray:
    return np.concatenate([np.arange(number) for number in rows])


class _Table:
    """Row groups of images, the last few of which are kept."""

    def __init__(
        self, files: list[str], groups: list[_Group], sizes: list[int], image: str, together: int
    ) -> None:
        self.files, self.groups, self.sizes = files, groups, sizes
        self._image, self._together = image, together
        self._stamps = [Stamp.of(file) for file in files]
        self._kept: OrderedDict[int, Any] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Content is not copied to other processes: each keeps its own."""
        return {**self.__dict__, "_kept": OrderedDict()}

    def rows(self, number: int) -> Any:
        """The images of a row group."""
        if number in self._kept:
            self._kept.move_to_end(number)
        else:
            # First out, then in: never more than `together` are in memory.
            while len(self._kept) >= self._together:
                self._kept.popitem(last=False)
            self._kept[number] = self._read(self.groups[number])
        return self._kept[number]

    def _read(self, group: _Group) -> Any:
        import fsspec
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self.files[group.file]
        # Made anew in each process: connections do not survive a fork. fsspec remembers it.
        system, path = fsspec.core.url_to_fs(file)
        try:
            check_unchanged(file, self._stamps[group.file], Stamp.of(file))
            with system.open(path, "rb") as opened_file:
                table = pq.ParquetFile(opened_file, pre_buffer=True).read_row_group(
                    group.number, columns=[self._image], use_threads=False
                )
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"{file!r} cannot be read in row group {group.number} ({error}), and its end could "
                f"when the training began. The run can be taken up when it can be."
            ) from error
        column = table.column(0).combine_chunks()
        return column.field("bytes") if pa.types.is_struct(column.type) else column


class RowSamples(ShardSamples):
    """Images that are rows of Parquet files."""

    in_groups = True
    told_by = "the class of every image, the size of every row group"

    def __init__(self, table: _Table, places: np.ndarray, labels: Tensor) -> None:
        """`places` has a row for every image: the number of its row group and its place in it."""
        self._table, self.places, self.labels = table, places, labels

    def name(self, number: int) -> str:
        group, row = self._place(number)
        return f"{self._table.files[group.file]}:row group {group.number}, row {row}"

    def _place(self, number: int) -> tuple[_Group, int]:
        which, row = self.places[number].tolist()
        return self._table.groups[which], row

    def groups(self) -> Tensor:
        return torch.from_numpy(np.unique(self.places[:, 0], return_inverse=True)[1])

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        content: dict[int, bytes] = {}
        # Group by group, or two that take turns would each be read again and again.
        for number in sorted(numbers):
            group, row = self.places[number].tolist()
            found = self._table.rows(group)[row].as_py()
            if found is None:
                raise InputError(
                    f"{self.name(number)} holds no image, at most the path of one. Expected the "
                    f"encoded images in the file, as push_to_hub and embed_external_files write."
                )
            content[number] = found
        return [content[number] for number in numbers]

    def read_first(self, every: bool) -> Sequence[int]:
        """Whole row groups, since an image is not read without its group."""
        asked = len(read_first(range(len(self)), every))
        if asked == len(self):
            return range(len(self))
        groups = self.groups()
        chosen = read_first(range(int(groups.max()) + 1), every)
        wanted = max(1, round(len(chosen) * asked / len(self)))
        step = len(chosen) / wanted
        kept = torch.tensor([chosen[int((k + 0.5) * step)] for k in range(wanted)])
        return torch.isin(groups, kept).nonzero().flatten().tolist()

    def some(self, numbers: Sequence[int]) -> RowSamples:
        chosen = list(numbers)
        return RowSamples(self._table, self.places[chosen], self.labels[chosen])

    def lines(self) -> Iterator[str]:
        for number, (which, row) in enumerate(self.places.tolist()):
            group = self._table.groups[which]
            path = self._table.files[group.file].rpartition("/")[2]
            size = self._table.sizes[which]
            yield f"{path}/{group.number}/{row}\t{size}\t{int(self.labels[number])}\n"


class _Field(Protocol):
    name: str
    type: object


class _Schema(Protocol):
    """What is used of a schema of pyarrow, which has no types of its own."""

    names: list[str]
    metadata: Mapping[bytes, bytes] | None

    def field(self, name: str) -> _Field: ...
    def __iter__(self) -> Iterator[_Field]: ...


def _footer(pq: Any, system: FileSystem, file: str) -> Any:
    import pyarrow as pa

    try:
        with system.open(file, "rb") as opened_file:
            return pq.read_metadata(opened_file)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{file!r} is not a whole Parquet file ({error}): it was cut off, is still written, or "
            f"is of another kind."
        ) from error


def _columns(schema: _Schema, file: str, label: str | None, image: str | None) -> _Columns:
    kinds = _kinds(schema)
    image = _named(schema, file, "image", image) or _only(
        file,
        "image",
        schema,
        [n for n in schema.names if kinds.get(n) == "Image"],
        [field.name for field in schema if _is_image(field.type)],
    )
    label = _named(schema, file, "label", label) or _only(
        file,
        "label",
        schema,
        [n for n in schema.names if kinds.get(n) == "ClassLabel"],
        [field.name for field in schema if _is_integer(field.type)],
    )
    for name, fits, what in (
        (image, _is_image, "encoded images: bytes, or a struct of bytes and path"),
        (label, _is_integer, "the numbers of the classes"),
    ):
        if not fits(schema.field(name).type):
            raise InputError(
                f"Expected the column {name!r} of {file!r} to hold {what} but it is of type "
                f"{schema.field(name).type}."
            )
    return _Columns(image, label)


def _kinds(schema: _Schema) -> Mapping[str, str]:
    """What the Hugging Face library wrote of the columns; nothing if another program wrote them."""
    try:
        said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        return {n: f.get("_type", "") for n, f in said["info"]["features"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _named(schema: _Schema, file: str, option: str, name: str | None) -> str | None:
    if name is not None and name not in schema.names:
        raise OptionError(
            f"{file!r} has no column {name!r}, which data.options.{option} names."
            f"{nearest(name, schema.names)} It has {', '.join(schema.names)}."
        )
    return name


def _only(file: str, option: str, schema: _Schema, said: list[str], fitting: list[str]) -> str:
    found = said or fitting
    if len(found) != 1:
        raise InputError(
            f"Expected {file!r} to have one column for the {option} but {listed(found) or 'none'} "
            f"of {', '.join(schema.names)} could be it. Set data.options.{option} to its name."
        )
    return found[0]


def _is_image(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and _is_image(kind.field(at).type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_integer(kind: object) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def _bytes_of(group: Any, column: str) -> int:
    parts = [group.column(number) for number in range(group.num_columns)]
    return sum(p.total_uncompressed_size for p in parts if p.path_in_schema.split(".")[0] == column)


def _labels(pq: Any, system: FileSystem, file: str, footer: Any, label: str) -> np.ndarray:
    with system.open(file, "rb") as opened_file:
        column = pq.ParquetFile(opened_file, metadata=footer).read(columns=[label]).column(0)
    if column.null_count:
        raise InputError(
            f"{file!r} has {column.null_count} images without a class in {label!r}. Expected the "
            f"number of one for each."
        )
    return np.asarray(column.to_numpy(), dtype=np.int64)
