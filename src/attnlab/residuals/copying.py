"""Copies of networks as `copy.deepcopy` makes them, in a fraction of its time.

A module holds some twenty dictionaries and numbers, most of them empty, and `copy.deepcopy` asks
each how it wants to be copied: on a deep network of small layers that takes as long as three
forwards (ResNet-164), here one. A module is what its class and its state say; only what else is in
there is asked.
"""

from __future__ import annotations

import copy
import copyreg
import gc
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

import torch
from torch import nn

from attnlab.residuals.classes import OWN_CLASSES
from attnlab.residuals.listing import list_modules

_Module = TypeVar("_Module", bound=nn.Module)
_ATOMS: Final = frozenset(
    (type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.Size)
)
_CONTAINERS: Final = frozenset((dict, OrderedDict, set, list))
_DICTIONARIES: Final = frozenset((dict, OrderedDict))


def deep_copy(module: _Module, memo: dict[int, object] | None = None) -> _Module:
    """`copy.deepcopy(module, memo)`."""
    memo = {} if memo is None else memo
    inside = [each for _, each in list_modules(module, memo)]
    if not all(_is_plain(type(each)) for each in inside):
        # A graph of torch.fx builds itself anew from children that must be whole by then.
        return copy.deepcopy(module, memo)
    # All before any is filled: whatever refers to a module finds its copy.
    made = [(each, type(each).__new__(type(each))) for each in inside]
    memo |= {id(old): new for old, new in made}
    with without_collecting():
        for old, new in made:
            copied = _copied_items(old.__getstate__(), memo)
            if type(new).__setstate__ is nn.Module.__setstate__:
                # It would also look for a dozen attributes that modules had not in old files.
                vars(new).update(copied)
            else:
                new.__setstate__(copied)
    found: _Module = memo[id(module)]  # type: ignore[assignment]
    return found


def double_deep_copy(module: _Module, memo: dict[int, object] | None = None) -> _Module:
    """`copy.deepcopy(module, memo).double()`, made without a copy in its own precision."""
    memo = {} if memo is None else memo
    for tensor in _tensors(list_modules(module, memo)):
        if not tensor.is_floating_point() or id(tensor) in memo:
            continue
        value = tensor.detach().to(torch.float64, copy=True)  # it may be float64 already
        if type(tensor) is nn.Parameter:
            memo[id(tensor)] = nn.Parameter(value, tensor.requires_grad)
        elif type(tensor) is torch.Tensor:
            memo[id(tensor)] = value
    exact = deep_copy(module, memo)
    tensors = _tensors(list_modules(exact))
    casts = any(t.is_floating_point() and t.dtype != torch.float64 for t in tensors)
    return exact.double() if casts else exact


def double_on_cpu(module: _Module) -> _Module:
    """A copy in float64 on the CPU: not every device has float64."""
    if any(tensor.device.type != "cpu" for tensor in _tensors(list_modules(module))):
        return deep_copy(module).cpu().double()
    return double_deep_copy(module)


def _tensors(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[torch.Tensor]:
    for _, module in modules:
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                yield tensor


@contextmanager
def without_collecting() -> Iterator[None]:
    """Do not look for garbage inside: surgery makes thousands of containers and drops few.

    In a fold of ResNet-164 Python looked seventy times, and in every fourth through all objects of
    the process, which takes as long as seventeen forwards.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _is_plain(own: type[nn.Module]) -> bool:
    """Whether a module of this class is copied by its state alone; some say themselves how."""
    return (
        not hasattr(own, "__deepcopy__")
        and (own.__reduce_ex__ is object.__reduce_ex__ or own in OWN_CLASSES)
        and own.__reduce__ is object.__reduce__
        and own.__getstate__ is nn.Module.__getstate__
        and own.__new__ is object.__new__
    )


def _all_atoms(several: Collection[object]) -> bool:
    return _ATOMS.issuperset(map(type, several))


def _copied_tensor(tensor: torch.Tensor, memo: dict[int, object]) -> torch.Tensor:
    """A copy of a buffer. One that has its memory for itself is cloned; `copy.deepcopy` of the many
    small ones of batch norms takes as long as a forward, and is asked for all others."""
    memories: dict[int, object] = memo.setdefault("torch", {})  # type: ignore[call-overload]
    memory = tensor.untyped_storage() if _is_simple(tensor) else None
    if memory is None or memory.nbytes() != tensor.nbytes or memory._cdata in memories:
        return copy.deepcopy(tensor, memo)
    copied = tensor.clone()
    # Under the key that torch looks for: another view of this memory stays one.
    memories[memory._cdata] = copied.untyped_storage()
    memo[id(tensor)] = copied
    return copied


def _is_simple(tensor: torch.Tensor) -> bool:
    """Whether it is values in a row on a device that has them, and nothing else hangs on it."""
    return (
        tensor.device.type in ("cpu", "cuda")
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and tensor.is_leaf
        and not (tensor.requires_grad or tensor.is_quantized or tensor.__dict__)
        and tensor.grad is None
    )


def _copied_items(items: Mapping[Any, object], memo: dict[int, object]) -> dict[Any, object]:
    """Copies of the values of a module's state, or of a dictionary in it."""
    copies = dict(items)
    for name, value in items.items():
        kind = type(value)
        if kind in _ATOMS:  # what most of them are is said here: a call for each takes longer
            continue
        if (known := id(value)) in memo:
            copies[name] = memo[known]
        elif kind in _CONTAINERS and not value:
            copies[name] = memo[known] = kind()
        else:
            copies[name] = _copied(value, memo)
    return copies


def _copied(value: Any, memo: dict[int, object]) -> object:
    """`copy.deepcopy(value, memo)`."""
    kind: Any = type(value)
    known = id(value)
    made: Any
    if kind in _ATOMS or (kind is tuple and _all_atoms(value)):
        return value
    if known in memo:
        return memo[known]
    if kind is nn.Parameter:
        return value.__deepcopy__(memo)
    if kind is torch.Tensor:
        return _copied_tensor(value, memo)
    if kind in _DICTIONARIES and _all_atoms(value):
        memo[known] = made = kind()
        made.update(_copied_items(value, memo))
    elif kind is list:
        memo[known] = made = []
        made += [_copied(each, memo) for each in value]
    elif _is_state_alone(kind):
        memo[known] = made = object.__new__(kind)
        state = value.__getstate__()
        # As torch and copy.deepcopy do: what was made for the copy must not die before it is done,
        # or something else has its id.
        memo.setdefault(id(memo), []).append(state)  # type: ignore[attr-defined]
        vars(made).update(_copied_items(state or {}, memo))
    else:
        made = copy.deepcopy(value, memo)
    return made


@lru_cache(maxsize=1024)
def _is_state_alone(kind: Any) -> bool:
    """Whether `copy.deepcopy` copies the attributes of such an object, or what it says that its
    state is, and nothing else: what hosts carry of gates."""
    own_ways = ("__deepcopy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__slots__")
    return (
        kind.__new__ is object.__new__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__dictoffset__ != 0
        and kind not in copyreg.dispatch_table
        and not any(hasattr(kind, way) for way in own_ways)
    )
