"""Gates that look over all tokens of a sequence, on batches in which some tokens are padding.

Such a gate must not see padding, or the answer for a text would depend on the texts beside it. The
network that gates were inserted into reads the `attention_mask` of its call and keeps it while it
runs; the gate is then computed of the tokens of each input alone, as if it came without padding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, SiteError
from attnlab.residuals.example import Example, as_call, evaluating
from attnlab.residuals.padding import NAME, signature_of, valid_tokens

Compute = Callable[[Tensor, Tensor | None], Tensor]
"""The step size of a branch and its shortcut, both (inputs, tokens, channels)."""


class _Call(threading.local):
    """The call that runs in this thread."""

    valid: Tensor | None = None


_call = _Call()


def mask_position(network: nn.Module) -> int | None:
    """Which positional argument of the network's forward is its `attention_mask`."""
    signature = signature_of(network)
    names = [] if signature is None else list(signature.parameters)
    return names.index(NAME) if NAME in names else None


def refuse_hidden_mask(network: nn.Module, example: Example | None, label: str) -> None:
    """Raise `SiteError` if a part of `network` is given an `attention_mask` that the network itself
    is not, so that it would not be known when gates act."""
    if mask_position(network) is not None:
        return
    given: list[str] = []
    handles = []
    for name, module in network.named_modules():
        if name and mask_position(module) is not None:

            def look(module: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
                mask = kwargs.get(NAME)
                place = mask_position(module)
                if mask is None and place is not None and len(args) > place:
                    mask = args[place]
                if isinstance(mask, Tensor) and mask.ndim == 2:
                    given.append(name)

            handles.append(module.register_forward_pre_hook(look, with_kwargs=True))
    if not handles:
        return
    try:
        arguments, keywords = as_call(network, example)
        if keywords.get(NAME) is None:
            with evaluating(network):
                network(*arguments, **keywords)
    finally:
        for handle in handles:
            handle.remove()
    if given:
        raise SiteError(
            f"{label!r} looks over all tokens and must not see padding, but the {NAME} is only "
            f"known inside {given[0]!r}, not to {type(network).__name__}. Insert into that part: "
            f"insert(model.{given[0]}, {label!r}, inplace=True)."
        )


def knowing_padding(
    forward: Callable[..., Any], position: int | None, *args: Any, **kwargs: Any
) -> Any:
    """`forward(*args, **kwargs)`, during which gates know the padding that the call tells of."""
    mask = kwargs.get(NAME)
    if mask is None and position is not None and len(args) > position:
        mask = args[position]
    if mask is None:
        return forward(*args, **kwargs)
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise SiteError(
            f"Gates that look over all tokens leave out those that are padding by {NAME}, which "
            f"differs from call to call and cannot be traced. Trace without {NAME}, or use a gate "
            f"that is the same for every input, such as 'asr:se'."
        )
    before = _call.valid
    _call.valid = valid_tokens({**kwargs, NAME: mask})
    try:
        return forward(*args, **kwargs)
    finally:
        _call.valid = before


def padding_now() -> Tensor | None:
    """(inputs, tokens), False where the call that runs has padding; None where it has none."""
    return _call.valid


def of_valid_tokens(
    gate: nn.Module, name: str, compute: Compute, branch: Tensor, shortcut: Tensor | None
) -> Tensor:
    """`compute` of each input without its padding; inputs that are padded alike go together.

    Where the gate varies from token to token, padded ones get its mean.
    """
    valid = _call.valid
    assert valid is not None
    _check(gate, name, valid, branch)
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


def _check(gate: nn.Module, name: str, valid: Tensor, branch: Tensor) -> None:
    if branch.ndim != 3 or branch.shape[:2] != valid.shape:
        raise InputError(
            f"The gate {name!r} looks over all tokens, and which are padding is not known where "
            f"it acts: {NAME} has shape {tuple(valid.shape)} and its branch {tuple(branch.shape)}. "
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
