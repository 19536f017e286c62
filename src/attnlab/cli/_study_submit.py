"""`attnlab study submit`: rows for a table that others add to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnlab.cli._show import print_python, rich_table
from attnlab.cli._study_shared import Name


@dataclass(frozen=True)
class SubmitRows:
    """Check a study's rows against a shared table: identity, seeds, plan, weights; and add them.

    Examples:
      attnlab study submit demo --table table.json
      attnlab study submit demo --table table.json --add
    """

    study: Name
    """A study that was run: its TOML file or its name."""
    table: Path
    """The table's JSON file. With --add a file that is not there is begun, by the plain runs of the
    study."""
    small: bool = False
    """The form of a paper's table that runs in minutes."""
    out: str = "runs"
    """Where the runs are: a folder or an address."""
    add: bool = False
    """Write the rows that fit into the table; else they are only checked."""
    import_from: tuple[Path, ...] = ()
    """Folders with classes of your own that the study names, as in "my_gates.MyGate"."""


def submit_command(action: SubmitRows) -> None:
    """Check row by row; exit code 1 if one does not fit."""
    from attnlab._imported import import_from
    from attnlab.cli._show import console
    from attnlab.lab.study import submit_rows
    from attnlab.lab.study.files import stored_name

    for folder in action.import_from:
        import_from(folder)
    name = stored_name(action.study, small=action.small)
    found = submit_rows(
        name, action.table, action.out, add=action.add, trust=bool(action.import_from)
    )
    for label, why in found.refused.items():
        print(f"  {label}: refused. {why}")
    for label in found.fitting:
        print(f"  {label}: fits")
    if found.table.rows:
        console().print(rich_table(found.table.table()))
        print(found.table.verdict)
    print(f"wrote {action.table}" if action.add and found.fitting else "nothing was written")
    print()
    arguments = f"{name!r}, {str(action.table)!r}, {action.out!r}"
    more = ", add=True" if action.add else ""
    print_python("import attnlab", f"attnlab.lab.study.submit_rows({arguments}{more})")
    if found.refused:
        raise SystemExit(1)
