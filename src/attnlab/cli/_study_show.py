"""`attnlab study show` and `measure`: what finished runs say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli._show import print_python
from attnlab.cli._study_shared import (
    Name,
    asked_study,
    print_study_python,
    print_table,
    say_as_planned,
)

if TYPE_CHECKING:
    from attnlab.results import Measured
    from attnlab.results.study import RunEntry
    from attnlab.results.table import StudyTable


@dataclass(frozen=True)
class ShowStudy:
    """The table of what is finished: intervals, cost, TNS, fold error, beside the paper's figures.

    Examples:
      attnlab study show demo
      attnlab study show stepnet-table1 --markdown table.md
      attnlab study show demo --as-planned
    """

    study: Name
    """A TOML file, or the name of one in studies/."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: str = "runs"
    """Where the runs are: a folder or an address."""
    import_from: tuple[Path, ...] = ()
    """Folders with your own classes that the study names, as in "my_gates.MyGate"."""
    markdown: Path | None = None
    """Also write the table to this file."""
    include_stale: bool = False
    """Show runs of other code, data or settings as well; then there is no verdict."""
    as_planned: bool = False
    """Show the last plan: faster, but changes of its file, data or classes are not seen."""


@dataclass(frozen=True)
class MeasureStudy:
    """Measure the finished runs of a study again, without training: stiffness, gates, fold, speed.

    Examples:
      attnlab study measure demo
      attnlab study measure demo --only stiffness --images 1000
    """

    study: Name
    """A study that was run: its TOML file or its name."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: str = "runs"
    """Where the runs are: a folder or an address."""
    only: tuple[str, ...] = ()
    """These again, whether they are there or not: stiffness, gates, fold, speed, pictures."""
    images: int | None = None
    """On how many test images; as the study says if left out."""
    import_from: tuple[Path, ...] = ()
    """Folders with your own classes that the study names, as in "my_gates.MyGate"."""


def show_command(action: ShowStudy) -> None:
    """Print the table of a study."""
    if action.as_planned:
        _as_planned(action)
        return
    from attnlab.lab.study import show_study

    found = asked_study(action)
    made = show_study(found, action.out, include_stale=action.include_stale)
    _print_and_write(made, action.markdown)
    stale = ", include_stale=True" if action.include_stale else ""
    print_study_python(
        action, f"table = attnlab.lab.study.show_study(study, {action.out!r}{stale})"
    )


def _as_planned(action: ShowStudy) -> None:
    from attnlab._errors import OptionError
    from attnlab.lab.study import Store, refresh
    from attnlab.lab.study.current import require_study
    from attnlab.lab.study.files import stored_name

    if action.include_stale:
        raise OptionError(
            "--include-stale asks which runs are stale, and --as-planned does not look at it."
        )
    name, store = stored_name(action.study, small=action.small), Store.at(action.out)
    require_study(store, name)
    _print_and_write(refresh(store, name), action.markdown)
    say_as_planned(name, action.out)
    print()
    arguments = f"attnlab.lab.study.Store.at({action.out!r}), {name!r}"
    print_python("import attnlab", f"table = attnlab.lab.study.refresh({arguments})")


def _print_and_write(made: StudyTable, path: Path | None) -> None:
    from attnlab._files import write_whole
    from attnlab.lab.study.show import markdown

    print_table(made)
    if path is not None:
        print(f"wrote {write_whole(path, markdown(made))}")


def measure_command(action: MeasureStudy) -> None:
    """Measure, and print what was measured."""
    from attnlab._imported import import_from
    from attnlab.lab.study import measure_study
    from attnlab.lab.study.files import stored_name

    for folder in action.import_from:
        import_from(folder)
    name, only = stored_name(action.study, small=action.small), action.only or None

    def report(entry: RunEntry, found: dict[str, Measured]) -> None:
        measured = ", ".join(f"{what} {one.seconds:.1f} s" for what, one in found.items())
        print(f"  {entry}: {measured or 'nothing is missing'}", flush=True)

    number = measure_study(name, action.out, only, action.images, report)
    print(f"{number} measurements; the table of {name} is up to date")
    arguments = [repr(name), repr(action.out)]
    arguments += [] if only is None else [f"only={only!r}"]
    arguments += [] if action.images is None else [f"images={action.images}"]
    print()
    folders = [f"sys.path.append({str(folder)!r})" for folder in action.import_from]
    begin = [*(["import sys"] if folders else []), "import attnlab", *folders]
    print_python(*begin, f"attnlab.lab.study.measure_study({', '.join(arguments)})")
