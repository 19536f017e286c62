"""Read back what `save_pretrained` wrote of a network of Hugging Face with gates."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from attnlab._errors import OptionError, PretrainedWarning, WeightsError
from attnlab.networks.backbones.weights import read_state
from attnlab.networks.checkpoint.description import foreign_classes, options_for_loading
from attnlab.surgery.insertion import (
    GATES_FILE,
    GatesOfFolder,
    Insertion,
    attachments,
    remove_attachments,
)
from attnlab.surgery.insertion.insert import insert


def is_of_transformers(network: nn.Module) -> bool:
    """Return whether it is one of Hugging Face's, which have folders and not files."""
    return any(
        each.__name__ == "PreTrainedModel" and each.__module__.startswith("transformers.")
        for each in type(network).__mro__
    )


def save_pretrained(network: nn.Module, folder: Path, description: object) -> Path:
    """Write a network of Hugging Face with gates to `folder`, for `load_pretrained`."""
    name = type(network).__name__
    if description is not None:
        raise OptionError(
            f"{name} is a network of Hugging Face, whose folder says how to build it. Leave the "
            f"description out."
        )
    if folder.suffix:
        raise OptionError(
            f"{name} is a network of Hugging Face, which is written to a folder. Expected a path "
            f"without a suffix, such as {folder.stem!r}, but got {str(folder)!r}."
        )
    if not any(attachments(network)):
        raise OptionError(
            f"{name} is a network of Hugging Face without gates, so it needs nothing of attnlab: "
            f"network.save_pretrained({str(folder)!r}) writes it and from_pretrained reads it."
        )
    with warnings.catch_warnings():
        # That from_pretrained would not read the gates is for those who did not ask attnlab.
        warnings.simplefilter("ignore", PretrainedWarning)
        network.save_pretrained(folder)  # type: ignore[operator]
    return folder


def load_pretrained(
    folder: str | Path, model_class: type[nn.Module] | None = None, *, trust: bool = False
) -> nn.Module:
    """The network that `save_pretrained` wrote to `folder`, with its gates, in eval mode.

    Args:
        folder: with `attnlab.json` beside the weights.
        model_class: the class of the network, if it does not come with transformers.
        trust: whether gates that are not attnlab's, which the folder names, may be imported.
    """
    folder = Path(folder)
    gates = _read(folder / GATES_FILE)
    weights = _weights(folder)
    own = [name for each in gates.insertions for name in foreign_classes("timm:", each.gate)]
    if own and not trust:
        raise WeightsError(
            f"{str(folder)!r} names classes that are not attnlab's ({', '.join(own)}), and a "
            f"folder of weights may not have code imported. If you trust them, pass trust=True."
        )
    model_class = model_class or _named_class(folder)
    with _quiet():
        network: nn.Module = model_class.from_pretrained(folder, **_own_dtype())  # type: ignore[attr-defined]
    before = set(network.state_dict())
    for each in gates.insertions:
        _insert(network, each)
    remove_attachments(network, keep=frozenset(gates.gates))
    _fill(network, before, weights, gates, folder)
    return network.eval()


def is_pretrained(folder: Path) -> bool:
    """Whether `save_pretrained` of a network of Hugging Face wrote the folder."""
    try:
        settings = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and "architectures" in settings and "backbone" not in settings


def open_pretrained(folder: Path, *, trust: bool = False) -> nn.Module:
    """The network that `save_pretrained` wrote to `folder`, with its gates if it had some, in eval
    mode. Weights that the folder lacks are refused: `from_pretrained` fills them at random."""
    if (folder / GATES_FILE).is_file():
        return load_pretrained(folder, trust=trust)
    model_class: Any = _named_class(folder)
    with _quiet():
        network, told = model_class.from_pretrained(
            folder, output_loading_info=True, local_files_only=True, **_own_dtype()
        )
    wrong = sorted([*told["missing_keys"], *(each[0] for each in told["mismatched_keys"])])
    if wrong:
        raise WeightsError(
            f"The weights in {str(folder)!r} lack {len(wrong)} tensors of "
            f"{type(network).__name__}, such as {wrong[0]!r}, which would be random. Save the "
            f"network with its weights again."
        )
    opened: nn.Module = network.eval()
    return opened


def _insert(network: nn.Module, each: Insertion) -> None:
    labels = each.labels
    where = each.where if labels is None else lambda site: site.label in labels
    insert(
        network,
        each.gate,
        where,
        each.start,
        place=each.place,
        shared=each.shared,
        example=each.example(),
        inplace=True,
        **options_for_loading(each.gate, each.options),
    )


def _weights(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights.update(read_state(file))
    return weights


def _fill(
    network: nn.Module,
    before: set[str],
    weights: dict[str, Tensor],
    gates: GatesOfFolder,
    folder: Path,
) -> None:
    """Give the gates their weights; nothing may be missing."""
    found = [name for name, _ in attachments(network)]
    state = network.state_dict()
    new = [name for name in state if name not in before]
    wrong = [n for n in new if n not in weights or weights[n].shape != state[n].shape]
    if wrong or set(found) != set(gates.gates):
        missing = ", ".join((wrong or sorted(set(gates.gates) - set(found)))[:3])
        raise WeightsError(
            f"The weights in {str(folder)!r} lack those of gates that {GATES_FILE} tells of: "
            f"{missing}. Another network was saved to it since, or another version of transformers "
            f"builds this one otherwise."
        )
    network.load_state_dict({name: weights[name] for name in new}, strict=False)


def _read(file: Path) -> GatesOfFolder:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(GatesOfFolder).validate_json(file.read_bytes(), strict=True)
    except (ValidationError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise WeightsError(
            f"{str(file)!r} cannot be read: {reason}. Expected what save_pretrained of a network "
            f"with gates writes."
        ) from error


def _named_class(folder: Path) -> type[nn.Module]:
    import transformers

    names = json.loads((folder / "config.json").read_text()).get("architectures") or []
    found = getattr(transformers, names[0], None) if names else None
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise WeightsError(
            f"{str(folder)!r} holds a network of class {', '.join(names) or 'unknown'}, which "
            f"transformers does not have. Pass the class: "
            f"attnlab.bridges.huggingface.from_pretrained(folder, TheClass)."
        )
    return found


def _own_dtype() -> dict[str, str]:
    """The argument by which weights keep their precision; transformers renamed it."""
    import transformers

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": "auto"}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the report that the gates' weights are unexpected: they come next."""
    from transformers.utils import logging

    verbosity: Any = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
