"""`attnlab operators`: the feature operators side by side, with cost formulas and measured time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from attnlab._errors import OptionError
from attnlab._files import write_whole
from attnlab.cli._show import Justify, console, numbers_table, print_python, table

if TYPE_CHECKING:
    import torch

    from attnlab.evolution.device import Case, Checked, Limits, PeerTimes


def operators(
    own: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    channels: int = 64,
    size: int = 28,
    kernel_size: int = 7,
    batch: int = 4,
    time: bool = True,
    device: str | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    out: Path | None = None,
    import_from: Path | None = None,
) -> None:
    """Show every feature operator: how its kernel is made, what it sums over, cost, measured time.

    Also says whether the native kernels run, or why not. With --device the kernels of that device
    are tried: whether they are right, then their time beside others' and beside its limits.

    Examples:
      attnlab operators
      attnlab operators --channels 128 --size 14 --kernel-size 3
      attnlab operators --no-time
      attnlab operators my_operators.MyOperator --import-from .
      attnlab operators --device cuda --batch 32 --size 56 --out operators.json

    Args:
        own: operators of your own, beside the others: subclasses of attnlab.evolution.Operator.
        channels: channels in and out.
        size: height and width of the map.
        kernel_size: window, odd.
        batch: images per call.
        time: also time forward, and forward with backward.
        device: try the kernels of this device: cuda, cuda:1, cpu. Exit code 1 if one is wrong.
        dtype: type of the numbers that are timed there.
        out: JSON file for what was found there.
        import_from: a folder with your own operators.
    """
    from attnlab._checked import check_whole

    numbers = {"channels": channels, "size": size, "kernel-size": kernel_size, "batch": batch}
    for name, value in numbers.items():
        check_whole(f"--{name}", value, 1)
    if kernel_size % 2 == 0:
        raise OptionError(
            f"Expected --kernel-size to be odd but got {kernel_size}: a window has a middle pixel. "
            f"Use {kernel_size + 1}."
        )
    if import_from is not None:
        from attnlab import _imported

        _imported.import_from(import_from)
    if device is not None:
        if own:
            raise OptionError(
                f"--device tries the kernels of attnlab, and {', '.join(own)} has none of its own. "
                f"Leave one of the two out."
            )
        from attnlab.evolution.device import Case

        operators_on(device, Case(batch, channels, size, kernel_size), dtype, time, out)
        return
    for option, given in (("--dtype", dtype != "float32"), ("--out", out is not None)):
        if given:
            raise OptionError(f"{option} goes with --device: `attnlab operators --device cuda`.")
    _print_operators(own, channels, size, kernel_size, batch, time)
    print()
    shown = f"operator_infos({list(own)!r})" if own else "OPERATORS.values()"
    print_python(
        *([f"import sys; sys.path.append({str(import_from)!r})"] if import_from else []),
        "import attnlab",
        "import torch",
        "from attnlab.evolution.timing import timed",
        f"x = torch.randn({batch}, {channels}, {size}, {size})",
        f"for operator in attnlab.evolution.{shown}:",
        f"    layer = operator.build({channels}, {kernel_size}).eval()",
        "    print(attnlab.evolution.describe_operator(layer)"
        f"{', timed(layer, x)' if time else ''})",
    )


def _print_operators(
    own: Sequence[str], channels: int, size: int, kernel_size: int, batch: int, time: bool
) -> None:
    """Two tables, of what the operators are and of what they cost, and which kernels run."""
    import torch

    from attnlab.evolution import describe_operator, native_status, operator_infos
    from attnlab.evolution.timing import timed

    x = torch.randn(batch, channels, size, size)
    kinds, costs = [], []
    for info in operator_infos(own):
        name = info.name
        layer = info.build(channels, kernel_size).eval()  # a batch of one has no batch statistics
        text = describe_operator(layer)
        source = "learned" if text.function_scope == "none" else text.function_scope
        kinds.append([name, source, text.aggregation, text.space, text.channel])
        known = f"{info.parameters} = " if info.parameters else ""
        row = [name, f"{known}{text.parameters:,}", info.multiply_adds]
        if time:
            row += [f"{1e3 * seconds:.1f}" for seconds in timed(layer, x)]
        costs.append(row)
    screen = console()
    columns = _columns("operator", "kernel from", "sums over", "space", "channel")
    screen.print(table(columns, kinds, "What they are"))
    columns = _columns("operator", "parameters", "multiply-adds per pixel")
    if time:
        columns += [("forward ms", "right"), ("with backward", "right")]
    title = f"What they cost: {batch}×{channels}×{size}×{size}, window {kernel_size}"
    screen.print(table(columns, costs, title))
    print(native_status())


def _columns(*heads: str) -> list[tuple[str, Justify]]:
    return [(head, "left") for head in heads]


_OURS = "attnlab"


def operators_on(device: str, case: Case, dtype: str, time: bool, out: Path | None) -> None:
    """Check and time the operators on `device`; print, and write what was found to `out`."""
    import torch

    from attnlab.evolution import Window
    from attnlab.evolution.device import check, device_named, machine_facts

    where, stored = device_named(device), getattr(torch, dtype)
    Window.centred(case.kernel_size)  # raises where it is even, before minutes are spent
    machine = machine_facts(where)
    found: dict[str, object] = {"machine": machine}
    for name, value in machine.items():
        print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
    checked = list(check(where))
    found["checks"] = [{**dataclasses.asdict(one), "right": one.right} for one in checked]
    wrong = [one for one in checked if not one.right]
    _show_checks(checked, wrong)
    if time and not wrong:
        found["times"] = [_race(each, where, stored) for each in _stages(case)]
    if out is not None:
        print(f"wrote {write_whole(out, json.dumps(found, indent=1) + chr(10))}")
    _show_python(device, case, dtype, time)
    if wrong:
        raise SystemExit(1)


def _stages(case: Case) -> list[Case]:
    """The case, and those that follow it in a ResNet: twice the channels, half the size."""
    stages = [case]
    while len(stages) < 3 and stages[-1].size >= 4:
        last = stages[-1]
        stages.append(dataclasses.replace(last, channels=2 * last.channels, size=last.size // 2))
    return stages


def _show_checks(checked: Sequence[Checked], wrong: Sequence[Checked]) -> None:
    groups: dict[tuple[str, str], list[Checked]] = {}
    for one in checked:
        groups.setdefault((one.operator, one.dtype), []).append(one)
    rows = [
        [
            operator,
            dtype,
            f"{sum(one.right for one in ones)} of {len(ones)}",
            f"{max(one.error for one in ones):.1e}",
            f"{ones[0].tolerance:.0e}",
            "yes" if all(one.repeats for one in ones) else "no",
        ]
        for (operator, dtype), ones in groups.items()
    ]
    heads = ("operator", "type", "right", "largest error", "allowed", "repeats to the bit")
    columns = [(head, "left" if index < 2 else "right") for index, head in enumerate(heads)]
    screen = console()
    title = "Results and gradients against plain torch in float64"
    screen.print(table(columns, rows, title))  # type: ignore[arg-type]
    for one in wrong:
        print(
            f"WRONG: {one.operator}, {one.edge}, {one.dtype} on {one.kernel} kernels: error "
            f"{one.error:.2e}, allowed {one.tolerance:.0e}, "
            f"{'repeats' if one.repeats else 'does not repeat'}"
        )
    if wrong:
        print(
            "Nothing is timed. Until this is fixed, compute with plain torch: ATTNLAB_NATIVE=off, "
            "or `with attnlab.evolution.use_native(False):`."
        )


def _race(case: Case, device: torch.device, dtype: torch.dtype) -> dict[str, object]:
    from attnlab.evolution.device import limits, race

    accelerated = device.type != "cpu"
    most = limits(device, dtype, 256 if accelerated else 32, 4096 if accelerated else 256)
    rows = list(race(case, device, dtype))
    _show_times(case, dtype, most, rows)
    return {
        "case": dataclasses.asdict(case),
        "dtype": str(dtype).removeprefix("torch."),
        "limits": dataclasses.asdict(most),
        "rows": [
            {**dataclasses.asdict(row), "floor": _floors(case, dtype, most, row)} for row in rows
        ],
    }


def _floors(case: Case, dtype: torch.dtype, most: Limits, row: PeerTimes) -> list[float]:
    """Seconds of the least work, forward and with backward."""
    from attnlab.evolution.device import least_work

    works = (least_work(case, row.operator, back, dtype.itemsize) for back in (False, True))
    return [most.floor(work.moved, work.flops) for work in works]


def _show_times(case: Case, dtype: torch.dtype, most: Limits, rows: Sequence[PeerTimes]) -> None:
    from attnlab.evolution.device import TOLERANCES

    ours = {row.operator: row for row in rows if row.name == _OURS}
    shown = []
    for row in rows:
        cells = [f"{row.operator}: {row.name}"]
        times = zip(
            (row.forward, row.both),
            (ours[row.operator].forward, ours[row.operator].both),
            _floors(case, dtype, most, row),
            strict=True,
        )
        for seconds, mine, floor in times:
            if seconds is None or mine is None:
                cells += ["–", "–", "–"]
            else:
                cells += [f"{1e3 * seconds:.3f}", f"{seconds / mine:.2f}", f"{seconds / floor:.1f}"]
        shown.append([*cells, _sameness(row, TOLERANCES[dtype])])
    heads = ("", "forward ms", "/ ours", "/ floor", "with backward", "/ ours", "/ floor", "result")
    stored = str(dtype).removeprefix("torch.")
    title = (
        f"{case.batch}×{case.channels}×{case.size}×{case.size}, window {case.kernel_size}, {stored}"
    )
    console().print(numbers_table(heads, shown, title))
    print(
        f"limits: {most.bytes_per_second / 1e9:.0f} GB/s copied, "
        f"{most.flops_per_second / 1e12:.3g} TFLOP/s in a matrix product; the floor is the larger "
        f"of the least bytes and the least FLOPs at these rates"
    )


def _sameness(row: PeerTimes, tolerance: float) -> str:
    """Say in a word how what a peer computes compares with ours."""
    if row.forward is None:
        return row.remark
    near = 10 * tolerance  # both are rounded
    inside = row.inside is None or row.inside <= near
    border = row.border is None or row.border <= near
    text = "the same" if inside and border else "another border" if inside else "ANOTHER RESULT"
    return f"{text}; {row.remark}" if row.remark else text


def _show_python(device: str, case: Case, dtype: str, time: bool) -> None:
    lines = [
        "import torch",
        "from attnlab.evolution import device",
        f"where = device.device_named({device!r})",
        "assert all(one.right for one in device.check(where))",
    ]
    if time:
        sizes = f"{case.batch}, {case.channels}, {case.size}, {case.kernel_size}"
        lines += [
            f"for row in device.race(device.Case({sizes}), where, torch.{dtype}):",
            "    print(row)",
        ]
    print()
    print_python(*lines)
