"""`attnlab fold`: from a trained network with gates to the plain one, on disk."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from attnlab._checked import check_whole
from attnlab._errors import OptionError, WeightsError
from attnlab.cli._constants import accuracy, images, in_flags, own_gates, print_plan
from attnlab.cli._fold_source import named_network
from attnlab.cli._repair import resumable
from attnlab.cli._show import print_python

if TYPE_CHECKING:
    from torch import nn

    from attnlab.networks.checkpoint import Description
    from attnlab.surgery.folding import FoldReceipt


def fold(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT|NAME")],
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    model: str | None = None,
    gate: str | None = None,
    num_classes: int | None = None,
    where: tuple[str, ...] = (),
    start: Literal["paper", "identity"] = "paper",
    place: Literal["auto", "branch", "norm"] = "branch",
    shared: bool = False,
    size: int | None = None,
    weights: str | None = None,
    fuse: bool = False,
    constants: str | None = None,
    limit: int = 256,
    tolerance: float | None = None,
    budget: float | Literal["all"] | None = None,
    cost: Literal["output", "answers", "loss", "accuracy"] = "output",
    plan: bool = False,
    gates: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CLASS=SUBMODULE")] = (),
    repair: Literal["distil"] | None = None,
    epochs: int | None = None,
    moving: Literal["taken", "all"] | None = None,
    partial: bool = False,
    add_affine: bool = False,
    onnx: Path | None = None,
    sites: bool = False,
    trust: bool = False,
) -> None:
    """Fold the gates of a trained network into its layers; write the plain network.

    The file is written only after it was read back into the network it belongs to and gave the
    same output. Its receipt is written beside it, as NAME.fold.json and NAME.fold.html. Nothing is
    ever unpickled. Of a run whose network only its task can build, such as a detector, the
    results with and without gates are shown where its data are present, and the file belongs to the
    run: attnlab.lab.measures.load_folded reads it. A repair that was stopped goes on when the same
    command is given again: its checkpoints are in NAME.repair until the file is written.

    Examples:
      attnlab fold runs/RUN -o plain.safetensors
      attnlab fold asr.safetensors --model resnet164 --gate asr:se -o plain.safetensors --fuse
      attnlab fold asr.pt --model timm:resnet50 --gate asr:se -o plain.safetensors --onnx plain.onnx
      attnlab fold timm:repvgg_a0 --weights pretrained --fuse -o fast.safetensors
      attnlab fold timm:efficientnet_b0 --weights pretrained --constants PHOTOS -o plain.safetensors
      attnlab fold timm:efficientnet_b0 --weights mine.pth --constants PHOTOS --plan
      attnlab fold runs/RUN --constants run --budget 0.02 --cost answers -o plain.safetensors
      attnlab fold runs/RUN --constants run --budget all --repair distil -o plain.safetensors

    Args:
        source: a folder of `attnlab study`, a file of weights, or a network (timm:NAME, ...).
        output: the .safetensors file to write.
        model: the network of a file that does not name it.
        gate: the gate that was inserted before that file was trained.
        num_classes: of the network.
        where: as given to insert: stages:1,3 | blocks:0,5 | every:2 | code:1001 | random:1@0 |
            norms | in:module | module names.
        start: as given to insert.
        place: as given to insert, whose own default is auto.
        shared: as given to insert: one gate for all chosen blocks of a stage.
        size: side of the images; what the network says about itself if left out.
        weights: of a network given by name: a file, timm's "pretrained", torchvision's "DEFAULT".
        fuse: also merge norms and re-parameterisable branches, for the fastest network.
        constants: replace gates by constants from these images: a folder, digits, cifar10, fake, or
            run, the test images of a run's folder.
        limit: on how many images.
        tolerance: keep gates whose spread, or effect on the output, is larger; 0.1 if neither this
            nor --budget is given.
        budget: replace as many gates as keep the predicted cost within this; all: whatever it
            costs. Half of the images choose, the other half measure.
        cost: what --budget limits: relative change of the output, share of answers that change, or,
            where the images have classes, rise of the loss or fall of the accuracy.
        plan: print what would go at each budget, and write nothing.
        gates: attention classes of the network itself that attnlab does not know, each with the
            submodule that returns its gate, for example SELayer=fc.
        repair: with --budget, let the original teach the folded network on the images that chose.
        epochs: of the repair; 10 if left out.
        moving: in the repair: norms and the layers that took constants, or all layers.
        partial: keep gates that cannot be folded instead of refusing.
        add_affine: give norms without affine parameters some where nothing else takes a gate.
        onnx: also write an ONNX file, compared with onnxruntime.
        sites: print one line per site.
        trust: import classes of yours that a file of weights names; for a run's folder, always.
    """
    import torch

    from attnlab.cli._fold_run import fold_task_run, refuse_others
    from attnlab.cli._provenance import of_file
    from attnlab.networks.checkpoint import Description, describe
    from attnlab.residuals.where import parse_where
    from attnlab.surgery.folding.fold import fold as fold_network

    _check_output(output, onnx, plan)
    for name, value in (("--size", size), ("--limit", limit), ("--num-classes", num_classes)):
        if value is not None:
            check_whole(name, value, 1)
    if Path(source).is_dir() and describe(source) is None:
        about_gates = bool(gate or where or shared) or start != "paper" or place != "branch"
        others = {
            "--model": model is not None,
            "--gate, --where, --start, --place or --shared": about_gates,
            "--num-classes": num_classes is not None,
            "--size": size is not None,
            "--weights": weights is not None,
            "--plan": plan,
            "--constants": constants is not None,
            "--tolerance, --budget or --cost": tolerance is not None
            or budget is not None
            or cost != "output",
            "--gates": bool(gates),
            "--repair": repair is not None,
            "--partial": partial,
            "--onnx": onnx is not None,
        }
        refuse_others(Path(source), others)
        assert output is not None  # or --plan, which is refused
        fold_task_run(Path(source), output, {"fuse": fuse, "add_affine": add_affine}, sites)
        return
    given = Description(
        model or "",
        num_classes,
        gate=gate,
        where=parse_where(" ".join(where) or None),
        start=start,
        input_size=None if size is None else [3, size, size],
        place=place,
        shared=shared,
    )
    torch.manual_seed(0)
    network, description, lines = named_network(source, given, weights, trust)
    network.eval()
    options: dict[str, Any] = {"fuse": fuse, "partial": partial, "add_affine": add_affine}
    options = {name: True for name, wanted in options.items() if wanted}
    own = own_gates(gates)
    if own:
        options["gates"] = own
    data = None
    if constants is not None:
        data = images(network, description, source, constants, limit)
        lines += data.lines
        print(f"images: {data.said}")
    example = "example=description.example(network)"
    if plan:
        if data is None:
            raise OptionError("--plan is for gates that are made constant: give --constants DATA.")
        print_plan(network, description, data, cost, budget, options, lines)
        return
    assert output is not None
    given_too = {"tolerance": tolerance, "budget": budget}
    options |= {name: value for name, value in given_too.items() if value is not None}
    if cost != "output":
        options["cost"] = cost
    words = [f"{name}={value!r}" for name, value in options.items()]
    settings = {n: v for n, v in (("epochs", epochs), ("moving", moving)) if v is not None}
    if settings and repair is None:
        raise OptionError(
            "--epochs and --moving belong to the repair: give --repair distil as well."
        )
    if repair is not None:
        from attnlab.surgery.repair import Distil

        options["repair"] = Distil(**settings)  # type: ignore[arg-type]
        lines.append("from attnlab.surgery.repair import Distil")
        shown = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        words.append(f"repair=Distil({shown})")
    if data is not None:
        words.insert(0, "constants=loader")
    resuming: AbstractContextManager[dict[str, Any]] = nullcontext({})
    if repair is not None:
        resuming = resumable(output, options["repair"].epochs)
    with resuming as kept:
        with in_flags():
            plain, receipt = fold_network(
                network,
                **options,
                **kept,
                constants=None if data is None else data.batches,
                example=description.example(network),
            )
        print(receipt)
        if data is not None and data.labelled and receipt.curve is None:
            before, after = (accuracy(each, data.batches) for each in (network, plain))
            print(f"  accuracy    {before:.2%} → {after:.2%} on the images of --constants")
        if sites:
            print(receipt.table())
        _write(plain, description.after_fold(plain, receipt), output, onnx)
        source_of = of_file(source, description.model, description.gate, weights)
        _write_receipt(replace(receipt, provenance=source_of), output)
    print()
    arguments = ", ".join(["network", *words, example])
    print_python(
        "import attnlab",
        *lines,
        f"plain, receipt = attnlab.fold({arguments})",
        "description = description.after_fold(plain, receipt)",
        f"attnlab.save(plain, {str(output)!r}, description)",
        *([] if onnx is None else _onnx_lines(onnx)),
    )


def _onnx_lines(onnx: Path) -> list[str]:
    return [
        "from attnlab.surgery.folding.onnx import export_onnx",
        f"export_onnx(plain, description.example(plain, batch=2), {str(onnx)!r})",
    ]


def _check_output(output: Path | None, onnx: Path | None, plan: bool) -> None:
    if output is None:
        if plan:
            return
        raise OptionError("Expected where to write: -o NAME.safetensors; or --plan, to look only.")
    if output.suffix != ".safetensors":
        raise OptionError(f"Expected -o to end in .safetensors but got {str(output)!r}.")
    for path in (output, onnx):
        if path is not None and not path.parent.is_dir():
            raise WeightsError(f"There is no folder {str(path.parent)!r} to write to.")


def _write(plain: nn.Module, described: Description, output: Path, onnx: Path | None) -> None:
    """Write beside the final places, read back and compare, and only then put in place."""
    import torch

    from attnlab._errors import FoldError
    from attnlab._files import whole_file
    from attnlab.networks.checkpoint import load, to_bytes
    from attnlab.surgery.answer import leaves
    from attnlab.surgery.folding.onnx import export_onnx

    images = described.example(plain, batch=2)
    with whole_file(output) as partial:
        partial.write_bytes(to_bytes(plain, described))
        reread = load(partial, trust=True)  # its classes made the network, so they are imported
        with torch.no_grad():
            first, second = (dict(leaves(network(images))) for network in (reread, plain))
            same = first.keys() == second.keys()
            if not (same and all(torch.equal(first[path], second[path]) for path in first)):
                raise FoldError(
                    "The file, read back, gives another output than the network, so it was not "
                    "written."
                )
        if onnx is not None:
            change = export_onnx(plain, images, onnx)
            print(f"wrote {onnx} (onnxruntime differs by {change:.1e}, relative)")
    print(f"wrote {output} (read back: the same output, bit for bit)")


def _write_receipt(receipt: FoldReceipt, output: Path) -> None:
    """Beside the weights, as data and as a page."""
    from attnlab.cli._fold_run import print_written

    print_written(receipt.save(output.with_suffix(".fold.json")))
