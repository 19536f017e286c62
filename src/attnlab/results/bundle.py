"""The small files of a run, or of a study, as one object: what makes them count all at once."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from attnlab._files import write_whole
from attnlab._strict import Strict

ELSEWHERE = "elsewhere.json"
RECORD = ".bundle"
MANIFEST = "manifest.json"
_LARGE = ("checkpoints", "source")
_OF_THIS_MACHINE = ("digest.json", "owner.json", RECORD, ELSEWHERE, "model.safetensors")


class Heavy(Strict):
    """A large file of a run, which is an object of its own."""

    object: str
    """Its name below the address; the content is part of it, so it is never written again."""
    sha256: str
    size: int


def small_files(directory: Path) -> dict[str, bytes]:
    """The content of all files of a run that tables and pages are made of."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or name.parts[0] in _LARGE or str(name) in _OF_THIS_MACHINE:
            continue
        if path.is_file():
            found[name.as_posix()] = path.read_bytes()
    return found


def pack(files: Mapping[str, bytes], heavy: Mapping[str, Heavy]) -> bytes:
    """One archive of them and of where the large files are; the same bytes for the same files."""
    where = {name: each.model_dump() for name, each in sorted(heavy.items())}
    every = {**files, ELSEWHERE: json.dumps(where).encode()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(every.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def unpack(content: bytes) -> dict[str, bytes]:
    """The files of an archive. A ValueError says what is wrong with one that attnlab did not
    write."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as archive:
            for member in archive:
                parts = PurePosixPath(member.name).parts
                opened = archive.extractfile(member) if member.isfile() else None
                if opened is None or ".." in parts or member.name.startswith(("/", ".")):
                    raise ValueError(f"it has the member {member.name!r}")
                found[member.name] = opened.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ValueError(f"it is not a whole archive ({error})") from error
    return found


def elsewhere(directory: Path) -> dict[str, Heavy]:
    """The large files of a run that are at an address, by name; none of a run of this machine."""
    path = directory / ELSEWHERE
    if not path.is_file():
        return {}
    return {name: Heavy(**each) for name, each in json.loads(path.read_bytes()).items()}


def write_files(directory: Path, files: Mapping[str, bytes], keep: Mapping[str, Heavy]) -> None:
    """Have just these files in a directory, and the large ones of `keep` if they are there. The
    manifest, which makes a run count, goes first and comes last."""
    if MANIFEST not in files:
        (directory / MANIFEST).unlink(missing_ok=True)
    for name, content in files.items():
        if name != MANIFEST:
            write_whole(directory / name, content)
    if MANIFEST in files:
        write_whole(directory / MANIFEST, files[MANIFEST])
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        if path.is_file() and not hidden and name not in files and name not in keep:
            path.unlink(missing_ok=True)
