"""Gates in the real package: train, resume, EMA, validation, fuse, export, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.bridges.boxes import SIZE, write_boxes
from tests.bridges.yolos import answer, images, options, trained_somewhat, yolo
from tests.tools.forked import forking

from attnlab import AttnlabError
from attnlab.surgery.insertion import attachments

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("ultralytics"),
]


@pytest.mark.parametrize(
    "name",
    [
        "yolov5n.yaml",
        "yolov8n.yaml",
        "yolov10n.yaml",
        "yolo11n.yaml",
        "yolo12n.yaml",
        "yolo26n.yaml",
        "yolo11n-seg.yaml",
        "yolo11n-cls.yaml",
        "yolo11n-pose.yaml",
        "yolo11n-obb.yaml",
    ],
)
def test_nothing_moves_and_no_key_is_lost(name: str) -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo(name)
    trained_somewhat(model.model)
    before = {key: value.clone() for key, value in model.model.state_dict().items()}
    expected = answer(model.model, images())
    receipt = with_attention(model, "se", start="identity")
    assert len(receipt.sites) >= 3
    torch.testing.assert_close(answer(model.model, images()), expected, rtol=0, atol=1e-4)
    after = model.model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    # What their trainer does: a network from the YAML, weights by name.
    fresh = type(model.model)(model.model.yaml, verbose=False)
    fresh.load(model.model, verbose=False)
    assert fresh.state_dict().keys() == after.keys()
    torch.testing.assert_close(answer(fresh, images()), answer(model.model, images()))


@pytest.mark.parametrize(
    ("gate", "more", "left"),
    [
        ("se", {}, 13),  # after the activation: untouched
        ("se", {"place": "norm"}, 13),  # after norms, which go
        ("asr:se", {}, 0),  # constant: folds
        ("step", {}, 13),  # at the addition
    ],
)
def test_fuse_keeps_or_folds(gate: str, more: dict[str, Any], left: int) -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo()
    with_attention(model, gate, **more)
    trained_somewhat(model.model)
    x = images().double()
    expected = answer(model.model.double(), x)
    plain = yolo().model.double()
    plain.load_state_dict(model.model.state_dict(), strict=False)
    effect = (answer(plain, x) - expected).abs().max()
    fused = model.model.fuse(verbose=False)
    assert fused.is_fused()
    assert len(dict(attachments(fused))) == left
    assert (answer(fused, x) - expected).abs().max() < 1e-6 * effect


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, ultralytics: Any) -> tuple[Any, Path, Path]:
    """Two epochs with ASR and SE, as a user would do it."""
    del ultralytics
    from attnlab.bridges.ultralytics import with_attention

    folder = tmp_path_factory.mktemp("yolo")
    data = write_boxes(folder / "boxes")
    model = yolo("yolov8n.yaml")
    with_attention(model, "asr:se+se")
    first = {key: value.clone() for key, value in model.model.state_dict().items()}
    model.train(data=str(data), epochs=2, name="run", **options(folder))
    model.first = first
    return model, folder, data


def test_the_trained_network_has_trained_gates(run: tuple[Any, Path, Path]) -> None:
    model, folder, _ = run
    gates = dict(attachments(model.model))
    assert gates
    state = model.model.state_dict()
    assert model.first.keys() == state.keys()
    moved = [
        key for key in state if ".gate." in key and not torch.equal(state[key], model.first[key])
    ]
    assert len(moved) >= len(gates)
    receipt = (folder / "run" / "attention.txt").read_text()
    assert receipt.startswith("inserted asr:se+se into DetectionModel\n")


FRESH = """
import sys
import torch
from ultralytics import YOLO

model = YOLO(sys.argv[1])
from attnlab.surgery.insertion import attachments
x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
with torch.no_grad():
    found = model.model.float().eval()(x)
while isinstance(found, (list, tuple)):
    found = found[0]
torch.save({"gates": sorted(dict(attachments(model.model))), "answer": found}, sys.argv[2])
if len(sys.argv) > 3:
    model.train(resume=True)
    torch.save({"gates": sorted(dict(attachments(model.model)))}, sys.argv[3])
"""


def fresh(*arguments: object) -> None:
    """In a new process that imports attnlab by nothing but the file."""
    ended = forking("ultralytics").run(FRESH, *map(str, arguments))
    assert ended.code == 0, ended.printed


def test_a_file_in_a_fresh_process(run: tuple[Any, Path, Path]) -> None:
    model, folder, _ = run
    out = folder / "fresh.pt"
    fresh(folder / "run" / "weights" / "best.pt", out)
    found = torch.load(out)
    assert found["gates"] == sorted(dict(attachments(model.model)))
    torch.testing.assert_close(found["answer"], answer(model.model.float(), images()))


def test_resume_in_a_fresh_process_keeps_the_gates(tmp_path: Path) -> None:
    from attnlab.bridges.ultralytics import with_attention

    data = write_boxes(tmp_path / "boxes")
    model = yolo("yolov8n.yaml")
    with_attention(model, "se", start="identity")

    def stop(trainer: Any) -> None:
        if trainer.epoch == 0:
            raise KeyboardInterrupt

    model.add_callback("on_model_save", stop)
    with pytest.raises(KeyboardInterrupt):
        model.train(data=str(data), epochs=2, name="run", **options(tmp_path))
    last = tmp_path / "run" / "weights" / "last.pt"
    fresh(last, tmp_path / "before.pt", tmp_path / "after.pt")
    before, after = (torch.load(tmp_path / f"{name}.pt")["gates"] for name in ("before", "after"))
    assert before == after
    assert len(after) == len(dict(attachments(model.model)))


def test_validation_and_prediction(run: tuple[Any, Path, Path]) -> None:
    _, folder, data = run
    model = yolo(folder / "run" / "weights" / "best.pt")
    metrics = model.val(data=str(data), **options(folder))
    assert 0 <= metrics.box.map <= 1
    picture = next((folder / "boxes" / "images" / "val").glob("*.png"))
    (result,) = model.predict(str(picture), imgsz=SIZE, device="cpu", verbose=False)
    assert result.boxes is not None


def test_export_to_onnx(run: tuple[Any, Path, Path]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    _, folder, _ = run
    model = yolo(folder / "run" / "weights" / "best.pt")
    expected = answer(model.model.float(), images(1))
    file = model.export(format="onnx", imgsz=SIZE, simplify=False)
    session = onnxruntime.InferenceSession(str(file))
    (name,) = [each.name for each in session.get_inputs()]
    (found, *_) = session.run(None, {name: images(1).numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-3, atol=1e-3)


def test_another_architecture_is_refused() -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo("yolo11n.yaml")
    receipt = with_attention(model, "se")
    other = yolo("yolov8n-cls.yaml").model
    with pytest.raises(AttnlabError) as caught:
        other.load(model.model)
    assert str(caught.value).startswith(
        f"The weights have {len(receipt.sites)} gates, and the network that they are loaded into "
        f"has no "
    )
    assert str(caught.value).endswith(
        "it is another architecture. Train the one that the gates were put into, or load weights "
        "without gates."
    )
    assert not dict(attachments(other))


def test_a_fused_network_is_refused() -> None:
    from attnlab.bridges.ultralytics import with_attention

    model = yolo()
    model.fuse()
    with pytest.raises(AttnlabError) as caught:
        with_attention(model, "se")
    assert str(caught.value) == (
        "The network is fused: its norms are gone, and it cannot be trained. Put gates in before "
        'fuse(), val(), predict() or export(): with_attention(YOLO("yolo11n.pt"), …).'
    )
