"""Which channel's gate multiplies each element of a tensor.

A tensor of ids holds, for each element, the channel (0 to C-1) whose gate the element is to be
multiplied by, the id `keep` (that is C) where it must not change, or `NOT_READ` where nothing that
matters reads it. Operations that only move, copy or average elements carry ids without any rule of
their own: the adjoint of the operation, run on the ids, says which input each output came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

NOT_READ = -1
_TOLERANCE = 1e-3  # ids are integers: averages of unequal ones miss by far more than rounding does

Linear = Callable[..., Sequence[Tensor]]


class Refusal(Exception):  # noqa: N818  not an error: a reason that ends up in a message
    """Why a gate cannot go through an operation or into a parameter.

    `norm` names the module that could take it if it had affine parameters.
    """

    def __init__(self, reason: str, norm: str = "") -> None:
        super().__init__(reason)
        self.norm = norm


def unexpanded(ids: Tensor, axis: int | None = None) -> Tensor:
    """`ids` without the axes, but for `axis`, along which they were expanded: the same values. A
    gate's ids are one per channel, for thousands of places."""
    for number, stride in enumerate(ids.stride()):
        if stride == 0 and number != axis and ids.shape[number]:
            ids = ids.narrow(number, 0, 1)
    return ids


def merge(first: Tensor | None, second: Tensor) -> Tensor:
    """The ids that both ask for; two different ones for one element cannot be had."""
    if first is None:
        return second
    if bool(((first != second) & (first != NOT_READ) & (second != NOT_READ)).any()):
        raise Refusal("is needed both with and without the gate")
    return torch.maximum(first, second)


def channel_vector(ids: Tensor, axis: int) -> Tensor:
    """The id of each index on `axis`, which must be one along all other axes."""
    ids = unexpanded(ids, axis % ids.dim())
    rows = ids.movedim(axis, 0).flatten(1) if ids.dim() > 1 else ids[:, None]
    vector = rows.amax(1)
    if bool(((rows != vector[:, None]) & (rows != NOT_READ)).any()):
        raise Refusal("has its channels on another axis")
    return vector


def along(vector: Tensor, axis: int, shape: Sequence[int]) -> Tensor:
    """`vector` on `axis` of a tensor of `shape`, constant along all other axes."""
    sizes = [1] * len(shape)
    sizes[axis] = -1
    return vector.reshape(sizes).expand(*shape)


def pull_back(
    function: Linear, shapes: Sequence[Sequence[int]], asked: Mapping[int, Tensor]
) -> list[Tensor]:
    """The ids of the inputs of `function` that give its outputs the ids `asked` (by place).

    `function` must be linear with non-negative coefficients.
    """
    with torch.enable_grad():
        inputs = [
            torch.zeros(tuple(shape), dtype=torch.float64, requires_grad=True) for shape in shapes
        ]
        results = function(*[each.clone() for each in inputs])
        outputs = [results[place] for place in asked]
        read = [(ids != NOT_READ).double() for ids in asked.values()]
        wanted = [(ids + 1).double() * mask for ids, mask in zip(asked.values(), read, strict=True)]
        totals = torch.autograd.grad(
            outputs, inputs, wanted, retain_graph=True, materialize_grads=True
        )
        weights = torch.autograd.grad(outputs, inputs, read, materialize_grads=True)
    found = [
        torch.where(weight > 0, total / weight.clamp_min(1e-300), 0.0)
        for total, weight in zip(totals, weights, strict=True)
    ]
    found = [_rounded(values) for values in found]
    # Where an output's inputs have one id, and only there, mean and mean square of the ids agree.
    coverage = function(*[torch.ones_like(values) for values in found])
    for power in (1, 2):
        reached = function(*[values**power for values in found])
        for place, want, mask in zip(asked, wanted, read, strict=True):
            error = (reached[place] - want**power * coverage[place]) * mask
            if error.numel() and float(error.abs().max()) > _TOLERANCE:
                raise Refusal("mixes channels that have different gates")
    return [(values - 1).long() for values in found]


def broadcast_from(ids: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The ids of an operand of `shape` that was broadcast to the shape of `ids`."""
    if tuple(ids.shape) == shape:
        return ids
    return pull_back(lambda operand: [operand.expand(ids.shape)], [shape], {0: ids})[0]


def push_forward(function: Linear, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The ids of the outputs of `function` (as in `pull_back`) whose inputs have these ids."""
    values = [(ids + 1).double() for ids in inputs]
    weight = function(*[torch.ones_like(each) for each in values])
    first = function(*values)
    second = function(*[each**2 for each in values])
    outputs = []
    for mean, square, total in zip(first, second, weight, strict=True):
        one = torch.where(total > 0, mean / total.clamp_min(1e-300), 0.0)
        if float((square - one**2 * total).abs().max()) > _TOLERANCE:
            raise Refusal("mixes channels that have different gates")
        outputs.append((_rounded(one) - 1).long())
    return outputs


def _rounded(values: Tensor) -> Tensor:
    rounded = values.round()
    if values.numel() and float((values - rounded).abs().max()) > _TOLERANCE:
        raise Refusal("mixes channels that have different gates")
    return rounded
