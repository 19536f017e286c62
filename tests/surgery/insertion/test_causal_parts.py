"""Which gates look at other tokens, tried with gates whose reach is known; how a call is changed,
and what is seen to move."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnlab.gates import BranchGate
from attnlab.residuals.recorder import record
from attnlab.residuals.site import Site
from attnlab.residuals.steps import StepKey
from attnlab.surgery.insertion._causal import (
    MUCH,
    _changes,
    _is_text,
    _looks_back,
    _moved,
    is_token_site,
    without_padding,
)
from attnlab.surgery.insertion._causal_maps import _along, _reads_later
from attnlab.surgery.insertion._causal_maps import _changes as changes_of_maps


class Reaches(BranchGate):
    """A gate at token t that is computed from token t + `ahead`, or from the last one there is."""

    def __init__(self, channels: int, ahead: int) -> None:
        super().__init__(channels)
        self.ahead, self.mix = ahead, nn.Linear(channels, channels)

    def forward(self, branch: Tensor) -> Tensor:
        tokens = branch.shape[2]
        seen = [min(max(place + self.ahead, 0), tokens - 1) for place in range(tokens)]
        return torch.einsum("oc,bc...->bo...", self.mix.weight, branch[:, :, seen]).sigmoid()

    def start_constant(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("ahead", "looks"), [(0, False), (-1, False), (-3, False), (1, True), (3, True)]
)
def test_a_gate_looks_at_what_comes_after(ahead, looks) -> None:
    site = Site("0", 0, 0, 0, "output", "output", "0", "", "attnlab_0", (1, 6, 4), 2, 0)
    with torch.no_grad():
        assert _looks_back(Reaches(4, ahead), site, seed=0) is looks


def site(shape: tuple[int, ...], axis: int) -> Site:
    return Site("0", 0, 0, 0, "output", "output", "0", "", "attnlab_0", shape, axis, 0)


def test_sites_of_tokens() -> None:
    assert is_token_site(site((1, 6, 4), 2))
    assert not is_token_site(site((1, 4, 6), 1))
    assert not is_token_site(site((1, 4, 6, 6), 2))


def test_a_text_is_a_table_of_whole_numbers() -> None:
    assert _is_text(torch.zeros(1, 6, dtype=torch.long))
    assert not _is_text(torch.zeros(1, 6))
    assert not _is_text(torch.zeros(6, dtype=torch.long))
    assert not _is_text(torch.zeros(1, 1, 6, dtype=torch.long))
    assert not _is_text([1, 2])


TEXT = torch.tensor([[5, 0, 3, 0], [0, 4, 7, 9]])


@pytest.mark.parametrize("place", [0, -1])
def test_a_call_with_another_token_at_one_end(place) -> None:
    tokens, image = torch.randn(2, 4, 8), torch.randn(2, 3, 5, 5)
    mask, kinds, flags = torch.ones(2, 4).bool(), TEXT.clamp_max(1), torch.ones(2)
    arguments = ((TEXT, mask, kinds, flags), {"tokens": tokens, "image": image, "none": None})
    text, embedded, pixels = [change(place) for change in _changes(arguments)]
    for found, name, number in ((text, "text", 0), (embedded, "tokens", 1), (pixels, "image", 2)):
        values, keywords = found
        assert all(a is b for a, b in zip(values[1:], arguments[0][1:], strict=True))
        assert (values[0] is TEXT) is (number != 0), name
        assert (keywords["tokens"] is tokens) is (number != 1)
        assert (keywords["image"] is image) is (number != 2)
        assert keywords["none"] is None
    expected = TEXT.clone()
    expected[:, place] = torch.tensor([4, 1] if place == 0 else [1, 8])
    assert torch.equal(text[0][0], expected)
    moved = embedded[1]["tokens"] - tokens
    assert torch.allclose(moved[:, place], torch.tensor(MUCH))
    assert int(moved.any(2).sum()) == 2
    corner = pixels[1]["image"] - image
    assert torch.allclose(corner[:, :, place, place], torch.tensor(MUCH))
    assert int(corner.ne(0).sum()) == 6


def test_what_has_no_places_is_not_changed() -> None:
    nothing = (torch.zeros(2, 0), torch.zeros(3), torch.zeros(2, 3, dtype=torch.bool), 3)
    assert list(_changes((nothing, {}))) == []
    assert len(list(changes_of_maps((nothing, {})))) == 0


@pytest.mark.parametrize("place", [0, -1])
def test_a_map_with_another_place_at_one_end_of_each_axis(place) -> None:
    maps = torch.randn(2, 3, 4, 5)
    found = [change(place) for change in changes_of_maps(((maps,), {"text": TEXT}))]
    assert len(found) == 4
    for axis, ((changed,), keywords) in enumerate(found[:3], start=1):
        moved = changed - maps
        assert torch.allclose(moved.select(axis, place), torch.tensor(MUCH))
        assert int(moved.ne(0).sum()) == maps.select(axis, 0).numel()
        assert keywords["text"] is TEXT
    ((same,), keywords) = found[3]
    assert same is maps
    expected = TEXT.clone()
    expected[:, place] = torch.tensor([4, 1] if place == 0 else [1, 8])
    assert torch.equal(keywords["text"], expected)


def key(number: int) -> StepKey:
    return StepKey("", number, 3, 2, 4, 0)


def test_how_far_a_change_reaches() -> None:
    """Relative to the largest value, beyond the place where the first state moved."""
    before = torch.full((1, 5, 2), 2.0)
    before[0, 0, 0] = -4.0

    def states(*moves: tuple[int, float]) -> torch.Tensor:
        state = before.clone()
        for place, by in moves:
            state[:, place] += by
        return state

    first = (states(), states())
    known = {key(0): first, key(1): first, key(2): first}
    # The third token changes; the next state moves at the first and the last.
    after = {
        key(0): (states((2, 1.0)), states((2, 1.0))),
        key(1): (states((2, 1.0)), states((0, -0.5), (2, 1.0), (4, 3.0))),
    }
    assert _moved(known, after, last=True) == {key(0): 0.0, key(1): 0.5 / 4}
    assert _moved(known, after, last=False) == {key(0): 0.0, key(1): 3.0 / 4}
    # In front of the first and after the last there is nothing to move.
    edge = {key(0): (states((0, 1.0)), states((0, 1.0), (3, 1.0)))}
    assert _moved(known, edge, last=True) == {}
    assert _moved(known, edge, last=False) == {key(0): 1 / 4}
    # A state that does not move says nothing of the place, and one of another length nothing.
    later = {key(0): first, key(1): (first[0][:, :4], first[1][:, :4]), key(2): after[key(1)]}
    assert _moved(known, later, last=True) == {key(2): 0.5 / 4}
    several = {key(0): (states((1, 1.0), (3, 1.0)), states((0, 1.0), (2, 2.0), (4, 3.0)))}
    assert _moved(known, several, last=True) == {key(0): 1 / 4}
    assert _moved(known, several, last=False) == {key(0): 3 / 4}
    zeros = torch.zeros(1, 5, 2)
    moved = zeros.clone()
    moved[0, 2:] = 3.0
    nothing = {key(0): (zeros, zeros)}  # no largest value to relate it to
    assert _moved(nothing, {key(0): (moved, moved)}, last=True) == {key(0): 0.0}
    moved_after = {key(0): (moved.flip(1), moved)}
    assert _moved(nothing, moved_after, last=False) == {key(0): 3.0}


class Masked(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return x if attention_mask is None else x * attention_mask


def test_a_call_without_padding() -> None:
    x, mask = torch.ones(2, 3), torch.tensor([[1, 0, 1], [0, 1, 1]])
    (given,), keywords = without_padding(Masked(), (x,), {"attention_mask": mask})
    assert given is x
    assert torch.equal(keywords["attention_mask"], torch.ones_like(mask))
    (_, ones), keywords = without_padding(Masked(), (x, mask), {})
    assert torch.equal(ones, torch.ones_like(mask))
    assert keywords == {}
    (_, same), keywords = without_padding(nn.Identity(), (x, mask), {"mask": mask})
    assert same is keywords["mask"] is mask


@pytest.mark.parametrize(
    ("value", "axis", "expected"),
    [(3, 1, 3), ((2, 5), 0, 2), ((2, 5), 1, 5), ([7], 1, 7), ((7,), 0, 7)],
)
def test_a_setting_of_one_axis(value, axis, expected) -> None:
    assert _along(value, axis) == expected


KERNELS = [(1, 1, 1), (3, 1, 1), (3, 2, 1), (4, 1, 2), (5, 2, 3)]
"""Size, dilation and stride on one axis."""
CONVOLUTIONS = [
    (*kernel, padding, last)
    for kernel in KERNELS
    for padding in (0, 1, 2, 3, "same", "valid")
    for last in range(min(kernel[0], 3))
    if padding != "same" or kernel[2] == 1  # torch has no other
]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("size", "dilation", "stride", "padding", "last"), CONVOLUTIONS)
def test_a_convolution_reads_places_that_come_later(axis, padding, size, dilation, stride, last):
    """Against what its outputs depend on: of place t, inputs from the next output's own on. The
    kernel's last elements may be zero."""
    sizes, strides, dilations = [3, 3], [1, 1], [1, 1]
    sizes[axis], strides[axis], dilations[axis] = size, stride, dilation
    given = padding
    if isinstance(padding, int):
        given = [0, 0]
        given[axis] = padding
    conv = nn.Conv2d(1, 1, sizes, strides, given, dilations, bias=False).double()
    with torch.no_grad():
        conv.weight.fill_(1.0)
        if last:
            conv.weight.narrow(2 + axis, size - last, last).zero_()
    images = torch.ones(1, 1, 24, 24, dtype=torch.double, requires_grad=True)
    graph, output = record(conv, (images,), {})
    node = next(node for node in graph.nodes if node.operation == "conv2d")
    place = 2
    made = output.movedim(2 + axis, 0)[place].sum()
    (read,) = torch.autograd.grad(made, images)
    rows = read[0, 0].movedim(axis, 0).any(1).nonzero()[:, 0]
    before = _along(given, axis) if padding not in ("same", "valid") else 0
    if padding == "same":
        before = (size - 1) * dilation // 2
    later = bool(len(rows)) and int(rows.max()) >= (place + 1) * stride
    assert _reads_later(conv, graph, node, axis) is (later and before > 0)
