"""Every error raised on purpose: what it got, what it expected, the nearest choice, what to do."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping


class AttnlabError(Exception):
    """Base of all errors that attnlab raises on purpose: `except attnlab.AttnlabError`.

    Each is also a `ValueError` or a `TypeError`.
    """


class UnknownNameError(AttnlabError, ValueError):
    """A gate, model, convention, ... that does not exist."""


class OptionError(AttnlabError, TypeError):
    """An option that the thing being built does not have, or a value it cannot take."""


class InputError(AttnlabError, ValueError):
    """A tensor whose shape, layout or number of values the computation cannot use."""


class WeightsError(AttnlabError, ValueError):
    """A file of weights that cannot be read, is not safe to read, or does not fit the network."""


class DoesNotApplyError(InputError):
    """There is nothing to measure: the network, or its task, does not have what is asked for."""


class StepsNotFoundError(AttnlabError, ValueError):
    """The network has no residual step that could be recognised."""


class SelectionError(AttnlabError, ValueError):
    """`where` selects nothing, or something that does not exist."""


class SiteError(AttnlabError, ValueError):
    """A gate cannot act at a site of this network; the message names the site."""


class GateLostError(SiteError):
    """A gate no longer acts, because its network was changed after insertion; the message names the
    gate, the module that is gone, and what to do."""


class NoiseLostError(AttnlabError, ValueError):
    """A norm that was given noise is gone, because its network was changed afterwards; the message
    names the norm and what to do."""


class FoldError(AttnlabError, ValueError):
    """A gate cannot be folded away exactly; the message names the site and the reason."""


class PretrainedWarning(UserWarning):
    """A folder of Hugging Face was written from which its own loader builds no gates."""


class ShortenError(AttnlabError, ValueError):
    """A step cannot be removed from a network; the message names the step and the reason."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """`" Did you mean 'se'?"`, or an empty string when nothing is close."""
    close = difflib.get_close_matches(str(name).lower(), list(valid), n=3, cutoff=0.5)
    if not close:
        return ""
    return f" Did you mean {' or '.join(repr(c) for c in close)}?"


def unknown_name(kind: str, got: object, valid: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not one of `valid`."""
    names = list(valid)
    near = "" if got is None else nearest(str(got), names)
    return UnknownNameError(f"Unknown {kind} {got!r}.{near} Expected one of: {', '.join(names)}.")


def check_options(
    what: str, build: Callable[..., object], options: Mapping[str, object], skip: Iterable[str] = ()
) -> None:
    """Raise `OptionError` for any key of `options` that `build` does not take by name, and for any
    value of another kind than it says."""
    skipped = {"self", *skip}
    valid = [
        name
        for name, parameter in inspect.signature(build).parameters.items()
        if name not in skipped and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    for name in options:
        if name not in valid:
            takes = f"It takes: {', '.join(valid)}." if valid else "It takes no options."
            raise OptionError(f"{what} has no option {name!r}.{nearest(name, valid)} {takes}")
    from attnlab._checked import check_values  # which needs the errors

    check_values(what, build, options)
