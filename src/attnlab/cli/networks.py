"""`attnlab networks`: the names that `create`, --model and studies take."""

from __future__ import annotations

import fnmatch
from typing import Literal

from attnlab.cli._show import console, print_python, table

_SHOWN = 60


def networks(
    match: str = "",
    library: Literal["attnlab", "timm", "torchvision", "smp"] | None = None,
    all: bool = False,  # noqa: A002 (the name on the command line)
) -> None:
    """List networks by name: attnlab's own, and those of timm, torchvision and smp.

    Examples:
      attnlab networks
      attnlab networks --match 'resnet*'
      attnlab networks --library timm --match '*vit*' --all

    Args:
        match: only names that have this in them; with * or ?, names of that form.
        library: only of this library; all of them with a match, attnlab's own without.
        all: every name, not the first 60.
    """
    chosen = library or (None if match else "attnlab")
    found = _found(chosen, match)
    shown = list(found.items()) if all else list(found.items())[:_SHOWN]
    console().print(table((("name", "left"), ("what it is", "left")), shown))
    if len(shown) < len(found):
        print(f"and {len(found) - len(shown)} more: --all shows them, --match chooses")
    if chosen == "attnlab":
        print("timm's and torchvision's: attnlab networks --library timm")
    print()
    print_python(
        "from attnlab.networks.create import list_networks",
        "list_networks()" if chosen is None else f"list_networks({chosen!r})",
    )


def _found(library: str | None, match: str) -> dict[str, str]:
    """The names that match, each with what it is."""
    from attnlab._errors import InputError
    from attnlab.networks.create import list_networks

    found = {
        name: family
        for name, family in list_networks(library).items()
        if _matches(name.rpartition(":")[2], match)
    }
    if not found:
        raise InputError(
            f"No network of {library or 'attnlab, timm or torchvision'} has {match!r} in its name. "
            f"Try a part of it, such as --match vit."
        )
    return found


def _matches(name: str, pattern: str) -> bool:
    if any(sign in pattern for sign in "*?["):
        return fnmatch.fnmatch(name.lower(), pattern.lower())
    return pattern.lower() in name.lower()
