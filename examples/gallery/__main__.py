"""`python examples/gallery`: make every picture of docs/gallery.md and docs/explanation again.

Trains 17 small networks on the embedded digits first; the same again finds them trained. Then it
draws. Nothing is fetched.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import exact
import kernels
import torch
import trained
from screenshot import screenshots

import attnlab
from attnlab.lab.study import LocalExecutor, load_study, run_study
from attnlab.page.plot import write_svg

DOCS = Path(__file__).parents[2] / "docs" / "gallery"
LARGEST = 150_000


def main(out: Path = Path("runs")) -> None:
    torch.set_num_threads(1)
    began = time.perf_counter()
    run_study(load_study("demo"), out, LocalExecutor(slots=2), report=print)
    trained.make_runs(out)
    page = attnlab.report(out, out / "studies" / "demo" / "report.html", study="demo")
    files = screenshots(Path(page), DOCS)
    specs = {**exact.pictures(), **trained.pictures(out), **kernels.pictures()}
    files += [write_svg(spec, DOCS / f"{name}.svg") for name, spec in specs.items()]
    for file in files:
        size = file.stat().st_size
        print(f"{size:8,} bytes  {file.name}")
        if size > LARGEST:
            sys.exit(f"{file.name} is larger than {LARGEST:,} bytes")
    print(f"{len(files)} pictures in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
