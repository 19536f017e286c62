"""Check the surgery where it can be checked: in float64, against branches multiplied by zero."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, ShortenError
from attnlab.residuals import Observer, SeenStep, Step, StepKey
from attnlab.residuals.example import Example, call, evaluating
from attnlab.residuals.watching import watching
from attnlab.surgery.answer import Answer
from attnlab.surgery.change import change_between
from attnlab.surgery.double import MOST_PARAMETERS, double_example
from attnlab.surgery.receipt import count_parameters
from attnlab.surgery.shortening.operation import Removal, named


class LeavesOut(Observer):
    """Adds zeros in the place of the branches of chosen steps."""

    def __init__(self, keys: Collection[StepKey]) -> None:
        self.keys = keys

    def step_seen(self, seen: SeenStep) -> Tensor | None:
        return torch.zeros_like(seen.branch) if seen.step.key in self.keys else None


EXACT = 1e-12
"""The largest relative error in float64 that passes for exact."""


def check_removal(
    network: nn.Module, surgery: Removal, chosen: Sequence[Step], example: Example | None
) -> tuple[float, str]:
    """The relative error of the shortened network's output, and the precision it was taken in.

    Raises `ShortenError` where it is not the network with these branches multiplied by zero.
    """
    precision, most = "float64", EXACT
    expected = None
    if count_parameters(network) <= MOST_PARAMETERS:
        exact = copy.deepcopy(network).double()
        given: Example | None = double_example(exact, example)
        try:
            expected = _times_zero(exact, chosen, given)
        except (RuntimeError, TypeError, InputError):  # an operation that has no float64
            expected = None
    if expected is None:
        exact, given = copy.deepcopy(network), example
        expected = _times_zero(exact, chosen, given)
        dtype = next(p for p in network.parameters() if p.is_floating_point()).dtype
        precision, most = str(dtype).removeprefix("torch."), 100 * torch.finfo(dtype).eps
    surgery.perform(exact)
    try:
        with evaluating(exact):
            found = call(exact, given)
    except Exception as problem:  # whatever the network's own code makes of it
        cause = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise _impossible(chosen, f"the network does not run without it ({cause})") from problem
    change = change_between(Answer(expected, 0), Answer(found, 0))
    error = change.relative if change.of_output is None else change.of_output
    if error is None:
        raise _impossible(chosen, f"the output cannot be compared ({change.compared})")
    if not error <= most:
        raise _impossible(
            chosen,
            f"the network without it differs by {error:.1e} from the one whose branch is "
            f"multiplied by zero",
        )
    return error, precision


def _impossible(chosen: Sequence[Step], reason: str) -> ShortenError:
    names = ", ".join(named(step) for step in chosen)
    return ShortenError(
        f"{'Step' if len(chosen) == 1 else 'Steps'} {names} cannot be removed: {reason}."
    )


def _times_zero(network: nn.Module, chosen: Sequence[Step], example: Example | None) -> object:
    observer = LeavesOut({step.key for step in chosen})
    with evaluating(network), watching(network, observer, example):
        return call(network, example)
