"""Which kernel an operator runs on, and the table that tells torch.

CPU tensors take the native kernels, CUDA tensors (ROCm too) the Triton kernels, where they exist
for the type; everything else is plain torch. Under `torch.compile` an operator without a kernel of
its own is handed over in the form for compilers; exported programs are, when they are decomposed
(`run_decompositions()`, ONNX), because whoever runs them may not have attnlab.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.evolution import _attention_ops, _ops, native
from attnlab.evolution._implementation import AttentionCall, Implementation, SpanCall
from attnlab.evolution._plain import EAGER, LOWERED
from attnlab.evolution.native.abi import STORAGE
from attnlab.evolution.native.implementation import Native

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DEVICES = ("cpu", "cuda")
_enabled = True


@dataclass(frozen=True)
class KernelChoice:
    """The kernel that runs for one device and type, and why."""

    device: str
    dtype: str
    kernel: Literal["native", "triton", "torch"]
    reason: str

    def __str__(self) -> str:
        return f"{self.device} {self.dtype}: {self.kernel} ({self.reason})"


def kernel_choices() -> tuple[KernelChoice, ...]:
    """Return which kernels the operators run on here, for every device of this machine and type."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices = ["cpu"] + ([] if accelerator is None else [accelerator.type])
    return tuple(kernel_for(device, dtype) for device in devices for dtype in DTYPES)


def kernel_for(device: str, dtype: torch.dtype) -> KernelChoice:
    """The kernels for tensors of `dtype` on `device`."""

    def chosen(kernel: Literal["native", "triton", "torch"], reason: str) -> KernelChoice:
        return KernelChoice(device, str(dtype).removeprefix("torch."), kernel, reason)

    if not _enabled:
        return chosen("torch", "switched off by use_native(False)")
    if device not in DEVICES:
        return chosen("torch", f"there are no kernels for {device}")
    if device == "cuda" or interpreting():
        return _choose_triton(dtype, chosen)
    status = native.native_status()
    if not status.available:
        return chosen("torch", status.reason)
    if dtype not in STORAGE:
        return chosen("torch", f"the native kernels take {', '.join(STORAGE.values())}")
    return chosen("native", f"{status.variant}, {status.reason}")


def _choose_triton(dtype: torch.dtype, chosen: Callable[..., KernelChoice]) -> KernelChoice:
    if os.environ.get("ATTNLAB_NATIVE") == "off":
        return chosen("torch", "ATTNLAB_NATIVE=off")
    if dtype not in DTYPES:
        return chosen("torch", "the Triton kernels take floating-point numbers")
    if importlib.util.find_spec("triton") is None:
        return chosen("torch", "triton is not installed")
    return chosen("triton", "interpreted on the CPU" if interpreting() else "compiled at first use")


def interpreting() -> bool:
    """Return whether Triton's interpreter, which runs kernels on CPU tensors, was asked for."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@contextlib.contextmanager
def use_native(enabled: bool) -> Iterator[None]:
    """Switch the package's own kernels off (or on again) inside a block, for comparisons."""
    global _enabled
    before, _enabled = _enabled, enabled
    try:
        with native.KERNELS.use(enabled):
            yield
    finally:
        _enabled = before


def implementation(device: str, dtype: torch.dtype) -> Implementation:
    """The kernels themselves."""
    kernel = kernel_for(device, dtype).kernel
    if kernel == "torch":
        return EAGER
    if kernel == "triton":
        from attnlab.evolution._triton import TRITON  # triton is imported with the first tensor

        return TRITON
    library = native.library()
    assert library is not None
    return Native(library, native.narrow_library)


Result = Tensor | tuple[Tensor, Tensor] | list[Tensor]
Run = Callable[[Implementation, tuple], Result]
"""Calls an implementation with the arguments of a torch operator."""


def _first(arguments: tuple) -> Tensor:
    """The tensor that says where and in which type an operator runs."""
    found = arguments[0]
    return found if isinstance(found, Tensor) else found[0]


def _register(operator: CustomOpDef, run_on: Run) -> None:
    def run(*arguments: object) -> Result:
        tensor = _first(arguments)
        chosen = implementation(tensor.device.type, tensor.dtype) if tensor.numel() else EAGER
        return run_on(chosen, arguments)

    def lower(
        mode: TorchDispatchMode,
        function: OpOverload,
        types: tuple[type, ...],
        args: tuple,
        kwargs: dict[str, object] | None = None,
    ) -> Result:
        tensor = _first(args)
        kernel = kernel_for(tensor.device.type, tensor.dtype).kernel
        if kernel != "torch" and not torch.compiler.is_exporting():
            return mode.__torch_dispatch__(function, types, args, kwargs)
        assert not kwargs, "the dispatcher hands on by position what is not keyword-only"
        with mode:
            return run_on(LOWERED, args)

    operator.register_kernel(DEVICES)(run)
    operator.register_torch_dispatch(FunctionalTensorMode, lower)


_register(_ops.av_operator, lambda to, given: to.av(*given))
_register(_ops.qk_operator, lambda to, given: to.qk(*given))
_register(_ops.sc_operator, lambda to, given: to.sc(*given))
_register(_ops.spanned_av_operator, lambda to, given: to.spanned_av(SpanCall(*given)))
_register(
    _ops.spanned_av_backward,
    lambda to, given: to.spanned_av_backward(given[0], SpanCall(*given[1:])),
)
_register(_attention_ops.attention_operator, lambda to, given: to.attention(AttentionCall(*given)))
_register(
    _attention_ops.attention_backward,
    lambda to, given: to.attention_backward(given[0], given[1], AttentionCall(*given[2:])),
)
