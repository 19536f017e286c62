"""What the commands of `attnlab study` share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import tyro

from attnlab.cli._show import Justify, console, print_python, rich_table, table

if TYPE_CHECKING:
    from attnlab.lab.study import Study, StudyTable

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]


class StudyArguments(Protocol):
    """What the commands about one study have in common."""

    @property
    def study(self) -> str: ...
    @property
    def small(self) -> bool: ...
    @property
    def out(self) -> str: ...
    @property
    def import_from(self) -> tuple[Path, ...]: ...


def asked_study(action: StudyArguments) -> Study:
    """The study that is asked for; a warning where it has no plain row."""
    from attnlab._address import is_address, local_path
    from attnlab._errors import InputError
    from attnlab._imported import import_from
    from attnlab.lab.study import load_study

    if not is_address(action.out) and local_path(action.out).is_file():
        raise InputError(f"Expected --out to be a folder but {action.out!r} is a file.")
    for folder in action.import_from:
        import_from(folder)
    found = load_study(action.study)
    if action.import_from:
        folders = tuple(str(folder) for folder in action.import_from)
        found = found.called_by(replace(found.invocation, import_from=folders))
    found = found.smaller() if action.small else found
    if not found.has_plain:
        print(
            f"warning: the study {found.name!r} has no row without attention, so there will be no "
            f'Δ and no verdict. Add "none" to attention.',
            file=sys.stderr,
        )
    return found


def say_as_planned(name: str, out: str) -> None:
    """Say what `--as-planned` leaves out, so that nobody takes it for the study as it is now."""
    print(
        f"{name} as it was planned last in {out}: whether its file, its data or your classes have "
        f"changed since was not looked at"
    )


def print_study_python(action: StudyArguments, *lines: str) -> None:
    """Print how Python does the same."""
    small = ".smaller()" if action.small else ""
    load = f"study = attnlab.lab.study.load_study({action.study!r}){small}"
    folders = [f"sys.path.append({str(folder)!r})" for folder in action.import_from]
    print()
    print_python(*(["import sys"] if folders else []), "import attnlab", *folders, load, *lines)


def print_table(made: StudyTable) -> None:
    """All groups, and the footnotes."""
    from attnlab.lab.study.show import study_footnotes
    from attnlab.results.columns import StudyColumns

    screen, columns = console(), StudyColumns(made)
    for group in made.groups:
        caption = f"\n{made.title}: {group.name}"
        for each in columns.terminal(group):
            screen.print(rich_table(replace(each, caption=caption)))
            caption = ""
    for line in study_footnotes(made):
        screen.print(f"* {line}")


def print_answer(made: StudyTable) -> None:
    """What the table says, in words, as the last thing to read."""
    from attnlab.results.answer import table_answer

    lines = table_answer(made)
    if lines:
        screen = console()
        screen.print("\nThe answer:")
        for line in lines:
            screen.print(f"  {line}")


def table_of(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None,
    text: Sequence[int] = (0,),
) -> object:
    """A table to print; the columns in `text` are words."""
    sides: list[Justify] = ["left" if index in text else "right" for index in range(len(heads))]
    return table(list(zip(heads, sides, strict=True)), rows, title)
