"""How a network was built and what was done to it, as far as that is known without being told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from attnlab._errors import OptionError
from attnlab.networks.checkpoint.description import Description, without_weights
from attnlab.networks.create import create
from attnlab.networks.preprocessing import Preprocessing, library_preprocessing
from attnlab.surgery.history import (
    Event,
    FoldedOrFused,
    Found,
    Inserted,
    Made,
    Replaced,
    Shortened,
    found_now,
    recorded,
)
from attnlab.surgery.insertion import attachments, has_gates_in_norms
from attnlab.surgery.noise import carried
from attnlab.surgery.shortening.stand_ins import outermost

Shapes = Mapping[str, tuple[int, ...]]


def known_description(network: nn.Module) -> Description:
    """The description of `network`; an `OptionError` that says what to pass if it is not known."""
    if carried(network):
        raise OptionError(
            f"There is noise in the norms of {type(network).__name__}, and what kind is not "
            f"remembered. Take it out (attnlab.surgery.noise.detach), or describe it: "
            f"attnlab.save(network, path, Description(..., noise=...))."
        )
    events = recorded(network)
    first = next((e for e in events if isinstance(e, Made)), None)
    if first is not None:
        found = _as_made(network, first)
    else:
        start = next((e for e in events if isinstance(e, Found)), None)
        found = _found_out(network, start or found_now(network))
    for event in events:
        found = _after(network, found, event)
    return _with_gates_of(network, found)


def _as_made(network: nn.Module, made: Made) -> Description:
    fields = dict(made.described)
    known = fields.pop("preprocessing", None)
    options = without_weights(fields.pop("model_options", {}))
    prepared = None if known is None else Preprocessing(**_as_tuples(known))
    if prepared is None and made.published is not None:
        prepared = library_preprocessing(fields["model"], network, made.published)
    return Description(**fields, model_options=options, preprocessing=prepared)


def _as_tuples(fields: Mapping[str, object]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}


def _after(network: nn.Module, found: Description, event: Event) -> Description:
    """The description after one more event."""
    if isinstance(event, Found):
        return replace(found, input_size=found.input_size or event.input_size)
    if isinstance(event, FoldedOrFused):
        return replace(
            found,
            kept=[],
            removed=[*found.removed, *event.removed],
            affine=[*found.affine, *event.affine],
            fused=found.fused or event.fused,
        )
    if isinstance(event, Shortened):
        return replace(found, kept=[], shortened=outermost({**found.shortened, **event.replaced}))
    if isinstance(event, Inserted):
        return _with_insertion(network, found, event)
    return _with_operators(found, event) if isinstance(event, Replaced) else found


def _with_operators(found: Description, event: Replaced) -> Description:
    if not event.operator:
        raise OptionError(
            f"The operator at {', '.join(event.sites)} is a function or a class inside one, which "
            f"no file can name. Write it as a subclass of attnlab.evolution.Operator in a module "
            f"of its own and replace by its name: attnlab.evolution.replace(network, "
            f"'my_operators.MyOperator')."
        )
    return replace(found, operators=[*found.operators, asdict(event)])


def _with_insertion(network: nn.Module, found: Description, event: Inserted) -> Description:
    if found.gate is not None:
        raise OptionError(
            f"Gates were inserted into {type(network).__name__} twice ({found.gate!r}, then "
            f"{event.gate!r}), and a file describes one insertion. Insert both at once into the "
            f"plain network: attnlab.insert(network, '{found.gate}+{event.gate}')."
        )
    if not event.gate:
        raise OptionError(
            "The gate is a function or a class inside one, which no file can name. Put the class "
            "into a module of its own and insert it by its name: "
            "attnlab.insert(network, 'my_gates.MyGate')."
        )
    fields: dict[str, Any] = {"start": event.start, "place": event.place, "shared": event.shared}
    options = dict(event.options)
    return replace(found, gate=event.gate, where=event.where, gate_options=options, **fields)


def _with_gates_of(network: nn.Module, found: Description) -> Description:
    """Describe the network with the gates that are there now: they may have been removed since."""
    names = [name for name, _ in attachments(network)]
    if found.gate is None:
        return replace(found, kept=None)
    if not names and not has_gates_in_norms(network):
        return replace(found, kept=[])
    return found if found.kept is None else replace(found, kept=names)


def _found_out(network: nn.Module, start: Found) -> Description:
    """The description of a network that attnlab did not build: the first way to build one with the
    same tensors. That it computes the same is tried before a file is written."""
    tried = []
    for model, options in _ways(network, start.shapes):
        tried.append(model)
        with suppress(Exception), torch.random.fork_rng(devices=[]), torch.device("meta"):
            # Classes of others may raise anything when they are built without arguments.
            built = found_now(create(model, **options))
            if (built.shapes, built.settings) == (start.shapes, start.settings):
                return Description(model, **options, input_size=start.input_size)
    raise _unknown(network, tried)


def _ways(network: nn.Module, shapes: Shapes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and arguments of `create` that may build it."""
    outputs = _outputs(network, shapes)
    for model in _names(network):
        yield model, {}
        yield model, {"num_classes": outputs}


def _names(network: nn.Module) -> Iterator[str]:
    kind = _own_class(network)
    library = kind.__module__.partition(".")[0]
    if library == "timm":
        known = getattr(network, "pretrained_cfg", None)
        architecture = known.get("architecture") if isinstance(known, Mapping) else None
        if architecture:
            yield f"timm:{architecture}"
    elif library == "torchvision":
        yield from _torchvision_names(kind.__module__)
    elif kind.__module__ != "__main__" and "<locals>" not in kind.__qualname__:
        yield f"{kind.__module__}.{kind.__qualname__}"


def _torchvision_names(module: str) -> Iterator[str]:
    from torchvision.models import get_model_builder, list_models

    for name in list_models():
        if get_model_builder(name).__module__ == module:
            yield f"torchvision:{name}"


def _own_class(network: nn.Module) -> type[nn.Module]:
    """Its class before insertion, which gives gated modules a class of their own."""
    return next(
        each
        for each in type(network).__mro__
        if not each.__module__.startswith("attnlab.surgery.") and issubclass(each, nn.Module)
    )


def _outputs(network: nn.Module, shapes: Shapes) -> int:
    """The number of classes, by what the network says or by its last layer."""
    said = getattr(network, "num_classes", None)
    if isinstance(said, int):
        return said
    return next((shape[0] for shape in reversed(list(shapes.values())) if shape), 1)


def _unknown(network: nn.Module, tried: list[str]) -> OptionError:
    kind = _own_class(network)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        return OptionError(
            f"No file can name {kind.__qualname__!r}, a class inside a script or a function. Put "
            f"it into a module of its own, my_networks.py, and build it by "
            f"attnlab.create('my_networks.{kind.__name__}'), which is remembered."
        )
    model = tried[0] if len(set(tried)) == 1 else name
    return OptionError(
        f"How this {kind.__name__} was built is not known: attnlab did not build it, and "
        f"{model!r} with its default arguments is another network. Build it by "
        f"attnlab.create({model!r}, ...), which is remembered, or say how: attnlab.save(network, "
        f"path, Description({model!r}, model_options={{...}})), with Description of "
        f"attnlab.networks.checkpoint."
    )
