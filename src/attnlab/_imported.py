"""Classes of the user's own, named by where they are: "my_gates.MyGate".

A name with a dot travels where a class cannot: in a study's file, a run's settings, a command.
Since such a file may be a stranger's, only subclasses of `torch.nn.Module` are ever called.
"""

from __future__ import annotations

import importlib

from torch import nn

from attnlab._errors import UnknownNameError, nearest


def is_path(name: str) -> bool:
    """Whether `name` names Python code instead of something that comes with attnlab."""
    return "." in name


def imported(kind: str, path: str) -> type[nn.Module]:
    """The class at `path`, for example `"my_gates.MyGate"`."""
    module_name, _, name = path.rpartition(".")
    if not all(part.isidentifier() for part in path.split(".")):
        raise UnknownNameError(
            f"Expected the {kind} {path!r} to be a name that comes with attnlab, or a class of "
            f"yours as 'module.Class'."
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports is not
        raise UnknownNameError(
            f"There is no module {error.name!r} for the {kind} {path!r}. Install it, or put the "
            f"folder that holds it on PYTHONPATH."
        ) from None
    found = vars(module).get(name)
    if isinstance(found, type) and issubclass(found, nn.Module):
        return found
    classes = [
        known
        for known, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, nn.Module)
    ]
    raise UnknownNameError(
        f"Module {module_name!r} has no subclass of torch.nn.Module named {name!r} for the {kind} "
        f"{path!r}.{nearest(name, classes)}"
    )
