"""`attnlab operators`: the feature operators side by side, with cost formulas and measured time."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from attnlab._errors import OptionError
from attnlab.cli._show import Justify, console, print_python, table


def operators(
    channels: int = 64,
    size: int = 28,
    kernel_size: int = 7,
    batch: int = 4,
    time: bool = True,
    device: str | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    out: Path | None = None,
) -> None:
    """Show every feature operator: how its kernel is made, what it sums over, cost, measured time.

    Also says whether the native kernels run, or why not. With --device the kernels of that device
    are tried: whether they are right, then their time beside others' and beside its limits.

    Examples:
      attnlab operators
      attnlab operators --channels 128 --size 14 --kernel-size 3
      attnlab operators --no-time
      attnlab operators --device cuda --batch 32 --size 56 --out operators.json

    Args:
        channels: channels in and out.
        size: height and width of the map.
        kernel_size: window, odd.
        batch: images per call.
        time: also time forward, and forward with backward.
        device: try the kernels of this device: cuda, cuda:1, cpu. Exit code 1 if one is wrong.
        dtype: type of the numbers that are timed there.
        out: JSON file for what was found there.
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
    if device is not None:
        from attnlab.cli._operators_on import operators_on
        from attnlab.evolution.device import Case

        operators_on(device, Case(batch, channels, size, kernel_size), dtype, time, out)
        return
    for option, given in (("--dtype", dtype != "float32"), ("--out", out is not None)):
        if given:
            raise OptionError(f"{option} goes with --device: `attnlab operators --device cuda`.")
    import torch

    from attnlab.evolution import OPERATORS, describe_operator, native_status
    from attnlab.evolution.timing import timed

    x = torch.randn(batch, channels, size, size)
    kinds, costs = [], []
    for name, info in OPERATORS.items():
        layer = info.build(channels, kernel_size).eval()  # a batch of one has no batch statistics
        text = describe_operator(layer)
        source = "learned" if text.function_scope == "none" else text.function_scope
        kinds.append([name, source, text.aggregation, text.space, text.channel])
        row = [name, f"{info.parameters} = {text.parameters:,}", info.multiply_adds]
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
    print()
    print_python(
        "import attnlab",
        "import torch",
        "from attnlab.evolution.timing import timed",
        f"x = torch.randn({batch}, {channels}, {size}, {size})",
        "for operator in attnlab.evolution.OPERATORS.values():",
        f"    layer = operator.build({channels}, {kernel_size}).eval()",
        "    print(attnlab.evolution.describe_operator(layer)"
        f"{', timed(layer, x)' if time else ''})",
    )


def _columns(*heads: str) -> list[tuple[str, Justify]]:
    return [(head, "left") for head in heads]
