"""`attnlab fold RUN`, of a run whose network only its task can build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnlab._errors import OptionError
from attnlab.cli._provenance import of_run
from attnlab.cli._show import print_python


def refuse_others(folder: Path, others: dict[str, bool]) -> None:
    """Raise `OptionError` for the options that do not go with such a run and are given."""
    for name, given in others.items():
        if given:
            raise OptionError(
                f"{name} does not go with {str(folder)!r}, whose network only its task can build. "
                f"Leave it out, or use attnlab.fold in Python."
            )


def print_written(receipt: Path) -> None:
    """The receipt of a fold, and its page, which the fold does not depend on."""
    from attnlab._extras import MissingPackageError
    from attnlab.lab.pages.write import write_file_page

    try:
        print(f"wrote {receipt} and {write_file_page(receipt, receipt.with_suffix('.html'))}")
    except MissingPackageError as error:
        print(f"wrote {receipt}, and no page of it. {error}")


def fold_task_run(folder: Path, output: Path, options: dict[str, bool], sites: bool) -> None:
    """Fold, compare, write."""
    from attnlab.lab.measures import fold_run

    folded = fold_run(folder, **options)
    folded = replace(folded, receipt=replace(folded.receipt, provenance=of_run(folder)))
    print(folded.receipt)
    if sites:
        print(folded.receipt.table())
    print(folded)
    folded.save(output)
    print(f"wrote {output} (read back: the same output, bit for bit)")
    print_written(output.with_suffix(".fold.json"))
    print()
    words = "".join(f", {name}=True" for name, wanted in options.items() if wanted)
    print_python(
        "from attnlab.lab.measures import fold_run, load_folded",
        f"folded = fold_run({str(folder)!r}{words})",
        "print(folded)",
        f"folded.save({str(output)!r})",
        f"network = load_folded({str(folder)!r}, {str(output)!r})",
    )
