"""Files of weights that say which network they belong to: runs, folds and people write them alike.

A `.safetensors` file has a table of texts next to its tensors; ours holds, under the key `attnlab`,
what is needed to build the network that the weights fit. Nothing is ever unpickled or fetched, and
a file alone never has modules imported: classes of the user's own need `trust=True`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attnlab import __version__
from attnlab._checked import check_module, check_path
from attnlab._errors import InputError, OptionError, WeightsError
from attnlab._files import write_whole
from attnlab.networks.backbones.unwrap import without_prefix
from attnlab.networks.backbones.weights import fill, is_safetensors, read_metadata, read_state
from attnlab.networks.checkpoint.description import Description
from attnlab.networks.checkpoint.known import known_description
from attnlab.networks.checkpoint.pretrained import (
    is_of_transformers,
    load_pretrained,
    save_pretrained,
)
from attnlab.networks.preprocessing import Preprocessing
from attnlab.residuals.example import evaluating
from attnlab.surgery.change import largest_change, relative_to
from attnlab.surgery.double import coarsest_type, double_copy, resolved_by
from attnlab.surgery.insertion import GATES_FILE, attachments
from attnlab.surgery.receipt import count_parameters

_MOST_CHANGE = 1e-3
"""Relative, of the output of a network in its own precision, where it is too large for copies in
float64 or does not run in it. Kernels differ by 6e-7 in float32 (ViT-Ti), so this is loose: an
epsilon of 1e-6 and GELU by tanh (4e-5) pass."""
_MOST_IN_DOUBLE = 100_000_000
"""Parameters; two copies in float64 take 1.6 GB then."""


def filled(description: Description, state: Mapping[str, Tensor], source: str) -> nn.Module:
    """The network of `description` with the values, dtypes and memory layout of `state`."""
    with torch.random.fork_rng(devices=[]):
        network = description.build()
    state = without_prefix(state, network.state_dict(), source)
    dtypes = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        network.to(dtypes.pop())  # what is not in the file as well
    for name, value in network.state_dict(keep_vars=True).items():
        given = state.get(name, value)
        if given.shape == value.shape and _layout(given) != _layout(value):
            value.data = torch.empty_like(given)  # not assigned: tied tensors stay tied
    try:
        fill(network, state, source)
    except WeightsError as error:
        hint = _about_gates(description, network.state_dict(), state)
        if not hint:
            raise
        raise WeightsError(f"{hint} {error}") from error
    return network


def names_have_gates(names: Iterable[str]) -> bool:
    """Return whether tensors of inserted gates are among those with these names."""
    return any(part.startswith("attnlab") for name in names for part in name.split("."))


def _about_gates(
    description: Description, expected: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> str:
    """What to pass if only the gates of the file and of the description differ; else nothing."""
    there, here = names_have_gates(state), names_have_gates(expected)
    if there and not here:
        return "The file holds gates, and none are asked for: pass gate, in a command --gate NAME."
    if here and not there:
        return f"The file holds no gates: leave gate={description.gate!r} out."
    different = set(expected).symmetric_difference(state)
    scales = all(re.search(r"(^|\.)attnlab\w*\.scale$", name) for name in different)
    if not different or not scales:
        return ""
    start = "identity" if description.start == "paper" else "paper"
    return f"The gates of the file began with start={start!r}: pass that, --start {start}."


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.device, tensor.stride()


def check_description(network: nn.Module, description: Description, path: Path) -> None:
    """Raise a `WeightsError`, which says that `path` was not written, if it is of another one."""
    refused = f"{str(path)!r} was not written, because {description.shown()} is another network"
    try:
        built = filled(description, network.state_dict(), str(path))
    except WeightsError as error:
        raise WeightsError(f"{refused}. {error}{_about_place(network, description)}") from error
    example = description.example(network)
    try:
        expected = _answer(network, example)
    except Exception:  # its input is something else, so there is nothing to compare
        return
    change, most = _difference(network, built.to(example.device), example, expected)
    if not change <= most:
        raise WeightsError(
            f"{refused}: with the same weights, its output differs by {change:.1e}, relative. "
            f"Describe it as it was made; options of the gate are gate_options={{...}}."
        )


def _difference(
    network: nn.Module, built: nn.Module, example: Tensor, expected: list[Tensor]
) -> tuple[float, float]:
    """The relative difference of the outputs of two networks, and the most that rounding explains.

    In float64, if they run in it: what another network does can be less than float32 resolves.
    """
    if count_parameters(network) <= _MOST_IN_DOUBLE:
        exact = example.double() if example.is_floating_point() else example
        with suppress(RuntimeError, TypeError, InputError):  # it wants its own precision
            answers = [_answer(double_copy(each), exact) for each in (network, built)]
            most = resolved_by(coarsest_type(double_copy(network), exact))
            return _largest_change(*answers), most
    return _largest_change(expected, _answer(built, example)), _MOST_CHANGE


def _about_place(network: nn.Module, description: Description) -> str:
    """What to change where the gates are at norms and the description says otherwise."""
    sites = (attachment.site for _, attachment in attachments(network))
    moved = any(site.kind != "output" and site.position == "inside" for site in sites)
    if not moved or description.place != "branch":
        return ""
    return " Its gates act after norms, where insert puts them by default: pass place='auto'."


def _answer(network: nn.Module, example: Tensor) -> list[Tensor]:
    with evaluating(network):
        leaves = tree_leaves(network(example))
    return [leaf.double() for leaf in leaves if isinstance(leaf, Tensor)]


def _largest_change(expected: list[Tensor], found: list[Tensor]) -> float:
    """max |Δ| / max |y|, the worst of all outputs; infinite if they cannot be compared."""
    change = 0.0
    for one, other in zip_longest(expected, found, fillvalue=torch.empty(0)):
        if one.shape != other.shape:
            return float("inf")
        largest, size, _ = largest_change([(one, other)])
        change = max(change, relative_to(largest or 0.0, size))
    return change


_KEY = "attnlab"
_RUN_FILE = "model.safetensors"


def save(
    network: nn.Module,
    path: str | Path,
    description: Description | None = None,
    *,
    preprocessing: Preprocessing | None = None,
) -> Path:
    """Write the weights of `network` to `path`, whole or not at all, with what `attnlab.load` needs
    to build it again.

    A network that attnlab built or read knows how, with all that was inserted, folded, fused and
    shortened since; of others of timm and torchvision, and of classes that need no argument, it is
    found out. It is tried before anything is written: the network that is built anew must take the
    weights and answer as `network` does, on one example. If `network` itself does not run on that,
    only the names and shapes of its tensors are compared. A network of Hugging Face with gates goes
    to a folder, by its own `save_pretrained`.

    Args:
        network: with its weights.
        path: a file that ends in .safetensors.
        description: how to build it, if that cannot be known.
        preprocessing: how images were prepared when it was trained, for what measures it later; of
            published weights it is known.
    """
    check_module(network, "the network")
    check_path("path", path)
    path = Path(path)
    if is_of_transformers(network):
        return save_pretrained(network, path, description)
    known = description is None
    if description is None:
        description = known_description(network)
    if preprocessing is not None and isinstance(description, Description):
        description = replace(description, preprocessing=preprocessing)
    if not isinstance(description, Description):
        raise OptionError(
            f"Expected an attnlab.networks.checkpoint.Description of the network but got a "
            f"{type(description).__name__}."
        )
    if path.suffix != ".safetensors":
        raise OptionError(f"Expected a path that ends in .safetensors but got {str(path)!r}.")
    try:
        check_description(network, description, path)
    except WeightsError as error:
        if not known:
            raise
        raise WeightsError(
            f"{type(network).__name__} was changed by hand since it was built, and how is not "
            f"known. {error} Or say what it is: attnlab.save(network, path, Description(...))."
        ) from error
    return write_whole(path, to_bytes(network, description))


def to_bytes(network: nn.Module, description: Description | None) -> bytes:
    """The file that `save` writes, without trying the description; with None, the weights alone."""
    from safetensors.torch import save as to_safetensors

    # Tied tensors are written twice: safetensors refuses tensors that share memory.
    tensors = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in network.state_dict().items()
    }
    # No other text: safetensors writes several in any order, so files would differ by chance.
    return to_safetensors(tensors, None if description is None else {_KEY: description.to_json()})


def load(
    path: str | Path, description: Description | None = None, *, trust: bool = False
) -> nn.Module:
    """The network of a file, or of a folder that a finished run or Hugging Face's `save_pretrained`
    wrote, in eval mode.

    Args:
        path: what `save`, a run, `attnlab fold` or, of a network of Hugging Face with gates,
            `save_pretrained` wrote; with a description, any file of weights.
        description: for a file that has none; the file's own is not looked at.
        trust: whether classes that are not attnlab's, which the file names, may be imported.
    """
    named = isinstance(path, str | Path)  # what is not a path is refused where weights are read
    if description is None and named and (Path(path) / GATES_FILE).is_file():
        return load_pretrained(path, trust=trust)
    file = _weights_file(path)
    if description is None:
        description = describe(file)
        if description is None:
            raise WeightsError(
                f"{str(path)!r} does not say which network it belongs to. Expected a file written "
                f"by attnlab.save, a run's folder, or a description of the network."
            )
        description.check_trust(path, trust)
    return filled(description, read_state(file), str(file)).eval()


def describe(path: str | Path) -> Description | None:
    """Return what a file of weights, or a run's folder, says about its network; None if nothing."""
    file = _weights_file(path)
    if not is_safetensors(file):
        return None
    metadata = read_metadata(file)
    if _KEY not in metadata:
        return None
    try:
        content = json.loads(metadata[_KEY])
    except ValueError as error:
        raise _unreadable(file, str(error)) from error
    return _read(content, file)


def _weights_file(path: str | Path) -> Path:
    check_path("path", path)
    path = Path(path)
    if path.is_dir():
        if not (path / _RUN_FILE).is_file():
            raise WeightsError(
                f"There is no {str(path / _RUN_FILE)!r}: the run is not finished, or {str(path)!r} "
                f"is not a run's folder."
            )
        return path / _RUN_FILE
    if not path.is_file():
        raise WeightsError(f"There is no file of weights at {str(path)!r}.")
    return path


def _read(content: object, file: Path) -> Description:
    from pydantic import TypeAdapter, ValidationError

    from attnlab._strict import problems_of

    if not isinstance(content, dict):
        raise _unreadable(file, f"expected a table but got {content!r}")
    known = [each.name for each in fields(Description)]
    unknown = [name for name in content if name not in known]
    if unknown:
        raise _unreadable(
            file,
            f"attnlab {__version__} does not know {', '.join(map(repr, unknown))}, only "
            f"{', '.join(known)}. A newer version wrote it: update attnlab",
        )
    try:
        return TypeAdapter(Description).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = problems_of(error)[0]
        raise _unreadable(file, f"{first.path}: {first.message}") from error
    except OptionError as error:
        raise _unreadable(file, str(error).rstrip(".")) from error


def _unreadable(file: Path, reason: str) -> WeightsError:
    return WeightsError(
        f"The description of the network in {str(file)!r} cannot be read: {reason}."
    )
