"""Gates that look over all tokens of a sequence, but for those that are padding.

Such a gate must not see padding, or the answer for a text would depend on the texts beside it. The
network that gates were inserted into reads the mask of its call and keeps it while it runs, and so
do its parts; the gate is then computed of the tokens of each input alone, as if it came without
padding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from attnlab._errors import InputError, SiteError
from attnlab._types import Arguments, Function, Keywords
from attnlab.residuals.checkpointing import runs_again
from attnlab.residuals.padding import SEQUENCES, MaskArgument, OtherTokensError

Compute = Callable[[Tensor, Tensor | None], Tensor]
"""The step size of a branch and its shortcut, both (inputs, tokens, channels)."""


class _Told(NamedTuple):
    """What the call that runs in this thread tells of its padding."""

    valid: Tensor | InputError | None
    """(inputs, tokens), False where a token is padding; None where nothing is padded. An error
    where that cannot be told, for the gate that has to know."""
    mask: object
    """What told of it ..."""
    name: str
    """... and the argument that it was given as."""
    trains: bool
    """Whether a backward pass may follow."""
    others: bool
    """Whether it tells of other tokens than the text that the whole network is given."""


class _Call(threading.local):
    def __init__(self) -> None:
        super().__init__()
        self.told: _Told | None = None
        """None outside of calls that tell of padding, and of those that could have told."""


_call = _Call()


def knowing_padding(
    forward: Function, argument: MaskArgument | None, *args: object, **kwargs: object
) -> object:
    """`forward(*args, **kwargs)`, during which gates know the padding that the call tells of."""
    if argument is None:
        return forward(*args, **kwargs)
    return _told(forward, argument, argument.given(args, kwargs), OtherTokensError, args, kwargs)


def knowing_padding_of_method(
    method: Function, argument: MaskArgument | None, *args: object, **kwargs: object
) -> object:
    """The same of a method by which a network is run without its forward."""
    if argument is None or _call.told is not None:
        return method(*args, **kwargs)
    return _told(method, argument, argument.given(args, kwargs), InputError, args, kwargs)


def knowing_padding_of_part(
    forward: Function, argument: MaskArgument, *args: object, **kwargs: object
) -> object:
    """The same of a part of a network. Where it is given a mask of tokens, they may be others than
    those that the whole network is told of (the patches of an image beside a text, the other of two
    texts); what it is given in another form is made of the network's mask, unless the part is
    called by itself."""
    mask, told = argument.given(args, kwargs), _call.told
    if told is not None:
        handed_on = mask is told.mask and not isinstance(told.valid, InputError)
        # A text that comes without a mask has no padding, whatever another one has.
        own = mask is not None or argument.has_text(args, kwargs, SEQUENCES[:1])
        if handed_on or not own or _is_traced(mask):
            return forward(*args, **kwargs)
    # A call that the backward pass makes once more was looked at when it was first made.
    again = not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
    inside = told is not None or again
    if inside and mask is not None and not _is_of_tokens(mask, args, kwargs):
        return forward(*args, **kwargs)
    return _told(forward, argument, mask, InputError, args, kwargs, others=told is not None)


def _is_of_tokens(mask: object, args: Arguments, kwargs: Mapping[str, object]) -> bool:
    """Whether this is a mask of the tokens that a part is called with, one number for each."""
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return False
    given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), mask)
    alike = given.shape[:2] == mask.shape
    return alike and bool(((mask == 0) | (mask == 1)).all())


def _is_traced(mask: object) -> bool:
    """Whether a graph is being made that would hold for this mask alone, or that knows of none."""
    traced = torch.jit.is_tracing() or torch.compiler.is_exporting()  # type: ignore[attr-defined]
    return traced or isinstance(mask, Proxy)


def _told(
    forward: Function,
    argument: MaskArgument,
    mask: object,
    later: type[InputError],
    args: Arguments,
    kwargs: Keywords,
    *,
    others: bool = False,
) -> object:
    """`forward(*args, **kwargs)`, told of padding by this mask; errors of the kind `later` are left
    to the gate that has to know."""
    if mask is not None and _is_traced(mask):
        raise SiteError(
            f"Gates that look over all tokens leave out those that are padding by {argument.name}, "
            f"which differs from call to call and cannot be traced. Trace without "
            f"{argument.name}, or use a gate that is the same for every input, such as 'asr:se'."
        )
    before = _call.told
    valid: Tensor | InputError | None
    try:
        valid = None if mask is None else argument.valid(mask, args, kwargs)
    except later as error:
        valid = error
    others = others or not argument.has_text(args, kwargs)
    _call.told = _Told(valid, mask, argument.name, torch.is_grad_enabled(), others)
    try:
        return forward(*args, **kwargs)
    finally:
        _call.told = before


def has_padding(beside: bool) -> bool:
    """Whether the call that runs has padding. For states `beside` the text that the network's mask
    tells of, only what tells of others counts."""
    told = _call.told
    return told is not None and told.valid is not None and (told.others or not beside)


def of_valid_tokens(
    gate: nn.Module,
    name: str,
    compute: Compute,
    branch: Tensor,
    shortcut: Tensor | None,
    *,
    channel_axis: int,
) -> Tensor:
    """`compute` of each input without its padding; inputs that are padded alike go together.

    Where the gate varies from token to token, padded ones get its mean.
    """
    if channel_axis == 1:  # the tokens are last, as where convolutions are over them (SqueezeBERT)

        def turned(branch: Tensor, shortcut: Tensor | None) -> Tensor:
            return compute(branch.mT, None if shortcut is None else shortcut.mT).mT

        other = None if shortcut is None else shortcut.mT
        return of_valid_tokens(gate, name, turned, branch.mT, other, channel_axis=2).mT
    told = _call.told
    assert told is not None
    valid = told.valid
    assert valid is not None
    if isinstance(valid, InputError):
        raise valid
    if branch.ndim == 3 and branch.shape[1] == 1 < valid.shape[1]:
        return compute(branch, shortcut)  # one that was made of all tokens: a pooled state
    _check_gate(gate, name, told, valid, branch)
    patterns, groups = torch.unique(valid, dim=0, return_inverse=True)
    rows, values = [], []
    for number, pattern in enumerate(patterns):
        chosen = (groups == number).nonzero()[:, 0]
        rows.append(chosen)
        kept = pattern.nonzero()[:, 0]
        if len(kept) == 0:
            values.append(branch.new_ones(len(chosen), 1, branch.shape[2]))
            continue
        parts = [None if t is None else t[chosen][:, kept] for t in (branch, shortcut)]
        assert parts[0] is not None
        value = compute(parts[0], parts[1]).expand(len(chosen), -1, branch.shape[2])
        if value.shape[1] > 1:
            filled = value.mean(1, keepdim=True).expand(-1, branch.shape[1], -1)
            value = filled.index_copy(1, kept, value)
        elif len(kept) == 1 and branch.shape[1] > 1:
            value = value.expand(-1, branch.shape[1], -1)
        values.append(value)
    tokens = max(value.shape[1] for value in values)
    found = torch.cat([value.expand(-1, tokens, -1) for value in values])
    return found[torch.cat(rows).argsort()]


def _check_gate(gate: nn.Module, name: str, told: _Told, valid: Tensor, branch: Tensor) -> None:
    if branch.ndim != 3 or branch.shape[:2] != valid.shape:
        raise InputError(
            f"The gate {name!r} looks over all tokens, and which are padding is not known where "
            f"it acts: {told.name} has shape {tuple(valid.shape)} and its branch "
            f"{tuple(branch.shape)}. "
            f"Use a gate that is the same for every input, such as 'asr:se', or batches without "
            f"padding."
        )
    norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in gate.modules())
    if gate.training and norms:
        raise SiteError(
            f"The gate {name!r} ({type(gate).__name__}) normalises over the batch, and inputs that "
            f"are padded differently are not computed in one. Train on batches without padding, or "
            f"choose a gate without a batch norm, such as 'se'."
        )
    again = told.trains and not torch.compiler.is_compiling()
    if again and runs_again(_told.__code__):
        raise SiteError(
            f"The gate {name!r} leaves out the tokens that are padding by {told.name}, which is "
            f"not known any more when the backward pass runs its block once more (activation "
            f"checkpointing). Switch checkpointing off (for Hugging Face, "
            f"model.gradient_checkpointing_disable()), train on batches without padding, or choose "
            f"a gate that looks at each token alone, such as 'token' or 'asr:se'."
        )
