"""The checksum of a class's source: what changes it, what does not, written out by hand."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from attnlab import _sources
from attnlab._errors import UnknownNameError
from attnlab._sources import SourceError

GATES = """
import math
import torch
from torch import nn
from attnlab.gates import BranchGate
from their_formula import squash

FACTOR = 0.5

def half(x):
    return FACTOR * x

class Halving(BranchGate):
    def forward(self, branch):
        return half(squash(branch.mean((2, 3), keepdim=True)))
"""
FORMULA = "import torch\nimport their_constants as c\n\ndef squash(x):\n    return c.ONE * x\n"
CONSTANTS = "ONE = 1.0\n"


def source_digest(path: str) -> str:
    """As in a new process, which has seen nothing."""
    _sources._SEEN.clear()
    return _sources.source_digest(path)


def test_a_source_that_changed_under_a_running_process_is_said(folder: Path) -> None:
    """The class in memory is the old one: a result would be tied to code that did not run."""
    before = _sources.source_digest("their_gates.Halving")
    assert _sources.source_digest("their_gates.Halving") == before
    (folder / "their_formula.py").write_text(FORMULA.replace("c.ONE * x", "c.ONE + x"))
    with pytest.raises(SourceError) as caught:
        _sources.source_digest("their_gates.Halving")
    assert str(caught.value) == (
        "The source of the class 'their_gates.Halving' changed on disk since this process imported "
        "it, so what would run is not what is there. Start Python again."
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's on the path, with a gate, what it needs, and what it does not."""
    monkeypatch.syspath_prepend(tmp_path)
    write(
        tmp_path,
        {
            "their_gates.py": GATES,
            "their_formula.py": FORMULA,
            "their_constants.py": CONSTANTS,
            "their_plots.py": "import their_gates\n",
        },
    )
    before = set(sys.modules)
    yield tmp_path
    forget(before)


def forget(before: set[str]) -> None:
    for name in set(sys.modules) - before:
        if name.startswith("their_"):
            del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


def by_hand(texts: dict[str, str], rest: str = "") -> str:
    lines = [f"{hashlib.sha256(t.encode()).hexdigest()}  {name}\n" for name, t in texts.items()]
    return hashlib.sha256(
        ("".join(sorted(lines, key=lambda x: x[66:])) + rest).encode()
    ).hexdigest()


def changes(folder: Path, name: str, text: str, path: str = "their_gates.Halving") -> bool:
    """Whether the checksum changes when the file `name` becomes `text`; puts it back."""
    before, old = source_digest(path), (folder / name).read_bytes()
    (folder / name).write_bytes(text.encode())
    after = source_digest(path)
    (folder / name).write_bytes(old)
    assert source_digest(path) == before
    return after != before


@pytest.mark.usefixtures("folder")
def test_it_is_that_of_the_modules_own_text_and_nothing_else() -> None:
    """Not of torch, attnlab, math, or what only uses the class."""
    own = {"their_gates": GATES, "their_formula": FORMULA, "their_constants": CONSTANTS}
    assert source_digest("their_gates.Halving") == by_hand(own)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("their_gates.py", "squash(branch", "squash(2 * branch"),
        ("their_gates.py", "FACTOR * x", "FACTOR + x"),
        ("their_gates.py", "FACTOR = 0.5", "FACTOR = 0.6"),
        ("their_formula.py", "c.ONE * x", "c.ONE + x"),
        ("their_constants.py", "1.0", "1.5"),
    ],
)
def test_a_change_of_the_class_or_what_it_uses_changes_it(
    folder: Path, name: str, old: str, new: str
) -> None:
    text = (folder / name).read_text()
    assert old in text
    assert changes(folder, name, text.replace(old, new))


def test_other_modules_and_line_endings_do_not_change_it(folder: Path) -> None:
    assert not changes(folder, "their_plots.py", "import their_gates\nx = 1\n")
    assert not changes(folder, "their_gates.py", GATES.replace("\n", "\r\n"))
    assert not changes(folder, "their_formula.py", "\ufeff" + FORMULA.replace("\n", "\r"))


def test_it_is_the_same_in_another_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = source_digest("their_gates.Halving")
    forget(set(sys.modules) - {"their_gates", "their_formula", "their_constants"})
    there = folder / "home" / "of another"
    write(there, {name.name: name.read_text() for name in folder.glob("their_*.py")})
    for name in folder.glob("their_*.py"):
        name.unlink()
    monkeypatch.syspath_prepend(there)
    assert source_digest("their_gates.Halving") == here
    assert Path(str(sys.modules["their_gates"].__file__)).parent == there


PACKAGE = {
    "their_package/__init__.py": "SCALE = 1\n",
    "their_package/gates/__init__.py": "from .first import Gate\n",
    "their_package/gates/first.py": (
        "from torch import nn\nfrom .. import SCALE, tools\nfrom ..deep.math import f\n"
        "class Gate(nn.Module):\n    pass\n"
    ),
    "their_package/tools.py": "from their_package.listed import *\n",
    "their_package/deep/math.py": (
        "from importlib import import_module\nf = import_module('.late', __package__)\n"
    ),
    "their_package/deep/late.py": "X = 1\n",
    "their_package/listed/__init__.py": "__all__ = ['inner']\n",
    "their_package/listed/inner.py": "Y = 1\n",
    "their_package/unused.py": "Z = 1\n",
}


def test_imports_are_followed_in_packages_of_every_kind(folder: Path) -> None:
    """Relative ones, what a package runs first, `import *`, a folder without __init__.py."""
    write(folder, PACKAGE)
    path = "their_package.gates.Gate"
    expected = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): text
        for name, text in PACKAGE.items()
        if "unused" not in name
    }
    assert source_digest(path) == by_hand(expected)
    for name, text in PACKAGE.items():
        assert changes(folder, name, text + "# more\n", path) == ("unused" not in name), name
    # Where the package hands it on, or at home: the same class, and the same code.
    assert source_digest("their_package.gates.first.Gate") == source_digest(path)


def test_nothing_is_run_but_the_module_of_the_class(folder: Path) -> None:
    mark = folder / "was run"
    loud = f"open({str(mark)!r}, 'w').close()\n"
    write(
        folder,
        {
            "their_lazy.py": (
                "from torch import nn\nclass Gate(nn.Module):\n    def forward(self, x):\n"
                "        import their_heavy.part.deep\n        import no_such_package\n"
                "        return x\n"
            ),
            "their_heavy/__init__.py": loud,
            "their_heavy/part/__init__.py": loud,
            "their_heavy/part/deep.py": loud + "K = '\\d'\nimport their_torn\n",
            "their_torn.py": "def (:\n",
        },
    )
    path = "their_lazy.Gate"
    source_digest(path)
    assert not mark.exists()
    assert "their_heavy" not in sys.modules
    for name in ("their_heavy/__init__.py", "their_heavy/part/deep.py", "their_torn.py"):
        assert changes(folder, name, (folder / name).read_text() + "# more", path)


def test_an_extension_of_the_users_counts_by_its_bytes(folder: Path) -> None:
    name = f"their_compiled{EXTENSION_SUFFIXES[0]}"
    lazy = "from torch import nn\nclass Gate(nn.Module):\n    def f(self):\n        import {}\n"
    write(folder, {"their_fast.py": lazy.format("their_compiled"), name: "one"})
    assert changes(folder, name, "two", "their_fast.Gate")
    assert changes(folder, name, "one\r\n", "their_fast.Gate")


INSTALLED = {
    "their_wheel/__init__.py": "from .gates import Gate\n",
    "their_wheel/gates.py": (
        "from torch import nn\nfrom . import rest\nclass Gate(nn.Module): pass\n"
    ),
    "their_wheel/rest.py": "",
    "their_wheel_gates-1.0.dist-info/METADATA": "Name: their-wheel-gates\nVersion: 1.0+cpu\n",
    "their_wheel_gates-1.0.dist-info/top_level.txt": "their_wheel\n",
}


def test_installed_code_counts_by_its_module_and_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "lib" / "site-packages"
    write(place, INSTALLED)
    monkeypatch.syspath_prepend(place)
    path, gates = "their_wheel.gates.Gate", INSTALLED["their_wheel/gates.py"]
    assert source_digest(path) == by_hand(
        {"their_wheel.gates": gates}, rest="their-wheel-gates 1.0\n"
    )
    assert changes(place, "their_wheel/gates.py", gates + "# more", path)
    metadata = "their_wheel_gates-1.0.dist-info/METADATA"
    assert changes(place, metadata, INSTALLED[metadata].replace("1.0", "1.1"), path)
    assert not changes(place, metadata, INSTALLED[metadata].replace("+cpu", "+cu128"), path)
    # Handed on by the package, or as one's own, the module that holds it counts still.
    write(folder, {"their_alias.py": "from their_wheel import Gate as Mine\n"})
    for other in ("their_wheel.Gate", "their_alias.Mine"):
        assert changes(place, "their_wheel/gates.py", gates + "# more", other)
        assert changes(place, metadata, INSTALLED[metadata].replace("1.0", "1.1"), other)
    # An own class that uses it depends on it as it does on torch: the environment records that.
    write(folder, {"their_user.py": "from their_wheel import Gate\nclass Mine(Gate): pass\n"})
    assert not changes(place, "their_wheel/gates.py", gates + "# more", "their_user.Mine")

    (place / metadata).unlink()
    (place / "their_wheel_gates-1.0.dist-info/top_level.txt").unlink()
    importlib.invalidate_caches()
    assert message(SourceError, lambda: source_digest(path)) == (
        "Module 'their_wheel.gates' lies among installed packages, but belongs to none of them "
        "that has a version. A result could not be tied to its code. Install it with pip, or put "
        "it into a folder of its own on PYTHONPATH."
    )


def message(kind: type[Exception], function: Callable[[], object]) -> str:
    with pytest.raises(kind) as error:
        function()
    return str(error.value)


def test_a_class_without_source_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "Typed", type("Typed", (), {}), raising=False)
    for path in ("__main__.Typed", "torch._C.Generator"):
        assert message(SourceError, lambda: source_digest(path)) == (  # noqa: B023
            f"The class {path!r} has no source text: its module is an extension, built in, or was "
            f"typed in. A result could not be tied to its code. Put the class, or a subclass of "
            f"it, into a .py file in a folder on PYTHONPATH."
        )


@pytest.mark.usefixtures("folder")
def test_what_is_said_about_wrong_paths() -> None:
    assert message(UnknownNameError, lambda: source_digest("their_gates.half")) == (
        "Module 'their_gates' has no class named 'half'."
    )
    assert message(UnknownNameError, lambda: source_digest("their_absent.Gate")) == (
        "There is no module 'their_absent' for the class 'their_absent.Gate'. Install it, or put "
        "the folder that holds it on PYTHONPATH; for a study, also --import-from FOLDER."
    )
    assert message(UnknownNameError, lambda: source_digest("se")) == (
        "Expected the class 'se' to be a name that comes with attnlab, or a class of your own as "
        "'module.Class'."
    )


def test_attnlabs_own_classes_count_by_where_they_are_and_where_they_are_handed_on() -> None:
    home, hands_on = "attnlab.gates.se", "attnlab.gates"
    texts = {
        name: Path(str(importlib.import_module(name).__file__)).read_text(encoding="utf-8")
        for name in (home, hands_on)
    }
    assert source_digest(f"{home}.SqueezeExcitation") == by_hand({home: texts[home]})
    assert source_digest(f"{hands_on}.SqueezeExcitation") == by_hand(texts)
