"""A finished run without its gates: where only the run's task can build the network, as it is with
detectors, the file that is written belongs to the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from attnlab._errors import AttnlabError, FoldError
from attnlab._files import whole_file
from attnlab.lab.training.evaluate import evaluate
from attnlab.networks.backbones.weights import load_weights
from attnlab.networks.checkpoint import to_bytes
from attnlab.results import Metric, StoredRun
from attnlab.subject import Subject, open_run
from attnlab.subject.run import read_facts, untrained_network
from attnlab.surgery.answer import same_answers
from attnlab.surgery.folding import FoldReceipt, restructure
from attnlab.surgery.folding.fold import fold

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class FoldedRun:
    """The plain network of a finished run, and what folding did to its result."""

    folder: Path
    network: nn.Module
    receipt: FoldReceipt
    metrics: tuple[Metric, ...]
    before: Values
    """Metrics of the network with its gates, by name; empty where the data are not there."""
    after: Values
    note: str = ""
    """Why there are none."""

    def __str__(self) -> str:
        if self.note:
            return f"results not compared: {self.note}"
        width = max(len(metric.label) for metric in self.metrics)
        return "\n".join(
            f"{metric.label:<{width}}  {_shown(metric, self.before)} → {_shown(metric, self.after)}"
            for metric in self.metrics
        )

    def save(self, path: str | Path) -> Path:
        """Write the weights to `path` and the receipt beside them, if the network that
        `load_folded` builds answers as this one does, bit for bit."""
        path = Path(path)
        images = _images(self.folder).to(next(self.network.parameters()).device)
        with whole_file(path) as partial:
            partial.write_bytes(to_bytes(self.network, None))
            reread = _filled(self.folder, partial, self.receipt).to(images.device)
            if not same_answers(reread, self.network, images):
                raise FoldError(
                    "The file, read back, gives another output than the network, so it was not "
                    "written."
                )
        self.receipt.save(path.with_suffix(".fold.json"))
        return path


def fold_run(
    folder: str | Path, *, fuse: bool = False, add_affine: bool = False, trust: bool = False
) -> FoldedRun:
    """Fold the gates of a finished run, whatever its task, and compare its results with and
    without them if its data are there.

    Args:
        folder: of a finished run.
        fuse: as for `attnlab.fold`.
        add_affine: as for `attnlab.fold`.
        trust: whether classes that are not attnlab's, which the run names, may be imported.
    """
    folder = Path(folder)
    metrics = StoredRun(folder).result.metrics
    note = ""
    try:
        subject = open_run(folder, trust=trust)
    except AttnlabError as error:
        note = str(error)
        subject = open_run(folder, trust=trust, images=False)
    example = _images(folder).to(subject.device) if note else next(subject.inputs(2))
    plain, receipt = fold(subject.network, fuse=fuse, add_affine=add_affine, example=example)
    before = {} if note else _values(subject, subject.network)
    after = {} if note else _values(subject, plain)
    return FoldedRun(folder, plain, subject.sign(receipt), metrics, before, after, note)


def load_folded(folder: str | Path, path: str | Path) -> nn.Module:
    """The network that `FoldedRun.save`, or `attnlab fold` of the run in `folder`, wrote to
    `path`, in eval mode. Its receipt is read beside it."""
    path = Path(path)
    return _filled(Path(folder), path, FoldReceipt.load(path.with_suffix(".fold.json")))


def _filled(folder: Path, weights: Path, receipt: FoldReceipt) -> nn.Module:
    network = untrained_network(folder, gates=False).eval()
    restructure(
        network,
        removed=receipt.removed,
        affine=receipt.affine,
        fused=receipt.fused,
        example=_images(folder),
    )
    load_weights(network, weights)
    return network.eval()


def _images(folder: Path) -> torch.Tensor:
    """Noise of the size of the run's images, the same each time; detectors take it as a list."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(2, *read_facts(folder).shape, generator=generator)


def _values(subject: Subject, network: nn.Module) -> Values:
    return evaluate(
        network, subject.learned(), subject.images(), subject.batch_size, subject.device
    )


def _shown(metric: Metric, values: Values) -> str:
    value = values[metric.name]
    return "–" if value is None else metric.text(value)
