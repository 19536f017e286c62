"""Run pages and write what their commands print into them.

    python -m tests.docs.console docs/start.md            # say what differs
    python -m tests.docs.console --write docs/start.md    # and write it

An output that still fits is left as it is, with its `...`; one that does not is written in full.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.docs.page import refreshed, run_page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.docs.console", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put the outputs into the pages")
    given = parser.parse_args()
    different = False
    for path in given.pages:
        with tempfile.TemporaryDirectory() as directory:
            differences = run_page(path.resolve(), Path(directory), make=True)
        for difference in differences:
            print(f"{path}, {difference}\n")
        if given.write and differences:
            path.write_text(refreshed(path, differences), encoding="utf-8")
        different = different or bool(differences)
    raise SystemExit(1 if different and not given.write else 0)


if __name__ == "__main__":
    main()
