"""Which tokens of a call are padding, by the masks that a network takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.residuals.padding import (
    MaskArgument,
    mask_argument,
    mask_arguments_of,
    padding_of_call,
    signature_of,
)

MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]])
KEPT = MASK == 1
IDS = torch.arange(12).view(3, 4)


def argument(name: str, place: int = 1, prefix: int = 0) -> MaskArgument:
    """One that is at this place among the positional arguments."""
    return MaskArgument(name, (*["x", "y", "z"][:place], name), prefix)


def test_arguments_by_name() -> None:
    mask = MaskArgument("mask", ("ids", "mask", "scale"))
    assert mask.named((1, 2), {"scale": 3}) == {"ids": 1, "mask": 2, "scale": 3}
    assert mask.named((), {"mask": 2, "other": 3}) == {"mask": 2, "other": 3}
    assert mask.named((1,), {"other": 3}) == {"ids": 1, "other": 3}
    assert (mask.position, MaskArgument("ids", ("ids", "mask")).position) == (1, 0)


def test_a_forward_without_a_signature() -> None:
    network = nn.Identity()
    assert list(signature_of(network).parameters) == ["input"]  # type: ignore[union-attr]
    network.forward = torch.relu  # type: ignore[method-assign,assignment]
    assert signature_of(network) is None
    assert mask_argument(network) is None


def test_what_the_mask_says_is_padding() -> None:
    given = {"input_ids": IDS, "attention_mask": MASK}
    assert torch.equal(padding_of_call(None, (), given), KEPT)  # type: ignore[arg-type]
    assert torch.equal(padding_of_call(None, (), given | {"decoder_start": None}), KEPT)  # type: ignore[arg-type]
    assert padding_of_call(None, (), {"input_ids": IDS, "attention_mask": torch.ones(3, 4)}) is None
    for nothing in (None, "all", 1):
        assert padding_of_call(None, (), {"attention_mask": nothing}) is None


@pytest.mark.parametrize(
    ("masks", "named"),
    [
        ({"attention_mask": MASK, "decoder_input_ids": IDS}, "decoder_input_ids"),
        ({"decoder_attention_mask": MASK}, "decoder_attention_mask"),
        (
            {"attention_mask": torch.ones(3, 4), "decoder_attention_mask": MASK},
            "decoder_attention_mask",
        ),
    ],
)
def test_an_encoder_and_a_decoder_are_refused_if_there_is_padding(
    masks: dict[str, object], named: str
) -> None:
    with pytest.raises(InputError) as raised:
        padding_of_call(None, (), masks)
    assert str(raised.value) == (
        f"The call has {named}: the network has an encoder and a decoder, with masks of their own, "
        "and whose tokens a state holds cannot be told. Measure the encoder alone: "
        "model.get_encoder()."
    )
    assert (
        padding_of_call(None, (), {name: torch.ones_like(value) for name, value in masks.items()})
        is None
    )  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"attention_mask": MASK[:, None]},
            "Expected attention_mask of shape (inputs, tokens), 1 for a token and 0 for padding, "
            "but got shape (3, 1, 4).",
        ),
        (
            {"attention_mask": MASK, "input_ids": IDS[:, :2]},
            "Expected attention_mask of shape (3, 2), one value per token of input_ids, but got "
            "shape (3, 4).",
        ),
        (
            {"attention_mask": MASK, "inputs_embeds": torch.ones(2, 4, 8)},
            "Expected attention_mask of shape (2, 4), one value per token of inputs_embeds, but "
            "got shape (3, 4).",
        ),
        (
            {"attention_mask": 2 * MASK, "inputs_embeds": torch.ones(3, 4, 8)},
            "Expected attention_mask of ones (tokens) and zeros (padding) but got values from 0 to "
            "2.",
        ),
        (
            {"attention_mask": -MASK.double() / 4},
            "Expected attention_mask of ones (tokens) and zeros (padding) but got values from "
            "-0.25 to -0.",
        ),
    ],
)
def test_masks_that_are_none(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        padding_of_call(None, (), given)
    assert str(raised.value) == message


def test_the_mask_of_a_call() -> None:
    mask_of = argument("mask", 1)
    assert mask_of.given((IDS,), {"mask": MASK}) is MASK
    assert mask_of.given((IDS, MASK), {}) is MASK
    assert mask_of.given((IDS, MASK), {"mask": None}) is MASK
    assert mask_of.given((IDS,), {"other": MASK}) is None
    assert mask_of.given((), {}) is None
    assert mask_of.given(({"mask": MASK, "patches": IDS},), {}) is MASK
    assert mask_of.given(({"patches": IDS},), {}) is None


def test_a_call_with_another_mask() -> None:
    mask_of = argument("mask", 1)
    change: Callable[[Tensor], Tensor] = lambda mask: mask + 1  # noqa: E731
    args, kwargs = mask_of.replaced((IDS, MASK, MASK), {"scale": MASK}, change)
    assert torch.equal(args[1], MASK + 1)  # type: ignore[call-overload]
    assert args[0] is IDS
    assert args[2] is kwargs["scale"] is MASK
    args, kwargs = mask_of.replaced((IDS,), {"mask": MASK, "scale": 2}, change)
    assert torch.equal(kwargs["mask"], MASK + 1)  # type: ignore[arg-type]
    assert (args, kwargs["scale"]) == ((IDS,), 2)
    given: Any = {"mask": MASK, "patches": IDS}
    (inside, other), kwargs = mask_of.replaced((given, None), {}, change)
    assert torch.equal(inside["mask"], MASK + 1)  # type: ignore[index]
    assert inside["patches"] is IDS  # type: ignore[index]
    assert (other, kwargs) == (None, {})
    assert given["mask"] is MASK
    ((untouched,), _) = mask_of.replaced(({"patches": IDS},), {}, change)
    assert untouched == {"patches": IDS}
    assert mask_of.replaced((IDS, None), {}, change) == ((IDS, None), {})


@pytest.mark.parametrize(
    ("name", "nothing"),
    [
        ("attention_mask", 1),
        ("pixel_attention_mask", 1),
        ("patch_valid", 1),
        ("src_key_padding_mask", 0),
        ("key_padding_mask", 0),
    ],
)
def test_a_mask_by_which_nothing_is_padding(name: str, nothing: int) -> None:
    mask_of = argument(name, 1)
    _, kwargs = mask_of.without_padding((IDS,), {name: MASK})
    assert kwargs[name].unique().tolist() == [nothing]
    assert mask_of.valid(kwargs[name], (), {}) is None


def test_what_other_masks_say_is_padding() -> None:
    pixels = argument("pixel_attention_mask", 1)
    assert torch.equal(pixels.valid(MASK, (), {}), KEPT)  # type: ignore[arg-type]
    for each in (pixels, argument("attention_mask", 1)):
        assert each.valid(torch.ones(3, 4), (), {}) is None
        assert each.valid(None, (), {}) is None
    assert pixels.valid(torch.ones(3, 2, 2), (), {}) is None
    prefixed = argument("patch_valid", 1, 2).valid(KEPT, (), {})
    assert prefixed is not None
    assert torch.equal(prefixed, torch.cat((torch.ones(3, 2, dtype=torch.bool), KEPT), 1))
    torchs = argument("src_key_padding_mask", 1)
    added = torch.where(KEPT, 0.0, float("-inf"))
    for mask in (~KEPT, added):
        assert torch.equal(torchs.valid(mask, (), {}), KEPT)  # type: ignore[arg-type]
    with pytest.raises(InputError) as raised:
        pixels.valid(MASK.view(3, 2, 2), (), {})
    assert str(raised.value) == (
        "Expected pixel_attention_mask of shape (inputs, tokens) but got shape (3, 2, 2)."
    )
    with pytest.raises(InputError, match="one value per token of input_ids"):
        argument("attention_mask", 1).valid(MASK, (), {"input_ids": IDS[:2]})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("x attention_mask", argument("attention_mask", 1)),
        ("attention_mask x", argument("attention_mask", 0)),
        ("x patch_valid", argument("patch_valid", 1, 3)),
        ("x y pixel_attention_mask", argument("pixel_attention_mask", 2)),
        ("pixel_attention_mask attention_mask", argument("attention_mask", 1)),
        ("x src_key_padding_mask", argument("src_key_padding_mask", 1)),
        ("x key_padding_mask", argument("key_padding_mask", 1)),
        ("x src_key_padding_mask tgt_key_padding_mask", None),
        ("x attention_mask tgt_key_padding_mask", argument("attention_mask", 1)),
        ("x mask", None),
        ("", None),
    ],
)
def test_the_argument_that_tells_of_padding(names: str, expected: MaskArgument | None) -> None:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names.split()])
    found = next(iter(mask_arguments_of(signature, 3)), None)
    expected = expected and replace(expected, names=tuple(names.split()))
    assert found == expected
    assert mask_arguments_of(None, 3) == ()
