"""Gates that `attnlab.insert` put into networks, against the same gates written in by hand; and how
long `insert` takes."""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import attnlab
from attnlab.surgery.insertion import attachments
from benchmarks._common import Table, interleave, settings, timed, write_json
from benchmarks.speed.hand_written import written_like
from benchmarks.speed.inference import instructions

SETTINGS = settings("speed")["by_hand"]
INSERTING = settings("speed")["inserting"]["networks"]
IN_A_ROW = 4
COPIES = 2
"""Two copies of one network differ by about a percent, by where their memory lies."""


@dataclass(frozen=True)
class ByHand:
    """One network with one gate, inserted and by hand."""

    network: str
    gate: str
    gates: int
    plain_ms: float
    by_hand_ms: float
    inserted_ms: float
    difference: float
    """The largest between the two outputs."""
    export: str
    """Whether torch.export shows the same operations in the same order; empty if not asked."""
    compiled: float | None
    """The ratio of the two when compiled."""
    rounds: int
    instructions_by_hand: int
    """Python instructions in one forward, which do not depend on a busy machine."""
    instructions_inserted: int

    @property
    def ratio(self) -> float:
        return self.inserted_ms / self.by_hand_ms

    @property
    def cells(self) -> list[str]:
        """As a row of the table."""
        per_gate = 1e3 * (self.inserted_ms - self.by_hand_ms) / self.gates
        times = [f"{ms:.2f}" for ms in (self.plain_ms, self.by_hand_ms, self.inserted_ms)]
        compiled = "" if self.compiled is None else f"{self.compiled:.3f}"
        name = f"{self.network} + {self.gate}"
        return [
            name,
            str(self.gates),
            *times,
            f"{self.ratio:.3f}",
            f"{per_gate:.1f}",
            f"{self.instructions_by_hand:,} → {self.instructions_inserted:,}",
            self.export,
            compiled,
        ]


def _operations(network: nn.Module, images: Tensor) -> list[tuple[str, tuple[int, ...]]]:
    """The operations of an exported network, each with the shape of its result."""
    with torch.no_grad():
        # Without operations in place: `x += shortcut` is then an addition like any other.
        graph = torch.export.export(network, (images,)).run_decompositions({}).graph
    found = []
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, Tensor):
            found.append((str(node.target), tuple(value.shape)))
    return found


def _minima(
    networks: dict[str, nn.Module], images: Tensor, seconds: float
) -> tuple[list[float], int]:
    """Milliseconds of CPU time of one forward, the fastest of each copy, averaged over copies."""
    copies = {
        f"{name} {number}": _warm(partial(copy.deepcopy(each), images))
        for name, each in networks.items()
        for number in range(COPIES)
    }
    times = interleave(copies, seconds=seconds)
    fastest = [
        1e3 * statistics.mean(min(times[f"{name} {number}"]) for number in range(COPIES))
        for name in networks
    ]
    return fastest, len(next(iter(times.values())))


def _warm(run: Callable[[], object]) -> Callable[[], float]:
    """Make of `run` a contestant that runs a few times in a row and answers the fastest: the first
    finds the caches full of the contestant before it."""
    once = timed(run, time.thread_time)
    return lambda: min(once() for _ in range(IN_A_ROW))


def _compiled_ratio(hand: nn.Module, ours: nn.Module, images: Tensor, seconds: float) -> float:
    torch._dynamo.reset()
    runs = {}
    for name, each in (("hand", hand), ("ours", ours)):
        compiled = torch.compile(copy.deepcopy(each))
        compiled(images)
        runs[name] = _warm(partial(compiled, images))
    times = interleave(runs, seconds=seconds)
    return min(times["ours"]) / min(times["hand"])


def _compare(
    name: str, gate: str, plain: nn.Module, images: Tensor, seconds: float, compiled: bool
) -> ByHand:
    inserted, receipt = attnlab.insert(plain, gate, example=images)
    with torch.no_grad():  # away from a start at which gates are constant
        for _, attachment in attachments(inserted):
            for parameter in attachment.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    hand = written_like(plain, inserted, gate)
    with torch.inference_mode():
        difference = float((inserted(images) - hand(images)).abs().max())
        three = {"plain": plain, "hand": hand, "inserted": inserted}
        fastest, rounds = _minima(three, images, seconds)
        counts = [instructions(partial(each, images)) for each in (hand, inserted)]
    export, ratio = "", None
    if compiled:
        same = _operations(hand, images) == _operations(inserted, images)
        export = "identical" if same else "differs"
        with torch.no_grad():
            ratio = _compiled_ratio(hand, inserted, images, seconds)
    return ByHand(
        name,
        gate,
        len(receipt.sites),
        *fastest,
        difference,
        export,
        ratio,
        rounds,
        *counts,
    )


def by_hand(
    networks: tuple[str, ...] = tuple(SETTINGS["networks"]),
    gates: tuple[str, ...] = tuple(SETTINGS["gates"]),
    seconds: float = 20.0,
    compiled: bool = False,
    json: Path = Path("out/speed-by-hand.json"),
) -> None:
    """Time networks with inserted gates against networks with the formula written into the block.

    One image, one thread, CPU time of the thread, one process; two copies of the plain network, of
    the one by hand and of ours, interleaved, four forwards in a row; the fastest of each. The goal
    is 1.03.

    Args:
        networks: which networks.
        gates: which gates; CBAM convolves over pixels, and is not put on tokens.
        seconds: per network and gate.
        compiled: export and compile both as well, which takes a minute for each.
        json: where the numbers are written.
    """
    torch.set_num_threads(1)
    found = []
    for name in networks:
        torch.manual_seed(0)
        plain = attnlab.create(name).eval()
        images = torch.randn(1, 3, SETTINGS["networks"][name], SETTINGS["networks"][name])
        for gate in gates:
            if gate == "cbam" and "vit" in name:
                continue
            found.append(_compare(name, gate, plain, images, seconds, compiled))
            gc.collect()
    columns = ["network", "gates", "plain ms", "by hand ms", "inserted ms", "inserted / by hand"]
    columns += ["µs per gate", "Python instructions", "export", "compiled"]
    Table("Inserted gates against gates by hand", columns, [each.cells for each in found]).print()
    write_json(json, {"by_hand": [{**asdict(each), "ratio": each.ratio} for each in found]})


@dataclass(frozen=True)
class Inserting:
    """How long `insert` takes on one network."""

    network: str
    parameters: int
    forward_ms: float
    insert_ms: float
    inplace_ms: float
    goal: float | None

    @property
    def cells(self) -> list[str]:
        """As a row of the table."""
        ratios = [f"{ms / self.forward_ms:.1f}" for ms in (self.insert_ms, self.inplace_ms)]
        times = [f"{ms:.0f}" for ms in (self.forward_ms, self.insert_ms, self.inplace_ms)]
        goal = "" if self.goal is None else f"{self.goal:g}"
        return [self.network, f"{self.parameters / 1e6:.1f}", *times, *ratios, goal]


def inserting(
    networks: tuple[str, ...] = tuple(INSERTING),
    gate: str = "se",
    rounds: int = 5,
    json: Path = Path("out/speed-inserting.json"),
) -> None:
    """Time `attnlab.insert` in forwards of the plain network on the same example of one image.

    Random weights, one thread, CPU time of the thread; forwards and insertions interleaved, and the
    fastest of each. `insert` copies the network; `inplace=True` does not.

    Args:
        networks: which networks.
        gate: which gate.
        rounds: how often.
        json: where the numbers are written.
    """
    torch.set_num_threads(1)
    found = []
    for name in networks:
        about = INSERTING[name]
        torch.manual_seed(0)
        plain = attnlab.create(name).eval()
        images = torch.randn(1, 3, about["size"], about["size"])

        def run(plain: nn.Module = plain, images: Tensor = images) -> None:
            with torch.no_grad():
                plain(images)

        def in_place(plain: nn.Module = plain, images: Tensor = images) -> float:
            began = time.thread_time()
            attnlab.insert(plain, gate, example=images, inplace=True)
            took = time.thread_time() - began
            attnlab.remove(plain)
            return took

        copied = partial(attnlab.insert, plain, gate, example=images)
        runs = {
            "forward": timed(run, time.thread_time),
            "insert": timed(copied, time.thread_time),
            "inplace": in_place,
        }
        times = interleave(runs, rounds=rounds)
        parameters = sum(each.numel() for each in plain.parameters())
        fastest = (1e3 * min(times[kind]) for kind in runs)
        found.append(Inserting(name, parameters, *fastest, about.get("goal")))
        gc.collect()
    columns = ["network", "M parameters", "forward ms", "insert ms", "in place ms"]
    columns += ["insert, forwards", "in place, forwards", "goal"]
    Table(f"Inserting {gate}", columns, [each.cells for each in found]).print()
    write_json(json, {"inserting": [asdict(each) for each in found]})
