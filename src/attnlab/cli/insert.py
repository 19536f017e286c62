"""`attnlab insert`: a network with gates as a file, to be trained elsewhere and folded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from attnlab.cli._show import print_python


def insert(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    gate: str,
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])],
    num_classes: int | None = None,
    where: tuple[str, ...] = (),
    start: Literal["paper", "identity"] = "paper",
    place: Literal["auto", "branch", "norm"] = "auto",
    shared: bool = False,
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = (),
    size: int | None = None,
    weights: str | None = None,
) -> None:
    """Write a network with gates as a file that says what it is: load it with attnlab.load, train
    it, save it with attnlab.save, and give it to attnlab fold or stripe.

    Examples:
      attnlab insert resnet164 --gate asr:se --num-classes 100 -o gated.safetensors
      attnlab insert timm:resnet50 --gate se --start identity --weights pretrained -o se.safetensors
      attnlab insert resnet20 --gate se --where stages:2,3 --set reduction=8 -o se.safetensors

    Args:
        model: a network of attnlab, 'timm:NAME' or 'torchvision:NAME'.
        gate: a name of `attnlab modules`, 'asr:NAME', 'asr:NAME*2', or several joined by '+'.
        output: the .safetensors file to write.
        num_classes: of the network; its own number if left out.
        where: stages:1,3 | blocks:0,5 | every:2 | code:1001 | random:1@0 | norms | module names.
            Every site if left out.
        start: the paper's first gate, or one that leaves the output unchanged.
        place: at the end of a branch, or behind the norm that it ends in.
        shared: one gate for all chosen blocks of a stage.
        options: of the gate.
        size: side of the images; what the network says about itself if left out.
        weights: a file, timm's "pretrained", torchvision's "DEFAULT"; random if left out.
    """
    import torch

    import attnlab
    from attnlab._checked import check_whole
    from attnlab._errors import OptionError
    from attnlab.cli.try_ import key_value
    from attnlab.networks.checkpoint import Description
    from attnlab.residuals.where import parse_where

    if output.suffix != ".safetensors":
        raise OptionError(f"Expected -o to end in .safetensors but got {str(output)!r}.")
    if size is not None:
        check_whole("--size", size, 1)
    torch.manual_seed(0)
    network = attnlab.create(model, num_classes, weights)
    description = Description(
        model,
        num_classes,
        gate=gate,
        where=parse_where(" ".join(where) or None),
        start=start,
        place=place,
        shared=shared,
        gate_options=dict(key_value(text) for text in options),
        input_size=None if size is None else [3, size, size],
    )
    gated, receipt = attnlab.insert(
        network,
        gate,
        description.where,
        start,
        place=place,
        shared=shared,
        example=description.example(network),
        **description.gate_options,
    )
    print(receipt)
    if weights is None:
        print("the weights are random: train the network")
    print(f"wrote {attnlab.save(gated, output, description)}")
    print("next: train it between attnlab.load and attnlab.save, then")
    print(f"  attnlab fold {output} -o plain.safetensors")
    print()
    print_python(
        "import attnlab",
        f"network = attnlab.load({str(output)!r})  # train it here",
        f"description = attnlab.networks.checkpoint.describe({str(output)!r})",
        "attnlab.save(network, 'trained.safetensors', description)",
    )
