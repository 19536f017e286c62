"""NSI, TNS, δ(M), p̂(M), SI."""

from __future__ import annotations

import torch
from tests.tools.entries.shared import images, network, picked
from torch import Tensor, nn

import attnlab

RESULT = (
    "convention granularity tokens parameters inputs skipped tns tns_spread "
    "stiffest_share_of_tns stiffest relative_degrees absolute_degrees proportion_integral"
)
STEP = (
    "label stage name kind kept gated mean spread minimum quantile_05 median quantile_95 maximum "
    "stiffest_share si si_residual"
)
CONVENTIONS = ("state", "normed", "branch", "paper")


def shown(found: object) -> dict[str, object]:
    """A result of stiffness, or its JSON."""
    shares = picked(found, "surface proportion")
    return {
        **picked(found, RESULT),
        "steps": [picked(step, STEP) for step in picked(found, "nsi")["nsi"]],
        **{name: torch.tensor(values) for name, values in shares.items()},
    }


def _measured(found: nn.Module, given: Tensor, **options: object) -> dict[str, object]:
    return shown(attnlab.stiffness(found, list(given.split(4)), progress=False, **options))


def conventions() -> object:
    gated = network(gate="se")
    return {each: _measured(gated, images(), convention=each) for each in CONVENTIONS}


def plain() -> object:
    return {
        name: _measured(network(name), images(8, size))
        for name, size in (("resnet20", 16), ("resnet32", 16), ("torchvision:resnet18", 32))
    }


def blocks() -> object:
    gated = network("timm:test_vit", "se", size=160)
    return {
        each: _measured(gated, images(8, 160), convention=each, granularity="block")
        for each in CONVENTIONS
    }


def tokens() -> object:
    found = network("timm:test_vit")
    return {
        each: _measured(found, images(8, 160), tokens=each) for each in ("all", "class", "patch")
    }


def index() -> object:
    return _measured(network(), images(), si=2)


def grid() -> object:
    from attnlab.instruments.stiffness import regular_grid

    given = regular_grid(relative=3.0, absolute=1.0, points=5)
    return _measured(network(), images(), grid=given)


def step_index() -> object:
    from attnlab.instruments.stiffness import step_indices

    found = step_indices(network(gate="se"), images(2), example=images(1))
    return [
        [
            each.step.label,
            None if each.spectral is None else each.spectral.value,
            None if each.spectral is None else each.spectral.eigenvalue.real,
        ]
        for each in found
    ]


def spectrum() -> object:
    from attnlab.instruments.stiffness import krylov_stiffness_index

    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(12, 12, generator=generator, dtype=torch.float64)
    state = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    found = krylov_stiffness_index(lambda x: torch.tanh(x @ matrix), state)
    return {"value": found.value, "real": found.eigenvalue.real, "residual": found.residual}


def of_given_nsi() -> object:
    from attnlab.instruments.stiffness import proportion_integral, tns, usable
    from attnlab.instruments.stiffness.total import stiffest

    generator = torch.Generator().manual_seed(4)
    values = torch.rand(6, 9, generator=generator, dtype=torch.float64)
    stages = torch.tensor([1, 1, 1, 2, 2, 2, 3, 3, 3])
    found = stiffest(values, stages)
    return {
        "tns": tns(values, stages),
        "tns in a box": tns(values, stages, box=(1.0, 0.5)),
        "proportion": proportion_integral(values, stages),
        "stiffest": found.step,
        "share": found.share,
        "usable": usable(values, stages),
    }


def compared() -> object:
    from attnlab.instruments.stiffness.compare import rank

    names = ("resnet20", "resnet32", "resnet44")
    results = [
        attnlab.stiffness(network(name), [images()], name=name, progress=False) for name in names
    ]
    found = rank(results, [91.0, 92.5, 92.0])
    return {
        "networks": [picked(row, "network accuracy tns depth parameters") for row in found.rows],
        "tests": [vars(test) for test in found.tests],
    }
