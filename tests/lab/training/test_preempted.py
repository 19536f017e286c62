"""A run that is asked to stop saves after the step that is under way, and goes on to the bit.

The reference is the same run without an interruption.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.lab.training.small import SIGNALS, Signalling, quiet, run, small, train_killed, weights

from attnlab._errors import InputError, OptionError
from attnlab.lab.training import RunConfig, train
from attnlab.lab.training.stopping import Stop

# Dropout: what the network draws at random must go on where it was, too.
VIT: dict[str, Any] = {
    "backbone": "timm:vit_tiny_patch16_224",
    "backbone_options": {
        "img_size": 8,
        "patch_size": 4,
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 3,
        "drop_rate": 0.2,
        "drop_path_rate": 0.2,
    },
    "attention": "asr:se",
}
RECIPE = {"optimizer": "adamw", "lr": 1e-3, "batch_size": 16, "clip": 1.0, "ema": 0.9}
TRANSFORM = f"{Signalling.__module__}.Signalling"


@pytest.fixture(autouse=True)
def _handlers_of_a_new_process() -> Iterator[None]:
    """Whatever ran before in this process (Ray listens to SIGTERM), and if it was begun in the
    background, where Ctrl-C is ignored."""
    own = {signal.SIGINT: signal.default_int_handler}
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    before = {n: signal.signal(n, own.get(n, signal.SIG_DFL)) for n in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def signalled(epochs: int = 2, **recipe: Any) -> RunConfig:
    """Four steps an epoch."""
    data = {
        "name": "digits",
        "train_subset": 60,
        "test_subset": 30,
        "augmentation": {"transform": TRANSFORM},
    }
    return small(epochs, {**RECIPE, **recipe}, data=data, **VIT)


def assert_same(one: Path, other: Path) -> None:
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    lines = [
        [json.loads(line) for line in (f / "metrics.jsonl").read_text().splitlines()]
        for f in (one, other)
    ]
    for name in ("epoch", "lr", "train_loss", "train", "test"):
        assert [line[name] for line in lines[0]] == [line[name] for line in lines[1]]


def saved(folder: Path) -> list[str]:
    names = sorted(path.name for path in (folder / "checkpoints").glob("*.pt"))
    return [name.rpartition("-")[0] for name in names]


@pytest.mark.parametrize(
    ("number", "ended", "code"),
    [
        (signal.SIGTERM, SystemExit, 143),
        (signal.SIGUSR1, SystemExit, 138),
        (signal.SIGINT, KeyboardInterrupt, None),
    ],
)
def test_stopped_at_every_step(
    number: int, ended: type[BaseException], code: int | None, tmp_path: Path, capfd: Any
) -> None:
    config = signalled()
    SIGNALS.clear()
    run(config, tmp_path / "whole")
    stopped = tmp_path / "stopped"
    found = []
    for _ in range(8):
        SIGNALS[:] = [number]
        with pytest.raises(ended) as error:
            run(config, stopped)
        if code is not None:
            assert error.value.code == code  # type: ignore[attr-defined]
        found.append(saved(stopped)[-1])
    first = [f"epoch-0000-step-00000{n}" for n in (1, 2, 3, 4)]
    # After the last step nothing is left but the test.
    assert found == [*first, *(name.replace("0000-s", "0001-s") for name in first)]
    said = capfd.readouterr().err.splitlines()
    assert said[0] == (
        f"{config.label}: stopped in epoch 1; 0 of 2 epochs and 1 of 4 steps of the next are saved "
        f"in {stopped}. Run the same again to go on."
    )
    run(config, stopped)
    assert_same(tmp_path / "whole", stopped)


def test_a_budget_in_steps_too(tmp_path: Path) -> None:
    """Rounds of three steps in epochs of four: stopped where an epoch ends inside of a round."""
    data = {
        "name": "digits",
        "train_subset": 60,
        "test_subset": 30,
        "augmentation": {"transform": TRANSFORM},
    }
    recipe = {"steps": 9, "interval": 3, "schedule": "cosine", **RECIPE}
    config = RunConfig(data=data, recipe=recipe, **VIT)
    SIGNALS.clear()
    run(config, tmp_path / "whole")
    for pause in (0, 1, 1, 0, 2):
        SIGNALS[:] = [*[0] * pause, signal.SIGTERM]
        with pytest.raises(SystemExit):
            run(config, tmp_path / "stopped")
    run(config, tmp_path / "stopped")
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_images_that_workers_read(tmp_path: Path) -> None:
    """A loader with processes starts in the middle of an epoch, and draws no number of the
    network's."""
    pixels = np.random.default_rng(0).integers(0, 255, (60, 12, 12, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        part = "test" if number % 3 == 0 else "train"
        file = tmp_path / "images" / part / str(number % 2) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    data = {
        "name": "folder",
        "root": str(tmp_path / "images"),
        "size": 8,
        "augmentation": {"crop": "resized", "transform": TRANSFORM},
    }
    config = small(2, {**RECIPE, "batch_size": 10}, data=data, **VIT)
    SIGNALS.clear()
    run(config, tmp_path / "whole")
    for pause in (0, 1, 2):
        SIGNALS[:] = [*[0] * pause, signal.SIGTERM]
        with pytest.raises(SystemExit):
            run(config, tmp_path / "stopped")
    run(config, tmp_path / "stopped")
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_by_steps_and_by_minutes(tmp_path: Path) -> None:
    """Files that are written while nobody asks change nothing."""
    SIGNALS.clear()
    config = signalled()
    run(config, tmp_path / "whole")
    often = tmp_path / "often"
    # Not a fork of this process, which has the threads of other tests.
    process = get_context("forkserver").Process(target=train_killed, args=(config, often))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert saved(often) == ["epoch-0000-step-000002"]
    SIGNALS.clear()
    train(config, often, threads=1, progress=quiet, save_minutes=1e-9)
    assert saved(often) == ["epoch-0001-step-000003", "epoch-0002"]
    assert_same(tmp_path / "whole", often)


def test_stopped_while_it_is_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are saved at once, and the test is made again."""
    from attnlab.lab.training import loop

    SIGNALS.clear()
    config = signalled()
    run(config, tmp_path / "whole")
    evaluate = loop.evaluate

    def stopped(*given: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*given, **options)

    monkeypatch.setattr(loop, "evaluate", stopped)
    with pytest.raises(SystemExit):
        run(config, tmp_path / "stopped")
    assert saved(tmp_path / "stopped") == ["epoch-0000-step-000004"]
    monkeypatch.setattr(loop, "evaluate", evaluate)
    run(config, tmp_path / "stopped")
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_who_listened_before_is_asked(tmp_path: Path) -> None:
    """submitit passes SIGTERM over and waits for another signal: saved, and trained on."""
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        config = signalled()
        SIGNALS.clear()
        run(config, tmp_path / "whole")
        SIGNALS[:] = [0, signal.SIGTERM]
        run(config, tmp_path / "passed")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
    assert_same(tmp_path / "whole", tmp_path / "passed")


def test_ctrl_c_twice_does_not_wait(tmp_path: Path) -> None:
    SIGNALS.clear()
    config = signalled()

    class Slow(Exception):  # noqa: N818
        pass

    SIGNALS[:] = [signal.SIGINT]
    step = torch.optim.AdamW.step

    def twice(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        raise Slow  # not reached: the second Ctrl-C ends the step

    torch.optim.AdamW.step = twice  # type: ignore[method-assign,assignment]
    try:
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path)
    finally:
        torch.optim.AdamW.step = step  # type: ignore[method-assign]
    assert not (tmp_path / "checkpoints").exists()


def test_two_processes_stop_at_one_step(tmp_path: Path) -> None:
    """The signal reaches the process that started them; they agree on a step, and go on."""
    SIGNALS.clear()
    config = small(40, RECIPE, **VIT)
    train(config, tmp_path / "whole", threads=1, devices=2, progress=quiet)
    stopped = tmp_path / "stopped"

    def send() -> None:
        while not (stopped / "metrics.jsonl").exists():
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(SystemExit) as error:
        train(config, stopped, threads=1, devices=2, progress=quiet)
    assert error.value.code == 143
    assert not (stopped / "result.json").exists()
    newest = saved(stopped)[-1]
    train(config, stopped, threads=1, devices=2, progress=quiet)
    assert_same(tmp_path / "whole", stopped)
    print(f"stopped at {newest}")


def test_another_number_of_processes_is_another_run(tmp_path: Path) -> None:
    """Batch norms would see other parts of the batches from there on."""
    SIGNALS[:] = [0, signal.SIGTERM]
    config = signalled(1)
    with pytest.raises(SystemExit):
        run(config, tmp_path)
    with pytest.raises(InputError, match=r"devices were 1, are 2\. Use another directory"):
        train(config, tmp_path, threads=1, devices=2, progress=quiet)


@pytest.mark.parametrize("given", [{"save_minutes": 0}, {"save_minutes": True}, {"save_steps": 0}])
def test_wrong_intervals(given: dict[str, Any], tmp_path: Path) -> None:
    (name,) = given
    with pytest.raises(OptionError, match=f"Expected {name} to be "):
        train(small(1), tmp_path, **given)


def test_a_signal_is_remembered_while_it_is_deferred_and_obeyed_at_once_else() -> None:
    """The number of the exit is that of shells: 128 and the signal. One inside of another that is
    deferred waits for both."""
    stop = Stop()
    with stop.listening(None), stop.deferred():
        assert stop.is_deferred
        with stop.deferred():
            signal.raise_signal(signal.SIGTERM)
            assert stop.asked == signal.SIGTERM
        assert stop.is_deferred
    assert not stop.is_deferred
    with pytest.raises(SystemExit) as ended:
        stop.obey()
    assert ended.value.code == 143
    assert stop.asked is None
    stop.obey()  # nothing was asked for any more
    with stop.listening(None), pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGUSR1)
    assert ended.value.code == 138
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("number", "later", "obeyed"),
    [
        (signal.SIGTERM, 60.0, False),
        (signal.SIGTERM, 60.5, True),
        (signal.SIGINT, 1.0, True),  # Ctrl-C a second time
    ],
)
def test_a_signal_that_is_sent_again(
    number: int, later: float, obeyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("attnlab.lab.training.stopping.time.monotonic", lambda: now[0])
    heard: list[int] = []
    stop = Stop()
    monkeypatch.setattr(stop, "obey", lambda number=None: heard.append(number))
    with stop.deferred():
        stop._hear(signal.SIGTERM, None)
        now[0] += later
        stop._hear(number, None)
        assert heard == ([number] if obeyed else [])
        assert stop.is_deferred != obeyed


def test_who_listened_before_is_called_and_what_is_ignored_stays_ignored() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = Stop()
    with stop.listening(None):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        stop.obey(signal.SIGUSR1)
    assert heard == [signal.SIGUSR1]
