"""The network that `attnlab fold` is given: a run's folder, a file of weights, or a name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._errors import OptionError, WeightsError

if TYPE_CHECKING:
    from torch import nn

    from attnlab.networks.checkpoint import Description

_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")


def named_network(
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
            f"{source!r} is not one."
        )
    return _of_name(source, given, weights)


def _of_name(
    name: str, given: Description, weights: str | None
) -> tuple[nn.Module, Description, list[str]]:
    from attnlab.networks.create import create

    description = replace(given, model=name)
    network = create(name, given.num_classes, weights)
    classes = "" if given.num_classes is None else f", {given.num_classes}"
    file = "" if weights is None else f", weights={weights!r}"
    seed = ["import torch", "torch.manual_seed(0)"] if weights is None else []
    lines = [
        *seed,
        f"description = attnlab.networks.checkpoint.{description.shown()}",
        f"network = attnlab.create({name!r}{classes}{file}).eval()",
    ]
    return network, description, lines


def _of_file(
    path: Path, given: Description, trust: bool
) -> tuple[nn.Module, Description, list[str]]:
    """By what the options say, else by what the file or the run's folder says."""
    from attnlab.networks.checkpoint import describe, load

    if given.model:
        made = f"description = attnlab.networks.checkpoint.{given.shown()}"
        read = f"network = attnlab.load({str(path)!r}, description)"
        return load(path, given), given, [made, read]
    if _about_gates(given) or given.num_classes is not None:
        raise OptionError(
            "--gate, --where, --start, --place, --shared and --num-classes need --model, the "
            "network they belong to."
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
        f"description = attnlab.networks.checkpoint.describe({str(path)!r})",
        f"network = attnlab.load({str(path)!r}{trusted})",
    ]
    if given.input_size is not None:
        description = replace(description, input_size=given.input_size)
        other = f"replace(description, input_size={given.input_size})"
        lines += ["from dataclasses import replace", f"description = {other}"]
    return network, description, lines


def _about_gates(given: Description) -> bool:
    changed = given.gate is not None or given.where is not None
    return changed or given.shared or given.start != "paper" or given.place != "branch"
