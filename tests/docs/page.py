"""Run the examples of a page, top to bottom, and compare what they print with what it shows.

- ```python blocks share one namespace. An ```output block right after one shows what it printed.
- ```console blocks hold commands, lines that begin with `$ `, each followed by its output. After
  that of a command that fails stands `(exit code 2)`.
- `make` commands take minutes. They are run when a page is refreshed, and in tests when
  ATTNLAB_DOCS=all.
- A block with `title="NAME"` is a file: it is written to NAME first.
- Everything happens in one temporary directory, on the CPU, offline. Other languages (```py, ```sh)
  are not run.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.docs.blocks import ROOT, Block, blocks_of, with_lines
from tests.docs.outputs import TRAINED, USUAL, same_output, trains
from tests.tools.forked import Forking

_LIMIT = 1800  # seconds for one command


@dataclass(frozen=True)
class Difference:
    """A block of a page that shows something else than what was printed."""

    block: Block
    lines: list[str]
    """What the block should hold."""

    def __str__(self) -> str:
        changed = difflib.unified_diff(self.block.lines, self.lines, "shown", "printed", "", "")
        return f"line {self.block.line}:\n" + "\n".join(line.rstrip("\n") for line in changed)


def run_page(path: Path, directory: Path, make: bool = False) -> list[Difference]:
    """Run a page's examples in `directory`; an example in Python that fails raises.

    Args:
        path: the page.
        directory: an empty one.
        make: whether to run `make` commands too.
    """
    lay_out(directory)
    name = "page_" + path.stem.replace("-", "_")
    module = sys.modules[name] = ModuleType(name)  # classes of a page look up their module
    sys.path.insert(0, str(directory))  # as for a script there: files of the page can be imported
    printed: list[str] = []
    differences: list[Difference] = []
    tolerance = USUAL
    try:
        with contextlib.chdir(directory):
            for block in blocks_of(path.read_text(encoding="utf-8")):
                if block.title is not None:
                    Path(block.title).write_text(block.text, encoding="utf-8")
                elif block.language == "python":
                    printed = run_python(block, path, module)
                elif block.language == "output" and not same_output(
                    block.lines, printed, tolerance
                ):
                    differences.append(Difference(block, printed))
                elif block.language == "console":
                    if any(trains(command) for command, _ in commands(block)):
                        tolerance = TRAINED
                    differences += run_console(block, make, tolerance)
    finally:
        sys.path.remove(str(directory))
        del sys.modules[name]
    return differences


def lay_out(directory: Path) -> None:
    """Make the directory look like a checkout that is set up, as far as commands go."""
    (directory / "Makefile").symlink_to(ROOT / "Makefile")
    (directory / ".venv").symlink_to(sys.prefix)
    for name in ("pyproject.toml", "constraints.txt"):  # older than .venv, so make leaves it alone
        (directory / name).touch()
        os.utime(directory / name, (0, 0))


def run_python(block: Block, path: Path, module: ModuleType) -> list[str]:
    """Run one block in the page's namespace; the lines it printed."""
    # Blank lines before it make the numbers in a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, vars(module))
    print(printed.getvalue(), end="")
    return printed.getvalue().splitlines()


def run_console(block: Block, make: bool, tolerance: float = USUAL) -> list[Difference]:
    """Run the commands of a block; at most one difference, with the block as it should be."""
    right: list[str] = []
    same = True
    for command, shown in commands(block):
        skipped = command.startswith("make ") and not make
        printed = shown if skipped else run_command(command)
        fits = same_output(shown, printed, tolerance)
        right += [f"$ {command}", *(shown if fits else printed)]
        same = same and fits
    return [] if same else [Difference(block, right)]


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block, and the output that is shown for it."""
    if not block.lines or not block.lines[0].startswith("$ "):
        raise ValueError(f"The console block at line {block.line} does not begin with a command.")
    starts = [i for i, line in enumerate(block.lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        yield block.lines[start].removeprefix("$ "), list(block.lines[start + 1 : end])


def run_command(command: str) -> list[str]:
    """The lines that a command prints in the current directory, errors among them."""
    if command.startswith("attnlab ") and not set(command) & set("|&;<>$`*?(\\"):
        run = "import sys; from attnlab.cli import main; main(sys.argv[1:])"
        ended = commands_of_attnlab().run(run, *shlex.split(command)[1:], seconds=_LIMIT)
        return _with_code(ended.printed, ended.code)
    with subprocess.Popen(
        ["bash", "-c", command],
        env=surroundings(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=_LIMIT)
        except BaseException:  # what the command started must not outlive it
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return _with_code(printed, process.returncode)


def _with_code(printed: str, code: int) -> list[str]:
    lines = [line.rstrip() for line in printed.splitlines()]
    return [*lines, f"(exit code {code})"] if code else lines


@functools.cache
def commands_of_attnlab() -> Forking:
    """What commands are forked from: it has imported attnlab, which takes longer than most run."""
    modules = ("attnlab.cli", "attnlab.lab.study", "attnlab.lab.pages", "torchvision", "timm")
    return Forking(*modules, environment=surroundings())


def surroundings() -> dict[str, str]:
    """The environment of a command: this Python's commands first, no network, no colour."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "FORCE_COLOR"))}
    return outside | {
        "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "MAKEFLAGS": "--silent --no-print-directory",
    }


def refreshed(path: Path, differences: list[Difference]) -> str:
    """The text of a page with what was printed in place of what it showed."""
    text = path.read_text(encoding="utf-8")
    return with_lines(text, {difference.block: difference.lines for difference in differences})
