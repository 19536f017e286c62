"""Words of a command line that stand in another place than where the command expects them: the
file of weights beside the name of its network, and networks after the options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attnlab._errors import OptionError
from attnlab.cli.driver import Output


def in_order(
    given: Sequence[str], left_over: Sequence[str], bound: Mapping[str, object]
) -> list[str] | None:
    """The command line with its words where the command expects them; None if that cannot be said.

    Args:
        given: the words after the command's name.
        left_over: those that the command did not take.
        bound: the arguments of the command that it did take.
    """
    if "-o" in left_over and isinstance(bound.get("output"), Output):
        raise OptionError(
            "This command has no -o: --out FOLDER writes the page, the JSON file and the figures."
        )
    if any(word.startswith("-") for word in left_over):
        return None
    sources = bound.get("sources")
    if isinstance(sources, tuple) and sources:
        return _networks_first(given, left_over, sources[-1])
    source = getattr(bound.get("opening"), "source", None)
    if not isinstance(source, str):
        return None
    if len(left_over) != 1 or source not in given:
        raise _too_many([source, *left_over])
    return _name_and_file(given, source, left_over[0])


def refuse_words(command: str, left_over: Sequence[str], options: Iterable[str]) -> None:
    """Raise an error if all that a command did not take are words: it has no place for them. Of
    what looks like an option, the parser itself says which is nearest."""
    if any(word.startswith("-") for word in left_over):
        return
    match = f" To list what has it in its name: --match {left_over[0]}."
    raise OptionError(
        f"{command} does not take {' or '.join(map(repr, left_over))}."
        f"{match if 'match' in options else ''} All that it takes: {command} --help."
    )


def _networks_first(given: Sequence[str], left_over: Sequence[str], last: str) -> list[str]:
    """`stiffness A --data digits B` as `stiffness A B --data digits`."""
    words = list(given)
    for word in left_over:
        _take_out(words, word)
    place = words.index(last) + 1
    return [*words[:place], *left_over, *words[place:]]


def _name_and_file(given: Sequence[str], source: str, other: str) -> list[str]:
    """`fold NAME FILE` and `fold FILE NAME` as `fold NAME --weights FILE`; as `fold FILE` if the
    file says that it is of this network."""
    files = [word for word in (source, other) if Path(word).is_file()]
    names = [word for word in (source, other) if word not in files and not _is_path(word)]
    if len(files) != 1 or len(names) != 1:
        raise _too_many([source, other])
    (file,), (name,) = files, names
    words = list(given)
    _take_out(words, other)
    words[words.index(source)] = file if _says(file, name) else name
    return words if _says(file, name) else [*words, "--weights", file]


def _says(file: str, name: str) -> bool:
    """Whether the file says itself that it holds the network of this name."""
    from attnlab.networks.checkpoint import describe

    description = describe(Path(file))
    return description is not None and description.model == name


def _is_path(word: str) -> bool:
    return Path(word).exists() or _is_weights(word) or "/" in word


def _is_weights(word: str) -> bool:
    from attnlab.networks.backbones.weights import SUFFIXES

    return word.endswith(SUFFIXES)


def _take_out(words: list[str], word: str) -> None:
    """Take out the word where it stands alone, and not as the value of the option before it."""
    places = [place for place, each in enumerate(words) if each == word]
    alone = [place for place in places if place == 0 or not words[place - 1].startswith("-")]
    del words[(alone or places)[-1]]


def _too_many(words: Sequence[str]) -> OptionError:
    missing = [word for word in words[1:] if _is_weights(word) and not Path(word).exists()]
    text = f"Expected one network but got {' and '.join(map(repr, words))}. "
    if missing:
        return OptionError(
            f"{text}There is no file {missing[0]!r}. To write it: -o {missing[0]}; to read "
            f"weights: NETWORK --weights FILE."
        )
    return OptionError(
        f"{text}Weights are given by --weights FILE, images by --data NAME, a gate by --gate NAME."
    )
