"""Three lines: a YOLO, gates, train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.bridges.ultralytics.keep import Kept
from attnlab.insert import Receipt, insert

if TYPE_CHECKING:
    from ultralytics import YOLO

_SIZE = 64
"""Pixels of the example: the smallest that the strides of these networks divide evenly twice."""


def with_attention(model: YOLO, gate: Any, where: Any = None, **options: Any) -> Receipt:
    """Put gates into an Ultralytics model, as `attnlab.insert` does; return the receipt.

    The model is changed itself: `model.train(...)`, `val`, `predict`, `export`, `save` then have
    the gates. All weights that it has are kept. The receipt also goes into the folder of every
    training, as `attention.txt`.

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
    gated: Any
    gated, receipt = insert(network, gate, where, example=example_for(network), **options)
    gated.attention = Kept(str(receipt))
    model.model = gated
    # Their trainer builds the network anew and copies weights if there were any to begin with.
    model.ckpt = model.ckpt or {"model": gated}
    model.predictor = None
    model.add_callback("on_pretrain_routine_end", _write_receipt)
    return receipt


def example_for(network: torch.nn.Module) -> torch.Tensor:
    """An image of noise, the same each time."""
    channels = int(getattr(network, "yaml", {}).get("channels", 3))
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(1, channels, _SIZE, _SIZE, generator=generator)
    parameter = next(network.parameters())
    return images.to(parameter.device, parameter.dtype)


def _write_receipt(trainer: Any) -> None:
    kept = getattr(trainer.model, "attention", None) or getattr(
        getattr(trainer.model, "module", None), "attention", None
    )
    if kept is not None:
        write_whole(Path(trainer.save_dir) / "attention.txt", f"{kept.receipt}\n")
