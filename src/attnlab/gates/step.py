"""StepNet's adaptor (Huang et al., ICCV 2023).

`gate = F(x_t, x_{t+1})` with `x_{t+1} = x_t + f(x_t)`: a 1 x 1 convolution in groups, one for each
channel pair (x_t, x_{t+1}), global average pooling, BatchNorm, the affine map of IE, σ. Pooling and
that convolution commute, so pooling comes first and the map x_{t+1} is never formed.

The paper's figure does not fix all of this and its code is not public. The printed parameter counts
fix 6 C per block; the order inside and the initial values are ours.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import InputError, unknown_name
from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, StepGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import Excitation, as_channel_gate, check_batch_statistics, hidden_width
from attnlab.gates.iebn import InstanceEnhancementBatchNorm

Inputs = Literal["both", "shortcut", "next", "difference"]
Structure = Literal["conv-bn-ie", "conv-bn", "conv-ie", "conv-iebn", "mlp"]


States = Float[Tensor, "batch states channels"]


def pooled_states(shortcut: Maps, branch: Maps, inputs: Inputs) -> States:
    """The channel means of the states that the adaptor looks at."""
    if inputs == "shortcut":
        return spatial_mean(shortcut)[:, None]
    if inputs == "difference":
        return spatial_mean(branch)[:, None]
    here = spatial_mean(shortcut)
    there = here + spatial_mean(branch)
    return torch.stack((here, there), dim=1) if inputs == "both" else there[:, None]


class PairConvolution(nn.Module):
    """A 1 x 1 convolution without bias in C groups, each of the same channel in all states.

    Concatenated maps in C groups would pair channels 2j and 2j + 1 of the *same* state instead.
    """

    def __init__(self, channels: int, states: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(states)  # as nn.Conv2d starts
        self.weight = nn.Parameter(torch.empty(states, channels).uniform_(-bound, bound))

    def forward(self, states: States) -> Vector:
        return (self.weight * states).sum(dim=1)


class Affine(nn.Module):
    """IE before its sigmoid, `w ⊙ z + b`; starts at w = 0, b = −1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, -1.0)

    def forward(self, vector: Vector) -> Vector:
        weight = self.weight
        if vector.dtype is not weight.dtype:
            vector = vector.to(weight.dtype)
        return torch.addcmul(self.bias, weight, vector)


def build_response(channels: int, states: int, structure: Structure) -> nn.ModuleDict:
    """The layers from the pooled states to the value before the last sigmoid, in their order.

    Not an `nn.Sequential`: the gate goes through them itself, which is quicker than its call.
    """
    if structure == "mlp":
        wide = states * channels
        excitation = Excitation(wide, hidden_width(wide, 16), channels, bias=True)
        return nn.ModuleDict(OrderedDict(flatten=nn.Flatten(1), excitation=excitation))
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=PairConvolution(channels, states))
    if structure == "conv-iebn":
        layers["as_map"] = nn.Unflatten(1, (channels, 1, 1))
        layers["norm"] = InstanceEnhancementBatchNorm(channels)
        layers["flatten"] = nn.Flatten(1)
    if structure in ("conv-bn-ie", "conv-bn"):
        layers["norm"] = nn.BatchNorm1d(channels)
    if structure in ("conv-bn-ie", "conv-ie"):
        layers["ie"] = Affine(channels)
    return nn.ModuleDict(layers)


class StepAdaptor(StepGate):
    """StepNet's gate. `inputs` and `structure` name the variants of the paper's ablations.

    Structures: "conv-bn-ie" is the default; "conv-bn" leaves IE out and "conv-ie" leaves BatchNorm
    out; "conv-iebn" reads the figure's IEBN literally, σ(γ x̂ σ(w z + b) + β); "mlp" is SE's two
    layers on the pooled states. The pooled difference is `inputs="difference"`.
    """

    ranks = ANY_RANK

    def __init__(
        self, channels: int, inputs: Inputs = "both", structure: Structure = "conv-bn-ie"
    ) -> None:
        super().__init__(channels)
        if inputs not in get_args(Inputs):
            raise unknown_name("inputs of the step gate", inputs, get_args(Inputs))
        if structure not in get_args(Structure):
            raise unknown_name("structure of the step gate", structure, get_args(Structure))
        self.inputs = inputs
        self.structure = structure
        self.response = build_response(channels, 2 if inputs == "both" else 1, structure)

    def forward(self, shortcut: Maps, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        if shortcut.shape != branch.shape:
            raise InputError(
                f"{type(self).__name__} compares both ends of a step, but the shortcut is "
                f"{tuple(shortcut.shape)} and the branch {tuple(branch.shape)}. Put it on blocks "
                "with an identity shortcut, or give it the projected shortcut."
            )
        values = pooled_states(shortcut, branch, self.inputs)
        # self.response is a search in three dictionaries, and its own iterator takes longer yet.
        for layer in self._modules["response"]._modules.values():  # type: ignore[union-attr]
            if layer.training and isinstance(layer, _BatchNorm):  # type: ignore[union-attr]
                check_batch_statistics(
                    layer, branch.shape[0], type(self).__name__, "Use a batch of at least 2"
                )
            values = layer(values)  # type: ignore[misc]
        return as_channel_gate(torch.sigmoid(values), branch)

    def start_constant(self) -> float:
        layers = list(self.response.values())
        last = layers[-1]
        if isinstance(last, Excitation):
            last.start_zero()
            return 0.5
        for layer in layers:
            if isinstance(layer, _BatchNorm):
                layer.reset_parameters()
                if not isinstance(last, Affine):
                    nn.init.zeros_(layer.weight)
        if isinstance(last, Affine):
            last.reset_parameters()
            return 1 / (1 + math.e)
        return 0.5

    def extra_repr(self) -> str:
        return f"{self.channels}, inputs={self.inputs!r}, structure={self.structure!r}"
