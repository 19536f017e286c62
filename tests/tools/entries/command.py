"""Run a command of the command line in this process, and read what it wrote or printed."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import torch

NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
TIMED = ("took", "latency", "note", "wrote", "images/s", "seconds")
"""Lines that begin with one of these are words, or depend on the clock."""


def printed(*arguments: str) -> str:
    """What a command prints, up to the Python that does the same."""
    from attnlab.cli import main

    torch.manual_seed(0)
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        main(list(arguments))
    return text.getvalue().partition("In Python:")[0]


def written(file: str, *arguments: str) -> dict[str, object]:
    """The JSON that a command writes as `file`."""
    printed(*arguments)
    found: dict[str, object] = json.loads(Path(file).read_text(encoding="utf-8"))
    return found


def numbers(text: str) -> list[list[float]]:
    """The numbers of every line that has some and does not depend on the clock."""
    lines = [line for line in text.splitlines() if not line.strip().startswith(TIMED)]
    found = [[_value(each) for each in NUMBER.findall(line)] for line in lines]
    return [line for line in found if line]


def _value(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def words(text: str) -> list[list[str]]:
    """The cells of a printed table, line by line."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return [line for line in lines if len(line) > 1]
