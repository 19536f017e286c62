"""Networks of Hugging Face with gates: `save_pretrained` writes beside the weights how the gates
came in, in `attnlab.json`, so that `attnlab.load` can put them in again.

Hugging Face's own `from_pretrained` knows nothing of that file: it builds the network without its
gates. So saving says.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab._errors import PretrainedWarning, SiteError
from attnlab._files import write_whole
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals.attachment import Attachment
from attnlab.residuals.example import Example
from attnlab.residuals.site import Place

GATES_FILE = "attnlab.json"
"""In the folder of a network of Hugging Face, how its gates came in."""
FORMAT = 1


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of an example: token numbers and masks whole, features by their shape alone."""

    shape: list[int]
    dtype: str
    values: list[int] | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> StoredTensor:
        """Keep what finding steps needs of `tensor`."""
        floating = tensor.is_floating_point()
        values = None if floating else tensor.flatten().long().tolist()
        return cls(list(tensor.shape), str(tensor.dtype).removeprefix("torch."), values)

    def tensor(self) -> Tensor:
        """A tensor like the one that was kept."""
        dtype = getattr(torch, self.dtype)
        if self.values is not None:
            return torch.tensor(self.values, dtype=dtype).reshape(self.shape)
        generator = torch.Generator().manual_seed(0)
        return torch.randn(self.shape, generator=generator).to(dtype)


@dataclass(frozen=True)
class Insertion:
    """The arguments of one call of `insert`, in words that a file can hold."""

    gate: str
    """Its name, or where its class is, "my_gates.MyGate"; empty if it has no such place."""
    where: str | list[str] | None = None
    labels: list[str] | None = None
    """Of a `where` that was a function: the labels of the steps that it chose."""
    start: Literal["paper", "identity"] = "paper"
    place: Place = "auto"
    shared: bool = False
    options: dict[str, object] = field(default_factory=dict)
    named: dict[str, StoredTensor | bool | int | float | str | None] | None = None
    """The example, if it had names."""
    positional: list[StoredTensor | bool | int | float | str | None] | None = None
    """The example, if it had places."""

    def example(self) -> Example | None:
        """The example that it was inserted with, or one like it."""
        if self.named is not None:
            return {name: _restored(value) for name, value in self.named.items()}
        if self.positional is not None:
            return tuple(_restored(value) for value in self.positional)
        return None


def name_of_gate(gate: str | Callable[..., nn.Module]) -> str:
    """The name by which a file can have `gate`; empty for what cannot be imported by one."""
    if isinstance(gate, str):
        return gate
    if not isinstance(gate, type) or "<locals>" in gate.__qualname__:
        return ""
    return f"{gate.__module__}.{gate.__qualname__}"


def _restored(value: Any) -> Any:
    return value.tensor() if isinstance(value, StoredTensor) else value


def stored_example(example: Example | None) -> dict[str, Any]:
    """The fields of an `Insertion` that keep `example`."""
    if example is None:
        return {}
    if isinstance(example, Mapping):
        return {"named": {name: _stored(value) for name, value in example.items()}}
    values = (example,) if isinstance(example, Tensor) else tuple(example)
    return {"positional": [_stored(value) for value in values]}


def _stored(value: Any) -> Any:
    return StoredTensor.of(value) if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class GatesOfFolder:
    """What `attnlab.json` holds."""

    insertions: list[Insertion]
    gates: list[str]
    """The names of the gates that the network carries."""
    format: int = FORMAT

    def to_json(self, network: str) -> str:
        """The record as JSON; an error if something in it cannot be written as text."""
        try:
            if any(not each.gate for each in self.insertions):
                raise TypeError("a gate is of no class that can be imported by name")
            return json.dumps(asdict(self), indent=1) + "\n"
        except TypeError as error:
            raise SiteError(
                f"save_pretrained cannot write down how the gates of {network} came in: {error}. "
                f"Save its weights alone, torch.save(network.state_dict(), file), and load them "
                f"into a network with the same gates: attnlab.insert, then load_state_dict."
            ) from error


def saving_gates(
    save: Callable[..., object], gates_of: Callable[[nn.Module], GatesOfFolder | None]
) -> Callable[..., object]:
    """`save_pretrained` of a network that may carry gates, which `gates_of` tells."""

    @functools.wraps(save)
    def save_pretrained(
        self: nn.Module, save_directory: str | Path, *args: object, **kwargs: object
    ) -> object:
        gates = gates_of(self)
        if gates is None:
            return save(self, save_directory, *args, **kwargs)
        name = type(self).__name__
        told = saving_arguments(save, self, save_directory, *args, **kwargs)
        if told.get("push_to_hub"):
            raise SiteError(
                f"save_pretrained with push_to_hub=True would leave out {GATES_FILE}, without "
                f"which the gates of {name} are lost. Save to a folder, and upload that."
            )
        main = told.get("is_main_process", True)
        if main and told.get("state_dict") is not None:
            _check_given(self, gates, told["state_dict"])
        text = gates.to_json(name)
        if "save_original_format" in inspect.signature(save).parameters:
            # Under the names that the network itself has: the Trainer resumes by these, and takes
            # those of an older format that transformers 5 writes by default for unknown ones.
            kwargs.setdefault("save_original_format", False)
        result = save(self, save_directory, *args, **kwargs)
        if main:
            write_whole(Path(save_directory) / GATES_FILE, text)
            _say(self, name)
        return result

    return save_pretrained


def saving_arguments(save: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments of a call of `save_pretrained` by their names, but for the network."""
    told = inspect.signature(save).bind(*args, **kwargs).arguments
    rest: dict[str, Any] = told.pop("kwargs", {})
    return {**dict(list(told.items())[1:]), **rest}


def _check_given(network: nn.Module, gates: GatesOfFolder, given: Mapping[str, Any]) -> None:
    """Refuse weights given by hand that lack some of the gates': the folder could not be read."""
    within = tuple(f"{gate}." for gate in gates.gates)
    norms = tuple(
        f"{name}."
        for name, each in network.named_modules()
        if isinstance(each, InstanceEnhancementBatchNorm)
    )
    lacking = [
        key for key in network.state_dict() if key.startswith(within + norms) and key not in given
    ]
    if lacking:
        raise SiteError(
            f"save_pretrained of {type(network).__name__} was given a state_dict= that lacks "
            f"{len(lacking)} tensors of its gates, the first {lacking[0]!r}, so the folder could "
            f"not be read back. Leave state_dict= out, or give that of the network with its gates, "
            f"network.state_dict(); to save it without them, take them off first: attnlab.remove."
        )


def refuse_saving_apart(changed: nn.Module, knows: Callable[[nn.Module, nn.Module], bool]) -> None:
    """Raise `SiteError` if `changed`, a gate, a norm with one inside or what took the place of a
    removed step, is asked for its weights by the `save_pretrained` of another network of Hugging
    Face than that which `knows` of it: of a part of that network, or of one around it.

    The folder would not say how gates came in, or that steps are gone: read back, it answers
    without them, or with fresh weights.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        saved = frame.f_locals.get("self") if frame.f_code.co_name == "save_pretrained" else None
        if isinstance(saved, nn.Module) and _of_transformers(saved):
            if knows(saved, changed):
                return
            raise _apart(saved, changed, knows)
        frame = frame.f_back


def _apart(
    saved: nn.Module, changed: nn.Module, knows: Callable[[nn.Module, nn.Module], bool]
) -> SiteError:
    name = type(saved).__name__
    part = next((path for path, each in saved.named_modules() if knows(each, changed)), None)
    inside = "another network" if part is None else f"its part {part!r}"
    kinds = Attachment | InstanceEnhancementBatchNorm
    if not isinstance(changed, kinds):
        return SiteError(
            f"save_pretrained of {name} would write it with all its layers, and steps were removed "
            f"from {inside}: read back, it would have fresh weights in their place. Save what they "
            f"were removed from, or remove them from {name} itself, attnlab.shorten(model, ...)."
        )
    gates = sum(isinstance(each, kinds) for each in saved.modules())
    return SiteError(
        f"save_pretrained of {name} would write the weights of {gates} gates that were inserted "
        f"into {inside}, and not how they came in, so the folder would be read back without them. "
        f"Insert into {name} itself, attnlab.insert(model, ...), or save its weights alone, "
        f"torch.save(model.state_dict(), file)."
    )


def _of_transformers(network: object) -> bool:
    return any(
        each.__name__ == "PreTrainedModel" and each.__module__.startswith("transformers.")
        for each in type(network).__mro__
    )


def _say(network: nn.Module, name: str) -> None:
    """Once for each network: a training loop saves often."""
    if network.__dict__.get("_attnlab_said_saving"):
        return
    network.__dict__["_attnlab_said_saving"] = True
    warnings.warn(
        f"{name} was saved with its gates. attnlab.load(folder) reads it back; "
        f"{name}.from_pretrained(folder) builds the network without its gates and reports their "
        f"weights as unexpected.",
        PretrainedWarning,
        stacklevel=3,
    )
