"""Which tokens of a batch are padding: what a text network is told by its `attention_mask`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attnlab._errors import InputError

NAME = "attention_mask"
_SEQUENCES = ("input_ids", "inputs_embeds")


def named_arguments(
    signature: inspect.Signature | None, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name, as far as the signature tells."""
    if signature is None or not arguments:
        return dict(keywords)
    try:
        bound = signature.bind_partial(*arguments, **keywords).arguments
    except TypeError:  # the call itself says what is wrong with it
        return dict(keywords)
    return {**bound, **keywords}


def signature_of(model: nn.Module) -> inspect.Signature | None:
    """Of the network's forward; None where Python cannot tell."""
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


def valid_tokens(named: Mapping[str, Any]) -> Tensor | None:
    """(inputs, tokens), False where `attention_mask` says padding; None where nothing is padded.

    `named` are the arguments of a call by name.
    """
    mask = named.get(NAME)
    if isinstance(mask, Tensor):
        _check(mask, named)
    else:
        mask = None
    second = named.get(f"decoder_{NAME}")
    padded = [m for m in (mask, second) if isinstance(m, Tensor) and not (m != 0).all()]
    if not padded:
        return None
    decoder = next((n for n, v in named.items() if n.startswith("decoder_") and _given(v)), None)
    if decoder is not None:
        raise InputError(
            f"The call has {decoder}: the network has an encoder and a decoder, with masks of "
            f"their own, and whose tokens a state holds cannot be told. Measure the encoder "
            f"alone: model.get_encoder()."
        )
    return padded[0] != 0


def _given(value: Any) -> bool:
    return value is not None


def _check(mask: Tensor, named: Mapping[str, Any]) -> None:
    if mask.ndim != 2:
        raise InputError(
            f"Expected {NAME} of shape (inputs, tokens), 1 for a token and 0 for padding, but got "
            f"shape {tuple(mask.shape)}."
        )
    for name in _SEQUENCES:
        sequence = named.get(name)
        if isinstance(sequence, Tensor) and sequence.shape[:2] != mask.shape:
            raise InputError(
                f"Expected {NAME} of shape {tuple(sequence.shape[:2])}, one value per token of "
                f"{name}, but got shape {tuple(mask.shape)}."
            )
    if not ((mask == 0) | (mask == 1)).all():
        raise InputError(
            f"Expected {NAME} of ones (tokens) and zeros (padding) but got values from "
            f"{mask.min().item():g} to {mask.max().item():g}."
        )
