"""`attnlab doctor`."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnlab.cli import main

module = importlib.import_module("attnlab.cli.doctor")
ROOT = Path(__file__).parents[2]


def run(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = 0
    try:
        main(["doctor"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, capsys.readouterr().out


def test_parts_are_those_of_the_package() -> None:
    """Every dependency in pyproject.toml is read, to the version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = module.requirements_of(project["dependencies"])
    required = {f"{part.name}>={part.minimum}" for part in found if part.required}
    assert required == set(project["dependencies"])
    assert [part.name for part in found[:3]] == ["torch", "torchvision", "timm"]


def test_parts_of_extras_are_optional_and_development_is_left_out() -> None:
    found = module.requirements_of(
        [
            "torch>=2.8",
            "scikit-learn>=1.6",
            "pytest>=8.4; extra == 'dev'",
            "zensical>=0.0.73; extra == 'docs'",
            "onnx>=1.18; extra == 'dev'",
            'onnx>=1.18; extra == "onnx"',
            "scikit-learn>=1.6; extra == 'more'",
            "attnlab[more]; extra == 'dev'",
        ]
    )
    assert [(part.name, part.module, part.required) for part in found] == [
        ("torch", "torch", True),
        ("scikit-learn", "sklearn", True),
        ("onnx", "onnx", False),
        ("transformers", "transformers", False),
    ]


def test_shows_the_installed_versions(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(capsys)
    assert code == 0
    for part in ("torch", "torchvision", "timm"):
        version = re.escape(importlib.metadata.version(part))
        assert re.search(rf"\b{part} +{version}", shown)
    assert re.search(r"threads +\d+ of torch on \d+ cores?", shown)
    assert shown.endswith("In Python:\n  from attnlab.cli.doctor import diagnose\n  diagnose()\n")


def pretend(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    known = module._version
    monkeypatch.setattr(
        module, "_version", lambda name: versions[name] if name in versions else known(name)
    )
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")


def test_missing_optional_part_has_a_fix_and_does_not_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, onnx=None)
    code, shown = run(capsys)
    assert code == 0
    assert "onnx (optional)" not in shown  # no problem
    assert "not installed; used for ONNX export" in shown
    assert (
        "Not installed, and only needed for what they are used for:\n"
        "  onnx: /usr/bin/python3 -m pip install 'onnx>=1.18'\n"
    ) in shown


def test_missing_required_part_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, timm=None)
    code, shown = run(capsys)
    assert code == 1
    assert (
        "timm (required): not installed; used for networks 'timm:NAME'\n"
        "  fix: /usr/bin/python3 -m pip install 'timm>=1.0.20'\n"
    ) in shown


def test_old_required_part_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, torchvision="0.9.1+cpu")
    code, shown = run(capsys)
    assert code == 1
    assert "torchvision (required): 0.9.1+cpu is older than 0.23; used for networks" in shown
    assert "  fix: /usr/bin/python3 -m pip install 'torchvision>=0.23'\n" in shown


def test_broken_required_part_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when torchvision was built for another torch: it is there, and import raises."""

    def broken(name: str) -> None:
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist\nmore")

    fake = SimpleNamespace(import_module=broken, metadata=importlib.metadata)
    monkeypatch.setattr(module, "importlib", fake)
    pretend(monkeypatch, torchvision="0.29.2")
    code, shown = run(capsys)
    assert code == 1
    assert (
        "torchvision (required): 0.29.2 does not import: "
        "RuntimeError: operator torchvision::nms does not exist\n"
        "  fix: /usr/bin/python3 -m pip install --force-reinstall --no-deps 'torchvision>=0.23'\n"
    ) in shown


@pytest.mark.parametrize(
    ("older", "newer"), [("2.8", "2.15.0+cu130"), ("1.0.9", "1.0.20"), ("0.9.20", "1.0")]
)
def test_versions_compare_by_number(older: str, newer: str) -> None:
    assert module._release(older) < module._release(newer)


def test_more_threads_than_cores_is_a_problem() -> None:
    assert module._threads(8, 2).fix == "export OMP_NUM_THREADS=2"
    assert module._threads(2, 2).fix == ""


def test_bfloat16_that_ends_the_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=-4))
    finding = module._bfloat16()
    assert finding.state == (
        "a bfloat16 layer ends the process with signal 4: AMX is announced but not usable"
    )
    assert finding.fix == "export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
    assert not finding.required


def test_missing_compiler_has_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    finding = module._compiler()
    assert finding.fix == "sudo apt install g++"
    assert finding.state == (
        "no C++ compiler: c++, g++ or clang++ is not on the path; used for fast kernels of "
        "attnlab.evolution, pure torch otherwise"
    )
