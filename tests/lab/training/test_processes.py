"""Two processes train as one does with the same batches, to rounding."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from tests.lab.training.small import quiet, run, small, weights

from attnlab._errors import InputError
from attnlab.lab.training import train
from attnlab.results import StoredRun

# Norms over the features of one image: batch statistics would be those of half a batch.
VIT = {"img_size": 8, "patch_size": 4, "depth": 2, "embed_dim": 48, "num_heads": 3}


def test_two_processes_train_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    config = small(
        3,
        {"optimizer": "adamw", "lr": 1e-3, "batch_size": 17, "clip": 1.0},
        backbone="timm:vit_tiny_patch16_224",
        backbone_options=VIT,
        attention="asr:se",
    )
    alone = run(config, tmp_path / "one")
    together = train(config, tmp_path / "two", threads=1, devices=2, progress=quiet)
    assert StoredRun(tmp_path / "two").result == together
    a, b = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=2e-5)
    moved = max(float((a[name] - b[name]).abs().max()) for name in a)
    print(f"largest difference of a weight: {moved:.1e}")
    assert together.values["loss"] == pytest.approx(alone.values["loss"], rel=1e-4)
    assert together.values["top1"] == alone.values["top1"]
    assert together.train_loss == pytest.approx(alone.train_loss, rel=1e-4)


IN_TWO = """
import sys
from attnlab.lab.training import RunConfig, train

train(RunConfig.from_json(sys.argv[1]), sys.argv[2], threads=1, devices=2)
"""


def _ended(process: psutil.Process) -> bool:
    """A zombie has ended too: it waits for whoever adopted it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_what_a_killed_process_started_ends(tmp_path: Path) -> None:
    """Or it would go on beside the run that takes its place."""
    config = small(5000, {"batch_size": 16}, attention="none")
    process = subprocess.Popen([sys.executable, "-c", IN_TWO, config.to_json(), str(tmp_path)])
    while not (tmp_path / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) >= 2
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while (alive := [each for each in started if not _ended(each)]) and time.monotonic() < end:
        time.sleep(0.05)
    for each in alive:
        each.kill()
    assert not alive
    assert not (tmp_path / "result.json").exists()


def test_an_error_is_plain_before_processes_start(tmp_path: Path) -> None:
    missing = small(1, data={"name": "npz", "root": str(tmp_path / "no.npz")})
    with pytest.raises(InputError, match="There is no file"):
        train(missing, tmp_path, devices=2)
    with pytest.raises(InputError, match="over 40 processes leave a batch of 12"):
        train(small(1), tmp_path, devices=40)
