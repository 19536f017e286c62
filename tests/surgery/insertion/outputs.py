"""Small networks that answer in other ways than with one tensor of scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tests.surgery.insertion.networks import Branch
from torch import Tensor, nn
from torchvision.ops import nms


class Body(nn.Module):
    """Two residual steps and a head; `answer` makes the output of the head's."""

    input_size = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.blocks = nn.ModuleList(Branch() for _ in range(2))
        self.head = nn.Conv2d(8, 5, 1)

    def logits(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)

    def forward(self, x: Tensor) -> object:
        return self.answer(self.logits(x))

    def answer(self, logits: Tensor) -> object:
        return logits


class Dictionary(Body):
    def answer(self, logits):
        return {"logits": [logits], "classes": logits.argmax(1), "nothing": None, "name": "a"}


class Integers(Body):
    def answer(self, logits):
        return logits.argmax(1)


class Nothing(Body):
    def answer(self, logits):
        self.last = logits.sum()


class Empty(Body):
    def answer(self, logits):
        return logits[:0]


class Masked(Body):
    """-inf and NaN at fixed places."""

    def answer(self, logits):
        logits = logits.clone()
        logits[:, 0], logits[:, 1, 0] = -torch.inf, torch.nan
        return logits


class NowhereFinite(Body):
    def answer(self, logits):
        return torch.full_like(logits, torch.nan)


@dataclass
class Found:
    logits: Tensor
    count: int


class Dataclass(Body):
    def answer(self, logits):
        return Found(logits, 3)


class Longer(Body):
    """A list whose length depends on what is in it."""

    def answer(self, logits):
        return [logits] * (2 if float(logits.abs().max()) > self.least else 1)


class Detector(Body):
    """Boxes above a threshold, without those that overlap, then a layer on each."""

    def __init__(self) -> None:
        super().__init__()
        self.refine = nn.Linear(4, 4)
        self.threshold = 0.5

    def answer(self, logits):
        first = logits[0].flatten(1).t()
        scores = torch.sigmoid(first[:, 4])
        boxes, scores = first[scores > self.threshold], scores[scores > self.threshold]
        corners = torch.cat((boxes[:, :2], boxes[:, :2] + boxes[:, 2:4].exp()), 1)
        keep = nms(corners, scores, 0.5)
        return [{"boxes": self.refine(corners[keep]), "scores": scores[keep]}]
