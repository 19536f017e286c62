"""The stiffness index SI of a map without its Jacobian: Arnoldi on vector–Jacobian products.

SI = max |Re λ| over the eigenvalues λ of the Jacobian J of the right-hand side. J and Jᵀ have the
same eigenvalues, and one product with Jᵀ is one backward pass, several times cheaper than a forward
derivative. Power iteration would not do: it finds the largest |λ|, not the largest |Re λ|.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._errors import InputError

FEWEST_VECTORS, MOST_VECTORS = 50, 110
"""Dimensions of the Krylov space. Of seven steps of an untrained ResNet-20, with four images each,
one is resolved by 60, one by 80 and two by 110; of the other three the residual says how far."""
RESOLVED = 1e-2
"""The residual, relative to the eigenvalue, at which the space grows no further."""
CHECK_EVERY = 10
"""Eigenvalues of a small dense matrix are cheap beside ten backward passes."""


class SpectralIndex(NamedTuple):
    """SI of every input, and how well its eigenvalue was resolved."""

    value: Float[Tensor, " inputs"]
    """max |Re λ|."""
    eigenvalue: Tensor
    """The λ it belongs to, complex."""
    residual: Float[Tensor, " inputs"]
    """‖Jᵀy − λy‖ / |λ| of its eigenvector y. Small means that λ is an eigenvalue; it does not
    prove that λ is the one with the largest |Re λ|, so it never stops the search early."""
    vectors: int
    """Dimension of the Krylov space: how many backward passes it took."""


def krylov_stiffness_index(
    function: Callable[[Tensor], Tensor],
    state: Tensor,
    *,
    vectors: int = FEWEST_VECTORS,
    seed: int = 0,
) -> SpectralIndex:
    """SI of `function` at every input of the batch `state`.

    Args:
        function: maps a batch of states to a batch of the same shape, each input on its own.
        state: (inputs, ...).
        vectors: dimension of the Krylov space, one backward pass each; up to 110 where some
            eigenvalue is not resolved to a residual of 1e-2 by then.
        seed: of the random first vector.
    """
    with torch.enable_grad():
        leaf = state.detach().clone().requires_grad_(True)
        # A copy, so that a function that works in place cannot change the leaf.
        rate = function(leaf.clone())
    _check_map(leaf, rate)

    def transposed(vector: Tensor) -> Tensor:
        product = torch.autograd.grad(
            rate, leaf, vector.view_as(rate), retain_graph=True, allow_unused=True
        )[0]
        return torch.zeros_like(vector) if product is None else product.reshape_as(vector)

    return transposed_index(transposed, leaf, vectors=vectors, seed=seed)


def transposed_index(
    transposed: Callable[[Tensor], Tensor], state: Tensor, *, vectors: int, seed: int
) -> SpectralIndex:
    """SI from products with the transposed Jacobian, on vectors of shape (inputs, size)."""
    _check_independent_inputs(transposed, state)
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(state.flatten(1).shape, generator=generator).to(state)
    return ritz_index(arnoldi(transposed, start, vectors))


def arnoldi(apply: Callable[[Tensor], Tensor], start: Tensor, vectors: int) -> Tensor:
    """Hessenberg matrices (inputs, m+1, m) of a linear map on a batch of vectors (inputs, size).

    m is at least `vectors` and grows to `MOST_VECTORS` while some input is not resolved, but never
    beyond the size. Orthogonalised twice: it costs little beside a backward pass, and in float32
    once leaves spurious copies of converged eigenvalues.
    """
    inputs, size = start.shape
    most = min(max(vectors, MOST_VECTORS), size)
    basis = start.new_zeros(inputs, most + 1, size)
    basis[:, 0] = start / start.norm(dim=1, keepdim=True)
    hessenberg = torch.zeros(inputs, most + 1, most, dtype=torch.float64, device=start.device)
    tolerance = 10 * torch.finfo(start.dtype).eps
    for step in range(most):
        product = apply(basis[:, step])
        before = product.norm(dim=1)
        known = basis[:, : step + 1]
        for _ in range(2):
            overlap = torch.bmm(known, product.unsqueeze(2))
            product = product - torch.bmm(known.mT, overlap).squeeze(2)
            hessenberg[:, : step + 1, step] += overlap.squeeze(2)
        rest = product.norm(dim=1)
        # Nothing new: the space is invariant and its eigenvalues are exact. Zeros from here on.
        rest = torch.where(rest > tolerance * before, rest, 0.0)
        hessenberg[:, step + 1, step] = rest
        basis[:, step + 1] = product / torch.where(rest > 0, rest, torch.inf).unsqueeze(1)
        done = step + 1
        if done >= vectors and (done - vectors) % CHECK_EVERY == 0:
            found = hessenberg[:, : done + 1, :done]
            if (ritz_index(found).residual < RESOLVED).all():
                return found
    return hessenberg


def ritz_index(hessenberg: Tensor) -> SpectralIndex:
    """The Ritz value with the largest |Re| of each Hessenberg matrix, with its residual."""
    values, vectors = torch.linalg.eig(hessenberg[:, :-1])
    at = values.real.abs().argmax(1, keepdim=True)
    eigenvalue = values.gather(1, at).squeeze(1)
    last = vectors[:, -1].gather(1, at).squeeze(1).abs()
    absolute = eigenvalue.abs()
    residual = hessenberg[:, -1, -1] * last / torch.where(absolute > 0, absolute, 1.0)
    return SpectralIndex(eigenvalue.real.abs(), eigenvalue, residual, hessenberg.shape[2])


def _check_map(state: Tensor, rate: Tensor) -> None:
    if rate.shape != state.shape:
        raise InputError(
            f"Expected a map from a state to a state but got {tuple(state.shape)} to "
            f"{tuple(rate.shape)}: a step that changes the shape has no SI."
        )
    if not rate.requires_grad:
        raise InputError(
            "The map's output does not depend on its input by differentiable operations. "
            "Expected a map that runs with gradients (no inference_mode or detach inside)."
        )


def _check_independent_inputs(transposed: Callable[[Tensor], Tensor], state: Tensor) -> None:
    """Batch statistics couple the inputs, and then a batch has no Jacobian per input."""
    if state.shape[0] == 1:
        return
    probe = torch.zeros_like(state).flatten(1)
    probe[0] = 1
    if transposed(probe)[1:].any():
        raise InputError(
            "The map of one input depends on the other inputs of the batch, as in BatchNorm in "
            "training mode, so there is no Jacobian per input. Call model.eval() first."
        )
