"""What a network says of the tokens of a text: the distribution of the next one, and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.surgery.answer import is_number, leaves

IGNORED = -100
"""A target that does not count, as in `cross_entropy`: padding."""


def logits_of(output: object) -> Tensor | None:
    """The first numbers that a network returned."""
    return next((tensor for _, tensor in leaves(output) if is_number(tensor)), None)


def log_probabilities(output: object) -> Tensor:
    """The logarithms of what a network's first result says of its classes, in float64: (rows,
    classes), one row per image, token or place. Classes are on the last axis, of maps on axis 1."""
    logits = logits_of(output)
    if logits is None or logits.ndim < 2:
        got = "no numbers" if logits is None else f"shape {tuple(logits.shape)}"
        raise InputError(
            f"The ranking 'kl' compares distributions over classes: expected a network whose first "
            f"result is (inputs, classes) or (inputs, tokens, classes) but got {got}. Choose "
            f"another ranking: by='output'."
        )
    if logits.ndim > 3:
        logits = logits.movedim(1, -1)
    return logits.detach().double().cpu().flatten(0, -2).log_softmax(-1)


def speaks_of(output: object, following: Tensor) -> bool:
    """Return whether the network answers with a distribution for each place of which `following`
    says what comes next: (inputs, tokens, vocabulary)."""
    logits = logits_of(output)
    return logits is not None and logits.ndim == 3 and logits.shape[:2] == following.shape


class TokenLoss(NamedTuple):
    """The cross-entropy of tokens, summed."""

    total: float
    tokens: int
    """How many counted."""


def token_loss(output: object, following: Tensor) -> TokenLoss:
    """Sum the cross-entropy of the tokens that follow, in nats and float64; `IGNORED` ones do not
    count."""
    said, wanted = log_probabilities(output), following.cpu().flatten()
    counted = wanted != IGNORED
    vocabulary = said.shape[1]
    asked = wanted[counted]
    if len(asked) and not 0 <= int(asked.min()) <= int(asked.max()) < vocabulary:
        raise InputError(
            f"Expected tokens from 0 to {vocabulary - 1}, the network's vocabulary, and {IGNORED} "
            f"where none counts, but got {int(asked.min())} to {int(asked.max())}."
        )
    rows = torch.nonzero(counted).squeeze(1)
    return TokenLoss(-float(said[rows, asked].sum()), len(asked))


def mean_token_loss(parts: Sequence[TokenLoss]) -> float:
    """Nats per token over all that count."""
    tokens = sum(part.tokens for part in parts)
    if not tokens:
        raise InputError(
            f"No token of these batches counts: expected targets other than {IGNORED}, the token "
            f"that follows at each place."
        )
    return sum(part.total for part in parts) / tokens
