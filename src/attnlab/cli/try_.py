"""`attnlab try`: put a gate into a network and see at once what it costs and what it changes."""

from __future__ import annotations

import ast
import functools
import inspect
import statistics
import timeit
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from attnlab._errors import OptionError
from attnlab.cli._show import print_python

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnlab.insert import Receipt

Start = Literal["paper", "identity"]
_FEWEST, _MOST = 5, 50


@dataclass(frozen=True)
class Latency:
    """Time of one forward run without and with the gates, measured in turns in one process."""

    before: float
    """Median seconds."""
    after: float
    ratio: float
    """Median of the ratios of neighbouring runs."""
    pairs: int
    batch: int
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.ratio:.2f}× ({self.before * 1e3:.2f} → {self.after * 1e3:.2f} ms, median of "
            f"{self.pairs} pairs in turns; batch {self.batch}, threads {self.threads})"
        )


@dataclass(frozen=True)
class Trial:
    """What `attnlab try` found."""

    network: nn.Module
    receipt: Receipt
    latency: Latency


def try_(
    gate: Annotated[str, tyro.conf.arg(metavar="GATE")],
    /,
    model: str = "resnet20",
    where: tuple[str, ...] = (),
    start: Start = "paper",
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = (),
    batch: int = 1,
) -> None:
    """Put a gate into a network: sites, parameters, MACs, latency, output change. No data needed.

    Examples:
      attnlab try se
      attnlab try step --model resnet164 --start identity
      attnlab try eca --model timm:resnet50 --where stages:3,4 --set kernel_size=3
      attnlab try asr:se*2 --model torchvision:resnet18 --where every:2
      attnlab try se --model torchvision:vgg11_bn --where features.1 features.5

    Args:
        gate: a name of `attnlab modules`, 'asr:NAME', 'asr:NAME*2', or several joined by '+'.
        model: a network of attnlab, 'timm:NAME' or 'torchvision:NAME'. No weights are fetched.
        where: stages:1,3 | blocks:0,5 | every:2 | norms | in:module | module names. Everywhere if
            left out.
        start: paper (the paper's first gate) or identity (the output does not change at first).
        options: options of the gate.
        batch: images per run when latency is measured.
    """
    given = dict(key_value(text) for text in options)
    found = trial(gate, model, where, start, batch, given)
    print(found.receipt)
    print(f"  latency     {found.latency}")
    if start == "paper" and found.receipt.max_change == 0:
        print(
            "  note        the output did not move, so the branches of this untrained network are"
        )
        print("              all 0: timm, for one, starts the last norm of each block at 0")
    print()
    print_python(*python_lines(gate, model, where, start, given))


def trial(
    gate: str,
    model: str = "resnet20",
    where: tuple[str, ...] = (),
    start: Start = "paper",
    batch: int = 1,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Trial:
    """Create `model`, insert `gate` with its `options`, and time both networks in turns."""
    import torch

    from attnlab.create import create
    from attnlab.insert import insert
    from attnlab.record.example import example_input

    if batch < 1:
        raise OptionError(f"Expected batch to be at least 1 but got {batch}.")
    for name in options:
        if name in inspect.signature(insert).parameters:
            raise OptionError(f"--set is for options of the gate, and {name!r} is none.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = create(model).eval()
        network, receipt = insert(plain, gate, " ".join(where) or None, start, **options)
        latency = compare(plain, network, example_input(plain, batch))
    return Trial(network, receipt, latency)


def compare(before: nn.Module, after: nn.Module, images: Tensor, seconds: float = 2.0) -> Latency:
    """Time the two networks in turns on the CPU, for about `seconds`."""
    import torch

    timers = [timeit.Timer(functools.partial(network, images)) for network in (before, after)]
    taken: list[tuple[float, float]] = []
    with torch.inference_mode():
        for timer in timers:
            timer.timeit(1)  # first runs allocate
        end = perf_counter() + seconds
        while len(taken) < _FEWEST or (perf_counter() < end and len(taken) < _MOST):
            taken.append((timers[0].timeit(1), timers[1].timeit(1)))
    return Latency(
        before=statistics.median(pair[0] for pair in taken),
        after=statistics.median(pair[1] for pair in taken),
        ratio=statistics.median(pair[1] / pair[0] for pair in taken),
        pairs=len(taken),
        batch=images.shape[0],
        threads=torch.get_num_threads(),
    )


def python_lines(
    gate: str, model: str, where: tuple[str, ...], start: str, options: Mapping[str, Any]
) -> list[str]:
    """The Python that does the same as the command."""
    from attnlab.insert.where import parse_where

    arguments = [repr(gate)]
    if where:
        arguments.append(f"where={parse_where(' '.join(where))!r}")
    if start != "paper":
        arguments.append(f"start={start!r}")
    arguments += [f"{key}={value!r}" for key, value in options.items()]
    return [
        "import attnlab",
        f"plain = attnlab.create({model!r}).eval()",
        f"network, receipt = attnlab.insert(plain, {', '.join(arguments)})",
        "print(receipt)",
    ]


def key_value(text: str) -> tuple[str, Any]:
    """`reduction=8` as a name and a value."""
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise OptionError(f"Expected --set KEY=VALUE, as in --set reduction=8, but got {text!r}.")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value
