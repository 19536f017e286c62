"""ASR's Figure 24 in numbers: does CBAM's spatial attention depend on the image?

    attnlab study run stepnet-table1 --small
    python examples/spatial_maps.py
    python examples/spatial_maps.py --out runs --study stepnet-table1-small --row CBAM

Of every gate with maps: their spread across the images that were kept, relative to the spread of
the mean map across places. 0 would be one map for all images, as stripes are for channels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from attnlab.instruments.stripe import StripeResult
from attnlab.instruments.stripe.result import SiteStripe
from attnlab.lab.statistics import summarize
from attnlab.results.record import read_record


def ratio(site: SiteStripe) -> float:
    """Spread across images, mean over places, over the spread of the mean map across places."""
    maps = np.array(site.maps)  # (images, rows, columns)
    return float(maps.std(axis=0).mean() / maps.mean(axis=0).std())


def main() -> None:
    """A line for every gate, over seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--study", default="stepnet-table1-small")
    parser.add_argument("--row", default="CBAM")
    asked = parser.parse_args()
    record = read_record(asked.out, asked.study)
    found: dict[str, list[float]] = {}
    for run in record.of(record.table.groups[0], asked.row):
        measured = run.stored.measured_result(StripeResult)
        for site in measured.sites if measured is not None else ():
            if site.maps:
                found.setdefault(site.label, []).append(ratio(site))
    if not found:
        raise SystemExit(f"Expected runs of {asked.row!r} with spatial maps but found none.")
    print("| block | spread across images / across places | below 0.5 |\n| --- | ---: | ---: |")
    for label, values in found.items():
        below = sum(value < 0.5 for value in values)
        print(f"| {label} | {summarize(values)} | {below} of {len(values)} |")


if __name__ == "__main__":
    main()
