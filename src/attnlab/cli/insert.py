"""`attnlab insert`: a network with gates as a file, to be trained elsewhere and folded."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from attnlab._errors import OptionError
from attnlab.cli._show import print_python
from attnlab.cli.driver import Opening, opening_command

if TYPE_CHECKING:
    from torch import nn

    from attnlab.networks.checkpoint import Description
    from attnlab.subject import Subject
    from attnlab.surgery.receipt import Receipt

OF_THE_GATE = ("gate", "where", "start", "place", "shared")
"""Options of `attnlab.open` that are about the gate to insert in these commands."""


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """The gate to insert, and how."""

    gate: str
    """A name of `attnlab modules`, 'asr:NAME', 'asr:NAME*2', or several joined by '+'."""
    where: str | None = None
    """stages:1,3 | blocks:0,5 | every:2 | code:1001 | random:1@0 | norms | in:module | 'names of
    modules'. Everywhere if left out."""
    start: Literal["paper", "identity"] = "paper"
    """The paper's first gate, or one that leaves the output unchanged at first."""
    place: Literal["auto", "branch", "norm", "heads"] = "auto"
    """At the end of a branch, after the norm that it ends in, or in front of the output projection
    of attention."""
    shared: bool = False
    """One gate for all chosen blocks of a stage."""
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = ()
    """Options of the gate."""

    def of_gate(self) -> dict[str, Any]:
        """The options of the gate, by name."""
        from attnlab.surgery.insertion.insert import insert

        given = dict(key_value(text) for text in self.options)
        for name in given:
            if name in inspect.signature(insert).parameters:
                raise OptionError(f"--set is for options of the gate, and {name!r} is not one.")
        return given

    def of_insert(self) -> dict[str, Any]:
        """The keyword arguments of `attnlab.insert`."""
        from attnlab.residuals.where import parse_where

        return {
            "where": parse_where(self.where),
            "start": self.start,
            "place": self.place,
            "shared": self.shared,
            **self.of_gate(),
        }


@dataclass(frozen=True, kw_only=True)
class InsertOptions(GateOptions):
    """What `attnlab insert` is asked for."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """The .safetensors file to write."""


def insert_into(subject: Subject, asked: Opening, chosen: GateOptions) -> tuple[nn.Module, Receipt]:
    """A copy of the subject's network with the gate, whose first values are the same each time."""
    import torch

    from attnlab.surgery.insertion.insert import insert as insert_gate

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if asked.is_name and subject.description is not None:
            # `attnlab.open(name, gate=...)` draws the network first and then the gate: the same
            # draws here, so that both ways give the same network.
            subject.description.build()
        return insert_gate(
            subject.network, chosen.gate, example=subject.example(), **chosen.of_insert()
        )


def _insert(asked: Opening, chosen: InsertOptions) -> None:
    """Write a network with gates as a file that says what it is: load it with attnlab.load, train
    it, save it with attnlab.save, and give it to attnlab fold, stripe, stiffness or any other
    command.

    Examples:
      attnlab insert resnet164 --gate asr:se --num-classes 100 -o gated.safetensors
      attnlab insert timm:resnet50 --gate se --start identity --weights pretrained -o se.safetensors
      attnlab insert resnet20 --gate se --where stages:2,3 --set reduction=8 -o se.safetensors
      attnlab insert runs/RUN --gate asr:se --start identity -o gated.safetensors
    """
    import attnlab

    output = chosen.output
    asked.check_output(output)
    subject = asked.subject()
    description = _described(subject, chosen)
    gated, receipt = insert_into(subject, asked, chosen)
    print(subject.sign(receipt))
    if not subject.trained:
        print("the weights are random: train the network")
    print(f"wrote {attnlab.save(gated, output, description)}")
    print("next: train it between attnlab.load and attnlab.save, then")
    print(f"  attnlab fold {output} -o plain.safetensors")
    print()
    print_python(
        "import attnlab",
        f"network = attnlab.load({str(output)!r})  # train it here",
        "attnlab.save(network, 'trained.safetensors')",
    )


insert = opening_command(_insert, InsertOptions, OF_THE_GATE)


def _described(subject: Subject, chosen: InsertOptions) -> Description:
    """How to build the network with its gates; a file describes one insertion."""
    before = subject.description
    if before is None:
        raise OptionError(
            f"Only its task can build the network of {subject.name!r}, so a file could not say "
            f"what it is. Insert in Python: attnlab.insert(network, {chosen.gate!r})."
        )
    if before.gate is not None:
        raise OptionError(
            f"{subject.name!r} has gates already ({before.gate}), and a file describes one "
            f"insertion. Insert both into the plain network: --gate {before.gate}+{chosen.gate}."
        )
    given = chosen.of_insert()
    fields = {name: given[name] for name in ("where", "start", "place", "shared")}
    return replace(before, gate=chosen.gate, gate_options=chosen.of_gate(), **fields)


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
