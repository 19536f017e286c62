"""`attnlab fold`: from a trained network with gates to the plain one, on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab._errors import OptionError, WeightsError
from attnlab.cli._show import print_python

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from attnlab.fold import FoldReceipt
    from attnlab.fold.checkpoint import Description

_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")


def fold(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT|NAME")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])],
    model: str | None = None,
    gate: str | None = None,
    num_classes: int | None = None,
    where: tuple[str, ...] = (),
    start: Literal["paper", "identity"] = "paper",
    size: int | None = None,
    weights: str | None = None,
    fuse: bool = False,
    constants: str | None = None,
    limit: int = 256,
    tolerance: float = 0.1,
    partial: bool = False,
    onnx: Path | None = None,
    sites: bool = False,
) -> None:
    """Fold the gates of a trained network into its layers; write the plain network.

    The file is written only after it was read back into the network it belongs to and gave the
    same output. Its receipt is written beside it, as NAME.fold.json and NAME.fold.html. Nothing is
    ever unpickled.

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
        where: as given to insert: stages:1,3 | blocks:0,5 | every:2 | norms | module names.
        start: as given to insert.
        size: side of the images; what the network says of itself if left out.
        weights: of a network given by name: a file, timm's "pretrained", torchvision's "DEFAULT".
        fuse: also merge norms and re-parameterisable branches, for the fastest network.
        constants: replace gates by their mean over these images: a folder, digits, cifar10, fake.
        limit: on how many images.
        tolerance: keep gates whose spread, or effect on the output, is larger.
        partial: keep gates that cannot be folded instead of refusing.
        onnx: also write an ONNX file, compared with onnxruntime.
        sites: print one line per site.
    """
    import torch

    from attnlab.fold import fold as fold_network
    from attnlab.fold.checkpoint import Description
    from attnlab.insert.where import parse_where

    _check_output(output)
    given = Description(
        model or "",
        num_classes,
        gate=gate,
        where=parse_where(" ".join(where) or None),
        start=start,
        input_size=None if size is None else [3, size, size],
    )
    torch.manual_seed(0)
    network, description = _network(source, given, weights)
    network.eval()
    data = None if constants is None else _batches(network, constants, limit, size)
    example = description.example(network)
    plain, receipt = fold_network(
        network,
        fuse=fuse,
        constants=data,
        tolerance=tolerance,
        partial=partial,
        example=example,
    )
    print(receipt)
    if sites:
        print(receipt.table())
    _write(plain, replace(description, removed=list(receipt.removed), fused=fuse), output, onnx)
    _write_receipt(receipt, output)
    options = (", fuse=True" if fuse else "") + (", constants=loader" if data is not None else "")
    print_python(*_python_lines(source, description, weights, options))


def _check_output(output: Path) -> None:
    if output.suffix != ".safetensors":
        raise OptionError(f"Expected -o to end in .safetensors but got {str(output)!r}.")
    if not output.parent.is_dir():
        raise WeightsError(f"There is no folder {str(output.parent)!r} to write to.")


def _network(source: str, given: Description, weights: str | None) -> tuple[nn.Module, Description]:
    """The network that `source` names, with its weights, and how to build it."""
    from attnlab.create import create
    from attnlab.fold.checkpoint import load

    path = Path(source)
    if path.is_dir() or path.is_file():
        if weights is not None:
            raise OptionError("--weights is for a network given by name; the file has its own.")
        description = _description(path, given)
        file = path / "model.safetensors" if path.is_dir() else path
        return load(file, description), description
    if path.suffix in _SUFFIXES:
        raise WeightsError(f"There is no file of weights at {source!r}.")
    if given.gate is not None or given.model:
        raise OptionError(f"--model and --gate describe a file of weights, and {source!r} is none.")
    network = create(source, given.num_classes, weights)
    return network, replace(given, model=source)


def _description(path: Path, given: Description) -> Description:
    """What the options say, else what the file or the run's folder says."""
    from attnlab.fold.checkpoint import describe

    if given.model:
        return given
    if given.gate is not None or given.num_classes is not None:
        raise OptionError("--gate and --num-classes need --model, the network they belong to.")
    described = None if path.is_dir() else describe(path)
    described = described or _of_run(path if path.is_dir() else path.parent)
    if described is None:
        raise WeightsError(
            f"{str(path)!r} does not say which network it belongs to. Pass it, for example: "
            f"--model resnet164 --gate asr:se --num-classes 100."
        )
    return described


def _of_run(folder: Path) -> Description | None:
    import json

    from attnlab.fold.checkpoint import Description
    from attnlab.train.config import RunConfig
    from attnlab.train.network import without_weights

    if not (folder / "config.json").is_file() or not (folder / "data.json").is_file():
        return None
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    return Description(
        config.backbone,
        data["classes"],
        without_weights(config.backbone_options),
        None if config.attention == "none" else config.attention,
        list(config.where) if isinstance(config.where, tuple) else config.where,
        config.start,
        dict(config.gate_options),
        list(data["shape"]),
    )


def _batches(network: nn.Module, data: str, limit: int, size: int | None) -> Iterable[object]:
    from attnlab.cli.stiffness import _preprocessing
    from attnlab.trajectory._images import load

    return load(data, _preprocessing(network, size), root=Path("data"), batch=32, limit=limit)


def _write(plain: nn.Module, description: Description, output: Path, onnx: Path | None) -> None:
    """Write beside the final places, read back and compare, and only then put in place."""
    import torch

    from attnlab._errors import FoldError
    from attnlab.fold.checkpoint import load, save, whole_file
    from attnlab.fold.onnx import export_onnx
    from attnlab.insert import attachments

    described = replace(description, kept=[name for name, _ in attachments(plain)])
    images = described.example(plain, batch=2)
    with whole_file(output) as partial:
        save(plain, partial, described)
        # A file alone imports nothing, so classes of the user are told to it here.
        reread = load(partial, described if described.own_classes else None)
        with torch.no_grad():
            if not torch.equal(reread(images), plain(images)):
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
    from attnlab._files import write_whole
    from attnlab.report.small import fold_page

    file = receipt.save(output.with_suffix(".fold.json"))
    print(f"wrote {file} and {write_whole(file.with_suffix('.html'), fold_page(receipt))}")


def _python_lines(
    source: str, description: Description, weights: str | None, options: str
) -> list[str]:
    if Path(source).exists():
        file = Path(source) / "model.safetensors" if Path(source).is_dir() else Path(source)
        return [
            "import attnlab",
            "from attnlab.fold import Description, load",
            f"network = load({str(file)!r}, {description.shown()})",
            f"plain, receipt = attnlab.fold(network{options})",
        ]
    return [
        "import attnlab",
        f"network = attnlab.create({description.model!r}, weights={weights!r}).eval()",
        f"plain, receipt = attnlab.fold(network{options})",
    ]
