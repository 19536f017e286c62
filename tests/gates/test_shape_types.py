"""The shapes in the annotations are true: every gate runs with them enforced."""

from __future__ import annotations

import subprocess
import sys

from attnlab.gates import GATES

# In a process of its own: enforcement must be on before the package is imported, and torch.compile,
# which other tests use, cannot trace it.
PROGRAM = """
from jaxtyping import TypeCheckError, install_import_hook

install_import_hook("attnlab.gates", "beartype.beartype")
import torch
from attnlab.gates import GATES, StageGate, StepGate, build_gate
from attnlab.gates._pooling import spatial_mean

try:
    spatial_mean(torch.zeros(2, 3))
except TypeCheckError:
    pass
else:
    raise SystemExit("annotations are not enforced")

names = [*GATES, *(f"asr:{name}*2" for name, info in GATES.items() if info.on_vector)]
for name in names:
    gate = build_gate(name, 17)
    shapes = ((4, 17, 5, 7), (3, 17, 1, 1), (4, 17, 9), (4, 17, 2, 3, 4))
    for shape in (s for s in shapes if len(s) == 4 or len(s) - 2 in getattr(gate, "ranks", ())):
        for last in (False, True):
            branch = torch.randn(shape)
            if last and len(shape) == 4:
                branch = branch.contiguous(memory_format=torch.channels_last)
            if isinstance(gate, StepGate):
                gate(branch, branch)
            elif isinstance(gate, StageGate):
                gate(branch, gate(branch, None)[1])
            else:
                gate(branch)
print(len(names))
"""


def test_annotated_shapes_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    on_vector = [name for name, info in GATES.items() if info.on_vector]
    assert done.stdout.strip() == str(len(GATES) + len(on_vector))
