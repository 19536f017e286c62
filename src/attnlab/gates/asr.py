"""Attention-alike Structural Re-parameterization, ASR (Huang et al., ECCV 2024).

`gate = Att(ψ)`: an attention module fed by a learned vector ψ instead of by the features. The gate
is the same for every input, so it can be folded into the layer before it once training is over.
δ independent modules, each with its own ψ, multiply.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Final, Literal, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._errors import OptionError, unknown_name
from attnlab.gates._gate import ANY_RANK, Activation, ConstantGate, VectorGate
from attnlab.gates.se import SqueezeExcitation

ActivationName = Literal["sigmoid", "tanh"]
_ACTIVATIONS: Final[dict[ActivationName, Activation]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}

VISION_TRANSFORMER: Final[dict[str, object]] = {
    "activation": "tanh",
    "initial": 1e-3,
    "layer_initial": 1e-3,
}
"""The options that the paper takes on ViT: `build_gate("asr:se", 384, **VISION_TRANSFORMER)`."""


SMALLEST: Final = 1e-5
"""The least value of a product: below it neither the branch nor a factor trains, each being
multiplied by the others. One small factor alone is a layer scale, which Adam trains. The border is
ours."""


class LearnedVector(nn.Module):
    """One ψ and the attention module that reads it."""

    def __init__(self, attention: VectorGate, initial: float) -> None:
        super().__init__()
        self.psi = nn.Parameter(torch.full((1, attention.channels, 1, 1), initial))
        self.attention = attention

    def forward(self, activation: Activation | None) -> Float[Tensor, "1 channels"]:
        chosen = self.attention.squash if activation is None else activation
        return self.attention.of_vector(self.psi.flatten(1), chosen)

    def start_constant(self) -> float:
        return self.attention.start_constant()


class LearnedVectorGate(ConstantGate):
    """ASR gate: `inner(channels)` builds the attention module, `delta` is how many multiply.

    `activation` takes the place of the module's last function, which is σ in most; None keeps it.
    `initial` fills ψ; `layer_initial` fills every weight and bias of the attention modules, which
    otherwise keep their own start. With equal weights all hidden units get equal gradients and stay
    equal for ever, so that any width is width 1. `layer_spread` lets the weights of a layer vary
    around `layer_initial` by this share of it, with the mean of each row kept: the gate starts
    with the same value, and the units part once ψ has moved.

    A product (`delta` of 2 or more) that would start below `smallest` is refused: of two factors
    of tanh at 1e-3 it is 1e-6.
    """

    ranks = ANY_RANK

    def __init__(
        self,
        channels: int,
        inner: Callable[[int], VectorGate] = SqueezeExcitation,
        delta: int = 1,
        activation: ActivationName | None = None,
        initial: float = 0.1,
        layer_initial: float | None = None,
        layer_spread: float = 0.0,
        smallest: float = SMALLEST,
    ) -> None:
        super().__init__(channels)
        if delta < 1:
            raise OptionError(f"Expected delta to be at least 1 but got {delta}.")
        if activation is not None and activation not in get_args(ActivationName):
            raise unknown_name("activation of ASR", activation, get_args(ActivationName))
        if layer_spread and layer_initial is None:
            raise OptionError(
                "layer_spread is a share of layer_initial, which is not given: without it the "
                "layers keep their own random start. Leave layer_spread out."
            )
        self.activation = activation
        attentions = [inner(channels) for _ in range(delta)]
        if layer_initial is not None:
            for attention in attentions:
                _fill(attention, layer_initial, layer_spread)
        self.vectors = nn.ModuleList(LearnedVector(each, initial) for each in attentions)
        self._refuse_vanishing(smallest)

    def constant(self) -> Float[Tensor, " channels"]:
        """The gate of every input, one value per channel."""
        activation = None if self.activation is None else _ACTIVATIONS[self.activation]
        return functools.reduce(torch.mul, (vector(activation)[0] for vector in self._vectors()))

    def start_constant(self) -> float:
        if self.activation == "tanh":
            raise OptionError(
                "ASR with activation='tanh' cannot start as the identity: its gate starts near 0. "
                "Use activation='sigmoid', or insert with start='paper' and train from scratch."
            )
        for vector in self._vectors():
            if self.activation == "sigmoid" and vector.attention.squash is not torch.sigmoid:
                raise OptionError(
                    "ASR with activation='sigmoid' cannot start as the identity here: "
                    f"{type(vector.attention).__name__} ends in another function, and knows its "
                    "first value with that one only. Leave activation out, or insert with "
                    "start='paper'."
                )
        return math.prod(vector.start_constant() for vector in self._vectors())

    def _refuse_vanishing(self, smallest: float) -> None:
        with torch.no_grad():
            first = self.constant()
        if len(self.vectors) == 1 or first.is_meta or not first.abs().max() < smallest:
            return
        raise OptionError(
            f"ASR would start with a gate of {first.abs().max():.2g}, a product of "
            f"{len(self.vectors)}, where neither the branch nor any factor gets a gradient worth "
            f"the name (below smallest={smallest:g}). Use fewer factors, activation='sigmoid' or "
            f"layer_initial=None; smallest=0.0 builds it all the same."
        )

    def extra_repr(self) -> str:
        return f"{self.channels}, delta={len(self.vectors)}, activation={self.activation!r}"

    def _vectors(self) -> Iterator[LearnedVector]:
        return cast("Iterator[LearnedVector]", iter(self.vectors))


def _fill(attention: nn.Module, value: float, spread: float) -> None:
    for parameter in attention.parameters():
        nn.init.constant_(parameter, value)
        if spread and parameter.ndim > 1:
            noise = torch.randn_like(parameter)
            noise -= noise.mean(dim=tuple(range(1, parameter.ndim)), keepdim=True)
            with torch.no_grad():
                parameter.add_(noise, alpha=value * spread)
