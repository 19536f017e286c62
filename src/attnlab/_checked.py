"""Arguments of the wrong kind, refused before anything is done with them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from attnlab._errors import InputError, OptionError

_PLAIN = (bool, int, float, str, NoneType)
_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "None",
}


def check_module(model: object, what: str = "the model") -> None:
    """Refuse what is not a network."""
    from torch import nn

    if isinstance(model, nn.Module):
        return
    instead = ""
    if isinstance(model, str):
        instead = f" Build it first: attnlab.create({model!r})."
    elif isinstance(model, type) and issubclass(model, nn.Module):
        instead = f" Make one of it: {model.__name__}(...)."
    elif isinstance(model, Mapping):
        instead = " Weights alone do not say how they are used: build the network and load them."
    got = in_message(model)
    raise InputError(f"Expected {what} to be a torch.nn.Module but got {got}.{instead}")


def check_whole(name: str, value: object, least: int | None = None) -> None:
    """Refuse what is not a whole number, or less than `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):  # numpy's integers too
        raise OptionError(f"Expected {name} to be a whole number but got {value!r}.")
    if least is not None and value < least:
        raise OptionError(f"Expected {name} to be at least {least} but got {value}.")


def check_path(name: str, value: object) -> None:
    """Refuse what is neither a text nor a path."""
    import os

    if not isinstance(value, str | os.PathLike):
        raise OptionError(f"Expected {name} to be a path but got {in_message(value)}.")


def check_batches(loader: object, name: str = "the loader") -> None:
    """Refuse what gives no batches."""
    if isinstance(loader, str | bytes | Mapping) or not isinstance(loader, Iterable):
        raise InputError(
            f"Expected {name} to be an iterable of batches, such as a DataLoader or a list of "
            f"tensors, but got {in_message(loader)}."
        )
    from torch import Tensor

    # Its rows would be taken for batches: an image without a batch, or one text's tokens each.
    if isinstance(loader, Tensor):
        raise InputError(
            f"Expected {name} to be an iterable of batches but got one tensor of shape "
            f"{tuple(loader.shape)}. Give a list: [batch], or list(batches) if it is a stack of "
            f"them."
        )


def check_values(what: str, build: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Refuse values of another kind than the annotations of `build` say; only numbers, texts and
    truth values are looked at."""
    hints = _hints(build)
    for name, value in options.items():
        if name in hints:
            _check_value(f"{what}: expected {name}", hints[name], value)


@lru_cache(maxsize=256)
def _hints(build: Callable[..., Any]) -> dict[str, Any]:
    if isinstance(build, type):
        build = build.__init__  # type: ignore[misc]
    try:
        return get_type_hints(inspect.unwrap(build))
    except (NameError, TypeError):  # names that exist for type checkers only; not a function
        return {}


def _check_value(expected: str, hint: Any, value: object) -> None:
    union = get_origin(hint) in (Union, UnionType)
    kinds = get_args(hint) if union else (hint,)
    if not all(kind in _PLAIN for kind in kinds):
        return
    if any(_is(kind, value) for kind in kinds):
        if isinstance(value, float) and not math.isfinite(value):
            raise OptionError(f"{expected} to be a finite number but got {value!r}.")
        return
    texts = [_NAMES[kind] for kind in kinds if kind is not int or float not in kinds]
    raise OptionError(f"{expected} to be {' or '.join(texts)} but got {value!r}.")


def _is(kind: type, value: object) -> bool:
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if kind is float else kind)


def where_in_message(where: object) -> str:
    """Name a selection in a message; of a function its name, for its address tells nobody which."""
    if not callable(where):
        return f"where={where!r}"
    name = getattr(where, "__name__", "<lambda>")
    return "where, a function," if name == "<lambda>" else f"where, the function {name!r},"


def in_message(value: object) -> str:
    """Name a value in a message: `the text 'resnet20'`, `None`, `a list`."""
    if value is None or isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return f"the text {value!r}"
    kind = value.__name__ if isinstance(value, type) else type(value).__name__
    return f"the class {kind}" if isinstance(value, type) else f"a {kind}"
