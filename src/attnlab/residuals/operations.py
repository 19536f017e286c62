"""Names of torch operations, made canonical and sorted by what they do to a feature map."""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

OperationKind = Literal[
    "add",
    "convolution",
    "linear",
    "norm",
    "activation",
    "matmul",
    "scale",
    "layout",
    "pool",
    "other",
]

# Not `__rtruediv__` and `__rpow__`: those are not linear in the tensor.
_DUNDER = re.compile(r"^__(?:[ir]?(?=add|sub|mul|matmul)|i?(?=truediv|pow)|(?=getitem))(\w+)__$")
_ALIASES = {
    "truediv": "div",
    "true_divide": "div",
    "multiply": "mul",
    "concat": "cat",
    "concatenate": "cat",
    "swapaxes": "transpose",
    "swapdims": "transpose",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ACTIVATIONS = _names(
    """relu relu6 gelu silu sigmoid hardsigmoid hardswish tanh softmax elu leaky_relu mish prelu
    hardtanh softplus clamp clip selu celu log_softmax logsigmoid glu exp square quick_gelu
    scaled_dot_product_attention multi_head_attention_forward"""
)
LAYOUT = _names(
    """view reshape permute transpose flatten unflatten contiguous dropout clone to squeeze
    unsqueeze detach movedim moveaxis float half bfloat16 double type identity roll t expand view_as
    type_as reshape_as expand_as T mT feature_dropout alpha_dropout dropout1d dropout2d dropout3d
    as_tensor"""
)
CASTS = _names("to float half bfloat16 double type type_as")
READS_FIRST_ONLY = _names("view_as type_as reshape_as expand_as")
SHAPE_ONLY = _names(
    """zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty
    new_full"""
)
"""These look at a tensor's shape, dtype and device, not at its values."""
SPLITS = _names("split chunk unbind tensor_split split_with_sizes unsafe_chunk")
SLICES = _names("getitem slice narrow select")
RECURRENT = _names("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
_NOT_NORMALISATION = _names("norm normalize vector_norm linalg_vector_norm linalg_norm")
_CONVOLUTION = re.compile(r"^(conv[123]d|conv_transpose[123]d|convolution|deform_conv2d)$")

ADDITIONS = frozenset(
    [
        torch.add,
        Tensor.add,
        Tensor.add_,
        Tensor.__add__,
        Tensor.__radd__,
        Tensor.__iadd__,
        operator.add,  # what torch.export(strict=True) shows
        operator.iadd,
    ]
)

_SUBTRACTIONS = frozenset(
    [
        torch.sub,
        torch.subtract,
        Tensor.sub,
        Tensor.sub_,
        Tensor.subtract,
        Tensor.subtract_,
        Tensor.__sub__,
        Tensor.__isub__,
        operator.sub,
        operator.isub,
    ]
)
_PRODUCTS = frozenset([torch.addcmul, Tensor.addcmul, Tensor.addcmul_])
_INTERPOLATIONS = frozenset([torch.lerp, Tensor.lerp, Tensor.lerp_])


@cache
def canonical(name: str) -> str:
    """`__iadd__`, `add_` and `add` are all `add`; `relu_` is `relu`."""
    match = _DUNDER.match(name)
    if match:
        name = match.group(1)
    elif name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return _ALIASES.get(name.lstrip("_"), name.lstrip("_"))


@cache
def is_in_place(name: str) -> bool:
    """Return whether the function of this Python name writes into its first argument."""
    if name == "__setitem__" or re.match(r"^__i\w+__$", name):
        return True
    return name.endswith("_") and not name.endswith("__")


@cache
def kind_of(operation: str) -> OperationKind:
    """Return what a canonical operation does to a feature map."""
    if operation == "add":
        return "add"
    if _CONVOLUTION.match(operation):
        return "convolution"
    if operation in ("linear", "addmm", "bilinear"):
        return "linear"
    if "pool" in operation:
        return "pool"
    if "norm" in operation and operation not in _NOT_NORMALISATION:
        return "norm"
    if operation in ACTIVATIONS:
        return "activation"
    if operation in ("matmul", "bmm", "mm", "einsum", "baddbmm"):
        return "matmul"
    if operation in ("mul", "div"):
        return "scale"
    if operation in LAYOUT:
        return "layout"
    return "other"


class Addends(NamedTuple):
    """What a call adds up: `first`, and the product of `factors`."""

    first: Tensor
    factors: tuple[Tensor | float, ...]
    """The first of them is a tensor."""
    plain: bool = True
    """Whether the call adds two tensors as they are: then either can be the state. Else only the
    first goes on, and the second has a sign or a factor of the call's own."""
    from_first: bool = False
    """Whether `first` is taken from the first factor: `lerp(x, y, w)` is x + (y - x) w."""

    def second(self) -> Tensor:
        """The second operand, with its sign and factors."""
        value = self.factors[0]
        assert isinstance(value, Tensor)
        if self.from_first:
            value = torch.rsub(self.first, value)  # no addition by the rule of `addends`
        for factor in self.factors[1:]:
            value = value * factor
        return value


def addends(function: Any, arguments: tuple[Any, ...], keywords: Any) -> Addends | None:
    """The two tensors of one shape that the call adds, what a residual step is made of; None where
    it adds none.

    Recording, watching and hosting count additions by this one rule, so that their counts agree.
    """
    if function in ADDITIONS or function in _SUBTRACTIONS:
        return _of_two(function in _SUBTRACTIONS, arguments, keywords or {})
    if function in _PRODUCTS:
        return _of_product(arguments, keywords or {})
    if function in _INTERPOLATIONS and len(arguments) == 3 and not keywords:
        if not _same_shape(*arguments[:2]) or not isinstance(arguments[2], Tensor | float | int):
            return None
        return Addends(arguments[0], arguments[1:], plain=False, from_first=True)
    return None


def add_up(first: Tensor, second: Tensor, in_place: bool) -> Tensor:
    """The sum of what a call adds that is not plain, in a form that is not plain either: who counts
    additions around it counts it as the call that it stands for."""
    return first.add_(second, alpha=1) if in_place else torch.add(first, second, alpha=1)


def _same_shape(one: object, other: object) -> bool:
    return isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape


def _of_two(negative: bool, arguments: tuple[Any, ...], keywords: Any) -> Addends | None:
    if len(arguments) != 2 or not _same_shape(*arguments):
        return None
    if not negative and not keywords:
        return Addends(arguments[0], arguments[1:])
    if keywords.keys() - {"alpha"}:
        return None
    factor = keywords.get("alpha", 1) * (-1 if negative else 1)
    factors = (arguments[1],) if factor == 1 else (arguments[1], factor)
    return Addends(arguments[0], factors, plain=False)


def _of_product(arguments: tuple[Any, ...], keywords: Any) -> Addends | None:
    if len(arguments) != 3 or keywords.keys() - {"value"}:
        return None
    state, one, other = arguments
    if not all(isinstance(each, Tensor) for each in arguments):
        return None
    full = (one, other) if _same_shape(state, one) else (other, one)
    if not _same_shape(state, full[0]):
        return None
    factor = keywords.get("value", 1)
    return Addends(state, full if factor == 1 else (*full, factor), plain=False)
