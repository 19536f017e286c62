"""Record the data-flow graph of a network from one eager run.

Works on any network that runs: in-place operations, views, functional calls and modules called
several times are all seen, because what is recorded is what was executed, not what was written.
"""

from __future__ import annotations

import ctypes
import linecache
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

from attnlab._types import Arguments, Function, Keywords
from attnlab.residuals import operations
from attnlab.residuals.adapters import inside_adapter, marked_adapters
from attnlab.residuals.graph import Graph, Node, Ref
from attnlab.residuals.listing import list_modules, named_tensors

_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.abspath(__file__)
# Attribute reads that hand out a tensor; all other reads (shape, dtype, ...) are not data flow.
_TENSOR_ATTRIBUTES = frozenset(("T", "mT", "H", "mH", "data", "real", "imag"))
# Methods that say what a tensor is like, and neither read its values nor draw random numbers. Every
# batch norm asks for `dim`.
_TELLS = frozenset(
    [
        Tensor.dim,
        Tensor.ndimension,
        Tensor.size,
        Tensor.numel,
        Tensor.stride,
        Tensor.is_contiguous,
        Tensor.is_floating_point,
        Tensor.is_complex,
        Tensor.element_size,
        Tensor.get_device,
    ]
)

_DRAW_NOTHING = frozenset(
    [
        *operations.ADDITIONS,
        torch.conv1d,
        torch.conv2d,
        torch.conv3d,
        F.linear,
        F.batch_norm,
        F.layer_norm,
        F.group_norm,
        F.relu,
        F.gelu,
        F.silu,
        F.hardswish,
        F.max_pool2d,
        F.avg_pool2d,
        F.adaptive_avg_pool2d,
        torch.sigmoid,
        torch.flatten,
        torch.matmul,
        Tensor.mul,
        Tensor.__mul__,
        Tensor.__matmul__,
        Tensor.view,
        Tensor.reshape,
        Tensor.transpose,
        Tensor.permute,
    ]
)
"""What nearly all calls of a network are, which draw no random numbers whatever they are given: to
look whether one drew takes as long as a small one of them. Of all others that is looked at."""


class RecordedWhole(nn.Module):
    """A module that is recorded as one node `whole`, computed from the first tensor that it is
    given, whatever it does inside: with it and without, the network has the same steps."""


def record(
    model: nn.Module,
    arguments: Arguments,
    keywords: Keywords,
    count: Callable[[], int] = lambda: 0,
) -> tuple[Graph, object]:
    """Run `model(*arguments, **keywords)` once; return its graph and its output. The graph knows by
    how much `count()` rose in modules that are recorded as one node."""
    recorder = _Recorder(model, count)
    for tensor in _tensors((arguments, keywords)):
        recorder.add_input(tensor)
    with marked_adapters(model), recorder.watching_modules(), recorder:
        output = model(*arguments, **keywords)
    return recorder.graph(output), output


_LEAVES = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size))
"""What most arguments are that are not tensors."""


def _tensors(tree: object) -> list[Tensor]:
    """The tensors in `tree`, in the order of torch's pytrees, which take longer than the operations
    of a small network."""
    if type(tree) in _LEAVES:
        return []
    if isinstance(tree, Tensor):
        return [tree]
    if type(tree) is tuple or type(tree) is list:
        return [tensor for part in tree for tensor in _tensors(part)]
    if type(tree) is dict:
        return [tensor for part in tree.values() for tensor in _tensors(part)]
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _random_states(keywords: Keywords) -> list[bytes]:
    """The states of all random generators that a call can draw from. What drew is known by what it
    leaves behind: no list of names is complete, and dropout draws nothing in eval mode."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    if isinstance(given := keywords.get("generator"), torch.Generator):
        generators.append(given)
    return [_bytes(generator.get_state()) for generator in generators]


def _bytes(state: Tensor) -> bytes:
    """Read off the memory: whoever counts operations would see the one that makes an array of it,
    which takes three times as long, and this happens twice for each operation of a network."""
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def _hands_back(output: object, arguments: Arguments) -> bool:
    """Whether a call that writes nothing returned its very argument: a cast to the type that it has
    (the first line of an RMSNorm), dropout in eval mode. The result is a value of its own all the
    same: else whatever reads the argument later would seem to read the cast. A parameter stays one,
    for accelerate puts what a cast returns back in the network."""
    handed = isinstance(output, Tensor) and any(output is given for given in arguments)
    return handed and not isinstance(output, nn.Parameter)


def _function_name(function: Function) -> str:
    name = getattr(function, "__name__", str(function))
    if name == "__get__":
        return "get:" + getattr(getattr(function, "__self__", None), "__name__", "?")
    return name


def _source_line() -> tuple[str, str]:
    """The first line outside torch and this file that led here (where the model made the call), as
    `file:line` and as text."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((_TORCH_FOLDER, "<")) and os.path.abspath(path) != _HERE:
            text = linecache.getline(path, frame.f_lineno).strip()
            return f"{os.path.basename(path)}:{frame.f_lineno}", text
        frame = frame.f_back  # type: ignore[assignment]
    return "", ""


class _Recorder(TorchFunctionMode):
    """Sees every torch call and every module call of one run."""

    def __init__(self, model: nn.Module, count: Callable[[], int]) -> None:
        super().__init__()
        self.count = count
        self.in_wholes = 0
        self.nodes: list[Node] = []
        self.module_names = {id(module): name for name, module in list_modules(model)}
        self.weights = named_tensors(model)
        """Kept, for a network whose weights are loaded while it runs replaces these; so their ids
        are unique, and nobody need be told of their end."""
        self.stored = {id(tensor): name for name, tensor in self.weights.items()}
        self.node_of: dict[int, int] = {}
        self.alive: dict[int, ref[Tensor]] = {}
        """By id, which is unique only while the tensor lives. Tensors are not kept: a recorded run
        takes the memory of a plain one."""
        self.stack: list[tuple[str, int]] = []
        self.inside: tuple[tuple[str, int], ...] = ()
        """The same for nodes, of which there are more than calls of modules."""
        self.calls: Counter[str] = Counter()
        self.given: dict[tuple[str, int], int] = {}
        self.whole: tuple[str, int] | None = None
        """The call of a module that is recorded as one node, while it runs."""

    def graph(self, output: object) -> Graph:
        outputs = [self.node_of[id(t)] for t in _tensors(output) if id(t) in self.node_of]
        self.alive.clear()  # who is told of a tensor's end is this recorder: a circle
        return Graph(self.nodes, dict(self.calls), outputs, self.given, self.in_wholes)

    def add_input(self, tensor: Tensor) -> None:
        self._register(tensor, self._new("input", tensor))

    # --- torch calls

    def __torch_function__(
        self,
        function: Function,
        types: object,
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> object:
        del types
        kwargs = kwargs or {}
        if self.whole or function in _TELLS:
            return function(*args, **kwargs)
        name = _function_name(function)
        if name.startswith("get:") and name[4:] not in _TENSOR_ATTRIBUTES:
            return function(*args, **kwargs)
        # Before the call, which may write into its arguments.
        inputs: list[int] = []
        arguments = tuple([self._with_refs(each, inputs) for each in args])
        keywords = {key: self._with_refs(each, inputs) for key, each in kwargs.items()}
        addends = None if inside_adapter() else operations.addends(function, args, kwargs)
        before = [] if function in _DRAW_NOTHING else _random_states(kwargs)
        output = function(*args, **kwargs)
        random = bool(before) and _random_states(kwargs) != before
        in_place = operations.is_in_place(name) or kwargs.get("inplace") is True
        results = _tensors(args[0] if name == "__setitem__" else output)
        if not results:
            return output
        if not in_place and _hands_back(output, args):
            output = torch.ops.aten.alias(output)
            results = [output]
        if addends is not None and not addends.plain:
            node = self._written_out(addends, results[0])
        else:
            operation = operations.canonical(name.removeprefix("get:"))
            node = self._new(operation, results[0], tuple(inputs))
            node.function, node.arguments, node.keywords = function, arguments, keywords
        node.in_place, node.random = in_place, random
        if addends is not None:
            node.adds_same_shapes = True
            node.source, node.statement = _source_line()
        self._register_results(results, node)
        return output

    def _register_results(self, results: list[Tensor], node: Node) -> None:
        if len(results) == 1:
            self._register(results[0], node, node.in_place)
            return
        for place, tensor in enumerate(results):
            part = self._new("getitem", tensor, (node.index,))
            part.arguments, part.place = (Ref(node.index), place), place
            self._register(tensor, part, node.in_place)

    def _written_out(self, addends: operations.Addends, result: Tensor) -> Node:
        """The node of an addition with a sign or a factor, after those of its second operand: what
        reads graphs knows plain additions and products, and no other form."""
        first, (value, *factors) = self._index(addends.first), addends.factors
        assert isinstance(value, Tensor)
        second = self._index(value)
        if addends.from_first:
            second = self._call(torch.sub, result, Ref(second), Ref(first))
        for factor in factors:
            by = Ref(self._index(factor)) if isinstance(factor, Tensor) else factor
            second = self._call(torch.mul, result, Ref(second), by)
        index = self._call(torch.add, result, Ref(first), Ref(second))
        self.nodes[index].first_goes_on = True
        return self.nodes[index]

    def _call(self, function: Function, like: Tensor, *arguments: Ref | float) -> int:
        """A node of a call that was not made, of the shape of a tensor that was."""
        inputs = tuple(each.index for each in arguments if isinstance(each, Ref))
        node = self._new(_function_name(function), like, inputs)
        node.function, node.arguments, node.written_out = function, arguments, True
        return node.index

    def _new(self, operation: str, tensor: Tensor, inputs: tuple[int, ...] = ()) -> Node:
        owner, call = self.stack[-1] if self.stack else ("", 0)
        node = Node(
            len(self.nodes),
            operation,
            tuple(tensor.shape),
            inputs,
            owner=owner,
            call=call,
            inside=self.inside,
            floating=tensor.dtype.is_floating_point or tensor.dtype.is_complex,
        )
        self.nodes.append(node)
        return node

    def _with_refs(self, tree: object, inputs: list[int]) -> object:
        """`tree` with references to nodes in the places of its tensors; these join `inputs`."""
        kind = type(tree)
        if kind in _LEAVES:
            return tree
        if isinstance(tree, Tensor):
            index = self._index(tree)
            inputs.append(index)
            return Ref(index)
        if kind is tuple:
            return tuple([self._with_refs(part, inputs) for part in tree])  # type: ignore[attr-defined]
        if kind is list:
            return [self._with_refs(part, inputs) for part in tree]  # type: ignore[attr-defined]
        if kind is dict:
            return {key: self._with_refs(part, inputs) for key, part in tree.items()}  # type: ignore[attr-defined]
        return tree_map_only(Tensor, lambda tensor: self._with_refs(tensor, inputs), tree)

    def _index(self, tensor: Tensor) -> int:
        known = self.node_of.get(id(tensor))
        if known is not None:
            return known
        stored = id(tensor) in self.stored or isinstance(tensor, nn.Parameter)
        node = self._new("parameter" if stored else "constant", tensor)
        node.name = self.stored.get(id(tensor), "")
        self._register(tensor, node)
        return node.index

    def _register(self, tensor: Tensor, node: Node, in_place: bool = False) -> None:
        base = tensor._base if in_place else None
        if base is not None and base is not tensor and id(base) in self.node_of:
            written = self._new("write_view", base, (self.node_of[id(base)], node.index))
            self.node_of[id(base)] = written.index
        self._name(tensor, node)

    def _name(self, tensor: Tensor, node: Node) -> None:
        """The tensor is that of `node`, as long as it lives."""
        number = id(tensor)
        self.node_of[number] = node.index
        if number not in self.alive and number not in self.stored:
            self.alive[number] = ref(tensor, partial(self._forget, number))

    def _forget(self, number: int, gone: ref[Tensor]) -> None:
        if self.alive.get(number) is gone:
            del self.alive[number], self.node_of[number]

    # --- module calls

    @contextmanager
    def watching_modules(self) -> Iterator[None]:
        """Keep the stack of module calls while inside."""
        handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter_module(self, module: nn.Module, arguments: object) -> None:
        name = self.module_names.get(id(module))
        if name is None:
            return
        call = self.calls[name]
        self.calls[name] += 1
        if self.whole:  # inside, nothing is told apart
            self.stack.append((name, call))
            return
        if given := _tensors(arguments):
            self.given[name, call] = self._index(given[0])
        self.stack.append((name, call))
        self.inside = tuple(self.stack)
        if isinstance(module, RecordedWhole):
            self.whole = (name, call)
            self.in_wholes -= self.count()

    def _leave_module(self, module: nn.Module, arguments: object, output: object) -> None:
        entered = self.module_names.get(id(module))
        if entered is None:
            return
        name, call = self._left()
        while name != entered:  # modules that raised, and whose caller went on
            name, call = self._left()
        if self.whole:
            return
        self.inside = tuple(self.stack)
        # What torch calls do not show (scripted modules) is one node that depends on all the module
        # was given.
        given = tuple(
            self.node_of[id(tensor)] for tensor in _tensors(arguments) if id(tensor) in self.node_of
        )
        operation = "opaque"
        if isinstance(module, RecordedWhole):
            operation, given = "whole", given[:1]
        for tensor in _tensors(output):
            if id(tensor) not in self.node_of:
                node = self._new(operation, tensor, given)
                node.owner, node.call = name, call
                node.inside = (*node.inside, (name, call))
                self._register(tensor, node)
        if isinstance(output, Tensor):
            self.nodes[self.node_of[id(output)]].produced_by.append((name, call))

    def _left(self) -> tuple[str, int]:
        left = self.stack.pop()
        if self.whole == left:
            self.whole = None
            self.in_wholes += self.count()
        return left
