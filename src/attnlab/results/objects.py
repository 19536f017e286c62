"""The few requests that results make of an object store, through fsspec.

An object is put whole or not at all, and whoever reads it gets the old content or the new. What a
store may do beside that is looked out for: a write that it confirms and loses is seen and made
again, and nothing that decides relies on a listing being up to date.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from attnlab._address import FileSystem, file_system
from attnlab._errors import AttnlabError

_ATTEMPTS = 3
"""At a write that is confirmed and not there."""
_READ_BACK = 2**20
"""Bytes up to which what was written is read back: a lost overwrite may leave as many there."""
_TOGETHER = 64
"""Objects that are asked for at a time."""
_STAMPS = ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "created")
_ATOMIC = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""Stores whose conditional put is decided by the store itself and not by looking before."""


class StoreError(AttnlabError, OSError):
    """An object store did not do what it was asked for."""


class Objects:
    """The objects below an address; each name is relative to it."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self.protocol = address.partition("://")[0]

    @property
    def _system(self) -> FileSystem:
        # Asked for each time: connections do not survive a fork, which fsspec knows.
        return file_system(self.address)[0]

    def _at(self, name: str) -> str:
        return f"{file_system(self.address)[1]}/{name}"

    def listing(self, folder: str) -> dict[str, str]:
        """The objects right below a folder, each with what changes when it is written again."""
        with self._asked(f"list {folder!r}"):
            system = self._system
            system.invalidate_cache()
            try:
                found = system.ls(self._at(folder), detail=True)
            except FileNotFoundError:
                return {}
        files = (entry for entry in found if entry["type"] == "file")
        return {entry["name"].rpartition("/")[2]: _stamp(entry) for entry in files}

    def get(self, name: str) -> bytes | None:
        """The content of an object; None if there is none, asked of the store and not of a list."""
        with self._asked(f"read {name!r}"):
            try:
                return bytes(self._system.cat_file(self._at(name)))
            except FileNotFoundError:
                return None

    def get_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """The content of those that are there, many at a time."""
        asked = list(names)
        for start in range(0, len(asked), _TOGETHER):
            part = {self._at(name): name for name in asked[start : start + _TOGETHER]}
            with self._asked(f"read {len(part)} objects"):
                found = self._system.cat(list(part), on_error="return")
            for key, content in found.items():
                if isinstance(content, FileNotFoundError):
                    continue
                if isinstance(content, BaseException):
                    raise self._failed(f"read {part[key]!r}", content) from content
                yield part[key], bytes(content)

    def get_file(self, name: str, path: Path) -> bool:
        """Write an object to a file; whether there is one."""
        with self._asked(f"read {name!r}"):
            try:
                self._system.get_file(self._at(name), str(path))
            except FileNotFoundError:
                return False
        return True

    def put(self, name: str, content: bytes) -> None:
        """Write an object, and make sure that it is there: of a large one only its size is asked
        for."""

        def there() -> bool:
            if len(content) <= _READ_BACK:
                return self.get(name) == content
            return self.size(name) == len(content)

        self._surely(
            name, lambda key: self._system.pipe_file(key, content, mode="overwrite"), there
        )

    def put_file(self, name: str, path: Path) -> None:
        """Write the content of a file, and make sure that as many bytes are there."""
        size = path.stat().st_size
        self._surely(
            name,
            lambda key: self._system.put_file(str(path), key),
            lambda: self.size(name) == size,
        )

    def create(self, name: str, content: bytes) -> bool:
        """Write an object that is not there yet; whether it was this process that did. Where
        `conditional` is not true, two may both be told that they did."""
        for _ in range(_ATTEMPTS):
            with self._asked(f"write {name!r}"):
                try:
                    self._system.pipe_file(self._at(name), content, mode="create")
                except FileExistsError:
                    return self.get(name) == content  # a request that was made twice by itself
            if self.size(name) is not None:
                return True
        raise self._lost(name)

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if there is no such object."""
        with self._asked(f"ask for {name!r}"):
            system = self._system
            system.invalidate_cache()
            try:
                found = system.info(self._at(name))
            except FileNotFoundError:
                return None
        return int(found["size"]) if found["type"] == "file" else None

    def remove(self, names: Iterable[str]) -> None:
        """Remove those that are there."""
        for name in names:
            with self._asked(f"remove {name!r}"), suppress(FileNotFoundError):
                self._system.rm_file(self._at(name))

    @cached_property
    def conditional(self) -> bool:
        """Whether of several that create one object exactly one succeeds. It is tried out: stores
        that speak a protocol do not all keep all of it."""
        if self.protocol not in _ATOMIC:
            return False
        name = f"claims/probe-{secrets.token_hex(8)}"
        try:
            self.create(name, b"first")
            return not self.create(name, b"second")
        except StoreError as error:
            if isinstance(error.__cause__, NotImplementedError):
                return False
            raise
        finally:
            self.remove([name])

    def _surely(self, name: str, write: Callable[[str], object], there: Callable[[], bool]) -> None:
        for _ in range(_ATTEMPTS):
            with self._asked(f"write {name!r}"):
                write(self._at(name))
            if there():
                return
        raise self._lost(name)

    def _lost(self, name: str) -> StoreError:
        return StoreError(
            f"{self.address} confirmed {_ATTEMPTS} times that {name!r} is written, and it is not "
            f"there. What was stored before is whole; run the same again when the store works."
        )

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Say which request failed at which address."""
        try:
            yield
        except AttnlabError:
            raise
        except (OSError, NotImplementedError, ValueError) as error:
            raise self._failed(what, error) from error
        except Exception as error:  # of a store's own library: no credentials, no route
            if type(error).__module__.partition(".")[0] in _SPOKEN:
                raise self._failed(what, error) from error
            raise

    def _failed(self, what: str, error: BaseException) -> StoreError:
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        return StoreError(
            f"Could not {what} at {self.address}: {reason.rstrip('.')}. Check that the address is "
            f"right, that this machine reaches it, and that its credentials may do this."
        )


_SPOKEN = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "huggingface_hub", "azure")
"""The libraries whose own errors say why a request failed."""


def _stamp(entry: Mapping[str, object]) -> str:
    known = next((str(entry[name]) for name in _STAMPS if entry.get(name)), "")
    return f"{entry.get('size')} {known}"
