"""Which tokens of a batch are padding, by the masks that a network takes.

A text network is told of padding by its `attention_mask`; networks for images of any size and
torch's own encoders have other names for theirs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab._errors import InputError
from attnlab._types import Arguments, Keywords
from attnlab.residuals.example import Example, as_call
from attnlab.residuals.graph import Graph
from attnlab.residuals.steps import Step, StepKey

NAME = "attention_mask"
SEQUENCES = ("input_ids", "inputs_embeds")
"""What it tells of."""
_OTHER_NAMES = ("pixel_attention_mask", "patch_valid")
"""What image networks that take many sizes call it: Siglip2, and NaFlex of timm."""
PADDING_NAMES = ("src_key_padding_mask", "key_padding_mask")
"""What torch's transformers call it: True, or a large negative number to add, is padding."""


def signature_of(model: nn.Module) -> inspect.Signature | None:
    """The signature of the network's forward; None if Python cannot tell."""
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


def _valid_tokens(named: Mapping[str, object]) -> Tensor | None:
    """(inputs, tokens), False where `attention_mask` says padding; None where nothing is padded.

    `named` are the arguments of a call by name.
    """
    mask = named.get(NAME)
    if isinstance(mask, Tensor):
        _check_mask(mask, named)
    else:
        mask = None
    second = named.get(f"decoder_{NAME}")
    padded = [m for m in (mask, second) if isinstance(m, Tensor) and not (m != 0).all()]
    if not padded:
        return None
    decoder = next((n for n, v in named.items() if n.startswith("decoder_") and _given(v)), None)
    if decoder is not None:
        raise OtherTokensError(
            f"The call has {decoder}: the network has an encoder and a decoder, with masks of "
            f"their own, and whose tokens a state holds cannot be told. Measure the encoder "
            f"alone: model.get_encoder()."
        )
    return padded[0] != 0


class OtherTokensError(InputError):
    """A mask of other tokens than some states have: of an encoder beside a decoder, and of all that
    a text has so far, where a call adds one token to it. Gates elsewhere need not know."""


def _given(value: object) -> bool:
    return value is not None


def _check_mask(mask: Tensor, named: Mapping[str, object]) -> None:
    if mask.ndim != 2:
        raise InputError(
            f"Expected {NAME} of shape (inputs, tokens), 1 for a token and 0 for padding, but got "
            f"shape {tuple(mask.shape)}."
        )
    for name in SEQUENCES:
        sequence = named.get(name)
        if isinstance(sequence, Tensor) and sequence.shape[:2] != mask.shape:
            raise OtherTokensError(
                f"Expected {NAME} of shape {tuple(sequence.shape[:2])}, one value per token of "
                f"{name}, but got shape {tuple(mask.shape)}."
            )
    if not ((mask == 0) | (mask == 1)).all():
        raise InputError(
            f"Expected {NAME} of ones (tokens) and zeros (padding) but got values from "
            f"{mask.min().item():g} to {mask.max().item():g}."
        )


@dataclass(frozen=True)
class MaskArgument:
    """The argument of a network's forward that tells which tokens are padding."""

    name: str
    names: tuple[str, ...]
    """Those of the positional arguments, in their order."""
    prefix: int = 0
    """How many tokens the network puts in front of those that the mask tells of."""

    @property
    def position(self) -> int:
        """Its place among the positional arguments."""
        return self.names.index(self.name)

    def without_padding(
        self, args: Arguments, kwargs: Mapping[str, object]
    ) -> tuple[Arguments, Keywords]:
        """The arguments of a call with a mask by which nothing is padding."""
        nothing = torch.zeros_like if self.name in PADDING_NAMES else torch.ones_like
        return self.replaced(args, kwargs, nothing)

    def given(self, args: Arguments, kwargs: Mapping[str, object]) -> object:
        """The mask of a call, or None; NaFlex networks take all their inputs as one dictionary."""
        if kwargs.get(self.name) is not None:
            return kwargs[self.name]
        if len(args) > self.position:
            return args[self.position]
        several = (each for each in (*args, *kwargs.values()) if isinstance(each, Mapping))
        return next((each[self.name] for each in several if self.name in each), None)

    def replaced(
        self, args: Arguments, kwargs: Mapping[str, object], change: Callable[[Tensor], Tensor]
    ) -> tuple[Arguments, Keywords]:
        """The arguments of a call with its mask changed."""

        def changed(value: object) -> object:
            return change(value) if isinstance(value, Tensor) else value

        def argument(name: object, value: object) -> object:
            if name in (self.name, self.position):
                return changed(value)
            if isinstance(value, Mapping) and self.name in value:
                return {**value, self.name: changed(value[self.name])}
            return value

        named = {name: argument(name, value) for name, value in kwargs.items()}
        return tuple(argument(*each) for each in enumerate(args)), named

    def named(self, args: Arguments, kwargs: Mapping[str, object]) -> Keywords:
        """The arguments of a call by name."""
        return {**dict(zip(self.names, args, strict=False)), **kwargs}

    def has_text(
        self, args: Arguments, kwargs: Mapping[str, object], names: Sequence[str] = SEQUENCES
    ) -> bool:
        """Whether a call has the sequence of a text that this tells of, by one of these names."""
        named = self.named(args, kwargs)
        return self.name == NAME and any(isinstance(named.get(name), Tensor) for name in names)

    def valid(self, mask: object, args: Arguments, kwargs: Mapping[str, object]) -> Tensor | None:
        """(inputs, tokens), False where a token is padding; None where nothing is padded."""
        if self.name == NAME:
            return _valid_tokens({**self.named(args, kwargs), NAME: mask})
        if isinstance(mask, Tensor) and self.name in PADDING_NAMES:
            mask = mask == 0
        if not isinstance(mask, Tensor) or bool((mask != 0).all()):
            return None
        if mask.ndim != 2:
            raise InputError(
                f"Expected {self.name} of shape (inputs, tokens) but got shape {tuple(mask.shape)}."
            )
        return nn.functional.pad(mask != 0, (self.prefix, 0), value=True)


def mask_argument(network: nn.Module) -> MaskArgument | None:
    """The argument by which `network` is told of padding, if it takes one that we know."""
    return next(iter(mask_arguments(network)), None)


def mask_arguments(network: nn.Module) -> tuple[MaskArgument, ...]:
    """All of them: a network of images and texts may have one for each, that of texts first."""
    return mask_arguments_of(signature_of(network), getattr(network, "num_prefix_tokens", 0))


def mask_arguments_of(
    signature: inspect.Signature | None, prefix: int = 0
) -> tuple[MaskArgument, ...]:
    """The same of a signature; `prefix` tokens come in front of those that NaFlex tells of."""
    names = () if signature is None else tuple(signature.parameters)
    both = "tgt_key_padding_mask" in names  # whose tokens a state holds could not be told
    return tuple(
        MaskArgument(name, names, prefix if name == "patch_valid" else 0)
        for name in (NAME, *_OTHER_NAMES, *(() if both else PADDING_NAMES))
        if name in names
    )


def without_padding(
    network: nn.Module, arguments: Arguments, keywords: Mapping[str, object]
) -> tuple[Arguments, Keywords]:
    """The call with masks by which nothing is padding: a padded token changes nothing anywhere."""
    call: tuple[Arguments, Keywords] = arguments, dict(keywords)
    for argument in mask_arguments(network):
        call = argument.without_padding(*call)
    return call


def steps_beside(
    network: nn.Module, graph: Graph, example: Example | None, steps: Sequence[Step]
) -> list[StepKey]:
    """The steps whose states are not made of the sequence that the network's mask tells of: those
    of the images in a network of images and texts."""
    argument = mask_argument(network)
    if argument is None or argument.name != NAME:
        return []
    arguments, keywords = as_call(network, example)
    given = [each for each in tree_leaves((arguments, keywords)) if isinstance(each, Tensor)]
    inputs = [node.index for node in graph.nodes if node.operation == "input"]
    if len(inputs) != len(given):  # one tensor was given twice
        return []
    named = argument.named(arguments, keywords)
    sequences = [named[name] for name in SEQUENCES if isinstance(named.get(name), Tensor)]
    told = [
        node
        for node, tensor in zip(inputs, given, strict=True)
        if any(tensor is each for each in sequences)
    ]
    return [
        step.key
        for step in steps
        if told and not any(graph.computed_from(step.state_node, node) for node in told)
    ]


def padding_of_call(
    argument: MaskArgument | None, args: Arguments, kwargs: Mapping[str, object]
) -> Tensor | None:
    """(inputs, tokens), False where a call of a network with this mask argument says padding; None
    where nothing is padded."""
    if argument is None:  # one that takes whatever it is given may be told as well
        return _valid_tokens(kwargs)
    return argument.valid(argument.given(args, kwargs), args, kwargs)
