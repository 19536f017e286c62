"""How accurate and how costly SI without the Jacobian is, on the blocks of a CIFAR ResNet.

    python benchmarks/stiffness_index.py                     ResNet-56, random weights and images
    python benchmarks/stiffness_index.py --network resnet32 --shortcut zero_pad --weights FILE
    python benchmarks/stiffness_index.py --quick

The reference is the largest |Re λ| that any of these finds: scipy's implicitly restarted Arnoldi
(ARPACK) from both ends of the spectrum, and our own with 400 vectors. The cost is in forwards of
the branch: backward passes times the measured ratio of one backward to one forward.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time

import numpy as np
import torch
from torch import Tensor

import attnlab
from attnlab.instruments.stiffness import spectrum
from attnlab.instruments.stiffness.plan import plan
from attnlab.instruments.stiffness.step_index import StepMaps, step_indices
from attnlab.residuals.watching import watching

LONG = 400


def arpack(transposed, state: Tensor, number: int) -> float:
    """The largest |Re λ| of input `number` by scipy."""
    sparse = importlib.import_module("scipy.sparse.linalg")
    size = state[0].numel()

    def product(vector: np.ndarray) -> np.ndarray:
        batch = torch.zeros(len(state), size)
        batch[number] = torch.from_numpy(np.asarray(vector, dtype=np.float32).ravel())
        return transposed(batch)[number].double().numpy()

    operator = sparse.LinearOperator((size, size), matvec=product, dtype=np.float64)
    found = []
    for which in ("LR", "SR"):
        try:
            found.append(sparse.eigs(operator, 3, which=which, tol=1e-3, ncv=60, maxiter=30)[0])
        except sparse.ArpackNoConvergence as error:
            found.append(error.eigenvalues)
    return max((np.abs(values.real).max() for values in found if len(values)), default=0.0)


def median_seconds(function, repeats: int = 15) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="resnet56")
    parser.add_argument("--weights")
    parser.add_argument("--shortcut", default="projection")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--inputs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="2 steps, 1 input")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    wanted, inputs = (2, 1) if arguments.quick else (arguments.steps, arguments.inputs)
    options = {"weights": arguments.weights, "shortcut": arguments.shortcut}
    net = attnlab.create(arguments.network, **options).eval()
    images = torch.randn(inputs, 3, 32, 32)
    found = {index.step.label: index.spectral for index in step_indices(net, images)}
    taken = plan(net)
    seen = StepMaps(taken, "branch")
    with watching(net, seen, found=taken.found), torch.enable_grad():
        net(images.requires_grad_(True))
    usable = [step for step in taken.steps if found[step.label] is not None]
    errors, costs = [], []
    for step in usable[:: max(1, len(usable) // wanted)][:wanted]:
        state, edge, rate = seen.maps[step.key]

        def transposed(vector: Tensor, rate=rate, edge=edge) -> Tensor:
            product = torch.autograd.grad(rate, edge, vector.view_as(rate), retain_graph=True)[0]
            return product.reshape_as(vector)

        long = spectrum.transposed_index(transposed, state, vectors=LONG, seed=1)
        block = net.get_submodule(step.name)
        with torch.no_grad():
            forward = median_seconds(
                lambda: block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(state)))))  # noqa: B023
            )
        backward = median_seconds(lambda: transposed(torch.ones_like(state).flatten(1)))  # noqa: B023
        ours = found[step.label]
        costs.append(ours.vectors * backward / forward)
        for image in range(inputs):
            reference = max(arpack(transposed, state, image), long.value[image].item())
            errors.append(abs(ours.value[image].item() / reference - 1))
            print(
                f"{step.label:6} SI {ours.value[image]:.4f} error {100 * errors[-1]:6.3f} % "
                f"residual {ours.residual[image]:.0e}, {ours.vectors} backward passes = "
                f"{costs[-1]:.0f} forwards",
                flush=True,
            )
    print(
        f"p95 {100 * np.quantile(errors, 0.95):.2f} %, max {100 * max(errors):.2f} %, "
        f"median {statistics.median(costs):.0f} and at most {max(costs):.0f} branch forwards"
    )


if __name__ == "__main__":
    main()
