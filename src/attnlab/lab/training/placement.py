"""Where the gates of a run go, when `where` is a word that asks for a measurement.

The measurement is made of another run, the *source*, which differs from this one in nothing but its
gates: for `stiffest` and `softest` the plain backbone, for `spread` the network with gates
everywhere, both with the same seed, data and recipe to the last epoch. So the budget is equal, the
images are training images, and the choice is a function of the run's settings alone. That this is
what the words mean is ours; the papers search, or do not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from attnlab._errors import SelectionError
from attnlab._files import write_whole
from attnlab.data import Data
from attnlab.data.batches import training_chunks
from attnlab.instruments.place import place_by_word
from attnlab.lab.training.config import WITHOUT_GATES, RunConfig
from attnlab.lab.training.surroundings import deterministically
from attnlab.residuals.where import measured_word, split_inside
from attnlab.results import StoredRun
from attnlab.results.result import FILE, PlacementRecord
from attnlab.subject.run import load_network as load_network
from attnlab.tasks import build_task


def source_config(config: RunConfig) -> RunConfig | None:
    """The run that `where` is chosen from; None where it needs no measurement."""
    where = config.asks_for_measurement
    if where is None:
        return None
    if measures_gates(where):
        return config.model_copy(update={"where": None})
    return config.model_copy(update=WITHOUT_GATES)


def stand_in_config(config: RunConfig) -> RunConfig:
    """A run of the same cost whose blocks are known: to estimate, or to look at the network."""
    where = config.asks_for_measurement
    found = measured_word(where)
    if where is None or found is None:
        return config
    module, _ = split_inside(where)
    text = f"random:{found[1]}@0"
    return config.model_copy(update={"where": text if module is None else f"in:{module} {text}"})


def measures_gates(where: str) -> bool:
    found = measured_word(where)
    return found is not None and found[0] == "spread"


IMAGES = 512
"""Training images that are measured, in the order and with the augmentation of the first epoch."""
_PLAIN = "the plain backbone of the same seed, data and recipe, after its last epoch"
_FULL = "the network with gates everywhere, of the same seed, data and recipe, after its last epoch"


def choose_placement(
    config: RunConfig, folder: Path, source: Path, run_id: str, data: Data, threads: int | None
) -> PlacementRecord:
    """Measure the finished run in `source` and write down what its word chooses; once per run."""
    before = StoredRun(folder).placement  # made again where the file is damaged
    if before is not None and before.source == run_id and before.word == config.where:
        return before
    where = config.asks_for_measurement
    assert where is not None
    with deterministically(threads):
        network = load_network(source)
        try:
            found = place_by_word(network, where, _Images(config, data))
        except SelectionError as error:
            raise SelectionError(f"where={where!r}: {error}") from None
    record = PlacementRecord(
        word=where,
        where=found.where,
        source=run_id,
        source_is=_FULL if measures_gates(where) else _PLAIN,
        images=found.images,
        quantity=found.quantity,
        scores={block.label: block.score for block in found.blocks},
        reasons=tuple(found.reasons()),
    )
    write_whole(folder / FILE, record.model_dump_json(indent=1) + "\n")
    return record


class _Images:
    """Batches of training images; the same each time it is gone through."""

    def __init__(self, config: RunConfig, data: Data) -> None:
        self.config, self.data = config, data

    def __iter__(self) -> Iterator[Any]:
        config, data = self.config, self.data
        chunks = training_chunks(data.order(config.seed, 0), config.recipe)
        wanted = -(-IMAGES // config.recipe.batch_size)
        task = build_task(config.task, data.facts)
        for batch in data.training(chunks[:wanted], config.seed, 0, torch.device("cpu")):
            yield task.inputs(batch)
