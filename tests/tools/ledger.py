"""Results of the package on small inputs, stored, to be compared after a restructuring.

    python -m tests.tools.ledger write tests/tools/ledger.json
    python -m tests.tools.ledger compare tests/tools/ledger.json --only stiffness

`compare` computes every stored entry again and prints its largest relative difference; it ends with
exit code 1 where one differs that is not listed in `FAULTS`. Entries are in `tests/tools/entries`,
each a function that returns plain data and imports what it needs at its top, so that a new home of
a function is a change of one line. Most of them compute in float64. Commands and studies compute in
float32, which is the same from run to run, but only on one kind of processor with one release of
torch: write and compare those on the same machine. Nothing that depends on the clock is stored.
"""

from __future__ import annotations

import os

# Before torch is imported, and as in tests/conftest.py: the kernels decide the last digits.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tests.tools.entries import ENTRIES
from tests.tools.entries.shared import Plain, plain

RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""Numbers that differ by less are the same; below the second they are rounding."""

_DIGITS = (
    "the command reads digits at 32 px with ImageNet's mean, training and test images together, "
    "instead of the preprocessing that the data set has in a run"
)
_FAKE = (
    "without data, the command made random images of its own, which are not those that 'fake' "
    "means in a study, and --size changed the random weights of the gates"
)
_WEIGHTNET = "the hidden width of WeightNet was max(1, C/16); the authors' is max(16, C/16)"
_FLOAT32 = "means and spreads of gates were computed in float32; those of stripe are in float64"
FAULTS: dict[str, str] = {
    "commands.digits.stiffness": _DIGITS,
    "commands.digits.stripe": _DIGITS,
    "commands.digits.place": _DIGITS,
    "commands.digits.fold_constants": _DIGITS,
    "commands.maps": _FAKE,
    "commands.stiffness": _FAKE,
    "commands.stripe": _FAKE,
    "stripe.statistics": _FLOAT32,
    "study.gates": _FLOAT32,
    "commands.fold_constants": _FAKE,
    "commands.operators": _WEIGHTNET,
    "operators.described": _WEIGHTNET,
    "operators.dynamic": _WEIGHTNET,
    "statistics.equivalent": "sequential equivalence is by e-processes of more power now",
    "study.latex_file": "LaTeX tables had no rules, no p and no verdicts",
    "commands.compare": "the command says by which name it knows the direction of a metric",
}
"""Entries whose stored numbers come from a known fault: when it is mended, they may differ."""


@dataclass(frozen=True)
class Difference:
    """What two values of one entry have in common."""

    largest: float
    """The largest relative difference of two numbers."""
    where: str
    """The first place that is not the same; empty where all is."""


def differences(stored: Plain, found: Plain) -> Difference:
    """Compare what is stored with what was found, which may have more keys, but no fewer."""
    largest, first = 0.0, ""
    for path, one, other in _pairs(stored, found, ""):
        apart, same = _apart(one, other)
        largest = max(largest, apart)
        if not same and not first:
            first = f"{path or 'value'}: {_shown(one)} → {_shown(other)}"
    return Difference(largest, first)


class _Absent:
    """Stands for a value that is not there."""


def _pairs(stored: object, found: object, path: str) -> Iterator[tuple[str, object, object]]:
    """The leaves of both, side by side."""
    if isinstance(stored, dict) and isinstance(found, dict):
        for key, value in stored.items():
            yield from _pairs(value, found.get(key, _Absent), f"{path}.{key}".lstrip("."))
    elif isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        for number, (one, other) in enumerate(zip(stored, found, strict=True)):
            yield from _pairs(one, other, f"{path}[{number}]")
    else:
        yield path, stored, found


def _apart(one: object, other: object) -> tuple[float, bool]:
    """The relative difference of two leaves, and whether they count as the same."""
    if not (isinstance(one, int | float) and isinstance(other, int | float)):
        return 0.0, type(one) is type(other) and one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return 0.0, one is other
    difference = abs(one - other)
    if difference <= ABSOLUTE:
        return 0.0, True
    relative = difference / max(abs(one), abs(other))
    return relative, relative <= RELATIVE


def _shown(value: object) -> str:
    text = "absent" if value is _Absent else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch and the same seed, in a folder of its own; all as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            torch.random.fork_rng(devices=[]),
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
        ):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(threads)


def computed(name: str) -> Plain:
    """Compute one entry, with what it prints and warns of left out."""
    with (
        one_thread(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        # Through JSON, so that what is compared has the types of what was stored.
        return json.loads(json.dumps(plain(ENTRIES[name]())))


def attempt(name: str) -> tuple[Plain, str]:
    """The value of an entry, or nothing and the error that it ended with."""
    try:
        return computed(name), ""
    except (Exception, SystemExit) as error:
        if os.environ.get("LEDGER_TRACEBACK"):
            traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"


def write(file: Path, only: str) -> int:
    """Store every entry; those of other prefixes stay as they are."""
    stored = json.loads(file.read_text(encoding="utf-8")) if only and file.exists() else {}
    failed = 0
    for name in _chosen(ENTRIES, only):
        began = time.perf_counter()
        value, error = attempt(name)
        if error:
            failed += 1
            print(f"{name:<44} {error}", flush=True)
            continue
        stored[name] = value
        print(f"{name:<44} {time.perf_counter() - began:5.1f} s", flush=True)
    stored = {name: stored[name] for name in sorted(stored)}
    lines = [f"{json.dumps(n)}: {json.dumps(v, ensure_ascii=False)}" for n, v in stored.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"wrote {len(stored)} entries to {file}")
    return 1 if failed else 0


def compare(file: Path, only: str) -> int:
    """Print one line per stored entry; 1 where one that is not a known fault is not the same."""
    stored = json.loads(file.read_text(encoding="utf-8"))
    counts: dict[str, int] = {}
    wrong = 0
    for name in _chosen(stored, only):
        state, largest, why = _judged(name, stored[name])
        counts[state] = counts.get(state, 0) + 1
        wrong += state != "same" and name not in FAULTS
        if state != "same" and name in FAULTS:
            why = f"known fault: {FAULTS[name]}"
        print(f"{name:<44} {largest:8.1e}  {state:<8} {why}".rstrip(), flush=True)
    print(", ".join(f"{number} {state}" for state, number in sorted(counts.items())))
    return 1 if wrong else 0


def _judged(name: str, stored: Plain) -> tuple[str, float, str]:
    if name not in ENTRIES:
        return "missing", 0.0, "no entry has this name"
    found, error = attempt(name)
    if error:
        return "error", 0.0, error
    difference = differences(stored, found)
    return "differs" if difference.where else "same", difference.largest, difference.where


def _chosen(names: Sequence[str] | dict[str, Callable[[], object]], only: str) -> list[str]:
    return [name for name in names if name.startswith(only)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(prog="tests.tools.ledger", description=__doc__)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="entries whose name begins with this")
    given = parser.parse_args(arguments)
    action = {"write": write, "compare": compare}[given.action]
    return action(given.file.resolve(), given.only)


if __name__ == "__main__":
    sys.exit(main())
