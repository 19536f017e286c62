"""`attnlab try`: put a gate into a network and see at once what it costs and what it changes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from attnlab._errors import OptionError
from attnlab.cli._show import print_python

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnlab.surgery.receipt import Receipt
    from attnlab.timing import Latency

Start = Literal["paper", "identity"]


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
    weights: str | None = None,
    num_classes: int | None = None,
    size: int | None = None,
    batch: int = 1,
    threads: int | None = None,
) -> None:
    """Put a gate into a network: sites, parameters, MACs, latency, output change. No data needed.

    Examples:
      attnlab try se
      attnlab try step --model resnet164 --start identity
      attnlab try eca --model timm:resnet50 --where stages:3,4 --set kernel_size=3
      attnlab try asr:se*2 --model torchvision:resnet18 --where every:2
      attnlab try se --model torchvision:vgg11_bn --where features.1 features.5
      attnlab try se --model timm:resnet50 --weights resnet50.safetensors --size 288 --batch 8

    Args:
        gate: a name of `attnlab modules`, 'asr:NAME', 'asr:NAME*2', or several joined by '+'.
        model: a network of attnlab, 'timm:NAME' or 'torchvision:NAME'.
        where: stages:1,3 | blocks:0,5 | every:2 | code:1001 | random:1@0 | norms | in:module |
            module names. Everywhere if left out.
        start: paper (the paper's first gate) or identity (the output does not change at first).
        options: options of the gate.
        weights: a file, timm's "pretrained" or torchvision's "DEFAULT"; random when not given.
        num_classes: of the network; its own when not given.
        size: side of the images; what the network asks for when not given.
        batch: images per run when latency is measured.
        threads: of torch when latency is measured; torch's own choice when not given.
    """
    given = dict(key_value(text) for text in options)
    asked = Network(model, weights, num_classes, size)
    found = trial(gate, asked, where, start, batch, given, threads)
    print(found.receipt)
    print(f"  latency     {found.latency.statement}")
    if found.latency.busy:
        print(f"  note        {found.latency.busy}")
    if weights is None and start == "paper" and found.receipt.max_change == 0:
        print(
            "  note        the output did not move, so the branches of this untrained network are"
        )
        print("              all 0: timm, for one, starts the last norm of each block at 0")
    print()
    print_python(*python_lines(gate, asked, where, start, given))


@dataclass(frozen=True)
class Network:
    """The network to try a gate in."""

    model: str = "resnet20"
    weights: str | None = None
    num_classes: int | None = None
    size: int | None = None
    """Side of its images; what it asks for if None."""

    def create(self) -> nn.Module:
        from attnlab.networks.create import create

        return create(self.model, self.num_classes, self.weights).eval()

    def example(self, network: nn.Module, batch: int = 1) -> Tensor:
        """Random images, the same each time."""
        import torch

        from attnlab.residuals.example import example_input

        if self.size is None:
            return example_input(network, batch)
        if self.size < 1:
            raise OptionError(f"Expected size to be at least 1 but got {self.size}.")
        channels = example_input(network).shape[1]
        shape = (batch, channels, self.size, self.size)
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))

    def python(self) -> str:
        """The arguments of `attnlab.create`."""
        given = [repr(self.model)]
        given += [] if self.num_classes is None else [f"num_classes={self.num_classes}"]
        given += [] if self.weights is None else [f"weights={self.weights!r}"]
        return ", ".join(given)


def trial(
    gate: str,
    model: Network | None = None,
    where: tuple[str, ...] = (),
    start: Start = "paper",
    batch: int = 1,
    options: Mapping[str, Any] = MappingProxyType({}),
    threads: int | None = None,
) -> Trial:
    """Create `model`, insert `gate` with its `options`, and time both networks in turns."""
    import torch

    from attnlab.surgery.insertion.insert import insert
    from attnlab.timing import latency

    model = Network() if model is None else model
    if batch < 1:
        raise OptionError(f"Expected batch to be at least 1 but got {batch}.")
    for name in options:
        if name in inspect.signature(insert).parameters:
            raise OptionError(f"--set is for options of the gate, and {name!r} is not one.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = model.create()
        example = None if model.size is None else model.example(plain)
        place = " ".join(where) or None
        network, receipt = insert(plain, gate, place, start, example=example, **options)
        taken = latency(plain, network, model.example(plain, batch), threads=threads)
    return Trial(network, receipt, taken)


def python_lines(
    gate: str, model: Network, where: tuple[str, ...], start: str, options: Mapping[str, Any]
) -> list[str]:
    """The Python that does the same as the command."""
    from attnlab.residuals.where import parse_where

    arguments = [repr(gate)]
    if where:
        arguments.append(f"where={parse_where(' '.join(where))!r}")
    if start != "paper":
        arguments.append(f"start={start!r}")
    sides = f"torch.randn(1, 3, {model.size}, {model.size})"
    arguments += [] if model.size is None else [f"example={sides}"]
    arguments += [f"{key}={value!r}" for key, value in options.items()]
    return [
        "import attnlab",
        *([] if model.size is None else ["import torch"]),
        f"plain = attnlab.create({model.python()}).eval()",
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
