"""Hidden tokens of a text, as encoders learn."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from attnlab._errors import OptionError
from attnlab.data import Data, Facts
from attnlab.data.masked import MaskedTokens
from attnlab.results.metric import Metric
from attnlab.tasks.language import Language, TokenMeters
from attnlab.tasks.task import TaskMeters

_metric = partial(Metric, sample="window")


class Masked(Language):
    """Cross-entropy of tokens that are hidden, from the text on both sides of them; the result is
    its mean over the validation text.

    The network has one token more than the text, the mask, and looks at all tokens of a window.

    Args:
        facts: of the text.
        share: of the tokens of a window that are asked for.
    """

    metrics = (
        _metric(
            name="loss", label="validation loss", unit="nats", better="lower", least=0, digits=4
        ),
        _metric(name="perplexity", label="perplexity", better="lower", least=1, digits=3),
        _metric(name="top1", label="top-1", unit="%", scale=100, least=0, most=1),
    )
    yardstick_options = ("share",)
    looks_ahead = True

    def __init__(self, facts: Facts, share: float = 0.15) -> None:
        super().__init__(facts)
        if not 0 < share < 1:
            raise OptionError(f"Expected share to be between 0 and 1 but got {share!r}.")
        self.share = share

    @property
    def num_classes(self) -> int:
        return self.facts.outputs + 1

    def prepared(self, data: Data) -> Data:
        return MaskedTokens(data, self.share, mask=self.facts.outputs)

    def meters(self, device: torch.device) -> TaskMeters[Tensor]:
        return TokenMeters(device)
