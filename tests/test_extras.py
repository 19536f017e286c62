"""The base install: insert, fold and stiffness need nothing of the extras."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.tools.forked import forking

from attnlab._extras import DISTRIBUTIONS, MissingPackageError, check_extra

ROOT = Path(__file__).parents[1]

WITHOUT = """
import builtins, sys
from importlib import import_module

BLOCKED = {"scipy", "sklearn", "vl_convert", "lightning_fabric"}
original = builtins.__import__

def without(name, globals=None, locals=None, fromlist=(), level=0):
    asker = (globals or {}).get("__name__", "")
    if level == 0 and name.partition(".")[0] in BLOCKED and asker.startswith("attnlab"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return original(name, globals, locals, fromlist, level)

builtins.__import__ = without

import torch
import attnlab

net = attnlab.create("resnet20").eval()
images = [torch.randn(2, 3, 32, 32)]
assert len(attnlab.steps(net)) == 9
gated, _ = attnlab.insert(net, "asr:se")
_, receipt = attnlab.fold(gated)
assert receipt.relative_change < 1e-5
assert attnlab.stiffness(gated, images).tns > 0
assert attnlab.stripe(gated, images).images == 2
print("works")
for do in (
    lambda: attnlab.open(net, "digits"),
    lambda: attnlab.stiffness(gated, images).plot(),
    lambda: attnlab.lab.statistics.paired_difference(
        {0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.5}),
    lambda: import_module("attnlab.instruments.dynamics.problems").solve(
        next(iter(attnlab.instruments.dynamics.PROBLEMS.values()))),
):
    try:
        do()
    except attnlab.AttnlabError as error:
        assert isinstance(error, ImportError)
        print(error)
"""


def test_insert_fold_and_stiffness_work_without_the_extras() -> None:
    ended = forking("torch", "torchvision", "timm").run(WITHOUT)
    assert ended.printed.splitlines() == [
        "works",
        "This needs vl-convert-python, which is not installed: pip install 'attnlab[report]'.",
        "This needs scipy, which is not installed: pip install 'attnlab[study]'.",
        "This needs scipy, which is not installed: pip install 'attnlab[dynamics]'.",
    ]


def test_every_package_of_an_extra_is_told_by_the_name_that_pip_knows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    held = {
        requirement.partition(">=")[0]
        for name in ("study", "report", "dynamics", "segment", "parquet")
        for requirement in extras[name]
        if ">=" in requirement
    }
    theirs = {requirement.partition(">=")[0] for requirement in extras["huggingface"]}
    assert "transformers" in theirs  # which needs tokenizers itself
    assert held | {"transformers", "tokenizers"} == set(DISTRIBUTIONS.values())
    assert not any(each.partition(">=")[0] in held for each in project["dependencies"])
    assert extras["dev"][0].startswith("attnlab[study,")  # what make installs


def test_what_is_needed_at_the_end_is_asked_for_at_the_start() -> None:
    check_extra("report", "vl_convert", "scipy")
    sys.modules["vl_convert_"] = None  # type: ignore[assignment]
    DISTRIBUTIONS["vl_convert_"] = "a-package"
    try:
        with pytest.raises(MissingPackageError) as caught:
            check_extra("report", "scipy", "vl_convert_")
    finally:
        del sys.modules["vl_convert_"], DISTRIBUTIONS["vl_convert_"]
    assert str(caught.value) == (
        "This needs a-package, which is not installed: pip install 'attnlab[report]'."
    )


def base_install(folder: Path) -> Path:
    """Links to the packages that `pip install attnlab` brings along, and to nothing else."""
    wanted = list(_project()["dependencies"])
    links, done = set(), set()
    while wanted:
        requirement = Requirement(wanted.pop())
        extras = requirement.extras or {""}
        if requirement.name in done or not _applies(requirement):
            continue
        done.add(requirement.name)
        found = distribution(requirement.name)
        links |= _entries(found)
        needed = [Requirement(each) for each in found.requires or ()]
        wanted += [
            str(each).partition(";")[0]
            for each in needed
            if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in extras)
        ]
    for link in links:
        (folder / link.name).symlink_to(link)
    described = folder / "attnlab-0.2.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(_metadata())
    return folder


def _metadata() -> str:
    """What pip would write of this project."""
    project = _project()
    needed = list(project["dependencies"])
    for extra, requirements in project["optional-dependencies"].items():
        needed += [f"{each} ; extra == '{extra}'" for each in requirements]
    lines = ["Metadata-Version: 2.4", "Name: attnlab", f"Version: {project['version']}"]
    return "\n".join([*lines, *(f"Requires-Dist: {each}" for each in needed), ""])


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _applies(requirement: Requirement) -> bool:
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return False
    try:
        distribution(requirement.name)
    except PackageNotFoundError:  # a part that this machine needs no more than that one
        return False
    return True


def _entries(found: Distribution) -> set[Path]:
    """Its packages and its description, where they are."""
    home = Path(str(found.locate_file("")))
    names = {file.parts[0] for file in found.files or ()} - {".."}  # commands lie outside
    return {home / name for name in names if not name.endswith(".pth")}


BASE = """
import contextlib, io, json, sys

from attnlab.cli import main

found = []
for command in json.loads(sys.stdin.read()):
    said, failed, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(failed):
        try:
            main(command.split())
        except SystemExit as ended:
            code = ended.code or 0
        except Exception as error:
            code = f"{type(error).__name__}: {error}"
    found.append((code, said.getvalue(), failed.getvalue()))
print(json.dumps(found))
"""
WORKS = ""
DRAWS = "vl-convert-python report"
COMMANDS = {
    "doctor": WORKS,
    "modules": WORKS,
    "networks": WORKS,
    "operators --no-time": WORKS,
    "try se --size 16": WORKS,
    "insert resnet20 --gate asr:se --size 16 -o gated.safetensors": WORKS,
    "stiffness resnet20 --limit 4 --size 16": WORKS,
    "stiffness resnet20 resnet32 resnet44 --limit 2 --size 16 --accuracy 1 2 3": WORKS,
    "stiffness resnet20 --limit 4 --size 16 --out stiff": DRAWS,
    "stiffness resnet20 --limit 4 --data digits": "scikit-learn study",
    "stripe resnet20 --gate se --limit 4 --size 16": WORKS,
    "stripe resnet20 --gate se --limit 4 --size 16 --out stripe": DRAWS,
    "maps timm:test_vit --size 64 --limit 2": WORKS,
    "place resnet20 --budget 2 --data fake --limit 4 --size 16": WORKS,
    "place resnet20 --budget 2 --data fake --limit 4 --out where": DRAWS,
    "noise resnet20 --data digits": "scikit-learn study",
    "noise resnet20 --data fake --out noise": DRAWS,
    "dynamics theorem2": "scipy dynamics",
    "dynamics three-body": "scipy dynamics",
    "dynamics three-body --out bodies": DRAWS,
    "fold gated.safetensors -o plain.safetensors": WORKS,
    "fold gated.safetensors -o exported.safetensors --onnx plain.onnx": "onnx onnx",
    "fold resnet20 --constants --data digits --plan": "scikit-learn study",
    "shorten resnet20 --data fake --limit 4 --size 16 --remove 1": WORKS,
    "shorten resnet20 --data fake --limit 4 --remove 1 --out short": DRAWS,
    "speed se --network resnet20 --sizes 16 --classes 10 --batches 1 --seconds 0.1": WORKS,
    "style train strokes --losses filters -o style": "scikit-learn study",
    "study new mine.toml": WORKS,
    "study plan mine.toml": "scikit-learn study",
    "study run mine.toml": "lightning-fabric study",
    "study status mine.toml": "scikit-learn study",
    "study show mine.toml": "scikit-learn study",
    "report plain.fold.json -o fold.html": DRAWS,
    "compare log.csv --metric top1 --by model --baseline a": "scipy study",
    "compare log.csv --metric top1 --by model --baseline a -o c.html": DRAWS,
    "yolo train yolo11n.pt --gate se": "ultralytics ultralytics",
}


def test_every_command_works_in_a_base_install_or_says_the_fix(tmp_path: Path) -> None:
    work, packages = tmp_path / "work", tmp_path / "packages"
    work.mkdir()
    packages.mkdir()
    (work / "log.csv").write_text("model,seed,top1\na,0,1\na,1,2\nb,0,2\nb,1,3.5\n")
    path = os.pathsep.join([str(ROOT / "src"), str(base_install(packages))])
    assert not (packages / "scipy").exists()
    ended = subprocess.run(
        [sys.executable, "-S", "-c", BASE],  # without the packages of this Python
        cwd=work,
        env={**os.environ, "PYTHONPATH": path},
        input=json.dumps(list(COMMANDS)),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    found = zip(COMMANDS.items(), json.loads(ended.stdout), strict=True)
    assert [
        (command, *answer) for (command, fix), answer in found if not _as_expected(fix, *answer)
    ] == []


def _as_expected(fix: str, code: object, said: str, failed: str) -> bool:
    if fix == WORKS:
        return (code, failed) == (0, "") and said != ""
    package, extra = fix.split()
    line = failed.startswith("attnlab: ") and failed.count("\n") == 1
    return code == 2 and line and package in failed.lower() and f"attnlab[{extra}]" in failed


def test_extras_that_pages_name_are_there() -> None:
    """Of one that is not, pip says a line and installs nothing."""
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {
        extra.strip()
        for page in pages
        for found in re.findall(r"attnlab\[([a-z, ]+)\]", page.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert {"study", "onnx", "parquet"} <= named
    assert named - set(there) == set()
