"""A repair that was stopped goes on, and ends in the bits of one that was not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.surgery.folding.networks import stir
from tests.surgery.repair.test_distil import pair
from torch import Tensor, nn

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.cli import main
from attnlab.cli._repair import resumable
from attnlab.networks.checkpoint import Description
from attnlab.results.checkpoints import CheckpointWarning, save_checkpoint
from attnlab.surgery.repair import Distil, Repair, distil

SETTINGS = Distil(epochs=5, lr=0.01, moving="all")


class Stop(BaseException):
    pass


def repaired(
    folder: Path | None, *, stop: int | None = None, settings: Distil = SETTINGS
) -> tuple[dict[str, Tensor], Repair, list[int]]:
    """Weights, what was done, and the epochs that were told; stopped when `stop` is."""
    network, lessons, _ = pair()
    told: list[int] = []

    def report(epoch: int, loss: float) -> None:
        del loss
        told.append(epoch)
        if epoch == stop:
            raise Stop

    settings = replace(settings, report=report, checkpoints=folder)
    done = distil(network, lessons, (), settings)
    return network.state_dict(), done, told


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


def stopped(folder: Path, at: int, settings: Distil = SETTINGS) -> None:
    with pytest.raises(Stop):
        repaired(folder, stop=at, settings=settings)


def test_stopped_twice_it_ends_the_same(tmp_path):
    whole, expected, _ = repaired(None)
    folder = tmp_path / "a" / "b"
    stopped(folder, 1)
    stopped(folder, 3)
    assert sorted(path.name[:10] for path in folder.iterdir()) == ["epoch-0002", "epoch-0003"]
    weights, done, told = repaired(folder)
    assert told == [4, 5]
    assert same(whole, weights)
    assert replace(done, seconds=0) == replace(expected, seconds=0)
    # Once more: all epochs are there.
    weights, again, told = repaired(folder)
    assert told == []
    assert same(whole, weights)
    assert again.losses == expected.losses
    assert again.seconds > 0


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    whole = repaired(None)[0]
    stopped(tmp_path, 3)
    newest = max(tmp_path.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning, match="epoch-0003-.* is damaged"):
        weights, _, told = repaired(tmp_path)
    assert told == [3, 4, 5]
    assert same(whole, weights)


def another(folder: Path, part: str) -> None:
    """The same repair but for one thing."""
    network, lessons, _ = pair()
    settings, taken = SETTINGS, ()
    if part == "weights":
        with torch.no_grad():
            network[0].bias[3] += 1e-6
    elif part == "statistics":
        network[1].running_mean[0] += 1e-6
    elif part == "activation":
        network[2] = nn.GELU()
    elif part == "moving":
        settings, taken = Distil(epochs=5), ("4.weight",)
    elif part == "images":
        lessons[1].inputs[0, 0, 0, 0] += 1e-6
    elif part == "answers":
        lessons[2].answers[0][0, 0] += 1e-6
    elif part == "order":
        lessons.reverse()
    distil(network, lessons, taken, replace(settings, checkpoints=folder))


OTHERS = {
    "weights": "other network",
    "statistics": "other network",
    "activation": "other network",
    "images": "other images",
    "answers": "other answers",
    "order": "other images, other answers",
}


@pytest.mark.parametrize("part", OTHERS)
def test_what_belongs_to_another_repair_is_refused(part, tmp_path):
    stopped(tmp_path, 2)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError) as raised:
        another(tmp_path, part)
    assert str(raised.value) == (
        f"The checkpoints in {str(tmp_path)!r} are of another repair: {OTHERS[part]}. Expected "
        f"another folder; or remove this one, to start again."
    )
    assert sorted(tmp_path.iterdir()) == before


def test_other_settings_and_other_layers_that_move_are_refused(tmp_path):
    stopped(tmp_path, 2, Distil(epochs=5))
    with pytest.raises(InputError) as raised:
        repaired(tmp_path, settings=Distil(epochs=6))
    assert str(raised.value) == (
        f"The checkpoints in {str(tmp_path)!r} are of another repair: other settings "
        f"(Distil(epochs=5, lr=0.001, moving='taken', seed=0), and now it is Distil(epochs=6, "
        f"lr=0.001, moving='taken', seed=0)). Expected another folder; or remove this one, to "
        f"start again."
    )
    with pytest.raises(InputError, match=r"are of another repair: other network\. Expected"):
        another(tmp_path, "moving")


def test_the_checkpoints_of_a_run_are_refused_and_kept(tmp_path):
    kept = save_checkpoint(tmp_path, 7, {"run_id": "0123", "network": {}})
    with pytest.raises(InputError) as raised:
        repaired(tmp_path)
    assert str(raised.value) == (
        f"The checkpoints in {str(tmp_path)!r} are not of a repair. Expected another folder."
    )
    assert list(tmp_path.iterdir()) == [kept]


def test_refusals():
    with pytest.raises(OptionError) as raised:
        replace(SETTINGS, checkpoints=3)
    assert str(raised.value) == "Expected checkpoints to be a path but got 3."


KILLED = """
import builtins, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
import attnlab.cli._repair as repair
def show(*texts, **options):
    builtins.print(*texts, **options)
    if texts[0].startswith(f"repair: epoch {sys.argv[2]},"):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
repair.print = show
from attnlab.cli import main
main(sys.argv[3:])
"""


def test_the_command_goes_on_where_it_was_killed(tmp_path, capsys):
    described = Description("resnet20", 3, gate="se", where="stages:3", input_size=[3, 8, 8])
    gated = attnlab.insert(attnlab.create("resnet20", 3), "se", where="stages:3")[0]
    source = attnlab.save(stir(gated).eval(), tmp_path / "gated.safetensors", described)
    common = ["fold", str(source), "--constants", "--data", "fake", "--limit", "32"]
    common += ["--budget", "all", "--repair", "distil", "--epochs", "3"]
    output, folder = tmp_path / "plain.safetensors", tmp_path / "plain.repair"

    def killed(kind: str, epoch: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, kind, str(epoch), *common, "-o", str(output)]
        threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | threads)

    by_hand = killed("SIGINT", 1)
    assert by_hand.returncode == 130
    assert by_hand.stderr == (
        f"stopped by Ctrl-C: 1 of 3 epochs of the repair are saved in {folder}. The same command "
        f"goes on from there.\n"
    )
    assert killed("SIGKILL", 2).returncode == -signal.SIGKILL
    assert len(list(folder.iterdir())) == 2
    assert not output.exists()
    main([*common, "-o", str(output)])
    told = f"repair: goes on after epoch 2, from {folder}\nrepair: epoch 3, loss "
    assert told in capsys.readouterr().out
    assert not folder.exists()
    main([*common, "-o", str(tmp_path / "whole.safetensors")])
    printed = capsys.readouterr().out
    assert re.findall("repair: (epoch .|goes)", printed) == ["epoch 1", "epoch 2", "epoch 3"]
    assert output.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_the_command_removes_its_checkpoints_and_nothing_else(tmp_path):
    folder = tmp_path / "plain.repair"
    note = folder / "note.txt"
    with resumable(tmp_path / "plain.safetensors", Distil(epochs=3)) as kept:
        assert kept.checkpoints == folder
        save_checkpoint(folder, 1, {})
        note.write_text("mine")
    assert list(folder.iterdir()) == [note]
    save_checkpoint(folder, 1, {})
    with pytest.raises(Stop), resumable(tmp_path / "plain.safetensors", Distil(epochs=3)):
        raise Stop
    assert len(list(folder.iterdir())) == 2
