"""Read weights from a file, safely, and load them strictly.

Only tensors are ever read: safetensors, or torch files with `weights_only=True`. A checkpoint that
holds the network's tensors in an entry, or under a wrapper's names, is unwrapped (`unwrap`).
"""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab._errors import WeightsError
from attnlab.networks.backbones.unwrap import AVERAGED, ENTRIES, entry_of, is_state, without_prefix

SHOWN = 3
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")
"""How files of weights end."""


def read_state(path: str | Path, *, ema: bool = False) -> dict[str, Tensor]:
    """The tensors in a `.safetensors` or torch file, by name; of a checkpoint with more in it,
    those of its network, or with `ema` their running average."""
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"There is no file of weights at {str(path)!r}.")
    if not is_safetensors(path):
        return _read_torch(path, ema=ema)
    if ema:
        raise _no_average(path)
    return _read_safetensors(path)


def is_safetensors(path: Path) -> bool:
    """Whether a file holds safetensors, whatever it is called: hubs and scripts rename files.

    It begins with the length of its header and a brace, where torch's begin with PK or with the
    mark of a pickle. What begins with neither is what its name says."""
    with path.open("rb") as file:
        start = file.read(9)
    if start[8:] == b"{":
        return True
    return path.suffix == ".safetensors" and start[:2] != b"PK" and start[:1] != b"\x80"


def _no_average(path: Path) -> WeightsError:
    return WeightsError(
        f"{str(path)!r} holds no running average of weights (EMA), which would be its "
        f"{_either(AVERAGED)}. Leave ema out."
    )


def read_metadata(path: str | Path) -> dict[str, str]:
    """The texts that a `.safetensors` file has next to its tensors."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise _damaged(path, "safetensors", error) from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise _damaged(path, "safetensors", error) from error


def _read_torch(path: Path, *, ema: bool = False) -> dict[str, Tensor]:
    try:
        # The settings of a training script; a bag of values, which runs nothing.
        allowed = torch.serialization.safe_globals([argparse.Namespace])
        with allowed, path.open("rb") as file:  # by its name torch might take it for safetensors
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it names {found[1]}" if found else "it is not a plain pickle of tensors"
        raise WeightsError(
            f"Refused to read {str(path)!r}: {reason}, and reading such a file can run code. "
            "Expected a state dict. If you trust the file, load it yourself and save "
            "`model.state_dict()` with `torch.save` or safetensors."
        ) from error
    except Exception as error:  # on arbitrary bytes the reader fails with any type of error
        raise _damaged(path, "torch", error) from error
    if is_state(content) and not ema:
        return dict(content)
    state = entry_of(content, str(path), ema=ema) if isinstance(content, dict) else None
    if state is not None:
        return state
    if ema:
        raise _no_average(path)
    keys = _few([str(key) for key in content]) if isinstance(content, dict) else ""
    held = f"a dict with keys {keys}" if keys else f"a {type(content).__name__}"
    raise WeightsError(
        f"Expected {str(path)!r} to hold a state dict (tensors by name), alone or as its "
        f"{_either(ENTRIES)}, but it holds {held}. Save the network's state dict alone."
    )


def rename(state: Mapping[str, Tensor], beginnings: Mapping[str, str]) -> dict[str, Tensor]:
    """`state` with the beginning of each name replaced where `beginnings` has it."""
    renamed = {}
    for name, tensor in state.items():
        for old, new in beginnings.items():
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        renamed[name] = tensor
    return renamed


def load_weights(
    network: nn.Module,
    path: str | Path,
    beginnings: Mapping[str, str] | None = None,
    *,
    ema: bool = False,
) -> None:
    """Load the file at `path` into `network`, every name and every shape or an error."""
    fill(network, read_renamed(network, path, beginnings or {}, ema=ema), str(path))


def read_renamed(
    network: nn.Module, path: str | Path, beginnings: Mapping[str, str], *, ema: bool = False
) -> dict[str, Tensor]:
    """The tensors of a file under the names that they have in `network`; `beginnings` of names in
    public files, and what they are called here."""
    expected = network.state_dict()
    public = rename(expected, {here: there for there, here in beginnings.items()})
    state = without_prefix(read_state(path, ema=ema), {*expected, *public}, str(path))
    return rename(state, beginnings)


def fill(network: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load `state` into `network`, every name and every shape or an error."""
    expected = network.state_dict()
    problems = _problems(expected, state)
    if problems:
        other_classes = len(problems) == 1 and _is_classifier_alone(expected, state)
        hint = " For another number of classes, pass new_head=True." if other_classes else ""
        raise WeightsError(
            f"The weights in {source!r} do not fit {type(network).__name__}: "
            + "; ".join(problems)
            + ". Build the network with the options it was trained with (num_classes, in_channels, "
            f"...), or check that it is the same network.{hint}"
        )
    # Filling the network's own state dict keeps its version numbers, which plain files lack.
    expected.update(state)
    network.load_state_dict(expected, strict=True)


def renew_head(network: nn.Module, state: Mapping[str, Tensor], classes: int, source: str) -> None:
    """Load all of `state` but the tensors whose first axis counts other classes than `classes`."""
    expected = network.state_dict()
    heads = [name for name in _heads(expected, state) if expected[name].shape[0] == classes]
    if not heads:
        raise WeightsError(
            f"new_head=True, but no tensor in {source!r} differs from {type(network).__name__} "
            f"with {classes} classes in its first axis alone. Leave new_head out if the last layer "
            f"is to be kept."
        )
    fill(network, {**state, **{name: expected[name] for name in heads}}, source)


def _heads(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    """The tensors that differ in the length of their first axis alone, as a last layer's do."""
    return [
        name
        for name in _of_another_shape(expected, state)
        if state[name].ndim == expected[name].ndim
        and state[name].shape[1:] == expected[name].shape[1:]
    ]


def _is_classifier_alone(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> bool:
    """Whether all that differs in shape counts classes: the last layer, and heads next to it."""
    others = _of_another_shape(expected, state)
    counts = {(expected[name].shape[:1], state[name].shape[:1]) for name in others}
    ends_with_it = others[-1:] == list(expected)[-1:]
    return ends_with_it and len(counts) == 1 and others == _heads(expected, state)


def _problems(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    missing = [k for k in expected if k not in state and not _is_counter(k)]
    unexpected = [k for k in state if k not in expected]
    shapes = [
        f"{k} is {tuple(state[k].shape)} in the file and {tuple(expected[k].shape)} in the network"
        for k in _of_another_shape(expected, state)
    ]
    problems = []
    if missing:
        problems.append(f"{len(missing)} missing ({_few(missing)})")
    if unexpected:
        problems.append(f"{len(unexpected)} unexpected ({_few(unexpected)})")
    if shapes:
        problems.append(f"{len(shapes)} of another shape ({_few(shapes)})")
    return problems


def _of_another_shape(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    return [k for k, v in expected.items() if k in state and state[k].shape != v.shape]


def _is_counter(name: str) -> bool:
    # Checkpoints from before PyTorch 0.4.1 have no such counters; they do not change the output.
    return name.rpartition(".")[2] == "num_batches_tracked"


def _few(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f", and {rest} more" if rest > 0 else "")


def _either(names: Sequence[str]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}"


def _damaged(path: Path, kind: str, error: Exception) -> WeightsError:
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return WeightsError(
        f"Could not read {str(path)!r} as a {kind} file ({path.stat().st_size} bytes): it is "
        f"truncated, damaged or of another format. The reader said: {first_line}"
    )
