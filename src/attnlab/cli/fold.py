"""`attnlab fold`: from a trained network with gates to the plain one, on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab._checked import check_whole
from attnlab._errors import OptionError, WeightsError
from attnlab.cli._networks import images_line
from attnlab.cli._show import print_python

if TYPE_CHECKING:
    from torch import nn

    from attnlab.checkpoint import Description
    from attnlab.fold import FoldReceipt

_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")


def fold(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT|NAME")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])],
    model: str | None = None,
    gate: str | None = None,
    num_classes: int | None = None,
    where: tuple[str, ...] = (),
    start: Literal["paper", "identity"] = "paper",
    place: Literal["auto", "branch", "norm"] = "branch",
    size: int | None = None,
    weights: str | None = None,
    fuse: bool = False,
    constants: str | None = None,
    limit: int = 256,
    tolerance: float = 0.1,
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
    results with and without gates are shown where its data are there, and the file belongs to the
    run: attnlab.measure.load_folded reads it.

    Examples:
      attnlab fold runs/RUN -o plain.safetensors
      attnlab fold asr.safetensors --model resnet164 --gate asr:se -o plain.safetensors --fuse
      attnlab fold asr.pt --model timm:resnet50 --gate asr:se -o plain.safetensors --onnx plain.onnx
      attnlab fold timm:repvgg_a0 --weights pretrained --fuse -o fast.safetensors
      attnlab fold timm:efficientnet_b0 --weights pretrained --constants PHOTOS -o plain.safetensors

    Args:
        source: a folder of `attnlab study`, a file of weights, or a network (timm:NAME, ...).
        output: the .safetensors file to write.
        model: the network of a file that does not say it.
        gate: the gate that was inserted before that file was trained.
        num_classes: of the network.
        where: as given to insert: stages:1,3 | blocks:0,5 | every:2 | norms | in:module | module
            names.
        start: as given to insert.
        place: as given to insert, whose own default is auto.
        size: side of the images; what the network says of itself if left out.
        weights: of a network given by name: a file, timm's "pretrained", torchvision's "DEFAULT".
        fuse: also merge norms and re-parameterisable branches, for the fastest network.
        constants: replace gates by their mean over these images: a folder, digits, cifar10, fake.
        limit: on how many images.
        tolerance: keep gates whose spread, or effect on the output, is larger.
        partial: keep gates that cannot be folded instead of refusing.
        add_affine: give norms without affine parameters some where nothing else takes a gate.
        onnx: also write an ONNX file, compared with onnxruntime.
        sites: print one line per site.
        trust: import classes of yours that a file of weights names; of a run's folder, always.
    """
    import torch

    from attnlab.checkpoint import Description, describe
    from attnlab.cli._fold_run import fold_task_run
    from attnlab.cli._provenance import of_file
    from attnlab.fold import fold as fold_network
    from attnlab.insert.where import parse_where

    _check_output(output, onnx)
    for name, value in (("--size", size), ("--limit", limit), ("--num-classes", num_classes)):
        if value is not None:
            check_whole(name, value, 1)
    if Path(source).is_dir() and describe(source) is None:
        about_gates = bool(gate or where) or start != "paper" or place != "branch"
        others = {
            "--model": model is not None,
            "--gate, --where, --start or --place": about_gates,
            "--num-classes": num_classes is not None,
            "--size": size is not None,
            "--weights": weights is not None,
            "--constants": constants is not None,
            "--partial": partial,
            "--onnx": onnx is not None,
        }
        fold_task_run(Path(source), output, {"fuse": fuse, "add_affine": add_affine}, others, sites)
        return
    given = Description(
        model or "",
        num_classes,
        gate=gate,
        where=parse_where(" ".join(where) or None),
        start=start,
        input_size=None if size is None else [3, size, size],
        place=place,
    )
    torch.manual_seed(0)
    network, description, lines = _network(source, given, weights, trust)
    network.eval()
    options: dict[str, bool] = {"fuse": fuse, "partial": partial, "add_affine": add_affine}
    words = [f"{name}=True" for name, wanted in options.items() if wanted]
    data = None
    if constants is not None:
        from attnlab.data import images_for

        loading = {"limit": limit, "batch": 32, "size": description.input_size}
        data = images_for(network, constants, limit=limit, batch=32, size=description.input_size)
        words += ["constants=loader", f"tolerance={tolerance}"]
        lines += ["from attnlab.data import images_for", images_line(constants, **loading)]
    plain, receipt = fold_network(
        network,
        **options,
        constants=data,
        tolerance=tolerance,
        example=description.example(network),
    )
    print(receipt)
    if sites:
        print(receipt.table())
    _write(plain, description.after_fold(plain, receipt), output, onnx)
    source_of = of_file(source, description.model, description.gate, weights)
    _write_receipt(replace(receipt, provenance=source_of), output)
    print()
    arguments = ", ".join(["network", *words, "example=description.example(network)"])
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
        "from attnlab.fold.onnx import export_onnx",
        f"export_onnx(plain, description.example(plain, batch=2), {str(onnx)!r})",
    ]


def _check_output(output: Path, onnx: Path | None) -> None:
    if output.suffix != ".safetensors":
        raise OptionError(f"Expected -o to end in .safetensors but got {str(output)!r}.")
    for path in (output, onnx):
        if path is not None and not path.parent.is_dir():
            raise WeightsError(f"There is no folder {str(path.parent)!r} to write to.")


def _network(
    source: str, given: Description, weights: str | None, trust: bool
) -> tuple[nn.Module, Description, list[str]]:
    """The network that `source` names, with its weights, how to build it, and the Python for it."""
    path = Path(source)
    if path.is_dir() or path.is_file():
        if weights is not None:
            raise OptionError("--weights is for a network given by name; the file has its own.")
        return _of_file(path, given, trust)
    if path.suffix in _SUFFIXES:
        raise WeightsError(f"There is no file of weights at {source!r}.")
    if given.model or _about_gates(given):
        raise OptionError(
            f"--model, --gate, --where, --start and --place describe a file of weights, and "
            f"{source!r} is none."
        )
    return _of_name(source, given, weights)


def _of_name(
    name: str, given: Description, weights: str | None
) -> tuple[nn.Module, Description, list[str]]:
    from attnlab.create import create

    description = replace(given, model=name)
    network = create(name, given.num_classes, weights)
    classes = "" if given.num_classes is None else f", {given.num_classes}"
    file = "" if weights is None else f", weights={weights!r}"
    seed = ["import torch", "torch.manual_seed(0)"] if weights is None else []
    lines = [
        *seed,
        f"description = attnlab.checkpoint.{description.shown()}",
        f"network = attnlab.create({name!r}{classes}{file}).eval()",
    ]
    return network, description, lines


def _of_file(
    path: Path, given: Description, trust: bool
) -> tuple[nn.Module, Description, list[str]]:
    """By what the options say, else by what the file or the run's folder says."""
    from attnlab.checkpoint import describe, load

    if given.model:
        made = f"description = attnlab.checkpoint.{given.shown()}"
        read = f"network = attnlab.load({str(path)!r}, description)"
        return load(path, given), given, [made, read]
    if _about_gates(given) or given.num_classes is not None:
        raise OptionError(
            "--gate, --where, --start, --place and --num-classes need --model, the network they "
            "belong to."
        )
    description = describe(path)
    if description is None:
        raise WeightsError(
            f"{str(path)!r} does not say which network it belongs to. Pass it, for example: "
            f"--model resnet164 --gate asr:se --num-classes 100."
        )
    # A run's folder is trusted as its settings are, which name the classes that it trained.
    network = load(path, trust=trust or path.is_dir())
    trusted = ", trust=True" if description.own_classes else ""
    lines = [
        f"description = attnlab.checkpoint.describe({str(path)!r})",
        f"network = attnlab.load({str(path)!r}{trusted})",
    ]
    if given.input_size is not None:
        description = replace(description, input_size=given.input_size)
        other = f"replace(description, input_size={given.input_size})"
        lines += ["from dataclasses import replace", f"description = {other}"]
    return network, description, lines


def _about_gates(given: Description) -> bool:
    changed = given.gate is not None or given.where is not None
    return changed or given.start != "paper" or given.place != "branch"


def _write(plain: nn.Module, described: Description, output: Path, onnx: Path | None) -> None:
    """Write beside the final places, read back and compare, and only then put in place."""
    import torch

    from attnlab._errors import FoldError
    from attnlab._files import whole_file
    from attnlab.checkpoint import load, to_bytes
    from attnlab.fold.onnx import export_onnx
    from attnlab.insert.answer import leaves

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
    from attnlab.report.write import write_file_page

    file = receipt.save(output.with_suffix(".fold.json"))
    print(f"wrote {file} and {write_file_page(file, file.with_suffix('.html'))}")
