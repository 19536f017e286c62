"""Classes of the user's own, named by where they are: "my_gates.MyGate".

A name with a dot travels where a class cannot: in a study's file, a run's settings, a command.
Since such a file may be a stranger's, only subclasses of what is asked for are ever called.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from attnlab._errors import InputError, UnknownNameError, nearest

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")


def is_path(name: str) -> bool:
    """Return whether `name` names Python code instead of something that comes with attnlab."""
    return "." in name


@overload
def imported(kind: str, path: str) -> type[nn.Module]: ...


@overload
def imported(kind: str, path: str, base: Callable[..., T]) -> type[T]: ...


# `base` is a class; as type[T] mypy would take no abstract one.
def imported(kind: str, path: str, base: Any = None) -> type:
    """The subclass of `base`, or of `torch.nn.Module` if None, at `path`, for example
    `"my_gates.MyGate"`."""
    if base is None:
        from torch import nn

        base = nn.Module
    module_name, _, name = path.rpartition(".")
    module = imported_module(kind, path)
    found = vars(module).get(name)
    if isinstance(found, type) and issubclass(found, base):
        return found
    classes = [
        known
        for known, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base)
    ]
    raise UnknownNameError(
        f"Module {module_name!r} has no subclass of {_public_name(base)} named {name!r} for the "
        f"{kind} {path!r}.{nearest(name, classes)}"
    )


def imported_module(kind: str, path: str) -> ModuleType:
    """The module of the class at `path`, imported."""
    module_name = path.rpartition(".")[0]
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise UnknownNameError(
            f"Expected the {kind} {path!r} to be a name that comes with attnlab, or a class of "
            f"your own as 'module.Class'."
        )
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        # Not even imported: some act when they are (antigravity opens a browser).
        raise UnknownNameError(
            f"Module {module_name!r} is a part of Python itself and holds no {kind}, so {path!r} "
            f"is not imported. Expected a class of your own as 'module.Class'."
        )
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports is not
        raise UnknownNameError(
            f"There is no module {error.name!r} for the {kind} {path!r}. Install it, or put the "
            f"folder that holds it on PYTHONPATH; for a study, also --import-from FOLDER."
        ) from None


def import_from(folder: str | Path) -> None:
    """Let modules be imported from `folder`; not in the place of any that are there without it."""
    if not Path(folder).is_dir():
        raise InputError(f"There is no folder {str(folder)!r} to import from.")
    found = str(Path(folder).resolve())
    if found not in sys.path:
        sys.path.append(found)
        importlib.invalidate_caches()


def own_folders() -> tuple[str, ...]:
    """The folders that this process imports from beside Python's own and installed packages."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [Path(sysconfig.get_path(kind)) for kind in kinds]
    found = (Path(entry).resolve() for entry in sys.path)
    kept = (
        str(folder)
        for folder in found
        if folder.is_dir()
        and not any(folder.is_relative_to(each) for each in installed)
        # By any part of the path: another environment's packages, which a .pth file or
        # --system-site-packages adds, are installed too, and so are folders within a package.
        and not {"site-packages", "dist-packages", "lib-dynload"}.intersection(folder.parts)
    )
    return tuple(dict.fromkeys(kept))


def _public_name(base: type) -> str:
    """Return where people import it from: "torch.nn.Module", which is made in
    torch.nn.modules.module."""
    parts = base.__module__.split(".")
    for length in range(1, len(parts)):
        package = ".".join(parts[:length])
        if getattr(sys.modules.get(package), base.__name__, None) is base:
            return f"{package}.{base.__name__}"
    return f"{base.__module__}.{base.__qualname__}"
