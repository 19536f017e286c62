"""Every Triton kernel compiled for GPUs that need not be there: registers, spills, shared memory.

NVIDIA's assembler comes with Triton and says what it used; AMD's numbers stand in the assembly.
Nothing is run: this says nothing of speed.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from attnlab.evolution import Window
from attnlab.evolution._triton.kernels.attention import attention_kernel
from attnlab.evolution._triton.kernels.attention_backward import key_kernel, query_kernel
from attnlab.evolution._triton.kernels.maps import av_kernel, qk_kernel, sc_kernel
from attnlab.evolution._triton.kernels.position_gradients import position_kernel
from attnlab.evolution._triton.tuning import WARPS, Blocks, candidates, fixed, power
from benchmarks._common import Table, paragraph, renew_section, settings, write_json

KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        av_kernel,
        qk_kernel,
        sc_kernel,
        attention_kernel,
        query_kernel,
        key_kernel,
        position_kernel,
    )
}
TARGETS = {
    name: GPUTarget(*about) for name, about in settings("speed")["triton"]["targets"].items()
}
MAPS = ("av_kernel", "qk_kernel", "sc_kernel")
# Every integer that a kernel is given beside its window.
INTEGERS = (
    *("groups", "channels", "heads", "depth", "value_depth"),
    *("frames", "height", "width", "out_frames", "out_height", "out_width"),
)


@dataclass(frozen=True)
class Built:
    """What a compiled kernel takes of a GPU."""

    kernel: str
    target: str
    storage: str
    channels: int
    pixels: int
    registers: int
    spilled_bytes: int
    shared_bytes: int


def build(name: str, target: str, blocks: Blocks, depth: int = 32, storage: str = "fp32") -> Built:
    """Compile one kernel for a window of 7×7; attention for heads of `depth` with both terms."""
    kernel = KERNELS[name]
    constants: dict[str, Any] = {
        "WINDOW": (1, 7, 7, *Window.centred((1, 7, 7)).flat()[3:]),
        "COMPUTE": tl.float32,
        "BLOCK_C": blocks.channels,
        "BLOCK_P": blocks.pixels,
        "BLOCK_V": power(depth),
        "SCALE": depth**-0.5,
        "MASK": True,
        "HAS_BIAS": True,
        "HAS_RELATIVE": True,
    }
    constants = {key: value for key, value in constants.items() if key in kernel.arg_names}
    signature = {}
    for argument in kernel.arg_names:
        if argument in constants:
            signature[argument] = "constexpr"
        elif argument.endswith("_batch"):
            signature[argument] = "i64"
        elif argument in INTEGERS:
            signature[argument] = "i32"
        elif argument in ("stats", "deltas", "bias", "embedding", "bias_grad", "embedding_grad"):
            signature[argument] = "*fp32"
        else:
            signature[argument] = f"*{storage}"
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": WARPS, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=TARGETS[target], options=options)
    used = _nvidia(compiled) if TARGETS[target].backend == "cuda" else _amd(compiled)
    return Built(name, target, storage, *blocks, *used, compiled.metadata.shared)


def _nvidia(compiled: Any) -> tuple[int, int]:
    """Registers and spilled bytes, as NVIDIA's assembler reports them."""
    from triton.backends.nvidia.compiler import get_ptxas

    text = compiled.asm["ptx"]
    architecture = re.search(r"\.target\s+(sm_\w+)", text)
    assert architecture is not None
    program = get_ptxas(int(re.sub(r"\D", "", architecture[1]))).path
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(text)
        file.flush()
        report = subprocess.run(
            [program, "-v", "--gpu-name", architecture[1], file.name, "-o", "/dev/null"],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = re.search(r"Used (\d+) registers", report)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assert registers is not None, report
    assert spills is not None, report
    return int(registers[1]), int(spills[1]) + int(spills[2])


def _amd(compiled: Any) -> tuple[int, int]:
    """Vector registers, and bytes of scratch memory: where AMD's compiler spills to."""
    text = compiled.asm["amdgcn"]
    found = dict(re.findall(r"\.(vgpr_count|private_segment_fixed_size):\s+(\d+)", text))
    return int(found["vgpr_count"]), int(found["private_segment_fixed_size"])


def cases(every: bool) -> Iterator[tuple[str, Blocks, int, str]]:
    """Kernel, blocks, depth of a head (channels of a group) and storage."""
    for name in KERNELS:
        whole = name not in MAPS
        for depth in (16, 32, 64, 128) if whole else (16,):
            choices = candidates(depth, 3136, whole) if every else [fixed(depth, 3136, whole)]
            for blocks in choices:
                yield name, blocks, depth, "fp32"
        yield name, fixed(32 if whole else 16, 3136, whole), 32, "bf16"


HEADING = "## Triton kernels: `python -m benchmarks.speed triton`"


def section(found: list[Built]) -> str:
    """What the page says."""
    targets = list(dict.fromkeys(built.target for built in found))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for built in found:
        name = built.kernel.removesuffix("_kernel").replace("_", " ")
        key = (name, built.storage, f"{built.channels} × {built.pixels}")
        text = f"{built.registers} / {built.shared_bytes} / {built.spilled_bytes}"
        rows.setdefault(key, {})[built.target] = text
    table = Table(
        "",
        ["kernel", "storage", "channels × pixels of a program", *targets],
        [[*key, *(row[target] for target in targets)] for key, row in rows.items()],
    )
    text = (
        f"Every kernel with a window of 7×7, compiled by triton {triton.__version__} without a "
        f"GPU, with the blocks that it takes when nothing is timed; attention with relative "
        f"positions, bias and mask, heads as deep as a block has channels. Registers of a thread / "
        f"bytes of shared memory / bytes spilled. Nothing was run: this says nothing of speed."
    )
    return f"{paragraph(text)}\n\n{table.markdown()}"


def triton_kernels(
    targets: tuple[Literal["sm_80", "sm_90", "sm_100", "gfx942"], ...] = tuple(TARGETS),
    kernels: tuple[str, ...] = tuple(KERNELS),
    all_blocks: bool = False,
    json: Path = Path("out/speed-triton.json"),
    write_docs: Path | None = None,
) -> None:
    """Compile every Triton kernel for a 7×7 window, without a GPU.

    Args:
        targets: which GPUs.
        kernels: which kernels.
        all_blocks: also the blocks that Triton would time on a GPU, not only those that a kernel
            takes when nothing is timed.
        json: where the numbers are written.
        write_docs: renew the section of this page.
    """
    found = [
        build(name, target, blocks, depth, storage)
        for target in targets
        for name, blocks, depth, storage in cases(all_blocks)
        if name in kernels
    ]
    rows = [[str(value) for value in asdict(built).values()] for built in found]
    columns = [name.replace("_", " ") for name in asdict(found[0])]
    Table("Triton kernels, window 7×7", columns, rows).print()
    print(f"spilling: {sum(built.spilled_bytes > 0 for built in found)}")
    write_json(json, {"kernels": [asdict(built) for built in found]})
    if write_docs:
        renew_section(write_docs, HEADING, section(found))
