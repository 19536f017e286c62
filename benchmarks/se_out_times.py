"""How long networks take with squeeze-and-excitation and without, in turns.

    python benchmarks/se_out_times.py RUN... --json se_out.json

One run of each network that `se_out.py` has measured is enough: the time does not depend on the
weights. One thread; torch as it is, and onnxruntime in float and in int8. The constants are made
from a few images, because the time does not depend on them either. The result is kept in the file;
`se_out.py --json se_out.json` prints it with the other tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import tyro
from _measure import machine
from se_out import images_of
from se_out_int8 import session, write_int8
from se_out_tables import by_network, times
from torch import Tensor, nn

import attnlab
from attnlab._files import write_whole
from attnlab.timing import latency

FEW = 128
"""Images that make constants, and calibrate."""
Call = Callable[[Tensor], object]


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    json_file: Annotated[Path, tyro.conf.arg(name="json")] = Path("se_out.json"),
    batches: tuple[int, ...] = (1, 32),
    seconds: float = 20.0,
) -> None:
    """Time the runs, in place of what the file says of their time; print the table."""
    torch.set_num_threads(1)
    found = json.loads(json_file.read_text())
    unknown = [run.name for run in runs if run.name not in found]
    if unknown:
        raise SystemExit(f"Expected runs that {json_file} has, but not {', '.join(unknown)}.")
    for run in runs:
        rows = []
        for row in timed(run, batches, seconds):
            print(run.name, row["runtime"], row["batch"], row["said"], flush=True)
            rows.append(row)
        found[run.name]["times"] = {"machine": machine(), "rows": rows}
        write_whole(json_file, json.dumps(found, indent=1) + "\n")
    print(times(by_network(found)))


def timed(run: Path, batches: tuple[int, ...], seconds: float) -> Iterator[dict[str, Any]]:
    """With SE against without, in every runtime and for every size of a batch."""
    images = images_of(run)[0]
    network = attnlab.load(run).eval()
    few = images[:FEW]
    plain, receipt = attnlab.fold_budget(network, [few], "all", example=few[:1])
    assert receipt.curve is not None
    assert len(receipt.sites) == len(receipt.curve.points)  # all went
    for runtime, before, after in contestants(network, plain, few):
        for batch in batches:
            given = images[:batch].contiguous()
            said = latency(before, after, given, precision=0.01, seconds=seconds, threads=1)
            yield {"runtime": runtime, **asdict(said), "batch": batch, "said": str(said)}


def contestants(
    network: nn.Module, plain: nn.Module, calibration: Tensor
) -> Iterator[tuple[str, nn.Module | Call, nn.Module | Call]]:
    """The same two networks in every runtime."""
    yield "torch", network, plain
    with in_onnx(network, calibration) as before, in_onnx(plain, calibration) as after:
        for number, name in enumerate(("onnxruntime", "onnxruntime, int8")):
            yield name, before[number], after[number]


@contextmanager
def in_onnx(network: nn.Module, calibration: Tensor) -> Iterator[list[Call]]:
    """In float, and in int8."""
    with TemporaryDirectory() as folder:
        yield [calling(path) for path in write_int8(network, calibration, Path(folder))]


def calling(path: Path) -> Call:
    """Runs a file on the memory of a tensor, without a copy."""
    running = session(path)
    name = running.get_inputs()[0].name
    return lambda images: running.run(None, {name: images.numpy()})


if __name__ == "__main__":
    tyro.cli(main)
