"""Whether inserted gates act on exactly the branches: set every step size to zero and look.

With all step sizes zero, every residual step must hand on its shortcut unchanged. timm is imported
with its additions reporting (see `coverage_truth.py`) and a gate is inserted at all steps. Then, at
each addition that timm's sources say is a step, the sum must equal one operand bit for bit when the
step sizes are zero, and must not when they are one. Prints the networks where this fails.

    python benchmarks/coverage_placement.py [PATTERN]
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from coverage_truth import BATCH, HERE, RECORDER, Event, Finder

sys.meta_path.insert(0, Finder())  # before anything imports timm
import timm  # noqa: E402

from attnlab._errors import AttnlabError  # noqa: E402
from attnlab.surgery.insertion import attachments  # noqa: E402
from attnlab.surgery.insertion.insert import insert  # noqa: E402


def sums(model: nn.Module, example: Tensor) -> list[tuple[str, bool]]:
    """For each step in one run: its owner and text, and whether the sum is one of its operands."""
    seen: list[tuple[str, bool]] = []

    def compare(event: Event, a: Tensor, b: Tensor, total: Tensor) -> None:
        unchanged = torch.equal(total, a) or torch.equal(total, b)
        seen.append((f"{event['owner']} ({event['text']})", unchanged))

    RECORDER.watch(model)
    RECORDER.after = compare
    with torch.no_grad():
        model(example)
    RECORDER.after = RECORDER.names = None
    return seen


def misplaced(network: dict) -> list[str]:
    """Steps that still move with all step sizes zero, or that never moved."""
    torch.manual_seed(0)
    model = timm.create_model(network["model"], pretrained=False, **network["options"]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    example = torch.randn(BATCH, *network["input"])
    gated, _ = insert(
        model, "se", where=lambda site: not site.refusal, example=example, start="identity"
    )
    first = sums(gated, example)
    if len(first) != network["steps"]:
        return [f"{len(first)} additions ran"]
    still = [name for name, unchanged in first if unchanged]
    refused = network["steps"] - len(list(attachments(gated)))
    for _, attachment in attachments(gated):
        assert attachment.scale is not None
        attachment.scale.zero_()
    moving = [name for name, unchanged in sums(gated, example) if not unchanged]
    if len(moving) == refused:
        moving = []
    return [f"no branch at {name}" for name in still] + [f"not gated: {name}" for name in moving]


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    right, wrong = 0, 0
    for network in json.loads((HERE / "coverage_truth.json").read_text())["networks"]:
        if not network["steps"] or not re.search(
            pattern, f"{network['family']} {network['model']}"
        ):
            continue
        try:
            problems = misplaced(network)
        except AttnlabError as error:
            problems = [str(error).splitlines()[0]]
        right, wrong = right + (not problems), wrong + bool(problems)
        if problems:
            print(f"{network['model']}: {len(problems)} of {network['steps']}: {problems[:3]}")
    print(f"gates on exactly the branches of {right} networks, not on {wrong}")


if __name__ == "__main__":
    main()
