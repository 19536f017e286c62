"""Three lines: a YOLO, gates, train."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from attnlab._errors import InputError
from attnlab.bridges.ultralytics._example import example_for
from attnlab.bridges.ultralytics._load import check_norms
from attnlab.bridges.ultralytics._transplant import start_of
from attnlab.bridges.ultralytics.keep import Kept
from attnlab.surgery.insertion.insert import REBUILT, insert
from attnlab.surgery.receipt import Receipt

if TYPE_CHECKING:
    from ultralytics import YOLO


def with_attention(model: YOLO, gate: Any, where: Any = None, **options: Any) -> Receipt:
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
    network = getattr(model, "model", None)
    if not isinstance(network, torch.nn.Module):
        raise InputError(
            f"Expected a YOLO whose network is a torch module but got one of "
            f"{type(network).__name__}: exported files take no gates. Put them in before export."
        )
    is_fused: Any = network.is_fused
    if is_fused():
        raise InputError(
            "The network is fused: its norms are gone, and it cannot be trained. Put gates in "
            'before fuse(), val(), predict() or export(): with_attention(YOLO("yolo11n.pt"), …).'
        )
    if options.get("trainable") is False:
        raise InputError(
            "Expected gates that train but got trainable=False: Ultralytics' trainers let all "
            "parameters train. Give freeze=[…] to train(): gates freeze with their layers."
        )
    gated: Any
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
