"""What makes a tensor that is added the update of a state.

That one operand of an addition was computed from the other does not make it an update: so were the
lower levels of a pyramid from the upper ones, and the queries of a decoder from the positions that
each of its layers adds to them anew. An update is made where it is added, and made to be added:

* it is computed from the state in the call of the module that makes the addition, in its caller's,
  or in that of the block (`layer.3`) that both belong to; whatever was computed outside is given
  to that call, a state like any other;
* nothing but the addition reads it;
* it is more than the state in another form, and it does not come from another state that takes
  steps;
* it is the same for the same state: what draws random numbers on the way (`mu + eps * sigma` of a
  variational autoencoder) is noise, which a gate would scale and no measure of steps means.

The tensor that is added to need not be the one that the branch read. It may be the state in another
form: the same values re-arranged or scaled, the same slice taken another time, a slice of what the
branch read (the class token), or several of those put together again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import permutations
from math import prod

from attnlab.residuals import operations
from attnlab.residuals.graph import Graph, Node

_SLICING = operations.SLICES | operations.SPLITS
_COMPUTING = ("convolution", "linear", "norm", "activation", "matmul", "pool")
Calls = tuple[tuple[str, int], ...]
"""Module calls (name, call), one made in the other, outermost first."""


def computes(node: Node) -> bool:
    """Return whether the operation does more than to move, scale or add values."""
    return (
        node.kind in _COMPUTING
        or node.operation == "opaque"
        or node.operation in operations.RECURRENT
        or node.operation.startswith("fft_")
    )


def computing_calls(graph: Graph) -> frozenset[tuple[str, int]]:
    """The module calls in which anything is computed."""
    return frozenset(call for node in graph.nodes if computes(node) for call in node.inside)


def home(node: Node, computing: frozenset[tuple[str, int]]) -> Calls:
    """The calls in which an addition is made. A module that only adds works for its caller."""
    calls = node.inside
    while len(calls) > 1 and calls[-1] not in computing:
        calls = calls[:-1]
    return calls


def caller(calls: Calls) -> Calls:
    """The calls around the innermost of `calls`, as far as its block: what `encoder.layer.3` does
    in `encoder.layer.3.output.bottleneck` it does itself."""
    around = calls[:-1] or calls
    block = block_name(calls[-1][0]) if calls else ""
    while len(around) > 1 and around[-1][0] != block and around[-1][0].startswith(f"{block}."):
        around = around[:-1]
    return around


def block_name(owner: str) -> str:
    """The name up to its last number: `encoder.layer.3.output` belongs to `encoder.layer.3`."""
    parts = owner.split(".")
    numbered = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbered[-1] + 1]) if numbered else owner


def made_in(calls: Calls, graph: Graph, state: int, branch: int) -> list[Node]:
    """The nodes on the paths from `state` to `branch` (included) that never leave the innermost of
    `calls`, in the order of execution; none where `branch` was not made from `state` there."""
    constant = not graph.nodes[state].data
    reaches = graph.computed_from_constant if constant else graph.computed_from
    depth = len(calls)
    inside: set[int] = set()
    waiting = [branch]
    while waiting:
        index = waiting.pop()
        node = graph.nodes[index]
        if index in inside or node.inside[:depth] != calls or not reaches(index, state):
            continue
        inside.add(index)
        waiting.extend(node.inputs if constant else node.data_inputs)
    made: set[int] = set()
    for index in sorted(inside):
        if any(i == state or i in made for i in graph.nodes[index].inputs):
            made.add(index)
    return [graph.nodes[i] for i in sorted(made)] if branch in made else []


def has_cut(state: int, path: list[Node], condition: Callable[[Node], bool]) -> bool:
    """Return whether all ways from `state` along `path` to its end pass a node of this
    condition."""
    around = {state}
    for node in path:
        if any(i in around for i in node.inputs) and not condition(node):
            around.add(node.index)
    return path[-1].index not in around


def is_read_elsewhere(graph: Graph, index: int, by: int) -> bool:
    """Return whether anything but the addition `by` reads the tensor `index`, in whatever
    layout."""
    reader = by
    while True:
        if any(other != reader for other in graph.readers(index)):
            return True
        node = graph.nodes[index]
        if node.kind != "layout" or len(node.data_inputs) != 1:
            return False
        reader, index = index, node.data_inputs[0]


def is_query(graph: Graph, state: int, path: list[Node]) -> bool:
    """Return whether the branch is attention whose query is `state` itself, straight into the
    products with the keys (pooled attention of MViT): the query is not a state of the network."""
    on_path = {node.index for node in path}
    first: list[Node] = []
    waiting = [state]
    while waiting:
        for user in graph.users[waiting.pop()]:
            if user not in on_path:
                continue
            if computes(graph.nodes[user]):
                first.append(graph.nodes[user])
            else:
                waiting.append(user)
    products = [
        node
        for node in first
        if node.kind == "matmul" or node.operation == "scaled_dot_product_attention"
    ]
    return len(products) == len(first) and any(len(n.data_inputs) > 1 for n in products)


def is_replacement(graph: Graph, state: int, branch: int) -> bool:
    """Return whether the branch is y - x for the state x: the sum is y (a straight-through
    estimator)."""
    node = graph.nodes[graph.before_layout(branch)]
    if len(node.inputs) != 2:
        return False
    taken = graph.nodes[node.inputs[1]]
    if node.first_goes_on and taken.operation == "mul" and taken.arguments[1] == -1:
        taken = graph.nodes[taken.inputs[0]]
    elif node.operation != "sub":
        return False
    return graph.before_layout(taken.index) == graph.before_layout(state)


def is_deviation(graph: Graph, index: int) -> bool:
    """Return whether a tensor is an exponential, or the root of one: the deviation of a variational
    autoencoder, which some (monai's) multiply by noise in training only, and add as it is in eval
    mode."""
    node = graph.nodes[index]
    while len(node.data_inputs) == 1 and (
        node.kind in ("layout", "scale") or node.operation == "sqrt"
    ):
        node = graph.nodes[node.data_inputs[0]]
    return node.operation == "exp"


def is_only_compared(graph: Graph, index: int) -> bool:
    """Return whether nothing is made of the values of a tensor but the place of the largest: the
    distances of a quantiser to its codes, `|x|² + |c|² - 2 x c`, are not a state."""
    compared = False
    waiting, made = [index], {index}
    while waiting:
        at = graph.nodes[waiting.pop()]
        if at.index in graph.outputs or computes(at):
            return False
        for reader in graph.readers(at.index):
            if graph.nodes[reader].floating and not at.floating:
                compared = True  # what lies at that place, whose values are others
            elif reader not in made:
                made.add(reader)
                waiting.append(reader)
    return compared


def mixes_streams(graph: Graph, state: int, branch: int) -> bool:
    """Whether the branch is the state itself times a square matrix of its own for each token, as
    AltUp predicts its streams: `x + A x` carries them on by I + A, and adds no function of them.
    The matrix of an attention, which may mix the state itself too, multiplies queries by keys."""
    mixed = graph.nodes[graph.before_layout(branch)]
    if mixed.operation != "matmul" or len(mixed.data_inputs) != 2:
        return False
    for matrix, streams in permutations(mixed.data_inputs):
        sizes = graph.nodes[matrix].shape
        if (
            graph.before_layout(streams) == graph.before_layout(state)
            and len(sizes) >= 4
            and sizes[-1] == sizes[-2]
        ):
            made = graph.between(state, matrix)
            return not any(n.kind == "matmul" and len(n.data_inputs) > 1 for n in made)
    return False


def forms(graph: Graph, twins: Mapping[int, list[int]], index: int) -> list[int]:
    """Return what the tensor `index` is another form of, itself first. `twins` are those of the
    graph."""
    node = graph.nodes[index]
    found = [index]
    while _hands_on(node) and len(node.data_inputs) == 1:
        node = graph.nodes[node.data_inputs[0]]
        found.append(node.index)
    # `bias[experts]` is a slice of the bias, chosen by data, and not of the numbers that choose.
    if node.operation in operations.SLICES and node.data_inputs == node.inputs[:1]:
        found += twins[node.index]
        source = graph.nodes[node.data_inputs[0]]
        if source.operation not in operations.SPLITS:
            found.append(source.index)
    return list(dict.fromkeys(found))


def _hands_on(node: Node) -> bool:
    """Whether the values stay as they are but for their order and a factor; Python's `sum` begins
    with 0 + x."""
    if node.operation == "add":
        return any(type(each) is int and each == 0 for each in node.arguments)
    return node.kind in ("layout", "scale")


def twins(graph: Graph) -> dict[int, list[int]]:
    """Return, for each slice of a tensor, all slices that were taken of it in the same way."""
    groups: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    found = {}
    for node in graph.nodes:
        if node.operation in operations.SLICES and node.inputs:
            key = (node.inputs[0], node.operation, repr((node.arguments, node.keywords)))
            groups[key].append(node.index)
            found[node.index] = groups[key]
    return found


def parts(graph: Graph, index: int) -> tuple[int, ...]:
    """Return what the tensor `index` was put together from (class token, patches), if from
    several."""
    joined = graph.nodes[graph.before_layout(index)]
    return joined.data_inputs if joined.operation == "cat" and len(joined.data_inputs) > 1 else ()


def begins_with_slices(state: int, path: list[Node]) -> bool:
    """Return whether nothing of what was made of the state on `path` read all of it."""
    return all(node.operation in _SLICING for node in path if state in node.inputs)


def positions(node: Node) -> int:
    """Return how many places a feature map has, over the batch."""
    return prod(node.shape) // max(node.shape[node.channels_on], 1) if node.shape else 1
