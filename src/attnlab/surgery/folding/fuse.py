"""Re-parameterisation: merge what inference does not need apart, in any network, with a receipt."""

from __future__ import annotations

from time import perf_counter

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._checked import check_module, check_values
from attnlab._errors import FoldError
from attnlab.residuals.example import Example
from attnlab.surgery.double import copied
from attnlab.surgery.folding._checks import check_foldable
from attnlab.surgery.folding._fuse import Merged, merge_in_double
from attnlab.surgery.folding._surgery import decide
from attnlab.surgery.folding._verify import check_exact
from attnlab.surgery.folding.fuse_receipt import FuseReceipt, Kind, LayerLeft, MergedLayer
from attnlab.surgery.history import FoldedOrFused, record_event, record_start
from attnlab.surgery.insertion import attachments
from attnlab.surgery.ordinary import making_ordinary_tensors
from attnlab.surgery.original import Original

ONLY_EVAL = "it is for eval mode only, and its keys are not the original's"
_NOTHING = "there is nothing to merge: no BatchNorm next to a layer, no branches, no scales"


@making_ordinary_tensors
def fuse(
    model: nn.Module, *, example: Example | None = None, inplace: bool = False
) -> tuple[nn.Module, FuseReceipt]:
    """Merge norms, parallel branches and scales into the layers next to them (re-parameterisation,
    Conv+BN fusion); return the fast network, for eval mode, and a receipt.

    Blocks that know how to merge themselves do (RepVGG, MobileOne, RepViT, FastViT, RepGhost, DBB
    and others of timm, Ultralytics or your own, by `fuse`, `reparameterize` or `switch_to_deploy`),
    if their own method leaves their output as it is. Any other module that is a sum of linear
    branches becomes one convolution, BatchNorm goes into the layer before or after it, and
    LayerScale into the layer before. All is computed in float64 and rounded once; a network whose
    output would change is not handed out. What stays is named in the receipt, with the reason.

    Args:
        model: any network; it is not changed unless `inplace=True`.
        example: an input to run the network on; random numbers of its size if left out.
        inplace: change `model` itself.
    """
    check_module(model)
    check_values("fuse", fuse, {"inplace": inplace})
    check_foldable(model)
    _refuse_gates(model)
    began = perf_counter()
    original = Original.of(model, example, began)
    graph = original.run.graph
    nothing = decide(model, graph, [], example, partial=False, may_add_affine=False)
    _, change, notes = check_exact(model, nothing, original, fuse=True)
    norms, layers = _norms(model), _layers(model)
    network = model if inplace else copied(model)
    record_start(network, example)
    merged = merge_in_double(network, example)
    record_event(network, FoldedOrFused(fused=True))
    after = original.answer_of(network)
    rows = _rows(merged)
    notes.append(ONLY_EVAL if rows else _NOTHING)
    return network, FuseReceipt(
        action=f"fused {type(model).__name__}",
        sites=tuple(row.name for row in rows),
        notes=tuple(notes),
        merged=rows,
        left=tuple(LayerLeft(name, reason) for name, reason in merged.left),
        norms_before=norms,
        norms_after=_norms(network),
        layers_before=layers,
        layers_after=_layers(network),
        float64_change=change,
        **original.figures(network, after, None if original.work_depends_on_values else after.macs),
    )


def _refuse_gates(model: nn.Module) -> None:
    gates = [name for name, _ in attachments(model)]
    if gates:
        raise FoldError(
            f"{type(model).__name__} has {len(gates)} inserted gates, which merging would lose. "
            f"Fold them and fuse in one go: attnlab.fold(network, fuse=True)."
        )


def _rows(merged: Merged) -> tuple[MergedLayer, ...]:
    found: dict[Kind, tuple[str, ...]] = {
        "block": merged.blocks,
        "branches": merged.branches,
        "norm": merged.norms,
        "scale": merged.scales,
    }
    return tuple(MergedLayer(name, kind) for kind, names in found.items() for name in names)


def _norms(network: nn.Module) -> int:
    return sum(isinstance(module, _BatchNorm) for module in network.modules())


def _layers(network: nn.Module) -> int:
    return sum(bool(m._parameters or m._buffers) for m in network.modules())
