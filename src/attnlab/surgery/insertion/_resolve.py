"""From what the user wrote (`"asr:se+se"`, a gate class) to what is built at each site."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torch import nn

from attnlab._errors import OptionError, check_options, nearest
from attnlab.gates import ConstantGate, Gate, StepGate, parse_gate
from attnlab.gates.asr import VISION_TRANSFORMER
from attnlab.gates.registry import Form, GateSpec, form_of_class
from attnlab.residuals.site import Site


@dataclass(frozen=True)
class Resolved:
    """One gate of an insertion."""

    label: str
    form: Form
    build: Callable[[Site], nn.Module]
    include_first: bool = False
    """Of a step gate: whether it also acts where the shortcut is a projection of x_t."""
    constant: bool = False
    """Whether it is the same for every input, so that it may be folded."""
    at_heads: bool = False
    """Whether it belongs in front of the output projection of attention, if there is one."""
    trainable: bool = True
    """Whether its parameters train; else it stays at its first value, as a control."""


def resolve(
    gate: str | Callable[[int], nn.Module], options: Mapping[str, object]
) -> tuple[Resolved, ...]:
    """The gates to build, with every option checked before anything is touched."""
    if not isinstance(gate, str):
        _check_class(gate)
        return (_resolve_class(gate, options),)
    specs = parse_gate(gate)
    given, trainable = _without_trainable(options)
    include_first = False
    if any(spec.form == "step" for spec in specs):
        include_first = bool(given.pop("include_first", False))
    _check(gate, specs, given)
    return tuple(
        Resolved(
            str(spec),
            spec.form,
            _builder(spec, given),
            include_first,
            spec.constant,
            spec.info.at_heads and not spec.asr,
            trainable,
        )
        for spec in specs
    )


def check_gate_options(gate: str, options: Mapping[str, object]) -> None:
    """Refuse a gate that does not exist, and options and values that it does not take, before there
    is a network."""
    resolve(gate, options)


def _without_trainable(options: Mapping[str, object]) -> tuple[dict[str, object], bool]:
    """The options of the gate itself, and whether it trains: that is the same for every gate."""
    given = dict(options)
    trainable = given.pop("trainable", True)
    if not isinstance(trainable, bool):
        raise OptionError(f"Expected trainable to be True or False but got {trainable!r}.")
    return given, trainable


def _check_class(gate: object) -> None:
    if isinstance(gate, nn.Module):
        name = type(gate).__name__
        raise OptionError(
            f"Expected a gate by name or as a class, which is built anew at each site, but got one "
            f"{name}. Pass the class: insert(model, {name})."
        )
    if not callable(gate):
        raise OptionError(f"Expected a gate by name, such as 'se', or as a class but got {gate!r}.")


def _check(gate: str, specs: tuple[GateSpec, ...], given: Mapping[str, object]) -> None:
    valid = list(dict.fromkeys(name for spec in specs for name in spec.options))
    if any(spec.form == "step" for spec in specs):
        valid.append("include_first")
    if any(spec.form == "norm" for spec in specs):
        valid = []  # a norm keeps the settings of the one it replaces
    valid.append("trainable")
    for name in given:
        if name not in valid:
            raise OptionError(
                f"Gate {gate!r} has no option {name!r}.{nearest(name, valid)} It takes: "
                f"{', '.join(valid)}."
            )
    for spec in specs:  # a wrong value is found here, before the network is copied and run
        if spec.form != "norm":
            options = {k: v for k, v in given.items() if k in spec.options}
            if "layer_spread" in options:  # of what the sites of tokens have by default
                options.setdefault("layer_initial", VISION_TRANSFORMER["layer_initial"])
            spec.build(64, **options)


def _builder(spec: GateSpec, given: Mapping[str, object]) -> Callable[[Site], nn.Module]:
    def build(site: Site) -> nn.Module:
        options = {name: value for name, value in given.items() if name in spec.options}
        if spec.asr and len(site.shape) == 3:  # tokens: the paper's settings for ViT
            options = {**VISION_TRANSFORMER, **options}
        return spec.build(site.channels, **options, **_at_heads(site, spec.options, options))

    return build


def _at_heads(site: Site, takes: Collection[str], given: Mapping[str, object]) -> dict[str, object]:
    """What a gate in front of an output projection is told of the attention, of what it takes."""
    if site.host != "input":
        return {}
    if given.get("heads", site.heads) != site.heads:
        raise OptionError(
            f"heads={given['heads']}, but the attention in front of {site.module!r} has "
            f"{site.heads} heads. Leave heads out, or put the gate at the end of the branch: "
            f"place='branch'."
        )
    told = {"heads": site.heads, "state_channels": site.reads}
    return {name: value for name, value in told.items() if name in takes and name not in given}


def _resolve_class(build: Callable[..., nn.Module], options: Mapping[str, object]) -> Resolved:
    name = getattr(build, "__name__", type(build).__name__)
    given, trainable = _without_trainable(options)
    include_first = False
    if isinstance(build, type) and issubclass(build, StepGate):
        include_first = bool(given.pop("include_first", False))
    try:
        inspect.signature(build).bind(64, **given)
    except TypeError as error:
        check_options(f"Gate {name}", build, given, skip=("channels",))
        raise OptionError(f"Gate {name} cannot be built from channels alone: {error}.") from None
    sample = build(64, **given)
    parameters = inspect.signature(build).parameters
    form = form_of_class(type(sample))
    if form is not None:
        constant = isinstance(sample, ConstantGate)
        return Resolved(
            name,
            form,
            lambda site: build(site.channels, **given, **_at_heads(site, parameters, given)),
            include_first,
            constant,
            isinstance(sample, Gate) and sample.at_heads,
            trainable,
        )
    raise OptionError(
        f"Expected {name}(channels) to build a gate (a subclass of attnlab.gates.BranchGate, "
        f"StepGate or StageGate) but it built a {type(sample).__name__}."
    )
