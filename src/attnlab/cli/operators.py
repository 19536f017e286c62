"""`attnlab operators`: the feature operators side by side, with cost formulas and measured time."""

from __future__ import annotations


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
    table = Table(title=f"{batch}×{channels}×{size}×{size}, window {kernel_size}", show_lines=False)
    for column in ("operator", "kernel from", "sums over", "space", "channel", "parameters"):
        table.add_column(column)
    table.add_column("multiply-adds per pixel")
    if time:
        table.add_column("forward ms", justify="right")
        table.add_column("+ backward ms", justify="right")
    for name, info in OPERATORS.items():
        layer = info.build(channels, kernel_size)
        text = describe(layer)
        row = [
            name,
            "learned" if text.function_scope == "none" else text.function_scope,
            text.aggregation,
            text.space,
            text.channel,
            f"{info.parameters} = {text.parameters:,}",
            info.multiply_adds,
        ]
        if time:
            forward, backward = timed(layer, x)
            row += [f"{1e3 * forward:.1f}", f"{1e3 * backward:.1f}"]
        table.add_row(*row)
    console.print(table)
    console.print(str(native_status()), soft_wrap=True)
    console.print("Python: attnlab.evolution.describe(layer)", soft_wrap=True)
