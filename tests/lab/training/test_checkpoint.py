"""Checkpoints: whole or not there, two kept, damage noticed, a full disk said."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import resource
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from tests.lab.training.small import run, small, weights

from attnlab._errors import WeightsError
from attnlab._files import write_whole
from attnlab.lab.training import DiskFullError
from attnlab.results.checkpoints import CheckpointWarning, load_checkpoint, save_checkpoint


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for epoch in range(1, 5):
        save_checkpoint(tmp_path, epoch, {"value": torch.tensor(epoch)})
    assert sorted(path.name[:10] for path in tmp_path.iterdir()) == ["epoch-0003", "epoch-0004"]
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found["value"].item() == 4


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_one_gives_way_to_the_one_before(damage: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"value": torch.tensor(1)})
    newest = save_checkpoint(tmp_path, 2, {"value": torch.tensor(2)})
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    kinds = {"flipped": bytes(content), "cut": bytes(content[:100]), "empty": b""}
    newest.write_bytes(kinds[damage])
    with pytest.warns(CheckpointWarning, match="epoch-0002-.* is damaged: its checksum is "):
        found = load_checkpoint(tmp_path)
    assert found is not None
    assert found["value"].item() == 1


def test_after_a_damaged_checkpoint_the_run_ends_the_same(tmp_path: Path) -> None:
    config = small(3)
    run(config, tmp_path / "whole")
    run(config, tmp_path / "hurt")
    (tmp_path / "hurt" / "result.json").unlink()
    (tmp_path / "hurt" / "model.safetensors").unlink()
    newest = max((tmp_path / "hurt" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning):
        run(config, tmp_path / "hurt")
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "hurt")
    assert all(torch.equal(a[name], b[name]) for name in a)
    lines = (tmp_path / "hurt" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]
    assert len(list((tmp_path / "hurt" / "checkpoints").iterdir())) == 2


def test_what_a_killed_writer_left_is_cleared(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {})
    (tmp_path / ".epoch-0002-0123456789abcdef.pt.77.partial").write_bytes(b"half")
    assert load_checkpoint(tmp_path) == {}
    assert [path.name[:10] for path in tmp_path.iterdir()] == ["epoch-0001"]


def _write_beyond_the_limit(folder: Path) -> None:
    """In a process of its own: the kernel refuses files above 100 kB, as a full disk would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    write_whole(folder / "state", b"x" * 1000)
    try:
        write_whole(folder / "state", b"y" * 200_000)
    except DiskFullError as error:
        write_whole(folder / "message", str(error))


def test_a_full_disk_is_said_and_leaves_the_old_file(tmp_path: Path) -> None:
    process = get_context("fork").Process(target=_write_beyond_the_limit, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert (tmp_path / "message").read_text() == (
        f"Could not write {tmp_path / 'state'} (200,000 bytes): the file would be larger than the "
        f"limit of this process or file system. Files written before are whole. Make room and run "
        f"the same again: training resumes from the last checkpoint."
    )
    assert (tmp_path / "state").read_bytes() == b"x" * 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["message", "state"]


def test_a_run_on_a_full_disk_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    config = small(3)
    run(config, tmp_path / "whole")
    synced = os.fsync

    def full(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "epoch-0002" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(DiskFullError, match=r"epoch-0002-.*: the disk is full\."):
            run(config, tmp_path / "full")
    assert [path.name[:10] for path in (tmp_path / "full" / "checkpoints").iterdir()] == [
        "epoch-0001"
    ]
    run(config, tmp_path / "full")
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "full")
    assert all(torch.equal(a[name], b[name]) for name in a)


class _Acts:
    """What a stranger's checkpoint may hold: reading it would run a command."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch {self.file}",)


def _saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _with_checksum(folder: Path, epoch: int, data: bytes) -> Path:
    digest = hashlib.sha256(data).hexdigest()[:16]
    path = folder / f"epoch-{epoch:04d}-{digest}.pt"
    path.write_bytes(data)
    return path


def test_a_malicious_checkpoint_is_refused_and_an_older_one_is_taken(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    acted = tmp_path / "acted"
    bad = _with_checksum(tmp_path, 2, _saved({"network": _Acts(acted)}))
    told = f"Refused to read the checkpoint {bad}: it names "
    with pytest.warns(CheckpointWarning) as warned:
        assert load_checkpoint(tmp_path) == {"epoch": 1}
    assert str(warned[0].message).startswith(told)
    assert str(warned[0].message).endswith(
        "system, and reading such a file can run code. attnlab did not write it: remove it. "
        "Falling back to the one before."
    )
    assert not acted.exists()


@pytest.mark.parametrize("kept", [0, 0.5])
def test_one_that_cannot_be_read_gives_way_also_where_its_checksum_is_right(
    kept: float, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    whole = _saved({"network": torch.zeros(1000)})
    bad = _with_checksum(tmp_path, 2, whole[: int(kept * len(whole))])
    with pytest.warns(CheckpointWarning) as warned:
        assert load_checkpoint(tmp_path) == {"epoch": 1}
    assert str(warned[0].message).startswith(
        f"The checkpoint {bad} cannot be read, though its checksum is right: "
    )
    assert str(warned[0].message).endswith(" Remove it. Falling back to the one before.")


def test_where_no_checkpoint_can_be_read_nothing_starts_again_in_silence(tmp_path: Path) -> None:
    _with_checksum(tmp_path, 2, _saved({"network": _Acts(tmp_path / "acted")}))
    with (
        pytest.warns(CheckpointWarning),
        pytest.raises(WeightsError, match=r"^Refused"),
    ):
        load_checkpoint(tmp_path)
