"""The base install: insert, fold and stiffness need nothing of the extras."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from attnlab._extras import DISTRIBUTIONS

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
    lambda: attnlab.data.images_for(net, "digits"),
    lambda: attnlab.stiffness(gated, images).plot(),
    lambda: attnlab.study.summarize([1.0, 2.0]) and attnlab.study.paired_difference(
        {0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.5}),
    lambda: import_module("attnlab.dynamics.problems").solve(
        next(iter(attnlab.dynamics.PROBLEMS.values()))),
):
    try:
        do()
    except attnlab.AttnlabError as error:
        assert isinstance(error, ImportError)
        print(error)
"""


def test_insert_fold_and_stiffness_work_without_the_extras() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "works",
        "This needs scikit-learn, which is not installed: pip install 'attnlab[study]'.",
        "This needs vl-convert-python, which is not installed: pip install 'attnlab[report]'.",
        "This needs scipy, which is not installed: pip install 'attnlab[study]'.",
        "This needs scipy, which is not installed: pip install 'attnlab[dynamics]'.",
    ]


def test_every_package_of_an_extra_is_told_by_the_name_that_pip_knows() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    held = {
        requirement.partition(">=")[0]
        for name in ("study", "report", "dynamics")
        for requirement in extras[name]
        if ">=" in requirement
    }
    assert held == set(DISTRIBUTIONS.values())
    assert not any(each.partition(">=")[0] in held for each in project["dependencies"])
    assert extras["dev"][0].startswith("attnlab[study,")  # what make installs
