"""The next token of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, Facts, Value
from attnlab.data.masked import NOT_ASKED
from attnlab.results.metric import Metric, perplexity_of
from attnlab.tasks.task import CreatedTask, Loss, Means, TaskMeters

_metric = partial(Metric, sample="window")
_LEAK = 1e-5
"""A network looks ahead if answers change by more than this share of what changes after: causal
ones differ by rounding, 1e-7; an untrained BERT of 128 tokens by 1e-2."""


class Language(CreatedTask[Tensor]):
    """Cross-entropy of the next byte or token; the result is its mean over the validation text.

    The network takes tokens (N, context) and answers with logits (N, context, vocabulary), or with
    an object that has them as `logits`, as those of transformers do.
    """

    targets = "tokens"
    metrics: ClassVar[tuple[Metric, ...]] = (
        _metric(
            name="loss", label="validation loss", unit="nats", better="lower", least=0, digits=4
        ),
        _metric(name="bits_per_byte", label="bits per byte", better="lower", least=0, digits=4),
        _metric(name="perplexity", label="perplexity", better="lower", least=1, digits=3),
        _metric(name="top1", label="top-1", unit="%", scale=100, least=0, most=1),
    )

    looks_ahead: ClassVar[bool] = False
    """Whether networks of this task see the tokens after a position."""

    @property
    def num_classes(self) -> int:
        return self.facts.outputs

    def build(self, backbone: str, options: Mapping[str, Value]) -> nn.Module:
        network = super().build(backbone, options)
        context = getattr(network, "context", None)
        if isinstance(context, int) and context < self.facts.shape[0]:
            raise OptionError(
                f"Windows of {self.facts.name!r} have {self.facts.shape[0]} tokens, but {backbone} "
                f"takes at most {context}. Set its option context = {self.facts.shape[0]}, or a "
                f"smaller context of the data."
            )
        self._check_direction(network, backbone)
        return network

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        logits = self._logits(network, batch)
        mean = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        asked = batch.targets != NOT_ASKED
        right = (logits.detach().argmax(2) == batch.targets)[asked].double().mean()
        return Loss(mean, {"top1": right})

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return self._logits(network, batch)

    def meters(self, device: torch.device) -> TaskMeters[Tensor]:
        return _NextToken(device, self.facts)

    def _check_direction(self, network: nn.Module, backbone: str) -> None:
        """Refuse a network that sees the tokens it is to guess, or one that sees too little: tried
        by other tokens in the second half of a window, which an encoder's first half depends on."""
        tokens = self.facts.example()
        half = tokens.shape[1] // 2
        if not half:
            return
        other = tokens.clone()
        other[:, half:] = (other[:, half:] + 1) % self.facts.outputs
        with _tried(network):
            given = torch.cat([tokens, other]).to(next(network.parameters()).device)
            one, two = self._logits(network, Batch(given, given)).double()
        moved = (one - two).abs()
        back, there = moved[:half].max().item(), moved[half:].max().item()
        ahead = back > _LEAK * there
        if ahead == self.looks_ahead or not there:  # a head of zeros says nothing
            return
        if ahead:
            raise OptionError(
                f"Task 'language' asks for the next token, and {backbone} sees it: its answers in "
                f"the first half of a window change with tokens of the second. Use a causal "
                f"network ('decoder', 'transformers:llama'; of a family that is both, its option "
                f"is_decoder = true), or task 'masked'."
            )
        raise OptionError(
            f"Task 'masked' asks for tokens from the text on both sides, and {backbone} is causal: "
            f"its answers in the first half of a window do not depend on the second. Use an "
            f"encoder, such as 'transformers-masked:bert', or task 'language'."
        )

    def _logits(self, network: nn.Module, batch: Batch) -> Tensor:
        answer = network(batch.inputs)
        logits: object = answer if isinstance(answer, Tensor) else getattr(answer, "logits", None)
        expected = (*batch.inputs.shape, self.num_classes)
        if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(answer).__name__
            raise InputError(
                f"Task {type(self).__name__.lower()!r} needs a network that answers tokens with "
                f"logits {expected} but got {got}. Use 'decoder', a causal network such as "
                f"'transformers:llama', or your own; for task 'masked' 'transformers-masked:bert'."
            )
        # Half precision is too coarse for the logarithm of a sum over a vocabulary.
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


@contextmanager
def _tried(network: nn.Module) -> Iterator[None]:
    """Run `network` in eval mode and without gradients; modes and random state are as before
    afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            network.eval()
            yield
    finally:
        for module, mode in modes:
            module.training = mode


class TokenMeters(TaskMeters[Tensor]):
    """Every token that is asked for counts alike: windows are of one length."""

    def __init__(self, device: torch.device) -> None:
        self._means = Means(("loss", "top1"), device)

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        asked = targets != NOT_ASKED
        flat, wanted = predictions[asked], targets[asked]
        loss = F.cross_entropy(flat, wanted, reduction="none")
        self._means.update({"loss": loss, "top1": flat.argmax(1) == wanted})

    def compute(self) -> dict[str, float | None]:
        found = self._means.compute()
        # The mean cannot be NaN here without being told of.
        return {**found, "perplexity": perplexity_of(found["loss"])}


class _NextToken(TokenMeters):
    """The meters of a text's tokens, and bits per byte."""

    def __init__(self, device: torch.device, facts: Facts) -> None:
        super().__init__(device)
        self._bytes = facts.bytes_per_token

    def compute(self) -> dict[str, float | None]:
        found = super().compute()
        loss, size = found["loss"], self._bytes
        bits = None if loss is None or size is None else loss / math.log(2) / size
        return {**found, "bits_per_byte": bits}
