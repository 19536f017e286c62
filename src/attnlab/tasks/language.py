"""The next token of a text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, Facts, Value
from attnlab.results.metric import Metric, perplexity_of
from attnlab.tasks.task import CreatedTask, Loss, Means, TaskMeters

_metric = partial(Metric, sample="window")


class Language(CreatedTask[Tensor]):
    """Cross-entropy of the next byte or token; the result is its mean over the validation text.

    The network takes tokens (N, context) and answers with logits (N, context, vocabulary), or with
    an object that has them as `logits`, as those of transformers do.
    """

    targets = "tokens"
    metrics = (
        _metric(
            name="loss", label="validation loss", unit="nats", better="lower", least=0, digits=4
        ),
        _metric(name="bits_per_byte", label="bits per byte", better="lower", least=0, digits=4),
        _metric(name="perplexity", label="perplexity", better="lower", least=1, digits=3),
        _metric(name="top1", label="top-1", unit="%", scale=100, least=0, most=1),
    )

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
        return network

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        logits = self._logits(network, batch)
        mean = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        right = (logits.detach().argmax(2) == batch.targets).double().mean()
        return Loss(mean, {"top1": right})

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return self._logits(network, batch)

    def meters(self, device: torch.device) -> TaskMeters[Tensor]:
        return _NextToken(device, self.facts)

    def _logits(self, network: nn.Module, batch: Batch) -> Tensor:
        answer = network(batch.inputs)
        logits: object = answer if isinstance(answer, Tensor) else getattr(answer, "logits", None)
        expected = (*batch.inputs.shape, self.facts.outputs)
        if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(answer).__name__
            raise InputError(
                f"Task 'language' needs a network that answers tokens with logits {expected} but "
                f"got {got}. Use 'decoder', a causal network such as 'transformers:llama', or your "
                f"own."
            )
        # Half precision is too coarse for the logarithm of a sum over a vocabulary.
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _NextToken(TaskMeters[Tensor]):
    """Every token of every window counts alike: windows are of one length."""

    def __init__(self, device: torch.device, facts: Facts) -> None:
        self._means, self._bytes = Means(("loss", "top1"), device), facts.bytes_per_token

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        flat, wanted = predictions.flatten(0, 1), targets.flatten()
        loss = F.cross_entropy(flat, wanted, reduction="none")
        self._means.update({"loss": loss, "top1": flat.argmax(1) == wanted})

    def compute(self) -> dict[str, float | None]:
        found = self._means.compute()
        # The mean cannot be NaN here without being told of.
        perplexity = perplexity_of(found["loss"])
        bits = None if self._bytes is None else found["loss"] / math.log(2) / self._bytes
        return {**found, "perplexity": perplexity, "bits_per_byte": bits}
