"""ASR's Table 1: what attention costs at inference, as trained, folded and fused."""

from __future__ import annotations

import copy
import gc
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.gates.registry import parse_gate
from attnlab.instruments.speed.result import (
    PAPER,
    PAPER_NETWORK,
    Form,
    SpeedMachine,
    SpeedRow,
    SpeedTable,
    TimedImages,
)
from attnlab.networks.create import create
from attnlab.results.environment import processor
from attnlab.surgery.folding.fold import fold
from attnlab.surgery.insertion.insert import insert
from attnlab.surgery.receipt import count_parameters
from attnlab.timing import latency

GATES = tuple(PAPER)
"""Of the paper's table and of the authors' public page; `none` is the plain network."""


def forms_of(gate: str) -> tuple[Form, ...]:
    """Return which forms of a network are timed: constant gates fold, and norms fuse with
    convolutions where no gate stays."""
    constant = [part.startswith("asr:") for part in gate.split("+")]
    folded: tuple[Form, ...] = ("folded",) if any(constant) else ()
    fused: tuple[Form, ...] = ("fused",) if all(constant) or gate == "none" else ()
    return ("as trained", *folded, *fused)


def speed_table(
    images: Sequence[TimedImages],
    gates: Sequence[str] = GATES,
    network: str = PAPER_NETWORK,
    *,
    seconds: float = 4.0,
    device: str | None = None,
    file: str | Path | None = None,
    report: Callable[[SpeedRow], None] | None = None,
) -> SpeedTable:
    """Time every gate on every kind of images, in eval mode, without gradients.

    Args:
        images: sizes, classes and batches.
        gates: as for `insert`; `none` is a copy of the plain network, whose ratio shows the noise.
        network: a name for `attnlab.create`.
        seconds: for one row at most, but at least ten rounds are timed.
        device: `cpu` or `cuda`; a GPU if there is one when None.
        file: JSON to write after every row; rows that it has are not timed again.
        report: called with each row.
    """
    began = perf_counter()
    if seconds <= 0:
        raise OptionError(f"Expected seconds to be above 0 but got {seconds}.")
    place = _device(device)
    _check_names(network, gates, images)
    threads = torch.get_num_threads()
    found = _resumed(file, SpeedTable(network, place.type, threads, _machine(place), ()))
    known = {(row.images, row.gate, row.form) for row in found.rows}
    for kind in dict.fromkeys((each.size, each.classes) for each in images):
        same = [each for each in images if (each.size, each.classes) == kind]
        for row in _rows(network, same, gates, known, seconds, place):
            found = replace(found, rows=(*found.rows, row))
            if file is not None:
                found.save(file)
            if report is not None:
                report(row)
    asked = {(each, gate) for each in images for gate in gates}
    rows = tuple(row for row in found.rows if (row.images, row.gate) in asked)
    return replace(found, rows=rows, seconds=perf_counter() - began)


def _check_names(network: str, gates: Sequence[str], images: Sequence[TimedImages]) -> None:
    """Refuse a gate or a network that does not exist before the first row is timed: a typo in the
    last gate would else be found after minutes."""
    if not images or not gates:
        raise OptionError("Expected at least one kind of images and one gate but got none.")
    for gate in gates:
        if gate != "none":
            parse_gate(gate)
    with torch.random.fork_rng(devices=[]):
        create(network, images[0].classes)


def _rows(
    network: str,
    images: Sequence[TimedImages],
    gates: Sequence[str],
    known: set[tuple[TimedImages, str, Form]],
    seconds: float,
    device: torch.device,
) -> Iterator[SpeedRow]:
    """Time the rows of images of one size and number of classes, so that each network is built
    once."""
    size, classes = images[0].size, images[0].classes
    torch.manual_seed(0)
    plain = create(network, classes).eval().to(device)
    for gate, form in [(name, form) for name in gates for form in forms_of(name)]:
        left = [each for each in images if (each, gate, form) not in known]
        if not left:
            continue
        built = _built(plain, gate, form, torch.randn(1, 3, size, size, device=device))
        for each in left:
            given = torch.randn(each.batch, 3, size, size, device=device)
            time = latency(plain, built, given, seconds=seconds)
            yield SpeedRow(
                images=each,
                gate=gate,
                form=form,
                parameters=count_parameters(built),
                images_per_second=each.batch / time.after,
                plain_images_per_second=each.batch / time.before,
                ratio=time.ratio,
                low=time.low,
                high=time.high,
                rounds=time.rounds,
            )
        del built
        gc.collect()


def _built(plain: nn.Module, gate: str, form: Form, example: Tensor) -> nn.Module:
    # Two copies of one network differ by some percent, by where their memory lies.
    other = copy.deepcopy(plain) if gate == "none" else insert(plain, gate, example=example)[0]
    network = other.eval()
    if form == "as trained":
        return network
    # Partial: of ASR(SE)+SE the SE stays.
    folded, _ = fold(network, fuse=form == "fused", partial=True, example=example)
    return folded


def _device(given: str | None) -> torch.device:
    if given not in (None, "cpu", "cuda"):
        raise OptionError(f"Expected device to be cpu or cuda but got {given!r}.")
    if given == "cuda" and not torch.cuda.is_available():
        raise OptionError("There is no GPU that torch can use. Leave device out, or set cpu.")
    return torch.device(given or ("cuda" if torch.cuda.is_available() else "cpu"))


def _machine(device: torch.device) -> SpeedMachine:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return SpeedMachine(name, torch.__version__, platform.python_version())


def _resumed(file: str | Path | None, empty: SpeedTable) -> SpeedTable:
    """The table that the file holds, if it was timed as this one will be; else the empty one."""
    if file is None or not Path(file).exists():
        return empty
    try:
        found = SpeedTable.load(file)
    except ValueError:
        raise InputError(
            f"{str(file)!r} is not a table of `attnlab speed`. Use another file."
        ) from None
    before, now = vars(found), vars(empty)
    for name in ("network", "device", "threads", "machine"):
        if before[name] != now[name]:
            raise InputError(
                f"{str(file)!r} was measured with {name} = {before[name]!r}, and now it is "
                f"{now[name]!r}: one table has one machine. Use another file."
            )
    return found
