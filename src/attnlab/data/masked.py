"""Windows of text with tokens hidden, as encoders learn to guess them (Devlin et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from attnlab._seeds import derive
from attnlab.data.batches import Batch, Chunk, Data

NOT_ASKED: Final = -100
"""The target of a token that is not to be guessed, which torch's cross-entropy leaves out."""
_HIDDEN, _REPLACED = 0.8, 0.1
"""Of the tokens that are asked for, so many are hidden and so many are another token; the others
stay as they are, since a network that is used later sees no hidden token (BERT's shares)."""


class MaskedTokens(Data):
    """The windows of `data`: as inputs with tokens hidden, as targets those that are asked for.

    In every window are asked for equally many, so that the loss of a batch is the mean of those of
    its windows. Which ones is drawn window by window from the seed and the epoch; those of the
    validation text are the same for every run.
    """

    def __init__(self, data: Data, share: float, mask: int) -> None:
        self.facts, self.streams = data.facts, data.streams
        self._data, self._mask = data, mask
        self._asked = max(1, round(share * data.facts.shape[0]))

    def order(self, seed: int, epoch: int) -> Tensor:
        return self._data.order(seed, epoch)

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        batches = self._data.training(chunks, seed, epoch, device)
        for chunk, batch in zip(chunks, batches, strict=True):
            yield self._masked(batch, [(seed, "mask", epoch, n) for n in chunk.images.tolist()])

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        batches = self._data.testing(chunks, device)
        for chosen, batch in zip(chunks, batches, strict=True):
            yield self._masked(batch, [(0, "validation mask", 0, n) for n in chosen.tolist()])

    def _masked(self, batch: Batch, draws: Sequence[tuple[int, str, int, int]]) -> Batch:
        tokens: Tensor = batch.inputs
        drawn = [self._drawn(*draw) for draw in draws]
        asked = torch.stack([each[0] for each in drawn]).to(tokens.device)
        kinds = torch.stack([each[1] for each in drawn]).to(tokens.device)
        others = torch.stack([each[2] for each in drawn]).to(tokens.device)
        own = tokens.gather(1, asked)
        seen = torch.where(kinds < _HIDDEN, self._mask, own)
        seen = torch.where(kinds >= 1 - _REPLACED, others, seen)
        targets = torch.full_like(tokens, NOT_ASKED).scatter(1, asked, own)
        return Batch(tokens.scatter(1, asked, seen), targets)

    def _drawn(self, seed: int, *purpose: str | int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw for one window which tokens are asked for, what is done to each, and other
        tokens."""
        generator = torch.Generator().manual_seed(derive(seed, *purpose))
        asked = torch.randperm(self.facts.shape[0], generator=generator)[: self._asked]
        kinds = torch.rand(self._asked, generator=generator)
        others = torch.randint(self.facts.outputs, (self._asked,), generator=generator)
        return asked, kinds, others
