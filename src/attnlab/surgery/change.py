"""How far two answers of a network are from each other, and what of them was compared.

There are three formulas, because they answer three questions, and on the same two answers they may
differ by a factor of ten and more: is anything broken (`largest_change`), what does it cost over
all images together (`total_change`), and what does an image notice (`mean_image_change`)? Where a
number is printed, so is the name of its formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.residuals.selection import Call
from attnlab.surgery.answer import Answer, is_number, leaves
from attnlab.surgery.words import largest_in_words

ON_META = "the network is on the meta device"


@dataclass(frozen=True)
class Change:
    """The largest change of an answer. Infinite where one of the two is not finite and the other
    is; None where nothing could be compared."""

    largest: float | None
    relative: float | None
    """`largest_change`: the same, relative to the largest absolute value before."""
    compared: str = ""
    """What was compared, if that is not the whole output; or why nothing was."""
    of_output: float | None = None
    """The relative change of the output itself; infinite where its shapes or integers differ, None
    if there is nothing in it to compare."""


def change_between(before: Answer, after: Answer) -> Change:
    """Compare one answer with the other. If both were asked what they select from, that is what is
    compared, and what became of the output is said."""
    output = _change_of_output(before.output, after.output)
    if not before.seen:
        return output
    said = f"the output: {_said(output)}"
    same = {
        call: (value, after.seen[call])
        for call, value in before.seen.items()
        if call in after.seen and after.seen[call].shape == value.shape
    }
    if any(value.is_meta for value in before.seen.values()):
        return Change(None, None, ON_META)
    largest, size, remarks = largest_change(list(same.values()))
    if largest is None:
        return Change(None, None, f"{_why_not(same, before.seen)}; {said}", output.of_output)
    places = f"in what {_named(same)} returned, before anything is selected from it"
    compared = "; ".join((places, *remarks, said))
    return Change(largest, relative_to(largest, size), compared, output.of_output)


def _change_of_output(before: object, after: object) -> Change:
    old, new = dict(leaves(before)), dict(leaves(after))
    if any(tensor.is_meta for tensor in old.values()):
        return Change(None, None, ON_META)
    numbers, remarks = [], []
    for path in dict.fromkeys((*old, *new)):
        one, other = old.get(path), new.get(path)
        if one is None or other is None or one.shape != other.shape:
            remarks.append(f"{_place(path)} is {_shape(one)} before and {_shape(other)} after")
        elif is_number(one) and is_number(other):
            numbers.append((one, other))
        elif not torch.equal(one, other):
            moved = int((one != other).sum())
            remarks.append(f"{moved} of {one.numel()} integers of {_place(path)} differ")
    largest, size, more = largest_change(numbers)
    other_output = inf if remarks else None
    remarks = _few([*remarks, *more])
    if largest is None:
        return Change(None, None, "; ".join((*_nothing(old, before), *remarks)), other_output)
    relative = relative_to(largest, size)
    return Change(largest, relative, "; ".join(remarks), other_output or relative)


def largest_change(pairs: list[tuple[Tensor, Tensor]]) -> tuple[float | None, float, list[str]]:
    """max |y′ − y| over all values (None if nothing is finite), max |y|, and what is to be said
    about them. The first over the second is what receipts call relative."""
    largest, size, odd, total = None, 0.0, 0, 0
    for pair in pairs:
        a, b = (_real(tensor) for tensor in pair)
        total += a.numel()
        if a.numel() and isfinite(change := float((a - b).abs_().max())):
            # Nothing is infinite or undefined then, or this would be: the maximum hands NaN on.
            largest = max(largest or 0.0, change)
            size = max(size, float(torch.linalg.vector_norm(a, inf)))
            continue
        finite = a.isfinite() & b.isfinite()
        alike = finite | (a == b) | (a.isnan() & b.isnan())
        odd += int((~finite).sum())
        if not bool(alike.all()):
            largest = inf
        elif bool(finite.any()):
            largest = max(largest or 0.0, float((a[finite] - b[finite]).abs().max()))
        if bool(finite.any()):
            size = max(size, float(a[finite].abs().max()))
    if not odd:
        return largest, size, []
    where = "at other places than before" if largest == inf else "both times"
    return largest, size, [f"{odd} of {total} values are not finite, {where}"]


def total_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """‖y′ − y‖ / ‖y‖ with Euclidean lengths over all values of all images together; infinite if
    the two are not finite at the same places, or if there is nothing to compare."""
    change = size = 0.0
    compared = False
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape or not torch.equal(a.isfinite(), b.isfinite()):
            return inf
        a, b = a[a.isfinite()], b[b.isfinite()]
        compared = compared or bool(a.numel())
        change += float((a - b).square().sum())
        size += float(a.square().sum())
    return (change / max(size, 1e-300)) ** 0.5 if compared else inf


def mean_image_change(before: Tensor, after: Tensor) -> float:
    """The mean over images of ‖y′ − y‖ / ‖y‖, each with the lengths of its own answer."""
    return float(image_changes(before, after).mean())


def image_changes(before: Tensor, after: Tensor) -> Tensor:
    """‖y′ − y‖ / ‖y‖ of every image, the first axis."""
    size = before.flatten(1).norm(dim=1)
    if not bool((size > 0).all()):
        raise InputError(
            f"The network returns zeros for {int((size == 0).sum())} of {len(size)} images, so "
            f"nothing can be said about a change. Is its last layer still as it was initialised?"
        )
    return (after - before).flatten(1).norm(dim=1) / size


def _real(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()


def relative_to(largest: float, size: float) -> float:
    """max |y′ − y| / max |y| of what `largest_change` found."""
    return largest / max(size, torch.finfo(torch.float64).tiny)


def _said(change: Change) -> str:
    if change.largest is None or change.relative is None:
        return change.compared
    more = f"; {change.compared}" if change.compared else ""
    return f"{largest_in_words(change.largest, change.relative)}{more}"


def _why_not(same: Mapping[Call, object], seen: Mapping[Call, object]) -> str:
    if same:
        return f"what {_named(same)} returned is nowhere finite"
    return f"what {_named(seen)} returned has other shapes than before"


def _nothing(old: Mapping[str, Tensor], output: object) -> list[str]:
    """Why there is nothing to compare in an output that has the same shapes as before."""
    numbers = [tensor for tensor in old.values() if is_number(tensor)]
    if not old:
        return [f"it holds no tensor, it is a {type(output).__name__}"]
    if not numbers:
        return ["it has integers only"]
    if not any(tensor.numel() for tensor in numbers):
        return [f"it is empty, {_shape(numbers[0])}"]
    return []


def _named(calls: Mapping[Call, object]) -> str:
    names = list(dict.fromkeys(name for name, _ in calls))
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")


def _place(path: str) -> str:
    return f"output{path}" if path else "the output"


def _shape(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"({', '.join(map(str, tensor.shape))})"


def _few(remarks: list[str], most: int = 3) -> list[str]:
    rest = len(remarks) - most
    return remarks if rest <= 0 else [*remarks[:most], f"and {rest} more"]
