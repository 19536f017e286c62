"""Gates that pool over maps, in networks whose convolutions do not look ahead.

WaveNet and temporal convolutions pad on one side, PixelCNN masks its kernels, causal video networks
pad in front of the first frame. A gate that pools over time or rows tells every place of all later
ones. As for tokens, it is known by what the states do when the first or the last place of the input
changes; networks with an ordinary convolution, which looks both ways, are not run for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from attnlab._errors import SiteError
from attnlab.residuals.example import Example, Run
from attnlab.residuals.graph import Graph, Node, Ref
from attnlab.residuals.steps import Step
from attnlab.residuals.watching import SeenStep, watchable_in
from attnlab.surgery.insertion._causal import MUCH, TokenStates, causal_steps

_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}


def refuse_map_leaks(
    network: nn.Module,
    run: Run,
    example: Example | None,
    label: str,
    steps: Sequence[Step],
    looks_around: Callable[[], bool],
) -> None:
    """Raise `SiteError` if the gate `label`, which may look over all places of a map, would see
    what comes later at one of `steps`, whose channels may lie on any axis."""
    reads_later: dict[tuple[int, int], bool] = {}  # each kernel is looked at once, and few at all
    for channels, axis in dict.fromkeys(
        (step.key.channel_axis, axis) for step in steps for axis in _places(step)
    ):
        unknown = {
            step.key: step
            for step in steps
            if step.key.channel_axis == channels
            and axis in _places(step)
            and not _looks_ahead(network, run.graph, step, _places(step).index(axis), reads_later)
        }
        if not unknown or not looks_around():
            continue
        found = watchable_in(network, run, list(unknown.values()))
        causal = causal_steps(network, found, example, MapStates(axis), _changes)
        for key, step in unknown.items():
            if key in causal:
                raise SiteError(
                    f"{label!r} looks over all places of a map, and {type(network).__name__} "
                    f"is causal on axis {axis} of it: when what comes last changes, nothing before "
                    f"it in the state at {step.label}{f' ({step.name})' if step.name else ''} "
                    f"does. With this gate the future would leak into every earlier place. Use a "
                    f"gate that is the same for every input: 'asr:se'."
                )


def _places(step: Step) -> list[int]:
    """The axes of a map, which are neither of inputs nor of channels."""
    return [axis for axis in range(1, len(step.shape)) if axis != step.key.channel_axis]


def _looks_ahead(
    network: nn.Module,
    graph: Graph,
    step: Step,
    axis: int,
    reads_later: dict[tuple[int, int], bool],
) -> bool:
    """Whether a convolution on the way to `step` is known to read places that come later on this
    axis of the map, counted from 0; what was found of each is kept in `reads_later`."""
    for node in graph.nodes:
        if _CONVOLUTIONS.get(node.operation) != len(step.shape) - 2:
            continue
        if graph.computed_from(step.graph_node, node.index):
            known = (node.index, axis)
            if known not in reads_later:
                reads_later[known] = _reads_later(network, graph, node, axis)
            if reads_later[known]:
                return True
    return False


def _reads_later(network: nn.Module, graph: Graph, node: Node, axis: int) -> bool:
    names = ("input", "weight", "bias", "stride", "padding", "dilation")
    given = {**dict(zip(names, node.arguments, strict=False)), **node.keywords}
    weight = given.get("weight")
    name = graph.nodes[weight.index].name if isinstance(weight, Ref) else ""
    kernel = _stored(network, name)
    if kernel is None:
        return False  # a kernel that was computed may be masked
    size = kernel.shape[2 + axis]
    stride, dilation = (_along(given.get(each, 1), axis) for each in ("stride", "dilation"))
    padding = given.get("padding", 0)
    if isinstance(padding, str):
        before = (size - 1) * dilation // 2 if padding == "same" else 0
    else:
        before = _along(padding, axis)
    # The kernel's first element that reads behind a place's own share of the input.
    first = -(-(stride + before) // dilation)
    return before > 0 and first < size and bool(kernel.narrow(2 + axis, first, size - first).any())


def _stored(network: nn.Module, name: str) -> Tensor | None:
    """The parameter or buffer of that name; a blur's kernel is a buffer."""
    keeper, _, own = name.rpartition(".")
    found = getattr(network.get_submodule(keeper), own, None) if own else None
    return found.detach() if isinstance(found, Tensor) else None


def _along(value: Any, axis: int) -> int:
    """A setting of a convolution on one axis: one number for all, or one for each."""
    if isinstance(value, int):
        return value
    return int(value[axis] if len(value) > 1 else value[0])


class MapStates(TokenStates):
    """Keeps the states of steps on maps, as tokens along one axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def step_seen(self, seen: SeenStep) -> Tensor | None:
        state = seen.shortcut.detach().movedim(self.axis, 1).flatten(2).clone()
        branch = seen.branch.detach().movedim(self.axis, 1).flatten(2)
        if state.shape[1] > 1:
            self.seen[seen.step.key] = (state, state + branch)
        return None


def _changes(arguments: object) -> Iterator[Callable[[int], object]]:
    """For every input and every axis on which it may be a sequence: the arguments with its first
    (0) or last (-1) place changed."""
    leaves, form = tree_flatten(arguments)
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor) or leaf.dtype == torch.bool or leaf.numel() == 0:
            continue
        for axis in range(1, leaf.ndim):

            def change(
                place: int, number: int = number, leaf: Tensor = leaf, axis: int = axis
            ) -> object:
                other = leaf.clone()
                part = other.select(axis, place)
                if leaf.is_floating_point():
                    part += MUCH
                else:
                    part.copy_(torch.where(part > 0, part - 1, 1))
                return tree_unflatten([*leaves[:number], other, *leaves[number + 1 :]], form)

            yield change
