"""Where the heads of attention are apart: in front of its output projection.

Attention multiplies its weights, which a softmax made, with its values, and lays the heads that it
found side by side for a linear layer. Which layer that is, how many heads there are and which
channels are whose is read off the recorded run: the layout operations in between are made once more
with the numbers of the heads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn

from attnlab.residuals import operations
from attnlab.residuals.adapters import is_adapter
from attnlab.residuals.graph import Graph, Node, Ref
from attnlab.residuals.site import Site
from attnlab.residuals.steps import Step

_FUSED = "multi_head_attention_forward"


class _NotFound(Exception):  # noqa: N818
    """Why no gate can act at the heads of an attention."""


@dataclass(frozen=True)
class _Heads:
    """An attention, and the layers in front of which its heads are apart."""

    projection: str
    given: Node
    """What the projection is given."""
    heads: int
    reader: str
    """The layer that is given what the attention reads ..."""
    read: Node
    """... and that."""


def has_attention(graph: Graph, steps: Sequence[Step]) -> bool:
    """Return whether the branch of one of `steps` has attention in it."""
    return any(_attentions(graph, step) for step in steps)


def sites_at_heads(
    model: nn.Module,
    graph: Graph,
    sites: Sequence[Site],
    beside: Callable[[str], tuple[str, str]],
) -> list[Site]:
    """The sites of steps whose branch is attention, moved in front of its output projection; with
    the reason where that cannot be. `beside` says where a gate at a module hangs, and as what."""
    modules = dict(model.named_modules())
    moved = []
    for site in sites:
        assert site.step is not None
        found = _attentions(graph, site.step)
        if not found:
            continue
        try:
            at = _heads_of(graph, site.step, found, modules)
        except _NotFound as reason:
            moved.append(replace(site, refusal=f"place='heads': {reason}"))
            continue
        home, attribute = beside(at.projection)
        moved.append(
            replace(
                site,
                host="input",
                module=at.projection,
                home=home,
                attribute=attribute.replace("attnlab", "attnlab_heads", 1),
                shape=at.given.shape,
                channel_axis=len(at.given.shape) - 1,
                position="inside",
                refusal="",
                heads=at.heads,
                reader=at.reader,
                reads=at.read.shape[-1],
            )
        )
    return moved


def _attentions(graph: Graph, step: Step) -> list[Node]:
    """The products of attention weights with values on the branch of `step`."""
    inner = sorted(graph.between(step.state_node, step.branch_node), key=lambda node: node.index)
    return [node for node in inner if _is_attention(graph, node)]


def _is_attention(graph: Graph, node: Node) -> bool:
    if node.operation in ("scaled_dot_product_attention", _FUSED):
        return True
    if node.kind != "matmul" or len(node.data_inputs) != 2:
        return False
    weights = graph.nodes[node.data_inputs[0]]
    while weights.kind == "layout" or weights.operation in operations.SLICES:
        weights = graph.nodes[weights.data_inputs[0]]
    return weights.operation == "softmax"


def _is_linear(node: Node) -> bool:
    """Return whether this is a linear layer, or a product with a parameter, written out."""
    return node.kind == "linear" or (node.kind == "matmul" and len(node.data_inputs) == 1)


def _heads_of(
    graph: Graph, step: Step, attentions: Sequence[Node], modules: Mapping[str, nn.Module]
) -> _Heads:
    if any(node.operation == _FUSED for node in attentions):
        raise _NotFound(
            "its attention is one call of torch (nn.MultiheadAttention), with the output "
            "projection inside; place='branch' puts the gate after that"
        )
    if len(attentions) > 1:
        raise _NotFound(f"its branch has {len(attentions)} attentions")
    (attention,) = attentions
    path = _path_to_projection(graph, attention)
    on_path = {node.index for node in path}
    projection, given = _layer_given(graph, path[-1], on_path, modules)
    path = [node for node in path if node.index <= given.index]
    reading = next(
        node
        for node in sorted(
            graph.between(step.state_node, attention.index), key=lambda node: node.index
        )
        if _is_linear(node) or node.kind == "convolution" or node is attention
    )
    before = {node.index for node in _layouts_before(graph, reading)}
    reader, read = _layer_given(graph, reading, before, modules)
    if read.shape[:-1] != given.shape[:-1] or not _is_linear(reading):
        raise _NotFound(
            f"its attention reads {read.shape} and its output projection {given.shape}, which are "
            f"not the same tokens"
        )
    return _Heads(projection, given, _count(path, given), reader, read)


def _path_to_projection(graph: Graph, attention: Node) -> list[Node]:
    """The tensors from what attention found to the linear layer that reads it, with both."""
    path = [attention]
    while not _is_linear(path[-1]):
        readers = graph.readers(path[-1].index)
        if len(readers) > 1:  # the wrapped layer of an adapter, which reads the same beside it
            readers = [i for i in readers if "base_layer" in graph.nodes[i].owner.split(".")]
        if len(readers) != 1:
            raise _NotFound("what its attention found is read in several places")
        node = graph.nodes[readers[0]]
        scales = node.operation in ("mul", "whole") and node.shape == path[-1].shape
        if node.kind not in ("layout", "norm") and not (_is_linear(node) or scales):
            raise _NotFound(
                f"what its attention found goes into {node.operation!r} before any linear layer"
            )
        path.append(node)
    return path


def _layer_given(
    graph: Graph, linear: Node, tensors: set[int], modules: Mapping[str, nn.Module]
) -> tuple[str, Node]:
    """The innermost module around `linear` that is given one of `tensors`, with adapters around
    it; and what it is given."""
    for name, call in reversed(linear.inside):
        given = graph.given.get((name, call))
        if given not in tensors or not name:
            continue
        while is_adapter(modules[parent := name.rpartition(".")[0]]):
            name = parent
        if isinstance(modules[name], torch.jit.ScriptModule):
            raise _NotFound(f"{name!r} is scripted; insert before scripting")
        if graph.calls[name] != 1:
            raise _NotFound(
                f"{name!r} runs {graph.calls[name]} times in one forward: one gate would act in "
                f"all of them"
            )
        return name, graph.nodes[given]
    raise _NotFound("a linear layer of its attention is not a module that is called with its input")


def _layouts_before(graph: Graph, node: Node) -> Iterator[Node]:
    """What `node` reads, and what that is a changed layout of."""
    before = graph.nodes[node.data_inputs[0]]
    yield before
    while before.kind == "layout":
        before = graph.nodes[before.data_inputs[0]]
        yield before


def _count(path: Sequence[Node], given: Node) -> int:
    """How many heads lie side by side in `given`, the last of `path` from attention on, in runs of
    channels of one size."""
    attention = path[0]
    leading = attention.shape[:-2]
    numbers = torch.arange(prod(leading), dtype=torch.float64).view(*leading, 1, 1)
    numbers = numbers.expand(attention.shape)
    for before, node in itertools.pairwise(path):
        if node.kind == "layout" and node.operation not in operations.CASTS:
            numbers = _rearranged(node, before, numbers)
    rows = numbers.reshape(-1, given.shape[-1]) if numbers.shape == given.shape else None
    if rows is None or not len(rows):
        raise _NotFound(f"the heads in {given.shape} cannot be told")
    changes = (rows[:, 1:] != rows[:, :-1]).nonzero()
    heads = len(rows[0].unique())
    width, rest = divmod(given.shape[-1], heads)
    ends = torch.arange(1, heads) * width - 1
    wanted = torch.cartesian_prod(torch.arange(len(rows)), ends).view(-1, 2)
    if rest or not torch.equal(changes, wanted):
        raise _NotFound(f"its {heads} heads do not lie side by side in runs of channels")
    return heads


def _rearranged(node: Node, before: Node, numbers: Tensor) -> Tensor:
    def fill(ref: Ref) -> object:
        if ref.index == before.index:
            return numbers
        raise _NotFound(f"{node.operation!r} after its attention selects by a computed index")

    found = node.replayed(fill)
    assert isinstance(found, Tensor)
    return found
