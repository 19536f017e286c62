"""In training, the output of a network depends on what each of its gates returns.

A block may run the module after which a gate acts and add something else in training: the gate
acts, and the network answers as if it were not there. The gradient's graph of one training run
shows for every gate whether anything was made of what it returned. Where it shows nothing (a part
that is detached), the run is made once more with another value there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.autograd.graph import Node
from torch.utils._pytree import tree_leaves

from attnlab._errors import SiteError
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.copying import deep_copy
from attnlab.residuals.example import running_eagerly
from attnlab.surgery.insertion._ran import copied_arguments


class _Acted(NamedTuple):
    """A gate, and where what it returned is in the graph of gradients."""

    gate: Attachment
    node: Node


@_disable_dynamo
def show_effects(
    network: nn.Module,
    gates: Sequence[Attachment],
    forward: Callable[..., object],
    *args: object,
    **kwargs: object,
) -> object:
    """`forward(*args, **kwargs)` of `network`; a `SiteError` if what one of `gates` returns does
    not matter for the output. Gates without a gradient (a frozen part) are not looked at."""
    acted: list[_Acted] = []

    def note(gate: nn.Module, arguments: object, output: object) -> None:
        del arguments
        assert isinstance(gate, Attachment)
        if isinstance(output, Tensor) and output.grad_fn is not None:
            acted.append(_Acted(gate, output.grad_fn))

    with ExitStack() as hooks:
        hooks.enter_context(running_eagerly())
        for gate in gates:
            hooks.enter_context(gate.register_forward_hook(note))
        output = forward(*args, **kwargs)
    ends = [leaf.grad_fn for leaf in _tensors(output) if leaf.grad_fn is not None]
    if ends:
        _check(network, acted, _reached(ends), args, kwargs)
    return output


def _check(
    network: nn.Module,
    acted: list[_Acted],
    reached: set[Node],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> None:
    """Raise `SiteError` unless the output depends on all that was made in `acted`, `reached` being
    what it was made from. The last first: what that was made from goes on as well."""
    twice: list[list[Tensor]] = []
    for last in reversed(acted):
        if last.node in reached:
            continue
        try:
            twice = twice or [_answer(network, args, kwargs) for _ in range(2)]
            after = _answer(network, args, kwargs, last.gate)
            depends = any(map(_differs, *twice, after))
        except Exception:  # what cannot be run once more is not known to depend on it
            depends = False
        if not depends:
            raise _no_effect(network, last.gate, twice)
        reached |= _reached([last.node])


def _differs(first: Tensor, again: Tensor, after: Tensor) -> bool:
    """Whether `after` differs from `first` by more than `again` does, which is the same run made
    once more: some kernels, and random numbers that nobody sets back, differ from run to run."""
    if not first.shape == again.shape == after.shape:
        return first.shape == again.shape
    if not (first.is_floating_point() or first.is_complex()):
        first, again, after = first.double(), again.double(), after.double()
    known = first.isfinite() & again.isfinite()
    first, again, after = first[known], again[known], after[known]
    if not len(first):
        return False
    noise = (again - first).abs().max()
    return not bool(((after - first).abs() <= 10 * noise).all())


def _reached(ends: Iterable[Node]) -> set[Node]:
    """All from which the tensors with these nodes were made."""
    reached = set(ends)
    waiting = list(reached)
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in reached:
                reached.add(node)
                waiting.append(node)
    return reached


def _answer(
    network: nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    changed: Attachment | None = None,
) -> list[Tensor]:
    """The tensors that a copy of `network` answers with the same random numbers, if another value
    is handed on by the gate `changed`."""
    memo: dict[int, object] = {}
    copied = deep_copy(network, memo)
    given, named = copied_arguments(args, kwargs)

    def hand_on_another(gate: nn.Module, arguments: object, output: Tensor) -> Tensor:
        del gate, arguments
        # No multiple of it and no sum with a number: a norm would take that out again, and a
        # rectifier values of one sign.
        slope = torch.linspace(-2, 2, output.numel(), dtype=output.dtype, device=output.device)
        return output + slope.view(output.shape) * (1 + output.abs().max())

    with torch.no_grad(), torch.random.fork_rng():
        if changed is not None:
            gate = memo[id(changed)]
            assert isinstance(gate, Attachment)
            gate.register_forward_hook(hand_on_another)
        return list(_tensors(copied(*given, **named)))


def _tensors(value: object) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _no_effect(network: nn.Module, gate: Attachment, twice: list[list[Tensor]]) -> SiteError:
    unlike = twice and not all(map(torch.equal, *twice))
    return SiteError(
        f"The gate {gate.name!r} acts {gate.site.at}, but in training the output of "
        f"{type(network).__name__} does not depend on what it returns: something else is added "
        f"there than at insertion. Choose a place that the network passes in both modes with "
        f"where=, or a gate at the addition itself, such as 'step'."
        + (
            " (It has NaN, or differs between two equal runs, so that what differs no more than "
            "these was not seen.)"
            if unlike
            else ""
        )
    )
