"""`attnlab style` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from attnlab.cli import main

SMALL = ["--size", "24", "--width", "4", "--blocks", "1", "--epochs", "1"]


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_train_and_apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "styled"
    asr = ["--norm", "batch", "--attention", "asr:se", "--losses", "filters"]
    main(["style", "train", "glass", *SMALL, *asr, "-o", str(run)])
    shown = capsys.readouterr().out
    assert "style loss (filters) × 10⁴" in shown
    assert f"wrote 2 pictures to {run / 'pictures'}" in shown
    assert "by the folded network: max |Δ| " in shown
    Image.new("RGB", (40, 30), (200, 30, 90)).save(tmp_path / "red.png")
    main(["style", "apply", str(run), str(tmp_path / "red.png"), "-o", str(out)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"wrote {out / 'red.png'}"
    assert lines[1].startswith(f"wrote {out / 'red-folded.png'}: max |Δ| ")
    assert sorted(file.name for file in out.iterdir()) == ["red-folded.png", "red.png"]
    # The same command again has nothing to do; another style does not belong into the folder.
    main(["style", "train", "glass", *SMALL, *asr, "-o", str(run)])
    capsys.readouterr()
    error = fails(["style", "train", "strokes", *SMALL, *asr, "-o", str(run)], capsys)
    assert "task.options.style was 'glass', is 'strokes'. Use another directory, or train" in error


def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["-o", str(tmp_path / "run"), *SMALL]
    assert fails(["style", "train", "glas", "--losses", "filters", *out], capsys) == (
        "attnlab: There is no style picture 'glas'. Did you mean 'glass'? Expected the path of a "
        "picture, or one of attnlab's own: strokes, glass.\n"
    )
    assert fails(["style", "train", "glass", "--weights", "gone.pth", *out], capsys).startswith(
        "attnlab: There is no file of weights at 'gone.pth'. Expected the weights of torchvision's "
        "VGG16"
    )
    filters = ["--losses", "filters", "--weights", "vgg.pth"]
    assert fails(["style", "train", "glass", *filters, *out], capsys) == (
        "attnlab: --weights and --maps belong to VGG16, and --losses filters was given.\n"
    )
    photos = ["--losses", "filters", "--photos", str(tmp_path / "none")]
    assert fails(["style", "train", "glass", *photos, *out], capsys) == (
        f"attnlab: There is no folder {str(tmp_path / 'none')!r}. Expected one with photographs.\n"
    )
    assert not (tmp_path / "run").exists()
    assert fails(["style", "apply", str(tmp_path), "gone.jpg"], capsys) == (
        "attnlab: There is no picture 'gone.jpg'. Expected image files.\n"
    )
