"""The residual steps of a network: the one place that knows about steps.

`steps(model)` runs the network once on an example and reads the steps off the data flow, so it
needs no per-model code: ResNets, mobile networks, ViTs, Swins, ConvNeXts, mixers and mixed designs
of timm, torchvision, Hugging Face and anybody's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from torch import nn

from attnlab._checked import check_module
from attnlab._errors import StepsNotFoundError
from attnlab.residuals._detect import Addition, Kind, additions
from attnlab.residuals._update import block_name
from attnlab.residuals.example import Example, Run, run_once, uncompiled
from attnlab.residuals.form import StepForm, form_of
from attnlab.residuals.graph import Graph, Node

_WRITES = re.compile(r"(add|sub|subtract|addcmul|lerp)_\(")


@dataclass(frozen=True)
class StepKey:
    """Which addition a step is: the same in every run of a network, with gates and without,
    whatever the number of inputs and their size."""

    owner: str
    """The module whose forward makes the addition."""
    call: int
    """In which call of that module in one forward, from 0."""
    axes: int
    channel_axis: int
    channels: int
    """How many axes what is added has, and how many channels on that one."""
    addition: int
    """The addition's place, from 0, among those of that call that `could_be` this one."""

    plain: bool = True
    """Whether it adds two tensors as they are, without a sign or a factor (`x - f`, `addcmul`)."""

    def could_be(self, shape: Sequence[int], plain: bool = True) -> bool:
        """Return whether a same-shape addition of this shape and form could be the step's: same
        axes, same channels. Not the whole shape, which depends on the images, and not every
        addition: whether `scores + bias` adds tensors of one shape depends on the batch size."""
        return (
            len(shape) == self.axes
            and shape[self.channel_axis] == self.channels
            and plain == self.plain
        )

    def candidates(self, graph: Graph) -> list[Node]:
        """The additions of `graph` that could be this one, in the order of execution."""
        call = (self.owner, self.call)
        return [
            node
            for node in graph.sums
            if call in node.inside and self.could_be(node.shape, not node.first_goes_on)
        ]


@dataclass(frozen=True)
class Step:
    """One residual update `X' = carry(X) + write(Δt ⊗ f(read(X)))` of a network; the plain one is
    `x_{t+1} = x_t + f(x_t)`."""

    stage: int
    """From 1. A stage is a run of steps whose states have the same number of elements."""
    block: int
    """From 0, within the stage. Both updates of a transformer block have one block number."""
    part: int
    """From 0, within the block: 0 is a transformer block's attention, 1 its MLP."""
    kind: Kind
    """`identity`: the shortcut is x_t itself. `projection`: a convolution, pool, ... of it.
    `mixed`: streams that a matrix mixes, as hyper-connections carry them."""
    name: str
    """The block's module name, e.g. `layer1.0`."""
    key: StepKey
    owner_calls: int
    """How often the module that makes the addition is called in one forward."""
    owner_additions: int
    """How many additions of that call could be this one."""
    branch_operand: int
    """Which operand of the addition (0 or 1) is the branch."""
    overwrites: bool
    """Whether the addition is written as a call of `add_` or its like, whose caller may use the
    operand it wrote to instead of its result (`+=` binds the result; torch itself sees no
    difference)."""
    branch_modules: tuple[str, ...]
    """Modules called once whose output is exactly the branch, or is but for gates, innermost
    first."""
    branch_shared: bool
    """Whether something besides the addition reads the branch."""
    shape: tuple[int, ...]
    """The state's shape, batch included."""
    activation: str
    """What is applied to the sum before anything else sees it (`relu`), or an empty string."""
    source: str
    """File and line of the addition."""
    form: StepForm
    """What carries the state, reads from it and writes to it, and what multiplies the branch."""
    graph_node: int
    """The addition's node in the recorded graph, with its state, shortcut and branch nodes."""
    state_node: int
    shortcut_node: int
    branch_node: int

    @property
    def label(self) -> str:
        """`1.0`: stage and block, as on the reports' axes; `1.0:1` names a block's second part."""
        return f"{self.stage}.{self.block}" + (f":{self.part}" if self.part else "")

    @property
    def owner(self) -> str:
        """The module whose forward makes the addition."""
        return self.key.owner

    @property
    def channel_axis(self) -> int:
        return self.key.channel_axis

    @property
    def channels(self) -> int:
        return self.key.channels

    def __str__(self) -> str:
        return (
            f"{self.label:7} {self.kind:10} {self.name:24} "
            f"{'×'.join(map(str, self.shape[1:])):14} {self.form!s:14} {self.source}"
        )


def steps(model: nn.Module, example: Example | None = None) -> list[Step]:
    """The residual steps of `model` in the order of execution.

    `example` is an input (or a tuple or dict of inputs) that the network runs on; without it one is
    made from what the model says about itself. The model is not changed. Raises
    `StepsNotFoundError` for a network without a residual step.
    """
    check_module(model)
    model = uncompiled(model)
    run = run_once(model, example)
    found = find_steps(run.graph)
    if not found:
        raise no_steps_error(model, run)
    return found


def find_steps(graph: Graph) -> list[Step]:
    """The steps of a recorded graph; an empty list if there are none."""
    found = [_describe(graph, each) for each in additions(graph) if each.kind != "merge"]
    return _numbered(found)


def no_steps_error(model: nn.Module, run: Run) -> StepsNotFoundError:
    """Say what was looked for, what was seen, and how to name sites by hand."""
    merges = len(additions(run.graph))
    norms = norms_before_activation(run.graph)
    lines = [
        f"{type(model).__name__} has no residual step. Looked for additions of two feature maps of "
        f"one shape where one was computed from the other, in one run on an input of shape "
        f"{run.input_shape}: {merges} such additions, none of them a step."
    ]
    if norms:
        lines.append(
            f"To put a gate after {_norms(len(norms))} (the papers' placement for VGG): "
            f"insert(model, gate, where='norms')."
        )
    names = norms[:2] or [name for name, _ in model.named_children()][:2]
    lines.append(
        f"To name sites by hand, pass the modules after whose output a gate is to act: "
        f"insert(model, gate, where={names!r})."
    )
    return StepsNotFoundError("\n".join(lines))


def _norms(number: int) -> str:
    if number == 1:
        return "its norm that feeds an activation"
    return f"each of its {number} norms that feed an activation"


def norms_before_activation(graph: Graph) -> list[str]:
    """Names of the norm modules, called once, whose output goes straight into an activation."""
    names = []
    for node in graph.nodes:
        if node.kind != "norm" or not node.data:
            continue
        users = [graph.nodes[u] for u in graph.users[node.index]]
        module = _called_once(graph, node)
        if module and users and all(user.kind == "activation" for user in users):
            names.append(module[0])
    return names


def _called_once(graph: Graph, node: Node) -> tuple[str, ...]:
    return tuple(name for name, _ in node.produced_by if name and graph.calls[name] == 1)


def _describe(graph: Graph, addition: Addition) -> Step:
    node = graph.nodes[addition.node]
    shortcut, branch = graph.nodes[addition.shortcut], graph.nodes[addition.branch]
    axis = (branch if shortcut.channel_axis is None else shortcut).channels_on
    form, axis = form_of(
        graph, node, addition.kind, addition.state, addition.shortcut, addition.branch, axis
    )
    plain = not node.first_goes_on
    key = StepKey(node.owner, node.call, len(node.shape), axis, node.shape[axis], 0, plain)
    similar = key.candidates(graph)
    return Step(
        stage=0,
        block=0,
        part=0,
        kind=addition.kind,
        name=block_name(node.owner),
        key=replace(key, addition=similar.index(node)),
        owner_calls=graph.calls.get(node.owner, 1),
        owner_additions=len(similar),
        branch_operand=node.inputs.index(addition.branch),
        overwrites=node.in_place and _WRITES.search(node.statement) is not None,
        branch_modules=_branch_modules(graph, branch),
        branch_shared=len(graph.users[branch.index]) > 1,
        shape=node.shape,
        activation=_activation_after(graph, node),
        source=node.source,
        form=form,
        graph_node=addition.node,
        state_node=addition.state,
        shortcut_node=addition.shortcut,
        branch_node=addition.branch,
    )


def _branch_modules(graph: Graph, branch: Node) -> tuple[str, ...]:
    """Return the modules that end the branch, and those after which it is gated already."""
    names = _called_once(graph, branch)
    if branch.operation != "whole" or not branch.inputs:
        return names
    return _branch_modules(graph, graph.nodes[branch.inputs[0]]) + names


def _activation_after(graph: Graph, node: Node) -> str:
    users = [graph.nodes[u] for u in graph.users[node.index]]
    if len(users) == 1 and users[0].kind == "activation" and users[0].shape == node.shape:
        return users[0].operation
    return ""


def _numbered(found: list[Step]) -> list[Step]:
    numbered: list[Step] = []
    stage, block, part = 0, 0, 0
    for step in found:
        previous = numbered[-1] if numbered else None
        same_block = previous is not None and previous.name == step.name
        new_stage = (
            previous is None
            or prod(step.shape) != prod(previous.shape)
            or step.kind == "projection"
        )
        if new_stage:
            stage, block, part = stage + 1, 0, 0
        elif same_block:
            part += 1
        else:
            block, part = block + 1, 0
        numbered.append(replace(step, stage=stage, block=block, part=part))
    return numbered
