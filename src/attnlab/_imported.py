"""Classes of the user's own, named by where they are: "my_gates.MyGate".

A name with a dot travels where a class cannot: in a study's file, a run's settings, a command.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from attnlab._errors import UnknownNameError, nearest


def is_path(name: str) -> bool:
    """Whether `name` names Python code instead of something that comes with attnlab."""
    return "." in name


def imported(kind: str, path: str) -> Callable[..., Any]:
    """The class or function at `path`, for example `"my_gates.MyGate"`."""
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports is not
        raise UnknownNameError(
            f"There is no module {error.name!r} for the {kind} {path!r}. Install it, or put the "
            f"folder that holds it on PYTHONPATH."
        ) from None
    if not callable(vars(module).get(name)):
        names = [known for known, value in vars(module).items() if isinstance(value, type)]
        raise UnknownNameError(
            f"Module {module_name!r} has no class {name!r} for the {kind} {path!r}."
            f"{nearest(name, names)}"
        )
    found: Callable[..., Any] = vars(module)[name]
    return found
