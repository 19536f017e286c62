"""`attnlab try`: put a gate into a network and see at once what it costs and what it changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import tyro

from attnlab._errors import OptionError
from attnlab.cli._show import print_python
from attnlab.cli.driver import Opening, in_python, opening_command
from attnlab.cli.insert import OF_THE_GATE, GateOptions, insert_into

if TYPE_CHECKING:
    from attnlab.subject import Subject

_NETWORK = "resnet20"
_UNMOVED = (
    "  note        the output did not move, so the branches of this untrained network are\n"
    "              all 0: timm, for one, starts the last norm of each block at 0"
)


@dataclass(frozen=True, kw_only=True)
class TryOptions(GateOptions):
    """What `attnlab try` is asked for."""

    gate: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="GATE")]
    """A name of `attnlab modules`, 'asr:NAME', 'asr:NAME*2', or several joined by '+'."""


def _try(asked: Opening, chosen: TryOptions) -> None:
    """Put a gate into a network: sites, parameters, MACs, latency, output change. No data needed.

    The network is resnet20 if none is given. Latency is measured on one image at a time, if --batch
    does not say another number.

    Examples:
      attnlab try se
      attnlab try step resnet164 --start identity
      attnlab try eca timm:resnet50 --where stages:3,4 --set kernel_size=3
      attnlab try asr:se*2 torchvision:resnet18 --where every:2
      attnlab try se torchvision:vgg11_bn --where 'features.1 features.5'
      attnlab try se timm:resnet50 --weights resnet50.safetensors --size 288 --batch 8
      attnlab try se runs/RUN
    """
    from attnlab.timing import latency

    asked, chosen = _in_order(asked, chosen)
    if asked.is_name and "model" in asked.options:
        raise OptionError(
            f"--model says which network a file of weights belongs to. The network to try is the "
            f"second argument: attnlab try {chosen.gate} {asked.options['model']}."
        )
    subject = asked.subject()
    network, receipt = insert_into(subject, asked, chosen)
    print(subject.sign(receipt))
    timed = latency(subject.network, network, subject.example(int(asked.options.get("batch", 1))))
    print(f"  latency     {timed.statement}")
    if timed.busy:
        print(f"  note        {timed.busy}")
    if not subject.trained and chosen.start == "paper" and receipt.max_change == 0:
        print(_UNMOVED)
    print()
    print_python(*_python(subject, asked, chosen))


try_ = opening_command(_try, TryOptions, OF_THE_GATE, _NETWORK)


def _in_order(asked: Opening, chosen: TryOptions) -> tuple[Opening, TryOptions]:
    """`try NETWORK GATE` as `try GATE NETWORK`, where the words can be told apart."""
    from attnlab.gates.registry import GATES

    first = asked.source.removeprefix("asr:").split("*")[0].split("+")[0]
    if first in GATES and chosen.gate not in GATES and asked.is_name:
        return replace(asked, source=chosen.gate), replace(chosen, gate=asked.source)
    return asked, chosen


def _python(subject: Subject, asked: Opening, chosen: TryOptions) -> list[str]:
    """The Python that does the same as the command."""
    default: dict[str, object] = {"where": None, "start": "paper", "place": "auto", "shared": False}
    given = {
        name: value
        for name, value in chosen.of_insert().items()
        if name not in default or value != default[name]
    }
    sized = subject.description is not None and subject.description.input_size is not None
    example = ", example=subject.example()" if sized or subject.description is None else ""
    return [
        "import attnlab",
        f"subject = {asked.python()}",
        f"network, receipt = attnlab.insert(subject.network, {chosen.gate!r}{in_python(given)}"
        f"{example})",
        "print(receipt)",
    ]
