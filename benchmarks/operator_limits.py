"""A roofline of the operators: their multiply-adds as a matrix product, and reading."""

from __future__ import annotations

from typing import Any

from operators_measure import SHAPES

GROUP, REDUCTION = 16, 4
"""Channels of one involution group, and how many fewer its maps are made of."""
PRODUCT, GOAL = "these as a matrix product, ms", "2.5 times that: the goal, ms"


def limits(record: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """What no kernel can be faster than, beside what was measured."""
    name = next(name for name in ("avx512", "avx2") if name in record["columns"])
    columns = [_of_shape(shape, name, record["columns"][name]) for shape in record["shapes"]]
    rows = [[label, *(column[label] for column in columns)] for label in columns[0]]
    beyond = [
        shape
        for shape, column in zip(record["shapes"], columns, strict=True)
        if float(column[GOAL]) < float(column[PRODUCT])
    ]
    below = ", and the goal of 2.5 times reading lies below the first limit on " if beyond else ""
    below += ", ".join(beyond)
    text = (
        f"Limits of this core, {name}, one thread: a kernel takes at least as long as its "
        "multiply-adds would in a large matrix product, and as reading its operands once. Where "
        f"these fit into the cache, reading is nearly free{below}. A matrix product reads a number "
        "once for many multiply-adds; here each needs a vector of its own from the cache, at an "
        "address that is not a multiple of a vector's length. With vectors of 16 numbers, rows of "
        "14, 28 and 56 leave an eighth of the lanes empty."
    )
    return text, ["", *record["shapes"]], rows


def _of_shape(shape: str, name: str, column: dict[str, Any]) -> dict[str, str]:
    batch, channels, side, window = SHAPES[shape]
    pixels, taps, reduced = batch * side**2, window**2, channels // REDUCTION
    aggregation = pixels * channels * taps
    fused = aggregation + pixels * reduced * (channels // GROUP * taps)
    layer = fused + pixels * channels * reduced
    rate = 1e9 * column["limits"]["matmul GFLOP/s"] / 2
    projections = 3 * pixels * channels**2
    measured = column["shapes"][shape]
    halo = measured["layers"]["timm HaloAttn"]["forward"]
    kernels, convolution = measured["kernels"], measured["layers"]["convolution 3×3"]["forward"]
    limit = max(aggregation / rate, kernels["floor"])
    before = measured["parts"]["1×1 convolution"] + measured["parts"]["norm and ReLU"]
    lanes = 16 if name == "avx512" and side > 8 else 8
    in_rows = before + fused / rate * -(-side // lanes) * lanes / side
    return {
        "multiply-adds of `av`, millions": f"{aggregation / 1e6:.0f}",
        PRODUCT: f"{1e3 * aggregation / rate:.2f}",
        "reading once, ms": f"{1e3 * kernels['floor']:.2f}",
        GOAL: f"{2.5e3 * kernels['floor']:.2f}",
        "`av`, ms": f"{1e3 * kernels['av']:.2f}",
        "`av` by the larger limit": f"{kernels['av'] / limit:.1f}",
        "multiply-adds of the involution layer, millions": f"{layer / 1e6:.0f}",
        "these as a matrix product, by the convolution's time": f"{layer / rate / convolution:.2f}",
        "1×1 convolution and norm as measured, the rest as that product in rows": (
            f"{in_rows / convolution:.2f}"
        ),
        "the layer by the convolution's time": (
            f"{measured['layers']['involution']['forward'] / convolution:.2f}"
        ),
        "projections of local attention as a matrix product, ms": f"{1e3 * projections / rate:.2f}",
        "HaloAttn by these: local attention at best": f"{halo * rate / projections:.1f}",
    }
