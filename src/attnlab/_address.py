"""Addresses of fsspec (`s3://bucket/folder`), which stand where a folder of this machine may."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import IO, Literal, Protocol, TypedDict, overload

from attnlab._errors import InputError

_CUT = re.compile(r"[a-z][a-z0-9+.-]+:/[^/]")


class Entry(TypedDict):
    """What a file system says of one that it lists; each adds what else it knows."""

    name: str
    type: str
    size: int


class FileSystem(Protocol):
    """What is used here of a file system of fsspec, which has no types of its own."""

    @overload
    def ls(self, path: str, detail: Literal[True]) -> list[Entry]: ...
    @overload
    def ls(self, path: str, detail: Literal[False]) -> list[str]: ...
    def find(self, path: str, *, detail: Literal[True]) -> dict[str, Entry]: ...
    def info(self, path: str) -> Entry: ...
    def ukey(self, path: str) -> str: ...
    def invalidate_cache(self) -> None: ...
    def unstrip_protocol(self, name: str) -> str: ...
    def open(self, path: str, mode: Literal["rb"], block_size: int | None = ...) -> IO[bytes]: ...
    def cat_file(self, path: str) -> bytes: ...
    def cat(
        self, path: list[str], *, on_error: Literal["return"]
    ) -> dict[str, bytes | Exception]: ...
    def get_file(self, rpath: str, lpath: str) -> object: ...
    def put_file(self, lpath: str, rpath: str) -> object: ...
    def pipe_file(
        self, path: str, value: bytes, mode: Literal["create", "overwrite"]
    ) -> object: ...
    def rm_file(self, path: str) -> object: ...


def is_address(given: str | Path) -> bool:
    """Return whether it is an address and not a folder of this machine; `file://` names such a
    folder."""
    text = str(given)
    if isinstance(given, Path) and _CUT.match(text):
        raise InputError(
            f"Expected an address as text but got the path {text!r}: a path drops one of its two "
            f"slashes. Write {text.replace(':/', '://', 1)!r} without Path."
        )
    return "://" in text and not text.startswith("file://")


def local_path(given: str | Path) -> Path:
    """The folder of this machine that is meant."""
    return Path(str(given).removeprefix("file://"))


def file_system(root: str) -> tuple[FileSystem, str]:
    """The file system of an address, or of a folder of this machine, and the path in it."""
    import fsspec  # a tenth of a second that nothing else needs

    try:
        system, path = fsspec.core.url_to_fs(root if "://" in root else os.path.abspath(root))
    except (ImportError, ValueError) as error:
        raise InputError(f"The address {root!r} cannot be opened: {error}.") from error
    return system, path
