"""The source text behind a class that came in by its path, as one checksum.

It covers the module that holds the class and, from import to import, every module that is the
user's own: not Python's, not attnlab's, and not installed among site-packages. Installed code has
a name and a version instead, and where it holds the class itself, these count.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import os
import pkgutil
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec
from pathlib import Path
from weakref import WeakKeyDictionary

from attnlab._errors import AttnlabError, UnknownNameError
from attnlab._imported import imported_module


class SourceError(AttnlabError, ValueError):
    """A class whose source text cannot be had, so that a result could not be tied to its code."""


def source_digest(path: str) -> str:
    """SHA-256 of the source of the class at `path` and of the own modules that it imports.

    Modules count by name and text, line endings aside, so it is the same on every machine. It is
    the text as it is on disk now. The module of the class is imported, as for using the class;
    others are found by the import statements, wherever these stand, and not run. An import by a
    computed name is not seen.
    """
    holder, _, name = path.rpartition(".")
    found = vars(imported_module("class", path)).get(name)
    if not isinstance(found, type):
        raise UnknownNameError(f"Module {holder!r} has no class named {name!r}.")
    importlib.invalidate_caches()  # files that were made a moment ago
    homes = {holder, found.__module__}  # a package may hand on what a module of its holds
    if not all(map(_has_source, homes)):
        raise SourceError(
            f"The class {path!r} has no source text: its module is an extension, built in, or was "
            f"typed in. A result could not be tied to its code. Put the class, or a subclass of "
            f"it, into a .py file in a folder on PYTHONPATH."
        )
    lines = [f"{digest}  {module}\n" for module, digest in sorted(_digests(homes).items())]
    versions = {line for home in homes for line in _versions(home)}
    digest = hashlib.sha256("".join([*lines, *sorted(versions)]).encode()).hexdigest()
    if _SEEN.setdefault(found, {}).setdefault(path, digest) != digest:
        raise SourceError(
            f"The source of the class {path!r} changed on disk since this process imported it, so "
            f"what would run is not what is there. Start Python again."
        )
    return digest


_SEEN: WeakKeyDictionary[type, dict[str, str]] = WeakKeyDictionary()
"""The first checksum of every class of this process, by path; it still runs as it was then."""


def _digests(homes: set[str]) -> dict[str, str]:
    """SHA-256 of the text of `homes` and the own modules that they need, by the module's name."""
    digests: dict[str, str] = {}
    waiting = [name for home in homes for name in _with_parents(home)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = _spec(name)
        if spec is None or not (name in homes or _is_own(spec)):
            continue
        if not _is_source(spec):  # an own extension: other bytes on every machine, but its code
            digests[name] = hashlib.sha256(_content(spec)).hexdigest()
            continue
        text = _text(spec)
        digests[name] = hashlib.sha256(text.encode()).hexdigest()
        waiting += _imports(text, spec.parent or "")
    return digests


def _spec(name: str) -> ModuleSpec | None:
    """Where module `name` is, without importing it or its parents."""
    if name == "__main__":  # another one in every program
        return None
    if (spec := getattr(sys.modules.get(name), "__spec__", None)) is not None:
        return spec
    parent = name.rpartition(".")[0]
    folders = None
    if parent:
        above = _spec(parent)
        folders = None if above is None else above.submodule_search_locations
        if folders is None:
            return None
    for finder in sys.meta_path:
        if (spec := finder.find_spec(name, folders)) is not None:
            return spec
    return None


def _has_source(name: str) -> bool:
    spec = _spec(name)
    return spec is not None and _is_source(spec)


def _is_source(spec: ModuleSpec) -> bool:
    return spec.has_location and str(spec.origin).endswith(tuple(SOURCE_SUFFIXES))


def _is_own(spec: ModuleSpec) -> bool:
    if not spec.has_location or spec.name.partition(".")[0] == "attnlab":
        return False
    place = Path(os.path.realpath(str(spec.origin)))
    pythons = {os.path.realpath(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib")}
    return not _is_installed(spec) and not any(place.is_relative_to(one) for one in pythons)


def _is_installed(spec: ModuleSpec) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(str(spec.origin)).parts)


def _content(spec: ModuleSpec) -> bytes:
    return spec.loader.get_data(spec.origin)  # type: ignore[union-attr]


def _text(spec: ModuleSpec) -> str:
    """Decoded as Python does it, with plain line endings."""
    content = _content(spec)
    try:
        text = content.decode(tokenize.detect_encoding(io.BytesIO(content).readline)[0])
    except (SyntaxError, UnicodeDecodeError):  # it cannot be imported either
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _imports(text: str, package: str) -> Iterator[str]:
    """Names of modules, and of things that may be modules, that a text imports."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's code: for its own import to show
            tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                for alias in names:
                    yield from _with_parents(alias.name)
            case ast.ImportFrom(module, names, level):
                base = _absolute("." * (level or 0) + (module or ""), package)
                yield from _with_parents(base)
                for alias in names:
                    yield from _submodules(base) if alias.name == "*" else [f"{base}.{alias.name}"]
            case ast.Call(
                ast.Name("__import__" | "import_module") | ast.Attribute(_, "import_module"),
                [ast.Constant(str(name)), *_],
            ):
                yield from _with_parents(_absolute(name, package))


def _absolute(name: str, package: str) -> str:
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:  # above the top, which cannot be imported either
        return name.lstrip(".")


def _submodules(package: str) -> Iterator[str]:
    """Yield the submodules of a package, any of which `import *` may import."""
    spec = _spec(package)
    folders = None if spec is None else spec.submodule_search_locations
    return (f"{package}.{found.name}" for found in pkgutil.iter_modules(folders or []))


def _with_parents(name: str) -> list[str]:
    """`["a", "a.b"]` of `"a.b"`: importing the last imports the others too."""
    parts = name.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _versions(home: str) -> list[str]:
    """Name and version of what a module came with, if it was installed; "+cpu" does not count."""
    spec, top = _spec(home), home.partition(".")[0]
    if spec is None or top == "attnlab" or not _is_installed(spec):
        return []
    names = importlib.metadata.packages_distributions().get(top, [])
    if not names:
        raise SourceError(
            f"Module {home!r} lies among installed packages, but belongs to none of them that has "
            f"a version. A result could not be tied to its code. Install it with pip, or put it "
            f"into a folder of its own on PYTHONPATH."
        )
    return [f"{name} {importlib.metadata.version(name).partition('+')[0]}\n" for name in names]
