"""Checksums against hashlib and sha256sum; what is remembered, and what is not trusted."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import attnlab._checksums as checksums
from attnlab._errors import InputError

_watchers: list[list[str]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watchers and isinstance(arguments[0], str):
        for watcher in _watchers:
            watcher.append(arguments[0])


sys.addaudithook(_hook)


@contextmanager
def opened(folder: Path) -> Iterator[list[str]]:
    """The files below `folder` that Python opens meanwhile, however it does."""
    seen: list[str] = []
    found: list[str] = []
    _watchers.append(seen)
    try:
        yield found
    finally:
        _watchers.remove(seen)
        found += [path for path in seen if path.startswith(f"{folder}{os.sep}")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "attnlab" / "checksums-1.sqlite"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the files had been written a minute ago."""
    monkeypatch.setattr(checksums.time, "time_ns", lambda: int((time.time() + 60) * 1e9))


def made(folder: Path, contents: dict[str, bytes]) -> list[Path]:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def images(number: int = 30) -> dict[str, bytes]:
    return {f"class{i % 3}/{i}.png": f"{i} ".encode() * 300 for i in range(number)}


def test_a_file_has_the_sha256_of_its_content(tmp_path: Path) -> None:
    for content in (b"", b"abc", os.urandom(3_000_000)):
        (path,) = made(tmp_path, {"data.bin": content})
        assert checksums.file_checksum(path) == hashlib.sha256(content).hexdigest()
    assert checksums.file_checksum(str(path)) == hashlib.sha256(content).hexdigest()


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="there is no sha256sum")
def test_files_have_the_checksum_of_what_sha256sum_prints(tmp_path: Path) -> None:
    names = ["b.png", "a/ü.png", "a/x y.png", "a.png", "A.png", "z/back\\slash", "z/new\nline"]
    paths = made(tmp_path / "data", {name: name.encode() for name in names})
    lines = subprocess.run(
        ["sha256sum", "--", *sorted(names, key=str.encode)],
        cwd=tmp_path / "data",
        capture_output=True,
        check=True,
    ).stdout
    found = checksums.files_checksum(tmp_path / "data", paths)
    assert found == hashlib.sha256(lines).hexdigest()


def test_order_place_and_spelling_of_names_do_not_matter_and_all_else_does(tmp_path: Path) -> None:
    contents = images() | {"ü.png": b"umlaut"}
    here = made(tmp_path / "here", contents)
    there = made(tmp_path / "other machine" / "data", dict(reversed(contents.items())))
    first = checksums.files_checksum(tmp_path / "here", here)
    assert first == checksums.files_checksum(tmp_path / "other machine" / "data", there)
    assert first == checksums.files_checksum(tmp_path / "here", map(str, here + here[:3]))

    decomposed = made(tmp_path / "mac", {n.replace("ü", "u\u0308"): c for n, c in contents.items()})
    assert decomposed[-1].name != here[-1].name
    assert first == checksums.files_checksum(tmp_path / "mac", decomposed)

    assert first != checksums.files_checksum(tmp_path / "here", here[1:])
    other = made(tmp_path / "renamed", contents | {"class0/0b.png": contents["class0/0.png"]})
    del other[0]
    assert first != checksums.files_checksum(tmp_path / "renamed", other)
    swapped = contents | {
        "class0/0.png": contents["class1/1.png"],
        "class1/1.png": contents["class0/0.png"],
    }
    assert first != checksums.files_checksum(
        tmp_path / "swapped", made(tmp_path / "swapped", swapped)
    )


@pytest.mark.usefixtures("later")
def test_the_second_time_no_content_is_read(tmp_path: Path) -> None:
    paths = made(tmp_path / "data", images(1200))  # more than are looked up at once
    with opened(tmp_path / "data") as first:
        checksum = checksums.files_checksum(tmp_path / "data", paths)
    assert sorted(first) == sorted(map(str, paths))
    with opened(tmp_path / "data") as second:
        assert checksums.files_checksum(tmp_path / "data", paths) == checksum
        assert checksums.file_checksum(paths[7]) == (
            hashlib.sha256(images(1200)["class1/7.png"]).hexdigest()
        )
    assert second == []


@pytest.mark.usefixtures("later")
def test_a_relative_path_is_remembered_as_the_file_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = made(tmp_path / "data", {"a.png": b"abc"})
    monkeypatch.chdir(tmp_path / "data")
    relative = checksums.files_checksum(".", [Path("a.png")])
    with opened(tmp_path / "data") as read:
        assert checksums.files_checksum(tmp_path / "data", [path]) == relative
    assert read == []


@pytest.mark.usefixtures("later")
def test_what_changed_is_read_again_and_only_that(tmp_path: Path) -> None:
    contents = images()
    paths = made(tmp_path / "data", contents)
    before = checksums.files_checksum(tmp_path / "data", paths)
    facts = paths[4].stat()
    paths[4].write_bytes(b"x" * facts.st_size)
    os.utime(paths[4], ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as copied files have it
    with opened(tmp_path / "data") as read:
        after = checksums.files_checksum(tmp_path / "data", paths)
    assert read == [str(paths[4])]
    assert after != before
    paths[4].write_bytes(contents["class1/4.png"])
    assert checksums.files_checksum(tmp_path / "data", paths) == before


@pytest.mark.usefixtures("later")
def test_two_files_of_one_size_and_time_that_change_places_are_found(tmp_path: Path) -> None:
    paths = made(tmp_path / "data", {"cat/1.png": b"a cat", "dog/1.png": b"a dog"})
    for path in paths:
        os.utime(path, (0, 0))  # as from an archive that is the same whenever it is made
    before = checksums.files_checksum(tmp_path / "data", paths)
    paths[0].rename(tmp_path / "kept")
    paths[1].rename(paths[0])
    (tmp_path / "kept").rename(paths[1])
    assert checksums.files_checksum(tmp_path / "data", paths) != before


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    """Its next change may have the same time stamp."""
    (path,) = made(tmp_path / "data", {"a.png": b"first"})
    checksums.file_checksum(path)
    with opened(tmp_path / "data") as read:
        checksums.file_checksum(path)
    assert read == [str(path)]
    os.utime(path, (0, 0))  # an old modification time does not make it old
    checksums.file_checksum(path)
    with opened(tmp_path / "data") as read:
        checksums.file_checksum(path)
    assert read == [str(path)]
    time.sleep(2.1)
    checksums.file_checksum(path)
    with opened(tmp_path / "data") as read:
        assert checksums.file_checksum(path) == hashlib.sha256(b"first").hexdigest()
    assert read == []


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("place", ["a file in its way", "no home"])
def test_without_a_place_to_write_it_works_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", no_home)
    else:
        (tmp_path / "cache").write_text("not a folder")
    (path,) = made(tmp_path / "data", {"a.png": b"abc"})
    for _ in range(2):
        assert checksums.file_checksum(path) == hashlib.sha256(b"abc").hexdigest()


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.usefixtures("later")
def test_a_memory_that_another_process_holds_is_done_without(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = made(tmp_path / "data", {"a.png": b"abc"})
    checksums.file_checksum(path)
    connect = sqlite3.connect
    monkeypatch.setattr(
        checksums.sqlite3, "connect", lambda file, timeout: connect(file, timeout=timeout / 100)
    )
    with closing(connect(cache)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert checksums.file_checksum(path) == hashlib.sha256(b"abc").hexdigest()
    with opened(tmp_path / "data") as read:
        checksums.file_checksum(path)
    assert read == []  # it was not thrown away


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("damage", ["no database", "cut", "checksum", "stamp", "not text"])
def test_a_damaged_memory_is_thrown_away_and_not_trusted(
    tmp_path: Path, cache: Path, damage: str
) -> None:
    contents = images(400)
    paths = made(tmp_path / "data", contents)
    right = checksums.files_checksum(tmp_path / "data", paths)
    whole = cache.read_bytes()
    victim = paths[5]
    if damage == "no database":
        cache.write_bytes(b"nonsense " * 1000)
    elif damage == "cut":
        cache.write_bytes(whole[: len(whole) // 2])
    else:
        change = {
            "checksum": f"sha256 = '{'0' * 64}'",
            "stamp": "stamp = stamp || '0'",
            "not text": "sha256 = CAST(X'ff00' AS TEXT)",
        }[damage]
        with closing(sqlite3.connect(cache)) as connection, connection:
            connection.execute(
                f"UPDATE checksum SET {change} WHERE path = ?", [os.fsencode(victim)]
            )
    with opened(tmp_path / "data") as read:
        assert checksums.files_checksum(tmp_path / "data", paths) == right
    assert str(victim) in read
    assert not cache.exists()
    checksums.files_checksum(tmp_path / "data", paths)
    with opened(tmp_path / "data") as read:
        assert checksums.files_checksum(tmp_path / "data", paths) == right
    assert read == []


@pytest.mark.usefixtures("later")
def test_what_was_not_read_for_half_a_year_is_forgotten(tmp_path: Path, cache: Path) -> None:
    old, new = made(tmp_path / "data", {"old.png": b"old", "new.png": b"new"})
    checksums.file_checksum(old)
    with closing(sqlite3.connect(cache)) as connection, connection:
        connection.execute("UPDATE checksum SET made = made - 181")
    checksums.file_checksum(new)
    with closing(sqlite3.connect(cache)) as connection:
        rows = connection.execute("SELECT path FROM checksum").fetchall()
    assert rows == [(os.fsencode(new),)]


def test_processes_share_the_memory(tmp_path: Path) -> None:
    paths = made(tmp_path / "data", images(1500))
    time.sleep(2.1)
    code = (
        "import sys\nfrom pathlib import Path\nfrom attnlab._checksums import files_checksum\n"
        "print(files_checksum(sys.argv[1], Path(sys.argv[1]).rglob('*.png')))"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "data")]
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = {process.communicate(timeout=120)[0].strip() for process in processes}
    with opened(tmp_path / "data") as read:
        assert printed == {checksums.files_checksum(tmp_path / "data", paths)}
    assert read == []


def test_a_file_that_changes_meanwhile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = made(tmp_path / "data", {"a.png": b"abc"})
    digest = hashlib.file_digest

    def slow(file: object, name: str) -> object:
        path.write_bytes(b"abcd")
        return digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(checksums.hashlib, "file_digest", slow)
    assert message(path) == (
        f"{str(path)!r} was changed while its checksum was taken. Wait until it is written, and "
        f"try again."
    )


def test_errors(tmp_path: Path) -> None:
    assert message(tmp_path / "none.png") == (
        f"Cannot take the checksum of {str(tmp_path / 'none.png')!r}: No such file or directory."
    )
    assert message(tmp_path) == f"Cannot take the checksum of {str(tmp_path)!r}: Is a directory."
    with pytest.raises(InputError) as error:
        checksums.files_checksum("data", [])
    assert str(error.value) == "Expected files in 'data' to take a checksum of but got none."
    with pytest.raises(InputError) as error:
        checksums.files_checksum("data", ["data/a.png", "other/b.png"])
    assert str(error.value) == "Expected files inside 'data' but got 'other/b.png'."


def message(path: Path) -> str:
    with pytest.raises(InputError) as error:
        checksums.file_checksum(path)
    return str(error.value)
