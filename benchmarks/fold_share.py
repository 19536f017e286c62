"""At how many residual steps of real networks ASR(SE) folds, by the place of its gates.

    python benchmarks/fold_share.py                          # timm's families, about half an hour
    python benchmarks/fold_share.py --only 'yolo|efficientnet'
    python benchmarks/fold_share.py --json share.json        # a second run continues it

Per network, with random weights that are nowhere zero, `asr:se` is inserted at every step and
folded with `partial=True` and `add_affine=True`. A gate counts as folded only in a network that was
handed out, so one that was checked at every site in float64. Three columns:

* branch, plainly: gates at the end of the branch, and no layer that divides by the gate;
* branch: the same place, with such layers;
* auto: where `insert` puts them by default.

The networks are those of `coverage_truth.json` (one small network of every timm family), on images
of 96 pixels where they take them and have the expected steps there, else on their own; two of
torchvision, and the YOLOs of Ultralytics where that package is installed.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import timm
import torch
import torchvision
import tyro
from torch import nn

import attnlab
from attnlab._errors import AttnlabError

TRUTH = Path(__file__).with_name("coverage_truth.json")
YOLOS = ("yolov5n", "yolov8n", "yolov9t", "yolov10n", "yolo11n", "yolo12n")


@dataclass(frozen=True)
class Network:
    """Something to fold."""

    name: str
    build: Callable[[], nn.Module]
    examples: tuple[Callable[[], Any], ...]
    """The first that the network runs on, with so many steps, is taken."""
    steps: int | None = None


@dataclass
class Row:
    """What folded of one network."""

    library: str
    network: str
    steps: int = 0
    plainly: int = 0
    branch: int = 0
    auto: int = 0
    worst: float = 0.0
    """The largest error at a site, in float64."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why the others stay, by the default place."""


def of_timm() -> Iterator[Network]:
    for entry in json.loads(TRUTH.read_text())["networks"]:
        if entry["steps"]:
            build = partial(timm.create_model, entry["model"], **entry["options"])
            channels, height, width = entry["input"]
            sizes = ((channels, 96, 96), (channels, height, width))
            images = tuple(partial(torch.randn, 1, *size) for size in sizes)
            yield Network(entry["model"], build, images, entry["steps"])


def of_torchvision() -> Iterator[Network]:
    build = torchvision.models.get_model
    images = partial(torch.randn, 1, 3, 64, 64)
    yield Network("efficientnet_v2_s", partial(build, "efficientnet_v2_s"), (images,))
    pair = partial(torch.rand, 1, 3, 128, 128)
    yield Network("raft_small", partial(build, "raft_small"), (lambda: (pair(), pair(), 1),))


def of_ultralytics() -> Iterator[Network]:
    if importlib.util.find_spec("ultralytics") is None:
        print("ultralytics is not installed: its YOLOs are left out")
        return
    os.environ.setdefault("YOLO_OFFLINE", "1")
    from ultralytics.nn.tasks import DetectionModel

    images = partial(torch.rand, 1, 3, 64, 64)
    for name in YOLOS:
        yield Network(name, partial(DetectionModel, f"{name}.yaml", verbose=False), (images,))


LIBRARIES = {"timm": of_timm, "torchvision": of_torchvision, "ultralytics": of_ultralytics}


def stirred(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    return model.eval()


def example_of(network: Network, model: nn.Module) -> tuple[Any, int]:
    """An input, and the number of steps on it."""
    *smaller, last = (make() for make in network.examples)
    for example in smaller:
        try:
            found = len(attnlab.steps(model, example))
        except AttnlabError:
            continue
        if found == network.steps:
            return example, found
    return last, len(attnlab.steps(model, last))


def judge(row: Row, network: Network) -> None:
    model = stirred(network.build)
    example, row.steps = example_of(network, model)
    for place in ("branch", "auto"):
        gated, _ = attnlab.insert(
            model, "asr:se", where=lambda site: not site.refusal, place=place, example=example
        )
        receipt = attnlab.fold(gated, partial=True, add_affine=True, example=example)[1]
        folded = [site for site in receipt.rows if site.into and not site.kept]
        row.worst = max([row.worst, *(site.error or 0.0 for site in folded)])
        if place == "branch":
            row.plainly = sum(not site.undone_by for site in folded)
            row.branch = len(folded)
            continue
        row.auto = len(folded)
        reasons = [re.sub(r"'[^']*'", "…", site.kept) for site in receipt.kept]
        missing = row.steps - len(receipt.rows)
        row.reasons = dict(Counter([*reasons, *["no gate can act there"] * missing]))


def share(count: int, steps: int) -> str:
    return f"{count} ({100 * count / steps:.1f} %)" if steps else "-"


def totals(rows: list[Row]) -> Iterator[str]:
    for library in dict.fromkeys(row.library for row in rows):
        own = [row for row in rows if row.library == library]
        steps = sum(row.steps for row in own)
        counts = {name: sum(getattr(row, name) for row in own) for name in ("plainly", "branch")}
        auto = sum(row.auto for row in own)
        yield (
            f"{library}: {len(own)} networks, {steps} steps; asr:se folds at "
            f"{share(counts['plainly'], steps)} at the branch, plainly; "
            f"{share(counts['branch'], steps)} at the branch; {share(auto, steps)} by default; "
            f"worst site {max(row.worst for row in own):.0e}"
        )


def main(
    only: str = "",
    library: str = "",
    json_path: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Print a line per network where some gate stays, and the shares.

    Args:
        only: regular expression on the network's name
        library: timm, torchvision or ultralytics; all of them if left out
        json_path: write the rows here after each network; rows that are there already are kept
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done: dict[tuple[str, str], Row] = {}
    if json_path and json_path.exists():
        stored = [Row(**row) for row in json.loads(json_path.read_text())]
        done = {(row.library, row.network): row for row in stored}
    for name, networks in LIBRARIES.items():
        if library and name != library:
            continue
        for network in networks():
            if (name, network.name) in done or not re.search(only, network.name):
                continue
            row = Row(name, network.name)
            try:
                judge(row, network)
            except AttnlabError as error:
                row.reasons = {str(error).splitlines()[0]: 1}
            done[name, network.name] = row
            if row.auto < row.steps or not row.steps:
                print(f"{row.network}: {row.auto} of {row.steps}, {row.reasons}", flush=True)
            if json_path:
                text = json.dumps([asdict(each) for each in done.values()], indent=1)
                json_path.write_text(text + "\n")
            gc.collect()
    print(*totals(list(done.values())), sep="\n")


if __name__ == "__main__":
    tyro.cli(main)
