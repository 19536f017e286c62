"""Files that are whole or not there, for writers of bytes and for those that need a path."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from attnlab._files import DiskFullError, remove_partial, whole_file, write_whole


def test_what_was_written_takes_the_place(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.onnx"
    with whole_file(path) as partial:
        assert partial.parent == path.parent
        assert partial.suffix == ".onnx"
        partial.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"
    assert write_whole(path, "second") == path
    assert path.read_bytes() == b"second"
    assert [each.name for each in path.parent.iterdir()] == ["a.onnx"]


def test_others_may_read_it_as_any_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("as the system makes files")
    with whole_file(tmp_path / "a.txt") as partial:
        partial.write_text("x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(kind: type[BaseException], tmp_path: Path) -> None:
    path = write_whole(tmp_path / "a.txt", "before")

    def fails() -> None:
        with whole_file(path) as partial:
            partial.write_text("half")
            raise kind

    with pytest.raises(kind):
        fails()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "a.txt"):
        pass


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(DiskFullError) as error, whole_file(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(error.value) == (
        f"Could not write {path}: the disk is full. Files written before are whole. Make room and "
        f"run the same again: training resumes from the last checkpoint."
    )


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    for name in (".a.txt.77.partial", ".a.77.partial.txt", "a.txt", ".partially"):
        (tmp_path / name).write_text("x")
    remove_partial(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partially", "a.txt"]


def test_threads_and_processes_of_one_number_write_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines that share a folder have processes with the same number."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    path, problems = tmp_path / "file.txt", []
    begin = threading.Barrier(8)

    def write(content: str) -> None:
        begin.wait()
        for _ in range(20):
            try:
                write_whole(path, content)
                with whole_file(path) as partial:
                    partial.write_text(content)
            except OSError as error:
                problems.append(error)

    writers = [threading.Thread(target=write, args=(str(n) * 1000,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert problems == []
    assert path.read_text() in {str(n) * 1000 for n in range(8)}
    assert list(tmp_path.iterdir()) == [path]
