"""What importing attnlab does not do: connect, load what is not needed yet, print, take long."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attnlab

IMPORT = """
import json, socket, sys, time

def refuse(*_, **__):
    raise AssertionError("importing attnlab opened a connection")

socket.socket.connect = refuse
socket.socket.connect_ex = refuse
socket.socket.sendto = refuse
socket.getaddrinfo = refuse
socket.create_connection = refuse

import torch

threads, seed, grad = torch.get_num_threads(), torch.random.get_rng_state(), torch.is_grad_enabled()
dtype = torch.get_default_dtype()
began = time.process_time()
import attnlab
seconds = time.process_time() - began

lazy = ("timm", "torchvision", "transformers", "onnx", "onnxruntime", "onnxscript", "sklearn")
print(json.dumps({
    "seconds": seconds,
    "loaded": [name for name in lazy if name in sys.modules],
    "settings kept": (
        threads == torch.get_num_threads()
        and torch.equal(seed, torch.random.get_rng_state())
        and grad == torch.is_grad_enabled()
        and dtype == torch.get_default_dtype()
    ),
    "callable": [callable(getattr(attnlab, name)) for name in ("create", "steps", "insert")],
}))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()  # nothing else is printed
    assert ended.stderr == ""
    return json.loads(line)


def test_only_what_is_needed_is_loaded(imported: dict[str, Any]) -> None:
    assert imported["loaded"] == []


def test_no_setting_of_torch_changes(imported: dict[str, Any]) -> None:
    assert imported["settings kept"]


def test_public_names_are_functions_not_the_subpackages(imported: dict[str, Any]) -> None:
    """No module takes the name of `attnlab.insert` or `attnlab.create`."""
    assert imported["callable"] == [True, True, True]


def test_import_takes_little_beyond_torch(imported: dict[str, Any]) -> None:
    """Processor seconds, with torch loaded before."""
    assert imported["seconds"] < 3


ROOMS = """
import sys
import attnlab

assert "torch" not in sys.modules
print(attnlab.lab.training.RunConfig.__name__, attnlab.lab.study.load_study.__name__)
print(attnlab.networks.checkpoint.Description.__name__)
print(attnlab.load.__name__, attnlab.save.__name__)
import attnlab.surgery.folding, attnlab.surgery.insertion
import attnlab.lab.pages, attnlab.instruments.stripe
print([type(getattr(attnlab, name)).__name__ for name in ("fold", "insert", "report", "stripe")])
print([name for name in dir(attnlab) if getattr(attnlab, name) is None])
"""


def test_every_room_is_reached_from_the_package() -> None:
    """Rooms and their folders, with no other import: commands print lines that use them."""
    ended = subprocess.run([sys.executable, "-c", ROOMS], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "RunConfig load_study",
        "Description",
        "load save",
        "['function', 'function', 'function', 'function']",
        "[]",
    ]


HELP = """
import sys
from attnlab.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
print("torch" in sys.modules)
"""


def test_help_does_not_wait_for_torch() -> None:
    ended = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "False"


EVERY_PUBLIC_NAME = """
import sys
import attnlab

for name in dir(attnlab):
    getattr(attnlab, name)
print(callable(attnlab.insert), "torch._dynamo" in sys.modules)
"""


def test_no_public_name_waits_for_the_compiler() -> None:
    """`torch._dynamo` takes as long as torch itself, and only what compiles needs it."""
    ended = subprocess.run(
        [sys.executable, "-c", EVERY_PUBLIC_NAME], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["True", "False"]


def test_no_name_that_a_folder_hands_on_is_a_file_of_it() -> None:
    """Once the file is imported, it would be found in the name's place."""
    package = Path(attnlab.__file__).parent
    folders = [
        file.parent for file in package.rglob("__init__.py") if "handed_on(" in file.read_text()
    ]
    assert len(folders) > 10
    for folder in folders:
        names = dir(importlib.import_module(".".join(folder.relative_to(package.parent).parts)))
        assert not [name for name in names if (folder / f"{name}.py").exists()], folder
