"""What all benchmarks share: timing, tables, files, other processes and the command line."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
import tyro
from rich.console import Console
from rich.table import Table as RichTable

from attnlab._files import write_whole

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).with_name("data")
T = TypeVar("T")


@cache
def settings(name: str) -> dict[str, Any]:
    """Read one table of networks and settings from `benchmarks/data`."""
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


def interleave(
    contestants: Mapping[str, Callable[[], T]],
    rounds: int | None = None,
    seconds: float = float("inf"),
    warm_up: int = 1,
) -> dict[str, list[T]]:
    """Run every contestant once per round, and return what each of them answered, round by round.

    Stops after `rounds` rounds or `seconds` seconds. What happens on the machine meanwhile meets
    all contestants, so compare answers of the same round. The order changes at random, because
    the one that comes after a large one finds a cold cache.
    """
    for _ in range(warm_up):
        for run in contestants.values():
            run()
    answers: dict[str, list[T]] = {name: [] for name in contestants}
    order = random.Random(0)
    end = time.monotonic() + seconds
    while (rounds is None or len(next(iter(answers.values()))) < rounds) and time.monotonic() < end:
        for name in order.sample(list(contestants), len(contestants)):
            answers[name].append(contestants[name]())
    return answers


def timed(
    run: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """Make of `run` a contestant that answers how many seconds it took."""

    def timed_run() -> float:
        began = clock()
        run()
        return clock() - began

    return timed_run


def forward_or_both(
    call: Callable[[], torch.Tensor],
    backward: bool,
    slope: torch.Tensor | None = None,
    clear: Callable[[], object] = lambda: None,
) -> Callable[[], object]:
    """Make a run of `call` without gradients, or one with a backward pass from `slope`, or from the
    sum of the output if that is None; `clear` then drops the gradients."""

    def run() -> None:
        with torch.set_grad_enabled(backward):
            output = call()
            if backward:
                (output.sum() if slope is None else output).backward(slope)
        clear()

    return run


@dataclass(frozen=True)
class Table:
    """A table for the terminal and for a page; `title` may be a paragraph."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def print(self) -> None:
        """Print to the terminal; columns after the first are right-aligned."""
        table = RichTable(title=self.title)
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="left" if index == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        # A file is not wrapped at 80 columns, as rich would have it.
        Console(width=None if sys.stdout.isatty() else 180).print(table)

    def markdown(self) -> str:
        """Return the table for a page, without its title."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
            for cells in lines
        )


def ratio_text(ratio: float, low: float, high: float, digits: int = 2) -> str:
    """Show a ratio with its interval."""
    return f"{ratio:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def machine() -> dict[str, object]:
    """Describe what a reader needs to know of the machine to judge the numbers."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        found = re.search(r"model name\s*:\s*(.*)", information.read_text())
        if found:
            return found[1]
    return platform.processor() or platform.machine()


def write_json(path: Path, results: Mapping[str, object]) -> None:
    """Write the results with the machine they come from; never a half-written file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({"machine": machine(), **results}, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def paragraph(text: str) -> str:
    """Break `text` into lines as long as those of the pages."""
    return textwrap.fill(text, 105, break_long_words=False, break_on_hyphens=False)


def renew_section(page: Path, heading: str, text: str) -> None:
    """Put `text` under `heading` of `page`, in the place of what is there up to the next heading of
    that level."""
    level = heading.partition(" ")[0]
    renewed, count = re.subn(
        rf"^{re.escape(heading)}\n.*?(?=^{level} |\Z)",
        lambda _: f"{heading}\n\n{text.strip()}\n\n",
        page.read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    if count != 1:
        raise SystemExit(f"Expected one heading {heading!r} in {page} but found {count}.")
    write_whole(page, renewed.rstrip("\n") + "\n")


def child(program: str, *arguments: object, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a subcommand in another process and return what it wrote as JSON.

    Allocators, threads and instruction sets are chosen when a process starts.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-m", f"benchmarks.{program}", *map(str, arguments)]
        subprocess.run([*command, "--json", str(file)], env=dict(environment), cwd=ROOT, check=True)
        return read_json(file)


def keep_memory() -> None:
    """Start the program again with a C library that keeps the memory it was given (glibc).

    Otherwise the pages that one contestant gave back are cleared in the other's time, and by
    chance one of them takes twice as long.
    """
    kept = settings("speed")["allocators"]["never map"]
    if sys.platform == "linux" and not kept.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **kept})


def run_program(
    name: str, commands: Mapping[str, str], arguments: Sequence[str] | None = None
) -> None:
    """Run the subcommand that the arguments name, or the command line if they are None.

    Commands are given as `module:function`. Only the one that is asked for is imported, so that
    programs start fast and packages that others need stay optional.
    """
    program = f"python -m benchmarks.{name}"
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in commands:
        function = _command(name, commands[given[0]])
        tyro.cli(function, prog=f"{program} {given[0]}", args=given[1:])
        return
    every = {key: _command(name, path) for key, path in commands.items()}
    tyro.extras.subcommand_cli_from_dict(every, prog=program, args=given)


def _command(program: str, path: str) -> Callable[..., None]:
    module, _, function = path.partition(":")
    found: Callable[..., None] = getattr(
        importlib.import_module(f"benchmarks.{program}.{module}"), function
    )
    return found
