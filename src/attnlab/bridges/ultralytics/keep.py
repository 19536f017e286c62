"""What lets a network of Ultralytics keep its gates.

Their programs do two things to a network that gates do not survive by themselves. A trainer builds
the network anew from its YAML and copies weights by name, if there are any (`_load`, `_train`).
`fuse()`, which every validation and export calls, takes away the norms behind which gates may act
(`_fuse`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from attnlab._errors import InputError
from attnlab.bridges.ultralytics._fuse import fuses
from attnlab.bridges.ultralytics._load import loads
from attnlab.bridges.ultralytics._train import builds, sets_up, starts, trains

_OLDEST = (8, 4, 190)
"""The oldest version whose trainers and tuner were read and tried."""


class Kept:
    """What a network with gates carries. A file that holds it imports this module when it is read,
    so that the network keeps its gates there too."""

    start: Mapping[str, Mapping[str, Tensor]] = {}
    """The tensors of each gate at insertion, by the gate's name: where a training without the
    weights of the network begins. Files of older versions have none."""

    def __init__(self, receipt: str, start: Mapping[str, Mapping[str, Tensor]]) -> None:
        self.receipt = receipt
        self.start = start


def keep_gates() -> None:
    """Let all networks of Ultralytics keep their gates, from now on in this process."""
    import ultralytics
    from ultralytics.engine.model import Model
    from ultralytics.engine.trainer import BaseTrainer
    from ultralytics.nn.tasks import BaseModel

    if getattr(BaseModel.load, "keeps_gates", False):
        return
    _check_version(ultralytics.__version__)
    BaseModel.load = loads(BaseModel.load)
    # Subclasses have a fuse of their own that calls this one.
    BaseModel.fuse = fuses(BaseModel.fuse)
    Model.train = trains(Model.train)
    BaseTrainer.train = starts(BaseTrainer.train)
    BaseTrainer.setup_model = sets_up(BaseTrainer.setup_model)
    BaseTrainer._build_train_pipeline = builds(BaseTrainer._build_train_pipeline)


def _check_version(version: Any) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", str(version))[:3])
    if numbers < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InputError(
            f"Expected Ultralytics {oldest} or newer but got {version}, whose trainers may build a "
            f'network without its gates. pip install "ultralytics>={oldest}" installs one.'
        )
