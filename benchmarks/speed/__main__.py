"""How fast attnlab is, against what a user would otherwise pick: ratios measured in one process,
interleaved.

    python -m benchmarks.speed gates --gates se cbam --seconds 2
    python -m benchmarks.speed operators --shapes S4 --calls 1 --rounds 1
"""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks._common import run_program

COMMANDS = {
    "gates": "gates:gates",
    "gate-tables": "gates:gate_tables",
    "networks": "gates:networks",
    "fold": "inference:fold",
    "fold-cost": "folding:fold_cost",
    "fold-cost-part": "folding:fold_cost_part",
    "hosting": "inference:hosting",
    "by-hand": "by_hand:by_hand",
    "inserting": "by_hand:inserting",
    "operators": "operators:operators",
    "operators-part": "operators:operators_part",
    "capture": "capture:capture",
    "train": "training:train",
    "callbacks": "training:callbacks",
    "language": "language:language",
    "large": "large:large",
    "large-part": "large:large_part",
    "memory": "memory:memory",
    "memory-part": "memory:memory_part",
    "loaders": "loaders:loaders",
    "loader-memory": "loaders:loader_memory",
    "studies": "studies:studies",
    "studies-part": "studies:studies_part",
    "clusters": "clusters:clusters",
}
if find_spec("triton") is not None:  # torch brings it on Linux only
    COMMANDS["triton"] = "triton_kernels:triton_kernels"

if __name__ == "__main__":
    run_program("speed", COMMANDS)
