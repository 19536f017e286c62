"""The gates by name, and the small language that names them: "se", "asr:se*2", "asr:se+se".

A class that is not registered goes by where it is, "my_gates.MyGate" or "asr:my_gates.MyGate".
"""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass

from torch import nn

from attnlab._checked import check_values, check_whole
from attnlab._errors import OptionError, UnknownNameError, nearest, unknown_name
from attnlab._imported import imported, is_path
from attnlab.gates._gate import BranchGate, Gate, StageGate, StepGate
from attnlab.gates._gate import Form as Form
from attnlab.gates._gate import GateInfo as GateInfo
from attnlab.gates._table import GATES as GATES
from attnlab.gates.asr import LearnedVectorGate

MOST_FACTORS = 64
"""The largest N of `asr:se*N`; the papers try up to 5."""


def gate_info(name: str) -> GateInfo:
    """The registry entry of `name`, or one made for a class, "my_gates.MyGate".

    An unknown name is answered with the nearest ones."""
    if is_path(name):
        return _info_of_class(name)
    if name not in GATES:
        within = re.fullmatch(r"asr[^a-z0-9]?([a-z0-9]+)\)?", name.lower())
        if within and within[1] in GATES:  # as the paper writes it: ASR(SE)
            raise UnknownNameError(f"Unknown gate {name!r}. Did you mean 'asr:{within[1]}'?")
        raise unknown_name("gate", name, GATES)
    return GATES[name]


_FORMS: tuple[tuple[type[Gate], Form], ...] = (
    (BranchGate, "branch"),
    (StepGate, "step"),
    (StageGate, "stage"),
)


def form_of_class(kind: type[nn.Module]) -> Form | None:
    """The form of a gate of this class by what it inherits; None when it is not a gate."""
    return next((form for base, form in _FORMS if issubclass(kind, base)), None)


def _info_of_class(path: str) -> GateInfo:
    build = imported("gate", path)
    form = form_of_class(build)
    if form is None:
        raise OptionError(
            f"Expected the gate {path!r} to be a subclass of attnlab.gates.BranchGate, "
            f"StepGate or StageGate but got {build!r}."
        )
    return GateInfo(path, build, form, build.__name__, "", "it is not a VectorGate")


@dataclass(frozen=True)
class GateSpec:
    """One gate of a specification: a registered name, and whether ASR feeds it a learned vector."""

    name: str
    asr: bool = False
    delta: int = 1

    def __str__(self) -> str:
        return (
            f"{'asr:' if self.asr else ''}{self.name}{f'*{self.delta}' if self.delta > 1 else ''}"
        )

    @property
    def info(self) -> GateInfo:
        """The registry entry of the (inner) module."""
        return gate_info(self.name)

    @property
    def form(self) -> Form:
        """The form of the gate, which tells what it reads."""
        return self.info.form

    @property
    def constant(self) -> bool:
        """Whether the gate is the same for every input."""
        return self.asr or self.info.constant

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that `build` takes."""
        own = _options(self.info.build)
        if not self.asr:
            return own
        free = (name for name in own if name not in self.info.vector_options)
        return (*free, *_ASR_OPTIONS)

    def build(self, channels: int, **options: object) -> nn.Module:
        """Build the gate for `channels` channels; unknown options are errors."""
        for name in options:
            if name not in self.options:
                takes = f"takes: {', '.join(self.options)}" if self.options else "takes no options"
                raise OptionError(
                    f"Gate {str(self)!r} has no option {name!r}.{nearest(name, self.options)} "
                    f"It {takes}."
                )
        what = f"Gate {str(self)!r}"
        check_whole("channels", channels, 1)
        check_values(what, self.info.build, options)
        _check_whole_class(what, self.info.build)
        if not self.asr:
            return self.info.build(channels, **options)
        own = {name: options.pop(name) for name in _ASR_OPTIONS if name in options}
        check_values(what, LearnedVectorGate, own)
        inner = functools.partial(self.info.build, **options, **self.info.vector_options)
        return LearnedVectorGate(channels, inner, self.delta, **own)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)  # asked for every gate of a network
def _takes_by_place(build: type[nn.Module]) -> bool:
    parameters = inspect.signature(build).parameters.values()
    return any(each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in parameters)


def _check_whole_class(what: str, build: type[nn.Module]) -> None:
    """Refuse a class of the user's own that lacks what every gate has."""
    missing = sorted(getattr(build, "__abstractmethods__", ()))
    if missing:
        raise OptionError(
            f"{what} lacks {' and '.join(missing)}. A gate defines forward, which returns the "
            f"gate, and start_constant, which makes it one constant and returns that."
        )
    if not _takes_by_place(build):  # type: ignore[arg-type]
        raise OptionError(
            f"{what} takes no channels. Expected def __init__(self, channels, ...): a gate is "
            f"built with the number of channels that it acts on."
        )


def _options(build: type[nn.Module]) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(build).parameters if name != "channels")


_ASR_OPTIONS = tuple(name for name in _options(LearnedVectorGate) if name not in ("inner", "delta"))


def parse_gate(spec: str) -> tuple[GateSpec, ...]:
    """The gates that `spec` names, in the order in which they act.

    `"se"` is one gate; `"asr:se"` feeds it a learned vector; `"asr:se*2"` multiplies two of these
    (δ = 2); `"asr:se+se"` is both kinds, one after the other.
    """
    return tuple(_parse_term(term.strip(), spec) for term in spec.split("+"))


def build_gate(name: str, channels: int, **options: object) -> nn.Module:
    """Build the one gate that `name` specifies, for `channels` channels."""
    specs = parse_gate(name)
    if len(specs) > 1:
        raise OptionError(
            f"{name!r} names {len(specs)} gates and build_gate builds one. Build each of "
            f"parse_gate({name!r})."
        )
    return specs[0].build(channels, **options)


def _parse_term(term: str, spec: str) -> GateSpec:
    match = re.fullmatch(r"(?:([^:*]*):)?([^:*]*)(?:\*([^:*]*))?", term)
    if not term or match is None:
        raise UnknownNameError(
            f"Cannot read {term!r} in the gate specification {spec!r}. Expected a gate such as "
            "'se', 'asr:se' or 'asr:se*2', or several joined by '+'."
        )
    prefix, name, delta = match.groups()
    name = name.strip()
    on_vector = ", ".join(info.name for info in GATES.values() if info.on_vector)
    if prefix is None and name == "asr":
        raise UnknownNameError(
            f"'asr' needs the attention module to learn, as in 'asr:se'. It takes: {on_vector}."
        )
    if prefix is not None and prefix.strip() != "asr":
        raise UnknownNameError(
            f"Unknown prefix {prefix.strip()!r} in the gate specification {spec!r}. The only "
            "prefix is 'asr', as in 'asr:se'."
        )
    info = gate_info(name)
    if prefix is None:
        if delta is not None:
            raise OptionError(
                f"Only ASR gates take a number: write 'asr:{term}' instead of {term!r}."
            )
        return GateSpec(name)
    if not info.on_vector:
        raise OptionError(
            f"'asr:{name}' does not exist: {info.not_on_vector}. ASR takes: {on_vector}."
        )
    if delta is not None and not (delta.strip().isdecimal() and 1 <= int(delta) <= MOST_FACTORS):
        raise OptionError(
            f"Expected a number from 1 to {MOST_FACTORS} after '*' but got {delta.strip()!r} in "
            f"{term!r}."
        )
    return GateSpec(name, asr=True, delta=1 if delta is None else int(delta))
