"""Three primitives that are closed under differentiation.

    av(a, x)[c, i] = Σ_k a[g(c), k, i] · x[c, i + k]       involution; attention times values
    qk(q, x)[g, k, i] = Σ_{c in g} q[c, i] · x[c, i + k]   attention scores; gradient of av in a
    sc(a, y)[c, j] = Σ_k a[g(c), k, j - k] · y[c, j - k]   adjoint of av in x

    ∂av/∂a = qk, ∂av/∂x = sc;  ∂qk/∂q = av, ∂qk/∂x = sc;  ∂sc/∂a = qk, ∂sc/∂y = av

so derivatives of every order are these three again. `i + k` stands for s·i + d·k - p of the window.
Maps are (B, G, K_h·K_w, H_out, W_out); group g holds C/G consecutive channels. Windows of one and
of three axes work alike.

They are torch operators; `kernel_choices()` says on which kernels they run here.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attnlab._errors import InputError
from attnlab.evolution import _ops
from attnlab.evolution.window import Sizes, Window


def av(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    """Aggregate x (B, C, H, W) with one map per group of channels: (B, C, H_out, W_out)."""
    _check_rank(window, maps=(maps, 3), x=(x, 2))
    expected = (x.shape[0], maps.shape[1], window.taps, *window.output_size(*x.shape[2:]))
    _check_shape("maps", _MAPS, window, maps, expected)
    check_groups(x.shape[1], maps.shape[1])
    maps, x = operands(maps, x)
    return _ops.av_operator(maps, x, window.flat())


def qk(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    """Each q (B, C, H_out, W_out) times its window of x: (B, groups, K_h·K_w, H_out, W_out)."""
    _check_rank(window, q=(q, 2), x=(x, 2))
    expected = (*x.shape[:2], *window.output_size(*x.shape[2:]))
    _check_shape("q", _OUTPUT, window, q, expected)
    check_groups(x.shape[1], groups)
    q, x = operands(q, x)
    return _ops.qk_operator(q, x, groups, window.flat())


def sc(maps: Tensor, y: Tensor, size: Sizes, window: Window) -> Tensor:
    """The adjoint of `av` in x: y (B, C, H_out, W_out) back to (B, C, *size)."""
    _check_rank(window, maps=(maps, 3), y=(y, 2))
    out_size = window.output_size(*size)
    _check_shape("y", _OUTPUT, window, y, (*y.shape[:2], *out_size))
    expected = (y.shape[0], maps.shape[1], window.taps, *out_size)
    _check_shape("maps", _MAPS, window, maps, expected)
    check_groups(y.shape[1], maps.shape[1])
    maps, y = operands(maps, y)
    return _ops.sc_operator(maps, y, list(size), window.flat())


def spanned_av(
    features: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, window: Window
) -> Tensor:
    """`av` with maps that are a 1×1 convolution of features (B, D, H_out, W_out).

    `weight` is (groups·K_h·K_w, D), `bias` (groups·K_h·K_w). The maps are made again in the
    backward pass instead of being kept.
    """
    _check_rank(window, features=(features, 2), x=(x, 2))
    expected = (x.shape[0], features.shape[1], *window.output_size(*x.shape[2:]))
    _check_shape("features", _OUTPUT, window, features, expected)
    check_groups(x.shape[1], groups)
    for name, tensor, shape in (
        ("weight", weight, (groups * window.taps, features.shape[1])),
        ("bias", bias, (groups * window.taps,)),
    ):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise InputError(f"Expected {name} of shape {shape} but got {tuple(tensor.shape)}.")
    features, x, weight, *rest = operands(features, x, weight, *([] if bias is None else [bias]))
    return _ops.spanned_av_operator(
        features, x, weight, rest[0] if rest else None, groups, window.flat()
    )


_MAPS = {
    1: "(B, G, K, L_out)",
    2: "(B, G, K_h·K_w, H_out, W_out)",
    3: "(B, G, K_t·K_h·K_w, T_out, H_out, W_out)",
}
_OUTPUT = {1: "(B, C, L_out)", 2: "(B, C, H_out, W_out)", 3: "(B, C, T_out, H_out, W_out)"}


def _check_rank(window: Window, **tensors: tuple[Tensor, int]) -> None:
    for name, (tensor, before) in tensors.items():
        rank = before + window.axes
        if tensor.dim() != rank:
            raise InputError(
                f"Expected {name} to have {rank} axes but got shape {tuple(tensor.shape)}."
            )


def _check_shape(
    name: str, meaning: dict[int, str], window: Window, got: Tensor, expected: tuple[int, ...]
) -> None:
    if tuple(got.shape) != expected:
        raise InputError(
            f"Expected {name} of shape {meaning[window.axes]} = {expected} but got "
            f"{tuple(got.shape)}."
        )


def check_groups(channels: int, groups: int) -> None:
    """Raise unless `groups` divides `channels`."""
    if groups < 1 or channels % groups:
        divisors = [n for n in range(1, channels + 1) if channels % n == 0]
        near = min(divisors, key=lambda n: abs(n - groups))
        raise InputError(
            f"Expected groups to divide the {channels} channels but got {groups}. "
            f"The nearest that does is {near}."
        )


def operands(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in one dtype: autocast's where it is on (never from float64), else the widest."""
    check_operands(*tensors)
    device, dtype = tensors[0].device.type, tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    # The meta device has no autocast, and asking for it is an error.
    if device != "meta" and torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    return tuple(tensor if tensor.dtype == dtype else tensor.to(dtype) for tensor in tensors)


def check_operands(*tensors: Tensor) -> None:
    """Raise where an operator would go wrong without a word.

    These are tensors of several devices, and derivatives in forward mode: torch drops them at an
    operator that has none.
    """
    places = {tensor.device for tensor in tensors}
    if len(places) > 1:
        names = ", ".join(sorted(map(str, places)))
        raise InputError(f"Expected all tensors on one device but got {names}.")
    if not torch.compiler.is_compiling() and any(map(_has_tangent, tensors)):
        raise InputError(
            "The operators of attnlab.evolution have no forward-mode derivatives (torch.func.jvp, "
            "jacfwd). Use reverse mode: backward, torch.autograd.grad or torch.autograd.functional."
        )


def _has_tangent(tensor: Tensor) -> bool:
    if forward_ad._current_level < 0:
        return False
    return forward_ad.unpack_dual(tensor).tangent is not None
