"""Names of torch operations, made canonical and sorted by what they do to a feature map."""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import Any, Literal

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

_ADDITIONS = frozenset(
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


def canonical(name: str) -> str:
    """`__iadd__`, `add_` and `add` are all `add`; `relu_` is `relu`."""
    match = _DUNDER.match(name)
    if match:
        name = match.group(1)
    elif name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return _ALIASES.get(name.lstrip("_"), name.lstrip("_"))


def is_in_place(name: str) -> bool:
    """Whether the function of this Python name writes into its first argument."""
    if name == "__setitem__" or re.match(r"^__i\w+__$", name):
        return True
    return name.endswith("_") and not name.endswith("__")


@cache
def kind_of(operation: str) -> OperationKind:
    """What a canonical operation does to a feature map."""
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


def is_same_shape_addition(function: Any, arguments: tuple[Any, ...], keywords: Any) -> bool:
    """Whether the call adds two tensors of one shape: what a residual step is made of.

    Recording and hosting count additions by this one rule, so that their counts agree.
    """
    return (
        function in _ADDITIONS
        and len(arguments) == 2
        and not keywords
        and isinstance(arguments[0], Tensor)
        and isinstance(arguments[1], Tensor)
        and arguments[0].shape == arguments[1].shape
    )
