"""Settings that refuse what they do not know, with the nearest name in the message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from attnlab._errors import AttnlabError, OptionError, nearest


class Strict(BaseModel):
    """A frozen group of settings; an unknown key or an impossible value is an `OptionError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, dict):
            _check_keys(cls, data)
        try:
            return handler(data)
        except ValidationError as error:
            raise OptionError(_explanation(cls, error)) from None

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false where a number belongs: Python counts them as 1 and 0, so
        `lr = true` would train with a learning rate of 1."""
        name = str(info.field_name)
        for path, found, expected in _truths(cls.model_fields[name].annotation, value, name):
            raise OptionError(
                f"Setting {path!r} of {settings_title(cls)}: expected {expected} but got {found}."
            )
        return value


def settings_title(cls: type[BaseModel]) -> str:
    """`Recipe` → `recipe`, as in the files' tables."""
    return cls.__name__.removesuffix("Config").lower()


def _truths(annotation: Any, value: object, path: str) -> Iterator[tuple[str, bool, str]]:
    """Each true or false within `value` where `annotation` asks for a number: its path, itself,
    and what was expected."""
    plain, inner = _kinds(annotation)
    if isinstance(value, bool):
        if bool not in plain and plain & {int, float}:
            yield path, value, "a number" if float in plain else "a whole number"
    elif inner and isinstance(value, Mapping):
        for key, each in value.items():
            for kind in inner:
                yield from _truths(kind, each, f"{path}.{key}")
    elif inner and isinstance(value, list | tuple):
        for place, each in enumerate(value):
            for kind in inner:
                yield from _truths(kind, each, f"{path}.{place}")


@cache
def _kinds(annotation: Any) -> tuple[frozenset[object], tuple[Any, ...]]:
    """The plain types that an annotation allows, and the annotations of what its containers hold;
    the latter only if a number is among them, so that other containers are not searched."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kinds(arguments[0])
    if origin in (Union, UnionType):
        parts = [_kinds(each) for each in arguments]
        plain = frozenset().union(*(own for own, _ in parts))
        return plain, tuple(dict.fromkeys(each for _, own in parts for each in own))
    if origin is Literal:
        return frozenset(type(each) for each in arguments), ()
    if origin is None:
        return frozenset({bool if annotation is Any else annotation}), ()
    held = arguments[-1:] if issubclass(origin, Mapping) else arguments
    inner = [each for each in dict.fromkeys(held) if each is not Ellipsis]
    numeric = [each for each in inner if _kinds(each)[1] or _kinds(each)[0] & {int, float}]
    return frozenset(), tuple(numeric)


def _check_keys(cls: type[BaseModel], data: dict[str, object]) -> None:
    valid = list(cls.model_fields)
    for name in data:
        if name not in valid:
            raise OptionError(
                f"Unknown setting {name!r} of {settings_title(cls)}.{nearest(str(name), valid)} "
                f"Expected one of: {', '.join(valid)}."
            )


class WrongValue(NamedTuple):
    """What pydantic found wrong with one value."""

    path: str
    """Where the value is, `a.0.b`; empty if it is the whole."""
    kind: str
    message: str
    got: object
    context: Mapping[str, object]


def problems_of(error: ValidationError) -> list[WrongValue]:
    """List what is wrong, in the order in which pydantic found it."""
    return [
        WrongValue(
            ".".join(str(part) for part in found["loc"]),
            found["type"],
            found["msg"],
            found["input"],
            found.get("ctx", {}),
        )
        for found in error.errors(include_url=False)
    ]


def _explanation(cls: type[BaseModel], error: ValidationError) -> str:
    return "\n".join(_explained(settings_title(cls), problem) for problem in problems_of(error))


def _explained(kind: str, problem: WrongValue) -> str:
    path, got = problem.path, problem.got
    reason = problem.context.get("error")
    if isinstance(reason, AttnlabError):
        return str(reason)
    if problem.kind == "missing":
        return f"Setting {path!r} of {kind} is missing."
    if not path:
        return f"Expected a table of settings of {kind} but got {got!r}."
    expected = problem.message.replace("Input should be", "expected")
    if problem.kind == "too_short":
        expected = f"expected at least {problem.context['min_length']} entry"
    elif problem.kind == "string_pattern_mismatch":
        expected = f"expected a text of the form {problem.context['pattern']}"
    hint = ""
    if problem.kind == "literal_error":
        choices = str(problem.context["expected"]).replace(" or ", ", ").split(", ")
        hint = nearest(str(got), [choice.strip("'") for choice in choices])
    return f"Setting {path!r} of {kind}: {expected} but got {got!r}.{hint}"
