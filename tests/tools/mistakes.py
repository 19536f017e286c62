"""The small mistakes that can be made at a place of a program: what `mutate.py` draws from."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

_COMPARE: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TAKES_AXIS = """all amax amin any argmax argmin argsort cat concatenate cumsum diff expand_dims
    flatten flip gather index_select logsumexp mean median min max movedim norm prod quantile select
    softmax sort split squeeze stack std sum topk transpose unbind unsqueeze var var_mean"""
"""Functions and methods whose integers are axes."""
_EITHER_WAY = """allclose array_equal equal gcd isclose max maximum min minimum
    isinstance issubclass"""
"""Functions whose first two arguments may change places: nothing else comes out, or, in a check of
types, every test notices it at once."""
_COPIES = frozenset(("clone", "copy", "deepcopy"))
_FORGETS = frozenset(("clear", "discard", "pop", "popitem", "remove", "reset", "update", "zero_"))


def mistakes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Nodes to put in the place of `node`, each with what is changed."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
        changed = copy.deepcopy(node)
        changed.ops[0] = _COMPARE[type(node.ops[0])]()
        yield "comparison", changed
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        changed_op = copy.deepcopy(node)
        changed_op.op = _ARITHMETIC[type(node.op)]()
        yield "arithmetic", changed_op
    if isinstance(node, ast.BoolOp):
        changed_bool = copy.deepcopy(node)
        changed_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and or", changed_bool
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "not or minus left out", node.operand
    if isinstance(node, ast.IfExp):
        changed_if = copy.deepcopy(node)
        changed_if.body, changed_if.orelse = changed_if.orelse, changed_if.body
        yield "if else turned round", changed_if
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "number", ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth value", ast.Constant(not node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        changed_call = copy.deepcopy(node)
        changed_call.func = ast.Name(_NAMES[node.func.id], ast.Load())
        yield node.func.id, changed_call
    yield from _swapped(node)
    yield from _dropped(node)
    yield from _on_another_axis(node)
    yield from _stale(node)


def without_effect(tree: ast.AST) -> set[int]:
    """The ids of nodes that change nothing in a program that is right: `strict` of a `zip`."""
    words = (node for node in ast.walk(tree) if isinstance(node, ast.keyword))
    return {id(word.value) for word in words if word.arg == "strict"}


def _swapped(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A call with its first two arguments exchanged."""
    if isinstance(node, ast.Call) and len(node.args) > 1 and _has_an_order(node):
        first, second = node.args[:2]
        starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
        if not starred and ast.dump(first) != ast.dump(second):
            changed = copy.deepcopy(node)
            changed.args[:2] = changed.args[1::-1]
            yield "swapped arguments", changed


def _has_an_order(node: ast.Call) -> bool:
    """Not if either order means the same."""
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    return name not in _EITHER_WAY.split()


def _dropped(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """One operand of a sum, product or condition left out."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield "dropped term", node.left
    if isinstance(node, ast.BoolOp):
        yield "dropped term", node.values[0]
    if isinstance(node, ast.AugAssign):
        yield "dropped term", ast.Assign([node.target], node.value)


def _on_another_axis(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """A call on the axis beside the one that is meant."""
    if not isinstance(node, ast.Call):
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    for number, argument in enumerate(node.args if name in _TAKES_AXIS.split() else []):
        if (axis := _whole(argument)) is not None:
            changed = copy.deepcopy(node)
            changed.args[number] = ast.Constant(_beside(axis))
            yield "wrong axis", changed
    for number, keyword in enumerate(node.keywords):
        axis = _whole(keyword.value)
        if keyword.arg in ("dim", "axis", "start_dim") and axis is not None:
            changed = copy.deepcopy(node)
            changed.keywords[number].value = ast.Constant(_beside(axis))
            yield "wrong axis", changed


def _whole(node: ast.AST) -> int | None:
    """The integer that is written there."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if type(value) is int else None


def _beside(axis: int) -> int:
    return axis - 1 if axis > 0 or axis == -1 else axis + 1


def _stale(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What was stored before is used again: a value not stored, not forgotten or not copied."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield "stale", ast.Pass()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in _FORGETS:
            yield "stale", ast.Pass()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        copied = node.args[0] if node.args else node.func.value
        if node.func.attr in _COPIES:
            yield "stale", copied
    if isinstance(node, ast.FunctionDef) and _could_be_cached(node):
        changed = copy.deepcopy(node)
        changed.decorator_list.append(ast.parse("__import__('functools').cache", mode="eval").body)
        yield "stale", changed


_HASHED = ("Tensor", "nn.Module", "Node", "Path", "int", "float", "str", "bool", "self")


def _could_be_cached(node: ast.FunctionDef) -> bool:
    """Whether it returns something, and takes only what a cache can look up: else it would stop."""
    returns = any(isinstance(each, ast.Return) and each.value for each in ast.walk(node))
    yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))
    given = [*node.args.args, *node.args.kwonlyargs]
    types = [ast.unparse(each.annotation) if each.annotation else each.arg for each in given]
    hashed = bool(given) and all(each in _HASHED for each in types)
    return returns and hashed and not yields and not node.decorator_list
