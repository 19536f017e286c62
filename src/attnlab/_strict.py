"""Settings that refuse what they do not know, with the nearest name in the message."""

from __future__ import annotations

from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from attnlab._errors import AttnlabError, OptionError, nearest


class Strict(BaseModel):
    """A frozen group of settings; an unknown key or an impossible value is an `OptionError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, dict):
            _check_keys(cls, data)
        try:
            return handler(data)
        except ValidationError as error:
            raise OptionError(_explanation(cls, error)) from None


def title(cls: type[BaseModel]) -> str:
    """`Recipe` → `recipe`, as in the files' tables."""
    return cls.__name__.removesuffix("Config").lower()


def _check_keys(cls: type[BaseModel], data: dict[str, Any]) -> None:
    valid = list(cls.model_fields)
    for name in data:
        if name not in valid:
            raise OptionError(
                f"Unknown setting {name!r} of {title(cls)}.{nearest(str(name), valid)} "
                f"Expected one of: {', '.join(valid)}."
            )


def _explanation(cls: type[BaseModel], error: ValidationError) -> str:
    return "\n".join(_explained(title(cls), problem) for problem in error.errors(include_url=False))


def _explained(kind: str, problem: ErrorDetails) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    context = problem.get("ctx", {})
    if isinstance(context.get("error"), AttnlabError):
        return str(context["error"])
    if problem["type"] == "missing":
        return f"Setting {path!r} of {kind} is missing."
    if not path:
        return f"Expected a table of settings of {kind} but got {problem['input']!r}."
    expected = problem["msg"].replace("Input should be", "expected")
    if problem["type"] == "too_short":
        expected = f"expected at least {context['min_length']} entry"
    elif problem["type"] == "string_pattern_mismatch":
        expected = f"expected a text of the form {context['pattern']}"
    hint = ""
    if problem["type"] == "literal_error":
        choices = str(context["expected"]).replace(" or ", ", ").split(", ")
        hint = nearest(str(problem["input"]), [choice.strip("'") for choice in choices])
    return f"Setting {path!r} of {kind}: {expected} but got {problem['input']!r}.{hint}"
