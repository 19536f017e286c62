"""Every registered gate, its variants and ASR pass the public conformance suite."""

from __future__ import annotations

import functools

import pytest
from torch import nn

from attnlab.gates import GATES, InstanceEnhancementBatchNorm, build_gate
from attnlab.testing import Check, gate_checks
from attnlab.testing._probe import Build

VARIANTS: dict[str, Build] = {
    **{name: functools.partial(build_gate, name) for name in GATES},
    **{
        f"asr:{name}": functools.partial(build_gate, f"asr:{name}")
        for name, info in GATES.items()
        if info.on_vector
    },
    "asr:ie*3": functools.partial(build_gate, "asr:ie*3"),
    "cbam official": functools.partial(build_gate, "cbam", official=True),
    "sge 4 groups": functools.partial(build_gate, "sge", groups=4),
    "step shortcut": functools.partial(build_gate, "step", inputs="shortcut"),
    "step next": functools.partial(build_gate, "step", inputs="next"),
    "step difference": functools.partial(build_gate, "step", inputs="difference"),
    "step conv-bn": functools.partial(build_gate, "step", structure="conv-bn"),
    "step conv-ie": functools.partial(build_gate, "step", structure="conv-ie"),
    "step conv-iebn": functools.partial(build_gate, "step", structure="conv-iebn"),
    "step mlp": functools.partial(build_gate, "step", structure="mlp"),
    "se hard": functools.partial(build_gate, "se", squash="hard_sigmoid", nonlinearity="silu"),
    "bam official": functools.partial(build_gate, "bam", official=True),
    "scse official": functools.partial(build_gate, "scse", official=True),
    "ese official": functools.partial(build_gate, "ese", official=True),
    "ge extent 4": functools.partial(build_gate, "ge", extent=4),
    "gep extent 2": functools.partial(build_gate, "gep", extent=2),
    "gc mean": functools.partial(build_gate, "gc", pooling="mean"),
    "ela L": functools.partial(build_gate, "ela", version="L"),
    "ela two": functools.partial(build_gate, "ela", shared=False),
    "simam biased": functools.partial(build_gate, "simam", unbiased=False),
    "triplet pair": functools.partial(build_gate, "triplet", spatial=False),
    "ema 4 groups": functools.partial(build_gate, "ema", groups=4),
    "gam official": functools.partial(build_gate, "gam", official=True),
}

# These take seconds each and see the same operations in these variants as in the ones before.
SLOW = ("compiles", "exports_to_onnx")
ALIKE = (
    *("step shortcut", "step next", "step difference", "step conv-bn", "step conv-ie"),
    *("bam official", "ese official", "gep extent 2", "gc mean", "ela L", "ela two"),
    *("simam biased", "triplet pair", "ema 4 groups", "gam official"),
)


@pytest.mark.parametrize(
    ("variant", "check"),
    [
        pytest.param(variant, check, id=f"{variant}-{check}")
        for variant in VARIANTS
        for check in gate_checks()
        if check.name not in SLOW or variant not in ALIKE
    ],
)
def test_gate_conforms(variant: str, check: Check) -> None:
    check(VARIANTS[variant])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_gate_that_learned_starts_anew(variant: str) -> None:
    """`start_constant` once more, after other weights, is the same constant again."""

    def started(channels: int) -> nn.Module:
        gate = VARIANTS[variant](channels)
        if isinstance(gate, InstanceEnhancementBatchNorm):
            gate.start_identity()
        else:
            gate.start_constant()
        return gate

    (check,) = (each for each in gate_checks() if each.name == "starts_constant")
    check(started)  # which gives it other weights before
