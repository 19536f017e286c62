"""ASR's Table 1: what attention costs at inference, as trained, folded and fused."""

from __future__ import annotations

import copy
import gc
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab._files import write_whole
from attnlab.networks.create import create
from attnlab.results.environment import environment
from attnlab.surgery.folding.fold import fold
from attnlab.surgery.insertion.insert import insert
from attnlab.surgery.receipt import count_parameters
from attnlab.timing import latency

FORMAT = "attnlab speed 1"
Form = Literal["as trained", "folded", "fused"]

GATES = ("none", "ie", "se", "srm", "dia", "spa", "cbam", "asr:se", "asr:spa", "asr:se+se")
"""Of the paper's table and of the authors' public page; `none` is the plain network."""

# Images per second: ResNet164 on CIFAR100 (32 pixels, 100 classes) and STL10 (96 pixels, 10
# classes) in Table 1, and on CIFAR100 on the authors' public page. Device and batch are not said.
PAPER = {
    "none": {"CIFAR100": 1944, "STL10": 255, "public page": 438},
    "ie": {"CIFAR100": 1505, "STL10": 170},
    "se": {"CIFAR100": 1469, "STL10": 173, "public page": 286},
    "srm": {"CIFAR100": 1387, "STL10": 162},
    "dia": {"CIFAR100": 1092, "STL10": 154},
    "spa": {"CIFAR100": 1080, "STL10": 180},
    "cbam": {"CIFAR100": 793, "STL10": 127},
    "asr:se": {"CIFAR100": 1942, "STL10": 255, "public page": 442},
    "asr:spa": {"CIFAR100": 1946, "STL10": 253},
    "asr:se+se": {"public page": 289},
}


@dataclass(frozen=True)
class Images:
    """What a network is timed on."""

    size: int
    classes: int
    batch: int


@dataclass(frozen=True)
class SpeedRow:
    """One network on one kind of images, against the plain network in turns."""

    images: Images
    gate: str
    form: Form
    parameters: int
    images_per_second: float
    plain_images_per_second: float
    """In the same turns."""
    ratio: float
    """Time relative to the plain network's; of a copy of the plain network it shows the noise."""
    low: float
    """Of the 95 % interval of the ratio."""
    high: float
    rounds: int

    @property
    def key(self) -> tuple[Any, ...]:
        return self.images, self.gate, self.form


def forms_of(gate: str) -> tuple[Form, ...]:
    """Which forms of a network are timed: constant gates fold, and norms fuse with convolutions
    where no gate stays."""
    constant = [part.startswith("asr:") for part in gate.split("+")]
    folded: tuple[Form, ...] = ("folded",) if any(constant) else ()
    fused: tuple[Form, ...] = ("fused",) if all(constant) or gate == "none" else ()
    return ("as trained", *folded, *fused)


def speed_table(
    images: Sequence[Images],
    gates: Sequence[str] = GATES,
    network: str = "resnet164",
    *,
    seconds: float = 4.0,
    device: str | None = None,
    file: str | Path | None = None,
    report: Callable[[SpeedRow], None] | None = None,
) -> list[SpeedRow]:
    """Time every gate on every kind of images, in eval mode, without gradients.

    Args:
        images: sizes, classes and batches.
        gates: as for `insert`; `none` is a copy of the plain network, whose ratio shows the noise.
        network: a name for `attnlab.create`.
        seconds: for one row at most, but at least ten rounds are timed; fewer seconds are enough
            where the interval is soon narrow.
        device: `cpu` or `cuda`; a GPU where there is one when None.
        file: JSON to write after every row; rows that it has are not timed again.
        report: called with each row.
    """
    if seconds <= 0:
        raise OptionError(f"Expected seconds to be above 0 but got {seconds}.")
    place = _device(device)
    header = {
        "format": FORMAT,
        "network": network,
        "device": place.type,
        "threads": torch.get_num_threads(),
        "machine": _machine(place),
    }
    rows = _read(file, header)
    known = {row.key for row in rows}
    kinds = dict.fromkeys((each.size, each.classes) for each in images)
    for kind in kinds:
        same = [each for each in images if (each.size, each.classes) == kind]
        for row in _rows(network, same, gates, known, seconds, place):
            rows.append(row)
            if file is not None:
                content = {**header, "rows": [asdict(one) for one in rows]}
                write_whole(Path(file), json.dumps(content, indent=1) + "\n")
            if report is not None:
                report(row)
    asked = {(each, gate) for each in images for gate in gates}
    return [row for row in rows if (row.images, row.gate) in asked]


def _rows(
    network: str,
    images: Sequence[Images],
    gates: Sequence[str],
    known: set[tuple[Any, ...]],
    seconds: float,
    device: torch.device,
) -> Iterator[SpeedRow]:
    """Of images of one size and number of classes, so that each network is built once."""
    size, classes = images[0].size, images[0].classes
    torch.manual_seed(0)
    plain = create(network, classes).eval().to(device)
    for gate, form in [(name, form) for name in gates for form in forms_of(name)]:
        left = [each for each in images if (each, gate, form) not in known]
        if not left:
            continue
        built = _built(plain, gate, form, torch.randn(1, 3, size, size, device=device))
        for each in left:
            given = torch.randn(each.batch, 3, size, size, device=device)
            time = latency(plain, built, given, seconds=seconds)
            yield SpeedRow(
                each,
                gate,
                form,
                count_parameters(built),
                each.batch / time.after,
                each.batch / time.before,
                time.ratio,
                time.low,
                time.high,
                time.rounds,
            )
        del built
        gc.collect()


def _built(plain: nn.Module, gate: str, form: Form, example: Tensor) -> nn.Module:
    # Two copies of one network differ by some percent, by where their memory lies.
    other = copy.deepcopy(plain) if gate == "none" else insert(plain, gate, example=example)[0]
    network = other.eval()
    if form == "as trained":
        return network
    # Partial: of ASR(SE)+SE the SE stays.
    folded, _ = fold(network, fuse=form == "fused", partial=True, example=example)
    return folded


def _device(given: str | None) -> torch.device:
    if given not in (None, "cpu", "cuda"):
        raise OptionError(f"Expected device to be cpu or cuda but got {given!r}.")
    if given == "cuda" and not torch.cuda.is_available():
        raise OptionError("There is no GPU that torch can use. Leave device out, or set cpu.")
    return torch.device(given or ("cuda" if torch.cuda.is_available() else "cpu"))


def _machine(device: torch.device) -> dict[str, object]:
    found = environment()
    packages = found["packages"]
    assert isinstance(packages, dict)
    name = found["accelerator"] if device.type == "cuda" else found["processor"]
    return {"name": name, "torch": packages["torch"], "python": found["python"]}


def _read(file: str | Path | None, header: dict[str, Any]) -> list[SpeedRow]:
    if file is None or not Path(file).exists():
        return []
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError:
        found = {}
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{str(file)!r} is not a table of `attnlab speed`. Use another file.")
    for name, now in header.items():
        if found.get(name) != now:
            raise InputError(
                f"{str(file)!r} was measured with {name} = {found.get(name)!r}, and now it is "
                f"{now!r}: one table has one machine. Use another file."
            )
    rows = found["rows"]
    return [SpeedRow(**{**row, "images": Images(**row["images"])}) for row in rows]
