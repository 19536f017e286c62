"""How to build a network, in words that a file can hold."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from attnlab._errors import OptionError, WeightsError
from attnlab._imported import is_path
from attnlab._tokens import example_tokens
from attnlab.networks.create import create
from attnlab.networks.preprocessing import Preprocessing
from attnlab.residuals.example import example_input
from attnlab.residuals.site import Place
from attnlab.surgery.folding import restructure
from attnlab.surgery.history import Made, record_event
from attnlab.surgery.insertion import attachments, remove_attachments
from attnlab.surgery.insertion.insert import insert
from attnlab.surgery.noise import NoiseConfig
from attnlab.surgery.noise import attach as attach_noise
from attnlab.surgery.shortening.stand_ins import outermost, stand_in_for, take_out

if TYPE_CHECKING:
    from attnlab.surgery.folding import FoldReceipt
    from attnlab.surgery.shortening import ShortenReceipt

# What a network starts from, by the names that timm and torchvision have for it. Some fetch it.
_START = (
    "weights",
    "new_head",
    "weights_backbone",
    "pretrained",
    "pretrained_backbone",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "pretrained_strict",
    "cache_dir",
    "checkpoint_path",
)


@dataclass(frozen=True)
class Description:
    """How to build a network: the arguments of `create` and `insert`, what was folded, and which
    steps were removed.

    A file holds the fields that do not have their default, so the defaults never change.
    """

    model: str
    num_classes: int | None = None
    model_options: dict[str, Any] = field(default_factory=dict)
    gate: str | None = None
    where: str | list[str] | None = None
    start: Literal["paper", "identity"] = "paper"
    gate_options: dict[str, Any] = field(default_factory=dict)
    input_size: list[int] | None = None
    """Channels, height, width of the images, or the number of tokens of a text; what the network
    says about itself if None."""
    kept: list[str] | None = None
    """After a fold, the gates that stay; None before."""
    removed: list[str] = field(default_factory=list)
    """Modules of the network that were folded away."""
    fused: bool = False
    affine: list[str] = field(default_factory=list)
    """Norms that a fold gave affine parameters."""
    place: Place = "branch"
    """The place as given to `insert`, whose own default is `auto`; runs have the same default as
    this."""
    shared: bool = False
    """Whether the chosen blocks of a stage have one gate in common, as given to `insert`."""
    noise: dict[str, Any] | None = None
    """The noise in the norms of the network, as a run has it: `{"kind": "constant", "a": 0.8, "b":
    0.8}`."""
    preprocessing: Preprocessing | None = None
    """How images were prepared when it was trained; None if that is not known."""
    shortened: dict[str, str] = field(default_factory=dict)
    """After steps were removed, what took the place of which module: `{"layer1.2": "identity"}`."""
    operators: list[dict[str, Any]] = field(default_factory=list)
    """Which feature operators took the place of convolutions, in order: `[{"operator":
    "involution", "sites": ["layer3.1.conv2"], "options": {}}]`."""

    def __post_init__(self) -> None:
        own = inspect.signature(create).parameters
        _refuse("model_options", self.model_options, (*own, *_START))
        _refuse("gate_options", self.gate_options, inspect.signature(insert).parameters)
        if self.noise is not None:
            NoiseConfig(**self.noise)
        for word in self.shortened.values():
            stand_in_for(word)
        for each in self.operators:
            if sorted(each) != ["operator", "options", "sites"]:
                raise OptionError(
                    f"Expected an operator, its sites and its options in operators but got {each}."
                )

    def build(self) -> nn.Module:
        """The network, with its first weights."""
        network = create(self.model, self.num_classes, **self.model_options)
        self._exchange(network)
        if self.gate is not None and self.kept != []:
            network, _ = insert(
                network,
                self.gate,
                self.where,
                self.start,
                place=self.place,
                shared=self.shared,
                example=self.example(network),
                inplace=True,
                **options_for_loading(self.gate, self.gate_options),
            )
            if self.kept is not None:
                remove_attachments(network, keep=frozenset(self.kept))
        if self.noise is not None:
            settings = NoiseConfig(**self.noise)
            attach_noise(network, settings.build(), settings.during)
        restructure(
            network,
            removed=self.removed,
            affine=self.affine,
            fused=self.fused,
            example=self.example(network),
        )
        take_out(network, self.shortened)
        with suppress(OptionError):  # no file can have such a description
            record_event(network, Made(json.loads(self.to_json())))
        return network

    def _exchange(self, network: nn.Module) -> None:
        if self.operators:
            from attnlab.evolution.replace import (
                exchange_convolutions,
            )  # half a second that few files need

            for each in self.operators:
                exchange_convolutions(network, **each)

    def after_shorten(self, network: nn.Module, receipt: ShortenReceipt) -> Description:
        """The description of `network`, which `shorten` made of the described one."""
        gates = [name for name, _ in attachments(network)]
        return replace(
            self,
            kept=gates if receipt.gates or self.kept is not None else None,
            shortened=outermost({**self.shortened, **receipt.replaced}),
        )

    def after_fold(self, network: nn.Module, receipt: FoldReceipt) -> Description:
        """The description of `network`, which `fold` made of the described one."""
        return replace(
            self,
            kept=[name for name, _ in attachments(network)],
            removed=[*self.removed, *receipt.removed],
            fused=self.fused or receipt.fused,
            affine=[*self.affine, *receipt.affine],
        )

    def after_fuse(self) -> Description:
        """The description of the network that `fuse` made of the described one."""
        return replace(self, fused=True)

    def check_trust(self, source: str | Path, trust: bool) -> None:
        """Refuse to import classes that are not attnlab's, which `source` names, without trust."""
        if self.own_classes and not trust:
            raise WeightsError(
                f"{str(source)!r} names classes that are not attnlab's "
                f"({', '.join(self.own_classes)}), and a file of weights may not have code "
                f"imported. If you trust them, pass trust=True, in a command --trust."
            )

    @property
    def own_classes(self) -> list[str]:
        """The user's own classes among the network, its gates and its operators, as in
        "my_gates.MyGate"."""
        operators = [each["operator"] for each in self.operators if is_path(each["operator"])]
        return [*foreign_classes(self.model, self.gate), *dict.fromkeys(operators)]

    def example(self, network: nn.Module, batch: int = 1) -> Tensor:
        """An input of the described size for `network`, the same each time."""
        if self.input_size is None:
            return example_input(network, batch)
        if len(self.input_size) == 1:  # a text of so many tokens
            assert self.num_classes is not None, "a language model has a vocabulary"
            device = next(network.parameters()).device
            return example_tokens(self.num_classes, self.input_size[0], batch).to(device)
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(batch, *self.input_size, generator=generator)
        parameter = next((p for p in network.parameters() if p.is_floating_point()), images)
        return images.to(parameter.device, parameter.dtype)

    def shown(self) -> str:
        """The Python that makes it, without what has its default."""
        changed = [f"{name}={value!r}" for name, value in self._changed().items()]
        return f"Description({', '.join([repr(self.model), *changed])})"

    def to_json(self) -> str:
        """Return the fields that a file holds."""
        try:
            return json.dumps({"model": self.model, **self._changed(), **self._prepared()})
        except TypeError as error:
            raise OptionError(
                f"{self.shown()} cannot be written to a file: {error}. Expected texts, numbers and "
                f"lists of them; for `where`, name the modules: where=list(receipt.sites)."
            ) from error

    def _prepared(self) -> dict[str, Any]:
        known = self.preprocessing
        return {} if known is None else {"preprocessing": asdict(known)}

    def _changed(self) -> dict[str, Any]:
        default = Description(self.model)
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: v for name, v in values.items() if v != getattr(default, name)}


def foreign_classes(model: str, gate: str | None) -> list[str]:
    """The classes that are not attnlab's among a network and its gates."""
    library, _, _ = model.rpartition(":")
    gates = [] if gate is None else re.split(r"[+:*]", gate)
    named = [name for name in (*([] if library else [model]), *gates) if is_path(name)]
    return [name for name in named if not name.startswith("attnlab.gates.")]


def options_for_loading(gate: str, options: Mapping[str, object]) -> dict[str, Any]:
    """The options of a gate whose values come from a file: how it would start does not matter."""
    learned = any(term.strip().startswith("asr:") for term in gate.split("+"))
    return {**options, "smallest": 0.0} if learned else dict(options)


def without_weights(options: Mapping[str, object]) -> dict[str, Any]:
    """The options of a network without those that say what it started from: once trained, it can be
    built where that file is not, and nothing is fetched."""
    return {name: value for name, value in options.items() if name not in _START}


def _refuse(what: str, options: Mapping[str, object], names: Collection[str]) -> None:
    for name in options:
        if name in names:
            raise OptionError(
                f"Expected {what} to be options of what is built but got {name!r}. What has a "
                f"field of its own goes there, and weights come from the file."
            )
