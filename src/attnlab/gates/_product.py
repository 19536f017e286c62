"""Products of a map with a gate, followed through a module that computes them.

`Followed` is a tensor that is known to be `arranged(x) ⊗ factor`. It carries the factor along,
which is computed by the same operations and never by a division. What is linear in x and
elementwise keeps that form: products with anything that is not such a product, sums of two of them,
changes of shape. Everything else gives an ordinary tensor.

An `Arrangement` says how the axes of x were changed, in a form in which undoing it leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import torch
from torch import Tensor, overrides
from torch.utils._device import DeviceContext

from attnlab._errors import InputError

Arrangement = tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
"""Changes one after the other, ("permute", order, ()) and ("reshape", from, to); empty if all were
undone."""


def permuted(arrangement: Arrangement, order: tuple[int, ...]) -> Arrangement:
    """The arrangement after its axes were put in another order."""
    if arrangement and arrangement[-1][0] == "permute":
        before = arrangement[-1][1]
        arrangement, order = arrangement[:-1], tuple(before[axis] for axis in order)
    if order == tuple(range(len(order))):
        return arrangement
    return (*arrangement, ("permute", order, ()))


def reshaped(
    arrangement: Arrangement, before: tuple[int, ...], after: tuple[int, ...]
) -> Arrangement:
    """The arrangement after a change from one shape to another, which keeps the order of pixels."""
    if arrangement and arrangement[-1][0] == "reshape":
        arrangement, before = arrangement[:-1], arrangement[-1][1]
    if before == after:
        return arrangement
    return (*arrangement, ("reshape", before, after))


CHANGED: Final = "it changes its input, or a product of it, in place instead of making a new tensor"
_WRITES: Final = frozenset(
    f"__{name}__" for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "ipow", "setitem")
)


def _functions(*names: str) -> frozenset[Callable[..., object]]:
    """Torch's functions and tensors' methods of these names."""
    found = (getattr(home, name, None) for home in (torch, Tensor) for name in names)
    return frozenset(function for function in found if function is not None)


_MULTIPLY: Final = _functions("mul", "multiply", "__mul__", "__rmul__")
_DIVIDE: Final = _functions("div", "divide", "true_divide", "__truediv__", "__div__")
_ADD: Final = _functions("add", "__add__", "__radd__")
_SUBTRACT: Final = _functions("sub", "subtract", "__sub__")
_ARITHMETIC: Final = _MULTIPLY | _DIVIDE | _ADD | _SUBTRACT
_NEGATE: Final = _functions("neg", "negative", "__neg__")
_COPY: Final = _functions("contiguous", "clone")
_RESHAPE: Final = _functions(
    "reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze"
)
_TRANSPOSE: Final = _functions("transpose", "swapaxes", "swapdims")
_PERMUTE: Final = _functions("permute")


class Followed(Tensor):
    """A tensor of which it is known that it is `arranged(x) ⊗ factor`."""

    value: Tensor
    """The tensor itself, of the ordinary class."""
    factor: Tensor | float
    arrangement: Arrangement
    versions: tuple[int, int]
    """How often the tensor and its factor had been written to when this was known."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        writes = name in _WRITES or (name.endswith("_") and not name.endswith("__"))
        if writes and args and isinstance(args[0], Followed):
            raise InputError(CHANGED)
        output = func(*_ordinary(args), **_ordinary(kwargs))
        known = _known(func, args, kwargs, output) if isinstance(output, Tensor) else None
        return output if known is None else follow_products(output, *known)


class _Exported(Followed):
    """`Followed` for the tensors of torch.export, which no other class can share their memory with.

    It has the shape of the tensor and nothing in it: every call goes to `value`.
    """

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> NoReturn:
        raise AssertionError(f"{func} was called on the outside of a followed tensor")


def follow_products(value: Tensor, factor: Tensor | float, arrangement: Arrangement) -> Followed:
    """`value` with what is known about it."""
    followed: Followed
    if torch.compiler.is_exporting():
        followed = Tensor._make_wrapper_subclass(
            _Exported, value.shape, dtype=value.dtype, device=value.device
        )
    else:
        followed = value.as_subclass(Followed)
    followed.value, followed.factor, followed.arrangement = value, factor, arrangement
    followed.versions = (_version(value), _version(factor))
    return followed


def checked_value(followed: Followed) -> Tensor:
    """The tensor itself, unless someone has written to it or to its factor, maybe in a slice."""
    if (_version(followed.value), _version(followed.factor)) != followed.versions:
        raise InputError(CHANGED)
    return followed.value


def _version(value: Tensor | float) -> int:
    # Inference mode does not count writes, and compilers do not show the count.
    if torch.compiler.is_compiling() or not isinstance(value, Tensor) or value.is_inference():
        return 0
    return value._version


def _ordinary(arguments: Any) -> Any:
    if isinstance(arguments, Followed):
        return checked_value(arguments)
    if isinstance(arguments, (tuple, list)):
        return type(arguments)([_ordinary(each) for each in arguments])
    if isinstance(arguments, dict):
        return {name: _ordinary(each) for name, each in arguments.items()}
    return arguments


def _known(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
) -> tuple[Tensor | float, Arrangement] | None:
    """The factor and the arrangement of `output = func(*args)`, where it has them."""
    if not args or (func in _ARITHMETIC and (len(args) != 2 or kwargs)):  # alpha=, rounding_mode=
        return None
    if func in _ADD or func in _SUBTRACT:
        return _sum(args[0], args[1], -1 if func in _SUBTRACT else 1)
    first, *others = args
    if func in _MULTIPLY and not isinstance(first, Followed):
        first, others = others[0], [first]
    if not isinstance(first, Followed):
        return None
    if func in _ARITHMETIC and isinstance(others[0], Followed):  # a square is not a gate
        return None
    factor, arrangement = first.factor, first.arrangement
    if func in _MULTIPLY and output.shape == first.value.shape:
        other = others[0]
        return (other if isinstance(factor, float) and factor == 1 else factor * other), arrangement
    if func in _DIVIDE and output.shape == first.value.shape:
        return factor / others[0], arrangement
    if func in _NEGATE:
        return -factor, arrangement
    if output.dtype != first.value.dtype:  # view() can also read the bits as another type
        return None
    if func in _COPY:
        return factor, arrangement
    order = _order(func, first.value.dim(), others)
    if order is not None:
        return _full(first).permute(order), permuted(arrangement, order)
    if func in _RESHAPE:
        before, after = tuple(first.value.shape), tuple(output.shape)
        return _full(first).reshape(after), reshaped(arrangement, before, after)
    return None


def _sum(first: object, second: object, sign: int) -> tuple[Tensor | float, Arrangement] | None:
    if isinstance(first, Followed) and isinstance(second, Followed):
        if first.arrangement != second.arrangement or first.value.shape != second.value.shape:
            return None
        return first.factor + sign * second.factor, first.arrangement
    followed, other = (first, second) if isinstance(first, Followed) else (second, first)
    # Python's sum() begins with 0 + first.
    zero = isinstance(other, (int, float)) and other == 0
    if isinstance(followed, Followed) and zero and sign == 1:
        return followed.factor, followed.arrangement
    return None


def _full(followed: Followed) -> Tensor:
    factor = followed.factor
    if not isinstance(factor, Tensor):
        factor = followed.value.new_full((), factor)
    return factor.expand(followed.value.shape)


def _order(func: Callable[..., Any], axes: int, others: list[Any]) -> tuple[int, ...] | None:
    if func in _TRANSPOSE and len(others) == 2:
        order = list(range(axes))
        a, b = (int(axis) % axes for axis in others)
        order[a], order[b] = order[b], order[a]
        return tuple(order)
    if func in _PERMUTE and others:
        given = others[0] if isinstance(others[0], (tuple, list)) else others
        return tuple(int(axis) % axes for axis in given)
    return None


@contextmanager
def unobserved() -> Iterator[None]:
    """Follow products whatever the surroundings switched off, and let no mode see how.

    An insertion site may have switched torch functions off; and whoever records a network must see
    one module that makes a gate of a map.
    """
    modes = _popped()
    try:
        for mode in modes:
            if isinstance(mode, DeviceContext):  # torch.set_default_device
                overrides._push_mode(mode)
        with torch._C._EnableTorchFunction():
            yield
    finally:
        _popped()
        for mode in reversed(modes):
            overrides._push_mode(mode)


def _popped() -> list[overrides.TorchFunctionMode]:
    return [overrides._pop_mode() for _ in range(torch._C._len_torch_function_stack())]
