"""Trainings that begin without the weights of their network: `pretrained=False`, another file."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.bridges.boxes import write_boxes
from tests.bridges.yolos import options, trained_somewhat, yolo
from tests.tools.forked import Ended, forking

from attnlab import AttnlabError
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion.insert import insert

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("ultralytics"),
]


class Enough(BaseException):
    """Raised when a trainer has set up all: their programs catch exceptions."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_boxes(tmp_path_factory.mktemp("boxes") / "boxes", 4)


def state_of(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.detach().clone() for key, value in network.state_dict().items()}


def gate_keys(network: torch.nn.Module) -> list[str]:
    names = tuple(f"{name}." for name, _ in attachments(network))
    return [key for key in network.state_dict() if key.startswith(names)] if names else []


@pytest.fixture
def gated() -> tuple[Any, dict[str, torch.Tensor]]:
    """A network that has been trained, gates too, and how the gates began."""
    from attnlab.bridges.ultralytics import with_attention

    model = yolo("yolov8n.yaml")
    with_attention(model, "se")
    start = {key: model.model.state_dict()[key].clone() for key in gate_keys(model.model)}
    trained_somewhat(model.model)
    torch.nn.init.constant_(model.model.model[0].conv.weight, 0.25)
    return model, start


def setup_of(model: Any, **settings: Any) -> Any:
    """The trainer, when it has set up all."""
    trainers = []

    def stop(trainer: Any) -> None:
        trainers.append(trainer)
        raise Enough

    model.add_callback("on_pretrain_routine_end", stop)
    with pytest.raises(Enough):
        model.train(**settings)
    return trainers[0]


def check_start(trainer: Any, start: dict[str, torch.Tensor]) -> None:
    """The gates are there as they began, in the optimizer, and in the average."""
    state = trainer.model.state_dict()
    assert sorted(gate_keys(trainer.model)) == sorted(start)
    assert all(torch.equal(state[key], start[key]) for key in start)
    assert sorted(gate_keys(trainer.ema.ema)) == sorted(start)
    trained = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
    own = dict(trainer.model.named_parameters())
    assert all(id(own[key]) in trained for key in start if key in own)


def test_from_scratch_the_gates_are_there_and_train(
    gated: tuple[Any, dict[str, torch.Tensor]], data: Path, tmp_path: Path
) -> None:
    model, start = gated
    seen = []
    model.add_callback("on_pretrain_routine_end", lambda trainer: check_start(trainer, start))
    model.add_callback("on_train_start", lambda trainer: seen.append(state_of(trainer.model)))
    model.train(
        data=str(data), epochs=1, name="run", pretrained=False, **options(tmp_path, optimizer="SGD")
    )
    assert not (seen[0]["model.0.conv.weight"] == 0.25).any()
    state = model.model.state_dict()
    moved = [key for key in start if not torch.equal(state[key], start[key])]
    assert len(moved) >= len(dict(attachments(model.model))) > 0
    receipt = (tmp_path / "run" / "attention.txt").read_text()
    assert receipt.startswith("inserted se into DetectionModel\n")


def test_with_the_weights_of_a_file_without_gates(
    gated: tuple[Any, dict[str, torch.Tensor]], data: Path, tmp_path: Path
) -> None:
    model, start = gated
    plain = yolo("yolov8n.yaml")
    torch.nn.init.constant_(plain.model.model[0].conv.weight, 0.125)
    plain.ckpt = {}
    plain.save(tmp_path / "plain.pt")
    trainer = setup_of(
        model, data=str(data), epochs=1, pretrained=str(tmp_path / "plain.pt"), **options(tmp_path)
    )
    check_start(trainer, start)
    assert (trainer.model.model[0].conv.weight == 0.125).all()


def test_after_reset_weights(
    gated: tuple[Any, dict[str, torch.Tensor]], data: Path, tmp_path: Path
) -> None:
    model, start = gated
    model.reset_weights()
    check_start(setup_of(model, data=str(data), epochs=1, **options(tmp_path)), start)


def test_a_trainer_by_hand(
    gated: tuple[Any, dict[str, torch.Tensor]], data: Path, tmp_path: Path
) -> None:
    from ultralytics.models.yolo.detect import DetectionTrainer

    model, start = gated
    model.save(tmp_path / "gated.pt")
    settings = options(tmp_path, data=str(data), epochs=1, pretrained=False)
    trainer = DetectionTrainer(overrides={"model": str(tmp_path / "gated.pt"), **settings})
    trainer._setup_train()
    check_start(trainer, start)


FRESH = """
import sys
import torch

file, settings, out = torch.load(sys.argv[1])

class Enough(BaseException):
    pass

def stop(trainer):
    torch.save((trainer.model.state_dict(), len(trainer.optimizer.param_groups)), out)
    raise Enough

if sys.argv[2] == "YOLO":
    from ultralytics import YOLO
    model = YOLO(file)
    model.add_callback("on_pretrain_routine_end", stop)
    run = lambda: model.train(**settings)
else:
    from ultralytics.models.yolo.detect import DetectionTrainer
    trainer = DetectionTrainer(overrides={"model": file, **settings})
    trainer.add_callback("on_pretrain_routine_end", stop)
    run = trainer.train
try:
    run()
except Enough:
    pass
"""


def fresh(how: str, *given: object) -> Ended:
    """In a new process that imports attnlab by nothing but the file."""
    file = Path(str(given[-1])).with_suffix(".given")
    torch.save(given, file)
    return forking("ultralytics").run(FRESH, str(file), how)


def test_in_a_fresh_process(
    gated: tuple[Any, dict[str, torch.Tensor]], data: Path, tmp_path: Path
) -> None:
    model, start = gated
    model.save(tmp_path / "gated.pt")
    settings = options(tmp_path, data=str(data), epochs=1, pretrained=False)
    out = tmp_path / "out"
    done = fresh("YOLO", str(tmp_path / "gated.pt"), settings, str(out))
    assert done.code == 0, done.printed
    state, _ = torch.load(out)
    assert all(torch.equal(state[key], start[key]) for key in start)


def test_a_trainer_by_hand_in_a_fresh_process_is_told(
    gated: tuple[Any, dict[str, torch.Tensor]], data: Path, tmp_path: Path
) -> None:
    """It has built its network when it learns, from the file, that there are gates."""
    model, _ = gated
    file = str(tmp_path / "gated.pt")
    model.save(file)
    settings = options(tmp_path, data=str(data), epochs=1, pretrained=False)
    done = fresh("trainer", file, settings, str(tmp_path / "out"))
    assert done.code == 1
    assert done.printed.endswith(
        f"GateLostError: {file} has {len(dict(attachments(model.model)))} gates, and its trainer "
        f"has built a network without them: it was told to leave the weights, before it had read "
        f'that there are gates. Put "import attnlab.bridges.ultralytics" above the trainer.\n'
    )


def test_what_several_processes_are_given(
    gated: tuple[Any, dict[str, torch.Tensor]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their launcher writes a program and a pickle of trainer class, settings, network and
    callbacks; here the program is run, in one process and without a group."""
    pytest.importorskip("cloudpickle", reason="needs cloudpickle")
    from ultralytics.engine.trainer import BaseTrainer
    from ultralytics.utils.dist import ddp_cleanup, generate_ddp_file

    model, start = gated
    files = []

    def launch(trainer: Any) -> None:
        file = generate_ddp_file(trainer)
        done = subprocess.run([sys.executable, file], capture_output=True, text=True)
        ddp_cleanup(trainer, file)
        assert done.returncode == 0, done.stderr
        files.append(trainer.save_dir / "weights" / "last.pt")
        raise Enough

    monkeypatch.setattr(BaseTrainer, "_do_train", launch)
    with pytest.raises(Enough):
        model.train(
            data=str(data),
            epochs=1,
            exist_ok=True,
            pretrained=False,
            **options(tmp_path, val=False),
        )
    trained = yolo(files[0]).model
    assert sorted(gate_keys(trained)) == sorted(start)
    assert (files[0].parents[1] / "attention.txt").exists()


def test_tune_trains_with_the_gates(
    gated: tuple[Any, dict[str, torch.Tensor]], data: Path, tmp_path: Path
) -> None:
    """Their tuner trains in new processes, from a file that it writes."""
    model, start = gated
    settings = {**options(tmp_path, val=False), "name": "tune"}
    model.tune(data=str(data), epochs=1, iterations=1, pretrained=False, **settings)
    files = list(tmp_path.rglob("weights/last.pt"))
    assert files
    assert all(sorted(gate_keys(yolo(file).model)) == sorted(start) for file in files)


def test_load_and_copies() -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo("yolov8n.yaml")
    with_attention(model, "se")
    plain = yolo("yolov8n.yaml")
    torch.nn.init.constant_(plain.model.model[0].conv.weight, 0.125)
    keys, gates = gate_keys(model.model), state_of(model.model)
    model.load(plain.model)  # theirs, and its own gates
    state = model.model.state_dict()
    assert (state["model.0.conv.weight"] == 0.125).all()
    assert all(torch.equal(state[key], gates[key]) for key in keys)
    plain.load(model.model)  # takes the gates
    assert gate_keys(plain.model) == keys
    # What benchmark() and val() do.
    assert gate_keys(copy.deepcopy(model).model) == keys


def test_gates_put_in_twice() -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo("yolov8n.yaml")
    with_attention(model, "se", "stages:1")
    first = {key: model.model.state_dict()[key].clone() for key in gate_keys(model.model)}
    trained_somewhat(model.model)
    with_attention(model, "eca", "stages:2")
    kept = model.model.attention
    lines = kept.receipt.splitlines()
    assert [line for line in lines if line.startswith("inserted")] == [
        "inserted se into DetectionModel",
        "inserted eca into DetectionModel",
    ]
    began = {f"{name}.{key}": value for name, of in kept.start.items() for key, value in of.items()}
    assert sorted(began) == sorted(gate_keys(model.model))
    assert all(torch.equal(began[key], value) for key, value in first.items())


def test_other_gates_are_refused(data: Path, tmp_path: Path) -> None:
    from attnlab.bridges.ultralytics import with_attention

    model, other = yolo("yolov8n.yaml"), yolo("yolov8n.yaml")
    receipt = with_attention(model, "se")
    with_attention(other, "eca")
    other.save(tmp_path / "eca.pt")
    with pytest.raises(AttnlabError) as caught:
        model.train(
            data=str(data), epochs=1, pretrained=str(tmp_path / "eca.pt"), **options(tmp_path)
        )
    name = next(name for name, _ in attachments(model.model))
    assert len(receipt.sites) == len(dict(attachments(model.model)))
    assert str(caught.value) == (
        f"The weights and the network have different gates: {name!r} is SqueezeExcitation and "
        f"EfficientChannelAttention. Load them into a network without gates, which takes theirs."
    )


def test_gates_that_began_somehow_are_refused(data: Path, tmp_path: Path) -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo("yolov8n.yaml")
    with_attention(model, "se", "stages:1")
    name = next(name for name, _ in attachments(model.model))
    del model.model.attention.start  # as in a file of an older version
    with pytest.raises(AttnlabError) as caught:
        model.train(data=str(data), epochs=1, pretrained=False, **options(tmp_path))
    assert str(caught.value) == (
        f"This training begins without the weights of its network, and with which values the gate "
        f"{name!r} began is not known: it was not put in by with_attention, or by an older "
        f'version. Put gates into a network without any: with_attention(YOLO("yolo11n.yaml"), …).'
    )


def test_what_their_programs_would_change_is_refused() -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo("yolov8n.yaml")
    iebn = (
        "The norm 'model.0.bn' has a gate inside (iebn), and Ultralytics fuses norms into the "
        "convolutions before them in every validation. Choose 'ie', the same gate after a layer."
    )
    with pytest.raises(AttnlabError) as caught:
        with_attention(model, "iebn")
    assert str(caught.value) == iebn
    inside, _ = insert(model.model, "iebn", example=torch.rand(1, 3, 64, 64))
    with pytest.raises(AttnlabError) as caught:
        yolo("yolov8n.yaml").load(inside)
    assert str(caught.value) == iebn
    with pytest.raises(AttnlabError) as caught:
        with_attention(model, "se", trainable=False)
    assert str(caught.value) == (
        "Expected gates that train but got trainable=False: Ultralytics' trainers let all "
        "parameters train. Give freeze=[…] to train(): gates freeze with their layers."
    )
    assert not dict(attachments(model.model))


def test_gates_put_in_otherwise_are_noted() -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo("yolov8n.yaml")
    note = (
        "Ultralytics' trainers build networks anew, without gates: put them in by "
        "attnlab.bridges.ultralytics.with_attention, which keeps them"
    )
    _, receipt = insert(model.model, "se", example=torch.rand(1, 3, 64, 64))
    assert receipt.notes[-1] == note
    assert note not in with_attention(model, "se").notes


def test_an_older_version_is_refused() -> None:
    from attnlab.bridges.ultralytics.keep import _check_version

    _check_version("8.4.190")
    _check_version("8.5")
    with pytest.raises(AttnlabError) as caught:
        _check_version("8.4.99")
    assert str(caught.value) == (
        "Expected Ultralytics 8.4.190 or newer but got 8.4.99, whose trainers may build a network "
        'without its gates. pip install "ultralytics>=8.4.190" installs one.'
    )
