"""What the benchmarks share: the machine, tables and files. Times are `attnlab.latency`'s."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from attnlab._files import write_whole


def machine() -> dict[str, object]:
    """What a reader needs to judge the numbers."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table; columns after the first are right-aligned."""
    table = Table(title=title)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def write_json(path: Path, results: Mapping[str, object]) -> None:
    """Write the results with the machine they come from; never a half-written file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), **results}, indent=1)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text + "\n")
    os.replace(file.name, path)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a page."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def paragraph(text: str) -> str:
    """`text` in lines as long as those of the pages."""
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


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def keep_memory() -> None:
    """Start the program again with a C library that keeps the memory it was given (glibc)."""
    kept = {"MALLOC_TRIM_THRESHOLD_": str(16 * 2**30), "MALLOC_MMAP_MAX_": "0"}
    if sys.platform == "linux" and not kept.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **kept})
