"""`attnlab yolo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.bridges.boxes import SIZE, write_boxes

from attnlab.cli import main

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("ultralytics"),
]


def test_train_then_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_boxes(tmp_path / "boxes", 4)
    common = [f"data={data}", f"imgsz={SIZE}", "batch=4", "device=cpu", "workers=0", "plots=False"]
    common += ["verbose=False", f"project={tmp_path}", "exist_ok=True"]
    more = ["epochs=1", "amp=False", "name=run"]
    main(["yolo", "train", "yolov8n.yaml", *common, *more, "--gate", "se", "--start", "identity"])
    shown = capsys.readouterr().out
    assert "inserted se into DetectionModel" in shown
    assert f"wrote {tmp_path / 'run'}" in shown
    assert "  print(with_attention(yolo, 'se', start='identity'))\n" in shown
    _, _, lines = shown.partition("In Python:\n")
    namespace: dict[str, Any] = {}
    exec("\n".join(line.strip() for line in lines.splitlines()), namespace)
    best = tmp_path / "run" / "weights" / "best.pt"
    main(["yolo", "val", str(best), *common])
    assert f"  yolo = YOLO({str(best)!r})\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "epochs",
            "Expected settings of Ultralytics as key=value, such as epochs=3, but got 'epochs'.",
        ),
        ("epochs=1 epochs=2", "The setting 'epochs' is given twice."),
    ],
)
def test_refusals(setting: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["yolo", "train", "yolov8n.yaml", *setting.split()])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"attnlab: {message}\n"
