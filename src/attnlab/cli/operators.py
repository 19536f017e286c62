"""`attnlab operators`: the feature operators side by side, with cost formulas and measured time."""

from __future__ import annotations

from attnlab.cli._show import print_python


def operators(
    channels: int = 64, size: int = 28, kernel_size: int = 7, batch: int = 4, time: bool = True
) -> None:
    """Show every feature operator: how its kernel is made, what it sums over, cost, measured time.

    Also says whether the native kernels run, or why not.

    Examples:
      attnlab operators
      attnlab operators --channels 128 --size 14 --kernel-size 3
      attnlab operators --no-time

    Args:
        channels: channels in and out.
        size: height and width of the map.
        kernel_size: window, odd.
        batch: images per call.
        time: also time forward, and forward with backward.
    """
    import torch
    from rich.console import Console
    from rich.table import Table

    from attnlab.evolution import native_status
    from attnlab.evolution.describe import OPERATORS, describe
    from attnlab.evolution.timing import timed

    x = torch.randn(batch, channels, size, size)
    console = Console()
    kinds = Table(title="What they are")
    kinds.add_column("operator", no_wrap=True)
    for column in ("kernel from", "sums over", "space", "channel"):
        kinds.add_column(column)
    costs = Table(title=f"What they cost: {batch}×{channels}×{size}×{size}, window {kernel_size}")
    costs.add_column("operator", no_wrap=True)
    for column in ("parameters", "multiply-adds per pixel"):
        costs.add_column(column)
    if time:
        costs.add_column("forward ms", justify="right")
        costs.add_column("with backward", justify="right")
    for name, info in OPERATORS.items():
        layer = info.build(channels, kernel_size).eval()  # a batch of one has no batch statistics
        text = describe(layer)
        source = "learned" if text.function_scope == "none" else text.function_scope
        kinds.add_row(name, source, text.aggregation, text.space, text.channel)
        row = [name, f"{info.parameters} = {text.parameters:,}", info.multiply_adds]
        if time:
            row += [f"{1e3 * seconds:.1f}" for seconds in timed(layer, x)]
        costs.add_row(*row)
    console.print(kinds)
    console.print(costs)
    console.print(str(native_status()), soft_wrap=True)
    print_python("attnlab.evolution.describe(layer)")
