"""Files that attnlab wrote and that cannot be read any more, or are not what was written: each is
named, with what to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from attnlab._errors import AttnlabError
from attnlab._strict import problems_of

JsonObject = dict[str, Any]
"""What a file of JSON holds, before it is read into a type."""
_MOST_BYTES = 2**28
"""Larger files of JSON are not read. The largest that attnlab writes, of gates of large networks,
have some MB."""


class DamagedFileError(AttnlabError, ValueError):
    """A file that is empty, cut off, of another run, or of another version of attnlab."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path} is damaged: {reason}. {remedy}")
        self.path = path


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Whatever is wrong with the content of `path` is a `DamagedFileError`."""
    try:
        yield
    except DamagedFileError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DamagedFileError(path, f"it cannot be read ({reason})", remedy) from None
    except UnicodeDecodeError:
        raise DamagedFileError(path, "it is not UTF-8 text", remedy) from None
    except json.JSONDecodeError as error:
        raise DamagedFileError(path, _not_json(error), remedy) from None
    except (RecursionError, MemoryError):
        raise DamagedFileError(path, "it is nested too deep or too large", remedy) from None
    except KeyError as error:
        raise DamagedFileError(path, f"it lacks {error}", remedy) from None
    except (AttnlabError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise DamagedFileError(path, _first(error), remedy) from None


def read_object(path: Path, remedy: str) -> JsonObject:
    """The JSON object in a file."""
    return parsed_object_of(path, read_bytes(path, remedy), remedy)


def read_bytes(path: Path, remedy: str) -> bytes:
    """Return what is in a small file."""
    with reading(path, remedy):
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise ValueError(f"it has {size:,} bytes, expected at most {_MOST_BYTES:,}")
        return path.read_bytes()


def parsed_object_of(path: Path, data: bytes, remedy: str) -> JsonObject:
    """The JSON object in the bytes of a file."""
    with reading(path, remedy):
        return parsed_object(data.decode("utf-8"))


def parsed_object(text: str) -> JsonObject:
    """The JSON object in a text."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object but got {str(found)[:40]}")
    return found


def sealed(content: Mapping[str, object]) -> str:
    """The text of a file of JSON that proves itself: `content` with its own checksum."""
    whole = {**content, "checksum": _checksum(content)}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def sealed_line(content: Mapping[str, object]) -> str:
    """Return the text of `sealed` in one line."""
    return json.dumps({**content, "checksum": _checksum(content)}, ensure_ascii=False) + "\n"


def unsealed(found: Mapping[str, object]) -> JsonObject:
    """Return what `sealed` was given; an error if it is not that any more."""
    content = {name: value for name, value in found.items() if name != "checksum"}
    if found.get("checksum") != _checksum(content):
        raise ValueError("it is not what was written: its checksum does not fit")
    return content


def _checksum(content: Mapping[str, object]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_format(found: JsonObject, expected: int = 2) -> None:
    """Refuse what a file holds if it is not of the expected format."""
    number = found.get("format")
    if number == expected:
        return
    if number is None:
        raise ValueError(f"it does not say its format, expected {expected}")
    newer = isinstance(number, int) and number > expected
    why = ": a newer attnlab wrote it" if newer else ""
    raise ValueError(f"it has format {number!r}, expected {expected}{why}")


def _not_json(error: json.JSONDecodeError) -> str:
    if not error.doc.strip("\0 \t\r\n"):
        return "it is empty"
    return f"it is not JSON (line {error.lineno}, column {error.colno})"


def _first(error: Exception) -> str:
    """The first problem, without the full stop."""
    if isinstance(error, ValidationError):
        problem = problems_of(error)[0]
        said = problem.message.removeprefix("Value error, ")
        return f"{problem.path}: {said}" if problem.path else said
    return str(error).partition("\n")[0].rstrip(".")
