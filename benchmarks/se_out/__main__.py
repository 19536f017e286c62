"""Squeeze-and-excitation taken out of trained networks: what it costs, predicted and measured.

attnlab study run se-out-resnet
python -m benchmarks.se_out run runs/*/ --json se_out.json
python -m benchmarks.se_out times runs/RUN --json se_out.json
"""

from __future__ import annotations

from benchmarks._common import run_program

COMMANDS = {
    "run": "measure:run",
    "torchao": "measure:torchao",
    "times": "measure:times",
}

if __name__ == "__main__":
    run_program("se_out", COMMANDS)
