"""What gates over tokens know of padding in a call, and gates of the tokens that are none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from attnlab._errors import InputError, SiteError
from attnlab.residuals.padded_calls import (
    has_padding,
    knowing_padding,
    knowing_padding_of_method,
    knowing_padding_of_part,
    of_valid_tokens,
)
from attnlab.residuals.padding import MaskArgument

MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]])
KEPT = MASK == 1
IDS = torch.arange(12).view(3, 4)
ARGUMENT = MaskArgument("attention_mask", ("input_ids", "attention_mask"))
PART = MaskArgument("attention_mask", ("x", "attention_mask"))
"""Of a part that is given something else than a text."""


class Heard(NamedTuple):
    """What gates know in a call: of the tokens of the network's mask, and of others."""

    own: object
    beside: object


def heard(*_: object, **__: object) -> Heard:
    def valid(beside: bool) -> object:
        if not has_padding(beside):
            return None
        seen: list[Tensor] = []

        def compute(branch: Tensor, shortcut: Tensor | None) -> Tensor:
            del shortcut
            seen.append(branch[:, :, 0])
            return branch

        tokens = torch.arange(12.0).view(3, 4, 1)
        of_valid_tokens(nn.Identity(), "gate", compute, tokens, None, channel_axis=2)
        kept = torch.cat([each.flatten() for each in seen]).long()
        return torch.zeros(12, dtype=torch.bool).index_fill(0, kept, True).view(3, 4)

    return Heard(valid(False), valid(True))


def same(heard: object, own: Tensor | None, beside: Tensor | None) -> bool:
    """Whether these masks were heard."""
    assert isinstance(heard, Heard)
    pairs = zip(heard, (own, beside), strict=True)
    return all(
        got is None if want is None else isinstance(got, Tensor) and torch.equal(got, want)
        for got, want in pairs
    )


ALL = torch.ones_like(MASK)
EXTENDED = torch.zeros(3, 1, 1, 4)


def in_network(mask: Tensor | None, part: Tensor | None) -> object:
    """What is heard in a part that is given a mask of its own, in the call of a network."""
    inner = partial(knowing_padding_of_part, heard, PART, IDS, part)
    return knowing_padding(lambda *_: inner(), ARGUMENT, IDS, mask)


def test_padding_is_known_during_a_call_alone() -> None:
    assert same(heard(), None, None)
    assert same(knowing_padding(heard, ARGUMENT, IDS, MASK), KEPT, None)
    assert same(knowing_padding(heard, ARGUMENT, IDS, attention_mask=MASK), KEPT, None)
    assert same(knowing_padding(heard, ARGUMENT, IDS, ALL), None, None)
    assert same(knowing_padding(heard, ARGUMENT, IDS), None, None)
    assert same(knowing_padding(heard, None, IDS, MASK), None, None)
    assert same(heard(), None, None)

    def fails(*_: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        knowing_padding(fails, ARGUMENT, IDS, MASK)
    assert same(heard(), None, None)


def test_a_part_is_told_of_its_own_tokens() -> None:
    assert same(in_network(MASK, None), KEPT, None)
    assert same(in_network(MASK, MASK), KEPT, None)  # it is handed on
    assert same(in_network(MASK, MASK.clone()), KEPT, KEPT)
    assert same(in_network(MASK, 1 - MASK), ~KEPT, ~KEPT)
    assert same(in_network(None, MASK), KEPT, KEPT)
    assert same(in_network(MASK, ALL), None, None)
    # In another form, or of other tokens, it is made of what is known.
    for other in (EXTENDED, MASK[:, :2], MASK.double() - 1):
        assert same(in_network(MASK, other), KEPT, None)
        assert same(in_network(None, other), None, None)


def test_a_part_that_is_called_by_itself() -> None:
    text = partial(knowing_padding_of_part, heard, ARGUMENT, IDS)
    assert same(text(MASK), KEPT, None)
    part = partial(knowing_padding_of_part, heard, PART, IDS)
    assert same(part(MASK), KEPT, KEPT)
    assert same(part(None), None, None)
    assert same(part(ALL), None, None)
    with pytest.raises(InputError, match=r"Expected attention_mask of shape \(inputs, tokens\)"):
        part(EXTENDED)
    # A network of its own in it is told anew, and so is one that cannot tell.
    inner = partial(knowing_padding, heard, ARGUMENT, IDS)
    assert same(knowing_padding_of_part(lambda *_: inner(None), PART, IDS, MASK), None, None)
    # What is inside of a part with other tokens has these, whatever they are called there.
    deeper = partial(knowing_padding_of_part, heard, ARGUMENT, IDS)
    found = knowing_padding_of_part(lambda *_: deeper(1 - MASK), PART, IDS, MASK)
    assert same(found, ~KEPT, ~KEPT)
    assert same(knowing_padding(lambda *_: part(MASK), None, IDS, None), KEPT, KEPT)


def test_two_texts_of_one_network() -> None:
    """The mask of the other is its own, and without one it has no padding."""
    inner = partial(knowing_padding_of_part, heard, ARGUMENT, IDS + 1)
    for mask, valid in ((1 - MASK, ~KEPT), (None, None)):
        found = knowing_padding(lambda *_, mask=mask: inner(mask), ARGUMENT, IDS, MASK)
        assert same(found, valid, valid)


def test_a_method_is_told_where_nobody_was() -> None:
    method = partial(knowing_padding_of_method, heard)
    assert same(method(ARGUMENT, IDS, MASK), KEPT, None)
    assert same(method(PART, IDS, MASK), KEPT, KEPT)
    assert same(method(None, IDS, MASK), None, None)
    assert same(
        knowing_padding(lambda *_: method(ARGUMENT, IDS, 1 - MASK), ARGUMENT, IDS, MASK), KEPT, None
    )
    # It may run no gate: what is wrong with its mask is said by the gate that has to know.
    nothing = partial(knowing_padding_of_method, lambda *_: "no gate", ARGUMENT, IDS)
    assert nothing(EXTENDED) == "no gate"
    with pytest.raises(InputError, match=r"Expected attention_mask of shape \(inputs, tokens\)"):
        method(ARGUMENT, IDS, EXTENDED)


def test_an_encoder_and_a_decoder_are_told_apart() -> None:
    both = MaskArgument("attention_mask", ("input_ids", "attention_mask", "decoder_input_ids"))
    inner = partial(knowing_padding_of_part, heard, ARGUMENT, IDS)
    for part in (MASK, 1 - MASK):
        found = knowing_padding(lambda *_, part=part: inner(part), both, IDS, MASK, IDS)
        assert same(found, part == 1, part == 1)
    with pytest.raises(InputError, match="whose tokens a state holds cannot be told"):
        knowing_padding(heard, both, IDS, MASK, IDS)
    with pytest.raises(InputError, match=r"Expected attention_mask of shape \(inputs, tokens\)"):
        knowing_padding(lambda *_: None, ARGUMENT, IDS, EXTENDED)  # before anything runs


def test_a_mask_of_all_that_a_text_has_so_far() -> None:
    """As where one token after another is written, in a network with gates for its images alone."""
    last = IDS[:, -1:]
    assert knowing_padding(lambda *_: "no gate", ARGUMENT, last, MASK) == "no gate"
    with pytest.raises(InputError, match=r"Expected attention_mask of shape \(3, 1\)"):
        knowing_padding(heard, ARGUMENT, last, MASK)


def test_a_backward_pass_runs_a_part_once_more() -> None:
    """With the mask that it is given, and otherwise as it was looked at in the forward pass."""
    found: list[object] = []

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            del ctx
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            del ctx
            part = partial(knowing_padding_of_part, heard, PART, IDS)
            found.extend([part(MASK), part(EXTENDED), part(None)])
            return gradient

    x = torch.ones(1, requires_grad=True)
    Again.apply(x).backward()
    assert same(found[0], KEPT, KEPT)
    assert all(same(each, None, None) for each in found[1:])


def gated(
    compute: Callable[[Tensor, Tensor | None], Tensor],
    mask: Tensor,
    branch: Tensor,
    shortcut: Tensor | None = None,
    gate: nn.Module | None = None,
    channel_axis: int = 2,
) -> Tensor:
    def forward(*_: object) -> Tensor:
        return of_valid_tokens(
            gate or nn.Identity(), "gate", compute, branch, shortcut, channel_axis=channel_axis
        )

    found = knowing_padding(forward, ARGUMENT, torch.zeros_like(mask), mask)
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


def test_tokens_on_the_last_axis() -> None:
    def compute(branch: Tensor, shortcut: Tensor | None) -> Tensor:
        assert shortcut is not None
        return (branch * shortcut).mean(axis, keepdim=True)

    axis = 1
    expected = gated(compute, LONG, BRANCH, SHORTCUT)
    axis = 2
    found = gated(compute, LONG, BRANCH.mT, SHORTCUT.mT, channel_axis=1)
    torch.testing.assert_close(found.mT, expected, rtol=0, atol=1e-15)


def test_a_pooled_token_is_no_padding() -> None:
    found = gated(lambda branch, _: branch.sigmoid(), LONG, BRANCH[:, :1])
    assert torch.equal(found, BRANCH[:, :1].sigmoid())


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
