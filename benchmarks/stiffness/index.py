"""How accurate and how costly SI without the Jacobian is."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import linalg
from torch import Tensor, nn

import attnlab
from attnlab.instruments.stiffness import spectrum
from attnlab.instruments.stiffness.plan import plan_steps
from attnlab.instruments.stiffness.step_index import StepMaps, step_indices
from attnlab.residuals.watching import watching
from benchmarks._common import Table, interleave, timed, write_json

LONG = 400
Product = Callable[[Tensor], Tensor]


def _arpack(transposed: Product, state: Tensor, number: int) -> float:
    """Return the largest |Re λ| of input `number` by scipy."""
    size = state[0].numel()

    def product(vector: np.ndarray) -> np.ndarray:
        batch = torch.zeros(len(state), size)
        batch[number] = torch.from_numpy(np.asarray(vector, dtype=np.float32).ravel())
        return transposed(batch)[number].double().numpy()

    operator = linalg.LinearOperator((size, size), matvec=product, dtype=np.float64)
    found = []
    for which in ("LR", "SR"):
        try:
            found.append(linalg.eigs(operator, 3, which=which, tol=1e-3, ncv=60, maxiter=30)[0])
        except linalg.ArpackNoConvergence as error:
            found.append(error.eigenvalues)
    return max((np.abs(values.real).max() for values in found if len(values)), default=0.0)


def _transposed(rate: Tensor, edge: Tensor, vector: Tensor) -> Tensor:
    product = torch.autograd.grad(rate, edge, vector.view_as(rate), retain_graph=True)[0]
    return product.reshape_as(vector)


@torch.no_grad()
def _branch(block: nn.Module, state: Tensor) -> Tensor:
    return block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(state)))))


def _backward_by_forward(block: nn.Module, state: Tensor, transposed: Product) -> float:
    ones = torch.ones_like(state).flatten(1)
    contest = {"forward": partial(_branch, block, state), "backward": partial(transposed, ones)}
    times = interleave({name: timed(run) for name, run in contest.items()}, 15)
    return statistics.median(times["backward"]) / statistics.median(times["forward"])


def index(
    network: str = "resnet56",
    weights: Path | None = None,
    shortcut: str = "projection",
    steps: int = 8,
    inputs: int = 2,
    json: Path = Path("out/stiffness-index.json"),
) -> None:
    """Compare the index SI of blocks of a CIFAR ResNet with ARPACK, on random images.

    The reference is the largest |Re λ| that any of these finds: scipy's implicitly restarted
    Arnoldi (ARPACK) from both ends of the spectrum, and our own with 400 vectors. The cost is in
    forwards of the branch: backward passes times the measured ratio of one backward to one forward.

    Args:
        network: name for attnlab.create.
        weights: a file; random if left out.
        shortcut: of the network.
        steps: how many blocks are looked at.
        inputs: how many images.
        json: where the numbers are written.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = attnlab.create(network, weights=weights, shortcut=shortcut).eval()
    images = torch.randn(inputs, 3, 32, 32)
    found = {each.step.label: each.spectral for each in step_indices(net, images)}
    taken = plan_steps(net)
    seen = StepMaps(taken, "branch")
    with watching(net, seen, found=taken.found), torch.enable_grad():
        net(images.requires_grad_(True))
    usable = [step for step in taken.steps if found[step.label] is not None]
    results = []
    for step in usable[:: max(1, len(usable) // steps)][:steps]:
        state, edge, rate = seen.maps[step.key]
        transposed = partial(_transposed, rate, edge)
        long = spectrum.transposed_index(transposed, state, vectors=LONG, seed=1)
        ours = found[step.label]
        slower = _backward_by_forward(net.get_submodule(step.name), state, transposed)
        for image in range(inputs):
            reference = max(_arpack(transposed, state, image), long.value[image].item())
            value = ours.value[image].item()
            row = {"step": step.label, "index": value, "error": abs(value / reference - 1)}
            row |= {"residual": ours.residual[image].item(), "backwards": ours.vectors}
            results.append({**row, "forwards": ours.vectors * slower})
    _show(results)
    write_json(json, {"network": network, "steps": results})


def _show(results: list[dict]) -> None:
    rows = [
        [
            *(row["step"], f"{row['index']:.4f}", f"{100 * row['error']:.3f}"),
            *(f"{row['residual']:.0e}", str(row["backwards"]), f"{row['forwards']:.0f}"),
        ]
        for row in results
    ]
    columns = ["step", "SI", "error, %", "residual", "backward passes", "= forwards"]
    Table("SI without the Jacobian", columns, rows).print()
    errors, costs = ([row[name] for row in results] for name in ("error", "forwards"))
    print(
        f"p95 {100 * np.quantile(errors, 0.95):.2f} %, max {100 * max(errors):.2f} %, "
        f"median {statistics.median(costs):.0f} and at most {max(costs):.0f} branch forwards"
    )
