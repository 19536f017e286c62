"""Put gates into a YOLO of Ultralytics, and let its network keep them.

Their programs do two things to a network that gates do not survive by themselves. A trainer builds
the network anew from its YAML and copies weights by name, if there are any (`loads`, and `_train`).
`fuse()`, which every validation and export calls, takes away the norms after which gates may act:
constant gates are folded first, the others move to the convolutions that take the norms' place.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnlab._errors import FoldError, InputError
from attnlab.bridges.ultralytics._train import builds, sets_up, starts, trains
from attnlab.bridges.ultralytics._transplant import check_norms, example_for, loads, start_of
from attnlab.residuals import Attachment
from attnlab.residuals.where import Where
from attnlab.surgery.folding.fold import fold
from attnlab.surgery.insertion import attachments, remove_attachments
from attnlab.surgery.insertion.host import hang
from attnlab.surgery.insertion.insert import REBUILT, insert
from attnlab.surgery.receipt import Receipt

if TYPE_CHECKING:
    from ultralytics import YOLO
    from ultralytics.nn.tasks import BaseModel


def fuses(fuse: Callable[..., BaseModel]) -> Callable[..., BaseModel]:
    """Return their `BaseModel.fuse`, with gates."""

    @wraps(fuse)
    def fuse_with_gates(self: BaseModel, *args: object, **kwargs: object) -> BaseModel:
        if self.is_fused() or not dict(attachments(self)):
            return fuse(self, *args, **kwargs)
        network = _folded(self)
        moved = list(_take_off(network))
        fused = fuse(network, *args, **kwargs)
        for gate in moved:
            hang(fused, gate)
        return fused

    return fuse_with_gates


def _folded(network: BaseModel) -> BaseModel:
    """Fold the gates that are constant, and say so in their log."""
    from ultralytics.utils import LOGGER

    before = len(dict(attachments(network)))
    try:
        plain, receipt = fold(network, partial=True, example=example_for(network))
    except FoldError:  # none of them is constant
        return network
    LOGGER.info(
        f"attnlab: {len(receipt.sites)} of {before} gates folded into the layers before them, "
        f"relative change of the output in float64 {receipt.float64_change:.1e}"
    )
    return plain


def _take_off(network: nn.Module) -> Iterator[Attachment]:
    """Take off the gates after norms that a fusion takes away; they then act after the fused
    convolution."""
    moved = {}
    for name, gate in attachments(network):
        module = gate.site.module
        block, _, last = module.rpartition(".")
        if last == "bn" and gate.site.host == "output":
            kind = "conv" if hasattr(network.get_submodule(block), "conv") else "conv_transpose"
            moved[name] = (gate, replace(gate.site, module=f"{block}.{kind}"))
    stay = frozenset(name for name, _ in attachments(network)) - moved.keys()
    copies = {name: copy.deepcopy(gate) for name, (gate, _) in moved.items()}
    remove_attachments(network, keep=stay)
    for name, (_, site) in moved.items():
        copies[name].site = site
        yield copies[name]


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
    # Subclasses have their own fuse that calls this one.
    BaseModel.fuse = fuses(BaseModel.fuse)
    Model.train = trains(Model.train)
    BaseTrainer.train = starts(BaseTrainer.train)
    BaseTrainer.setup_model = sets_up(BaseTrainer.setup_model)
    BaseTrainer._build_train_pipeline = builds(BaseTrainer._build_train_pipeline)


def _check_version(version: str) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", str(version))[:3])
    if numbers < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InputError(
            f"Expected Ultralytics {oldest} or newer but got {version}, whose trainers may build a "
            f'network without its gates. pip install "ultralytics>={oldest}" installs one.'
        )


def with_attention(
    model: YOLO, gate: str | Callable[[int], nn.Module], where: Where = None, **options: Any
) -> Receipt:
    """Put gates into an Ultralytics model, as `attnlab.insert` does; return the receipt.

    The model itself is changed: `model.train(...)`, `val`, `predict`, `export`, `save` then have
    the gates. All weights that it has are kept. A training that begins without these weights
    (`pretrained=False`, or another file) begins with the gates as they are now. The receipt also
    goes into the folder of every training, as `attention.txt`.

    Args:
        model: `YOLO("yolo11n.pt")`; detect, segment, classify, pose or obb.
        gate: a name such as `"se"` or `"asr:se"`, or a class.
        where: which steps, as for `attnlab.insert`.
        options: `start`, `place` and those of the gate.
    """
    network = _trainable_network(model)
    if options.get("trainable") is False:
        raise InputError(
            "Expected gates that train but got trainable=False: Ultralytics' trainers let all "
            "parameters train. Give freeze=[…] to train(): gates freeze with their layers."
        )
    gated: BaseModel
    gated, receipt = insert(network, gate, where, example=example_for(network), **options)
    receipt = replace(receipt, notes=tuple(note for note in receipt.notes if note != REBUILT))
    check_norms(gated)
    before = getattr(network, "attention", Kept("", {}))
    gated.attention = Kept(
        f"{before.receipt}\n{receipt}".lstrip(), {**start_of(gated), **before.start}
    )
    model.model = gated
    # Their trainer builds the network anew and copies weights if there were any to begin with.
    model.ckpt = model.ckpt or {"model": gated}
    model.predictor = None
    return receipt


def _trainable_network(model: YOLO) -> BaseModel:
    network = getattr(model, "model", None)
    if not isinstance(network, torch.nn.Module):
        raise InputError(
            f"Expected a YOLO whose network is a torch module but got one of "
            f"{type(network).__name__}: exported files take no gates. Put them in before export."
        )
    found: BaseModel = network
    if found.is_fused():
        raise InputError(
            "The network is fused: its norms are gone, and it cannot be trained. Put gates in "
            'before fuse(), val(), predict() or export(): with_attention(YOLO("yolo11n.pt"), …).'
        )
    return found
