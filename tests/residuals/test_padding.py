"""Who is told of padding and how, and gates of the tokens that are none, input by input."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab._errors import InputError, SiteError
from attnlab.residuals.padding import (
    MaskArgument,
    is_inside,
    knowing_padding,
    knowing_padding_alone,
    mask_argument,
    mask_argument_of,
    named_arguments,
    of_valid_tokens,
    padding_masks_inside,
    padding_now,
    signature_of,
    valid_tokens,
)

MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]])
KEPT = MASK == 1
IDS = torch.arange(12).view(3, 4)


def test_arguments_by_name() -> None:
    def forward(ids: object, mask: object = None, *, scale: float = 1.0) -> None:
        del ids, mask, scale

    signature = inspect.signature(forward)
    assert named_arguments(signature, (1, 2), {"scale": 3}) == {"ids": 1, "mask": 2, "scale": 3}
    assert named_arguments(signature, (), {"mask": 2, "other": 3}) == {"mask": 2, "other": 3}
    assert named_arguments(signature, (1,), {"other": 3}) == {"other": 3}  # no such argument
    assert named_arguments(None, (1,), {"mask": 2}) == {"mask": 2}


def test_a_forward_without_a_signature() -> None:
    network = nn.Identity()
    assert list(signature_of(network).parameters) == ["input"]  # type: ignore[union-attr]
    network.forward = torch.relu  # type: ignore[method-assign,assignment]
    assert signature_of(network) is None
    assert mask_argument(network) is None


def test_what_the_mask_says_is_padding() -> None:
    given = {"input_ids": IDS, "attention_mask": MASK}
    assert torch.equal(valid_tokens(given), KEPT)  # type: ignore[arg-type]
    assert torch.equal(valid_tokens(given | {"decoder_start": None}), KEPT)  # type: ignore[arg-type]
    assert valid_tokens({"input_ids": IDS, "attention_mask": torch.ones(3, 4)}) is None
    for nothing in (None, "all", 1):
        assert valid_tokens({"attention_mask": nothing}) is None


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
        valid_tokens(masks)
    assert str(raised.value) == (
        f"The call has {named}: the network has an encoder and a decoder, with masks of their own, "
        "and whose tokens a state holds cannot be told. Measure the encoder alone: "
        "model.get_encoder()."
    )
    assert valid_tokens({name: torch.ones_like(value) for name, value in masks.items()}) is None  # type: ignore[call-overload]


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
        valid_tokens(given)
    assert str(raised.value) == message


def test_the_mask_of_a_call() -> None:
    argument = MaskArgument("mask", 1)
    assert argument.given((IDS,), {"mask": MASK}) is MASK
    assert argument.given((IDS, MASK), {}) is MASK
    assert argument.given((IDS, MASK), {"mask": None}) is MASK
    assert argument.given((IDS,), {"other": MASK}) is None
    assert argument.given((), {}) is None
    assert argument.given(({"mask": MASK, "patches": IDS},), {}) is MASK
    assert argument.given(({"patches": IDS},), {}) is None


def test_a_call_with_another_mask() -> None:
    argument = MaskArgument("mask", 1)
    change: Callable[[Tensor], Tensor] = lambda mask: mask + 1  # noqa: E731
    args, kwargs = argument.replaced((IDS, MASK, MASK), {"scale": MASK}, change)
    assert torch.equal(args[1], MASK + 1)  # type: ignore[call-overload]
    assert args[0] is IDS
    assert args[2] is kwargs["scale"] is MASK
    args, kwargs = argument.replaced((IDS,), {"mask": MASK, "scale": 2}, change)
    assert torch.equal(kwargs["mask"], MASK + 1)  # type: ignore[arg-type]
    assert (args, kwargs["scale"]) == ((IDS,), 2)
    given: Any = {"mask": MASK, "patches": IDS}
    (inside, other), kwargs = argument.replaced((given, None), {}, change)
    assert torch.equal(inside["mask"], MASK + 1)  # type: ignore[index]
    assert inside["patches"] is IDS  # type: ignore[index]
    assert (other, kwargs) == (None, {})
    assert given["mask"] is MASK
    ((untouched,), _) = argument.replaced(({"patches": IDS},), {}, change)
    assert untouched == {"patches": IDS}
    assert argument.replaced((IDS, None), {}, change) == ((IDS, None), {})


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
    argument = MaskArgument(name, 1)
    _, kwargs = argument.without_padding((IDS,), {name: MASK})
    assert kwargs[name].unique().tolist() == [nothing]
    assert argument.valid(kwargs[name], {}) is None


def test_what_other_masks_say_is_padding() -> None:
    pixels = MaskArgument("pixel_attention_mask", 1)
    assert torch.equal(pixels.valid(MASK, {}), KEPT)  # type: ignore[arg-type]
    for argument in (pixels, MaskArgument("attention_mask", 1)):
        assert argument.valid(torch.ones(3, 4), {}) is None
        assert argument.valid(None, {}) is None
    assert pixels.valid(torch.ones(3, 2, 2), {}) is None
    prefixed = MaskArgument("patch_valid", 1, prefix=2).valid(KEPT, {})
    assert prefixed is not None
    assert torch.equal(prefixed, torch.cat((torch.ones(3, 2, dtype=torch.bool), KEPT), 1))
    torchs = MaskArgument("src_key_padding_mask", 1)
    added = torch.where(KEPT, 0.0, float("-inf"))
    for mask in (~KEPT, added):
        assert torch.equal(torchs.valid(mask, {}), KEPT)  # type: ignore[arg-type]
    with pytest.raises(InputError) as raised:
        pixels.valid(MASK.view(3, 2, 2), {})
    assert str(raised.value) == (
        "Expected pixel_attention_mask of shape (inputs, tokens) but got shape (3, 2, 2), and a "
        "gate looks over all tokens."
    )
    with pytest.raises(InputError, match="one value per token of input_ids"):
        MaskArgument("attention_mask", 1).valid(MASK, {"input_ids": IDS[:2]})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("x attention_mask", MaskArgument("attention_mask", 1)),
        ("attention_mask x", MaskArgument("attention_mask", 0)),
        ("x patch_valid", MaskArgument("patch_valid", 1, 3)),
        ("x y pixel_attention_mask", MaskArgument("pixel_attention_mask", 2)),
        ("pixel_attention_mask attention_mask", MaskArgument("attention_mask", 1)),
        ("x src_key_padding_mask", MaskArgument("src_key_padding_mask", 1)),
        ("x key_padding_mask", MaskArgument("key_padding_mask", 1)),
        ("x src_key_padding_mask tgt_key_padding_mask", None),
        ("x attention_mask tgt_key_padding_mask", MaskArgument("attention_mask", 1)),
        ("x mask", None),
        ("", None),
    ],
)
def test_the_argument_that_tells_of_padding(names: str, expected: MaskArgument | None) -> None:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names.split()])
    assert mask_argument_of(signature, 3) == expected
    assert mask_argument_of(None, 3) is None


class Told(nn.Module):
    """A part that torch's name for padding tells of it."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        del key_padding_mask
        return x


class Outer(nn.Module):
    """A network of such parts, which is told by another name."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.ab = Told(Told()), nn.Sequential(Told()), nn.Tanh(), Told()
        self.num_prefix_tokens = 2

    def forward(self, x: Tensor, patch_valid: Tensor | None = None) -> Tensor:
        del patch_valid
        return x


def test_the_outermost_parts_that_are_told() -> None:
    assert padding_masks_inside(Outer()) == ["a", "b.0", "ab"]
    assert padding_masks_inside(nn.Sequential(Told())) == []  # it takes nothing but its input
    assert padding_masks_inside(Told()) == []
    assert mask_argument(Outer()) == MaskArgument("patch_valid", 1, 2)


@pytest.mark.parametrize(
    ("name", "inside"), [("a", True), ("a.b", True), ("ab", False), ("", False), ("b.a", False)]
)
def test_parts_by_name(name: str, inside: bool) -> None:
    assert is_inside(name, "a") is inside


ARGUMENT = MaskArgument("attention_mask", 1)


def test_padding_is_known_during_a_call_alone() -> None:
    part = partial(knowing_padding_alone, lambda *_: padding_now(), ARGUMENT)

    def forward(*_: object) -> list[object]:
        # A part is told in its own way of what is known already; a network of its own is not.
        other = knowing_padding(lambda *_: padding_now(), ARGUMENT, IDS, 1 - MASK)
        return [padding_now(), part(IDS, 1 - MASK), other, padding_now()]

    found: Any = knowing_padding(forward, ARGUMENT, IDS, MASK)
    assert [torch.equal(each, KEPT) for each in found] == [True, True, False, True]
    assert torch.equal(found[2], ~KEPT)
    assert padding_now() is None
    assert torch.equal(part(IDS, MASK), KEPT)  # by itself
    found = knowing_padding(forward, ARGUMENT, IDS)  # it was asked, and nothing is padded
    assert [each is None for each in found] == [True, True, False, True]
    found = knowing_padding(forward, None, IDS, MASK)  # a network that is not told
    assert [each is None for each in found] == [True, False, False, True]

    def fails(*_: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        knowing_padding(fails, ARGUMENT, IDS, MASK)
    assert padding_now() is None
    assert torch.equal(part(IDS, MASK), KEPT)


def gated(
    compute: Callable[[Tensor, Tensor | None], Tensor],
    mask: Tensor,
    branch: Tensor,
    shortcut: Tensor | None = None,
    gate: nn.Module | None = None,
) -> Tensor:
    def forward(*_: object) -> Tensor:
        return of_valid_tokens(gate or nn.Identity(), "gate", compute, branch, shortcut)

    found = knowing_padding(forward, ARGUMENT, IDS, mask)
    assert isinstance(found, Tensor)
    return found


LONG = torch.tensor([[0, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [1] * 5])
BRANCH, SHORTCUT = torch.randn(2, 5, 5, 3, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("channels", [3, 1])
def test_a_pooled_gate_sees_the_tokens_of_each_input(channels: int) -> None:
    seen: list[int] = []

    def compute(branch: Tensor, shortcut: Tensor | None) -> Tensor:
        assert shortcut is not None
        seen.append(len(branch))
        return (branch * shortcut)[..., :channels].mean(1, keepdim=True)

    found = gated(compute, LONG, BRANCH, SHORTCUT)
    for row, valid in enumerate(LONG):
        product = (BRANCH * SHORTCUT)[row][valid == 1][:, :channels]
        expected = product.mean(0) if len(product) else torch.ones(1)
        torch.testing.assert_close(found[row], expected.double().expand(1, 3))
    assert sorted(seen) == [1, 1, 2]  # those that are padded alike go together


def test_a_gate_of_each_token_has_its_mean_at_padding() -> None:
    found = gated(lambda branch, _: branch.sigmoid().cumsum(1), LONG, BRANCH)
    assert found.shape == BRANCH.shape
    for row, valid in enumerate(LONG):
        kept = BRANCH[row][valid == 1].sigmoid().cumsum(0)
        expected = (kept.mean(0) if len(kept) else torch.ones(3)).double().repeat(5, 1)
        expected[valid == 1] = kept
        torch.testing.assert_close(found[row], expected)


def test_one_token_alone() -> None:
    single = torch.tensor([[0, 0, 1, 0, 0]])
    found = gated(lambda branch, _: branch.sigmoid(), single, BRANCH[:1])
    torch.testing.assert_close(found, BRANCH[:1, 2:3].sigmoid().expand(1, 5, 3))


@pytest.mark.parametrize("branch", [BRANCH[:, :4], BRANCH[:2], BRANCH[..., None], BRANCH[..., 0]])
def test_a_gate_where_padding_is_not_known(branch: Tensor) -> None:
    with pytest.raises(InputError) as raised:
        gated(lambda branch, _: branch, LONG, branch)
    assert str(raised.value) == (
        "The gate 'gate' looks over all tokens, and which are padding is not known where it acts: "
        f"attention_mask has shape (5, 5) and its branch {tuple(branch.shape)}. Use a gate that is "
        "the same for every input, such as 'asr:se', or batches without padding."
    )


def test_a_gate_that_normalises_over_the_batch() -> None:
    gate = nn.Sequential(nn.Identity(), nn.BatchNorm1d(3))
    with pytest.raises(SiteError) as raised:
        gated(lambda branch, _: branch, LONG, BRANCH, gate=gate.train())
    assert str(raised.value) == (
        "The gate 'gate' (Sequential) normalises over the batch, and inputs that are padded "
        "differently are not computed in one. Train on batches without padding, or choose a gate "
        "without a batch norm, such as 'se'."
    )
    for allowed in (gate.eval(), nn.LayerNorm(3).train()):
        gated(lambda branch, _: branch, LONG, BRANCH, gate=allowed)
