"""Modules that are a sum of linear branches: each becomes one convolution, whoever wrote it.

A recorded run shows what a module computes. If that is linear in its one input, with a sum in it
and at most its own submodules after it (the activation), then `Sequential(convolution, activation)`
takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab.residuals.graph import Node, Ref
from attnlab.surgery.folding._flow import Flow, arguments
from attnlab.surgery.folding._ids import Refusal
from attnlab.surgery.folding._shifted import ShiftedConvolution

PLAIN_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
"""Norms that do nothing but normalise; a subclass may do more."""
_PASSES = ("dropout", "identity", "contiguous", "clone", "detach")
"""What changes nothing in eval mode."""
_CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}


class _NotLinear(Exception):  # noqa: N818
    """What the module computes is not linear, so that there is nothing to say of it."""


@dataclass(frozen=True)
class _Convolved:
    """The arguments of a convolution, as torch names them."""

    input: object
    weight: object
    bias: object = None
    stride: int | Sequence[int] = 1
    padding: int | Sequence[int] | str = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1


@dataclass(frozen=True)
class Branches:
    """A module that is a sum of branches, and what takes its place."""

    name: str
    module: nn.Module
    merged: nn.Module


def find_branches(network: nn.Module, flow: Flow) -> tuple[list[Branches], dict[str, str]]:
    """The innermost modules that are sums of linear branches; and those that nearly are, each with
    the reason why it stays."""
    found: list[Branches] = []
    refused: dict[str, str] = {}
    names = [name for name, module in network.named_modules() if name and any(module.children())]
    for name in sorted(names, key=lambda each: -each.count(".")):
        if any(each.name.startswith(f"{name}.") for each in found):
            continue
        try:
            merged = _Reading(network, flow, name).merged()
        except Refusal as reason:
            refused[name] = str(reason)
        except _NotLinear:
            continue
        else:
            found.append(Branches(name, network.get_submodule(name), merged))
    return found, refused


class _Reading:
    """One module, read from the graph of a run."""

    def __init__(self, network: nn.Module, flow: Flow, name: str) -> None:
        self.network, self.flow, self.name = network, flow, name
        self.module = network.get_submodule(name)
        if flow.graph.calls.get(name) != 1:
            raise _NotLinear
        own = [n for n in flow.nodes if (name, 0) in n.inside and n.data]
        inner = {node.index for node in own}
        read = {i for node in own for i in node.data_inputs} - inner
        returned = [n.index for n in own if (name, 0) in n.produced_by]
        if len(read) != 1 or len(returned) != 1:
            raise _NotLinear
        (self.input,), (self.output,) = read, returned
        seen_outside = {
            node.index
            for node in own
            if node.index != self.output and not inner.issuperset(flow.graph.readers(node.index))
        }
        if seen_outside or inner.intersection(flow.graph.outputs) - {self.output}:
            raise _NotLinear
        self.axes = len(flow.nodes[self.input].shape) - 2
        if self.axes not in _CONVOLUTIONS:
            raise _NotLinear

    def merged(self) -> nn.Module:
        """The convolution, with what the module does after it."""
        end, tail = self._before_activation()
        # Reasons are for what is linear; in a block that is not, some convolution always pads.
        if not all(self._may_be_linear(n) for n in self.flow.graph.between(self.input, end)):
            raise _NotLinear
        affine = self._affine(end)
        if not affine.sums:
            raise _NotLinear
        positions = prod(self.flow.nodes[end].shape[2:])
        if affine.kernel.numel() * positions > affine.macs:
            raise Refusal("as one convolution it would cost more than its branches do")
        if self.module._forward_hooks or self.module._forward_pre_hooks:
            raise Refusal("it has a hook, which would be lost")
        convolution = _as_module(affine)
        if not tail:
            return convolution
        return nn.Sequential(convolution, *tail).eval()

    def _before_activation(self) -> tuple[int, list[nn.Module]]:
        """The sum, and the module's own submodules that follow it one after the other."""
        end, tail = self.output, list[nn.Module]()
        while self.flow.nodes[end].kind != "add":
            node = self.flow.nodes[end]
            owners = [c for c, _ in node.produced_by if c.rpartition(".")[0] == self.name]
            if not owners or node.owner != owners[0] or len(node.data_inputs) != 1:
                raise _NotLinear
            tail.insert(0, self.network.get_submodule(owners[0]))
            (end,) = node.data_inputs
            if end == self.input or self.flow.readers[end] != [node.index]:
                raise _NotLinear
        return end, tail

    def _may_be_linear(self, node: Node) -> bool:
        known = ("add", "mul", "batch_norm", f"conv{self.axes}d", f"avg_pool{self.axes}d", *_PASSES)
        several = len(node.data_inputs) > 1 and node.operation != "add"
        return node.operation in known and not several

    def _affine(self, index: int) -> ShiftedConvolution:
        node = self.flow.nodes[index]
        if index == self.input:
            like = next(p for p in self.network.parameters() if p.is_floating_point())
            return ShiftedConvolution.identity(node.shape[1], self.axes, like)
        inputs = node.data_inputs
        if node.operation == "add" and len(inputs) == 2 and node.adds_same_shapes:
            if node.first_goes_on:
                raise _NotLinear
            return self._affine(inputs[0]).plus(self._affine(inputs[1]))
        if len(inputs) != 1 or node.random:
            raise _NotLinear
        before = self._affine(inputs[0])
        if node.operation in _PASSES or _adds_nothing(node):
            return before
        if node.operation == "batch_norm":
            return before.scaled(*self._norm(node))
        if node.operation == f"conv{self.axes}d":
            return before.then(self._convolution(node))
        if node.operation == f"avg_pool{self.axes}d":
            return before.then(self._pooling(node, len(before.bias)))
        if node.operation == "mul":
            return before.scaled(
                self._factor(node, len(before.bias)), torch.zeros_like(before.bias)
            )
        raise _NotLinear

    def _norm(self, node: Node) -> tuple[Tensor, Tensor]:
        norm = self.network.get_submodule(node.owner)
        if not isinstance(norm, _BatchNorm) or type(norm) not in PLAIN_NORMS:
            raise _NotLinear
        if norm.running_mean is None or norm.training:
            raise _NotLinear
        assert norm.running_var is not None
        scale = (norm.running_var + norm.eps).rsqrt()
        scale = scale if norm.weight is None else scale * norm.weight
        shift = -norm.running_mean * scale
        return scale.detach(), (shift if norm.bias is None else shift + norm.bias).detach()

    def _convolution(self, node: Node) -> ShiftedConvolution:
        given = _Convolved(**arguments(node))
        weight = constant_value(self.network, self.flow, given.weight)
        if isinstance(given.padding, str):
            raise Refusal(f"a convolution pads {given.padding!r}")
        dilation = self._per_axis(given.dilation)
        macs = weight.numel() * prod(node.shape[2:])
        kernel = _dense(weight, dilation)
        zero = kernel.new_zeros(kernel.shape[0])
        return ShiftedConvolution(
            kernel,
            zero if given.bias is None else constant_value(self.network, self.flow, given.bias),
            self._per_axis(given.stride),
            self._per_axis(given.padding),
            given.groups,
            shifted=given.bias is not None,
            macs=macs,
        )

    def _pooling(self, node: Node, channels: int) -> ShiftedConvolution:
        pool = self.network.get_submodule(node.owner)
        if not isinstance(pool, nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d) or pool.ceil_mode:
            raise _NotLinear
        sides, padding = self._per_axis(pool.kernel_size), self._per_axis(pool.padding)
        if any(padding) and not pool.count_include_pad:
            raise Refusal("its average pooling leaves the border out")
        if getattr(pool, "divisor_override", None) is not None:
            raise _NotLinear
        like = next(p for p in self.network.parameters() if p.is_floating_point())
        kernel = torch.full((channels, 1, *sides), 1 / prod(sides)).to(like.device, like.dtype)
        bias = kernel.new_zeros(channels)
        stride = self._per_axis(pool.stride)
        return ShiftedConvolution(kernel, bias, stride, padding, channels, shifted=False)

    def _factor(self, node: Node, channels: int) -> Tensor:
        """What a tensor is multiplied with, per channel."""
        others = [each for each in node.arguments if not _is_data(self.flow, each)]
        if len(node.arguments) != 2 or len(others) != 1 or node.keywords:
            raise _NotLinear
        factor = constant_value(self.network, self.flow, others[0])
        channel = (1, channels, *[1] * self.axes)
        if factor.numel() != 1 and tuple(factor.shape) not in (channel, channel[1:]):
            raise _NotLinear
        return factor.reshape(-1).expand(channels)

    def _per_axis(self, given: int | Sequence[int]) -> tuple[int, ...]:
        return (
            (given,) * self.axes
            if isinstance(given, int)
            else tuple(given) * (self.axes if len(given) == 1 else 1)
        )


def constant_value(network: nn.Module, flow: Flow, value: object) -> Tensor:
    """The value of an argument that does not depend on the input: a parameter, or what is computed
    from some."""
    if not isinstance(value, Ref):
        return torch.as_tensor(value)
    node = flow.nodes[value.index]
    if node.data:
        raise _NotLinear
    if node.name:
        owner, _, name = node.name.rpartition(".")
        found: Tensor = getattr(network.get_submodule(owner), name)
        return found.detach()
    if node.function is None or node.random:
        raise _NotLinear

    result = node.replayed(lambda reference: constant_value(network, flow, reference))
    if not isinstance(result, Tensor):
        raise _NotLinear
    return result.detach()


def _is_data(flow: Flow, value: object) -> bool:
    return isinstance(value, Ref) and flow.nodes[value.index].data


def _adds_nothing(node: Node) -> bool:
    """Whether it is the `0 + x` with which Python's `sum` begins."""
    others = [each for each in node.arguments if not isinstance(each, Ref)]
    return node.operation == "add" and others == [0] and not node.keywords


def _dense(weight: Tensor, dilation: tuple[int, ...]) -> Tensor:
    """The kernel with the zeros that dilation stands for."""
    weight = weight.detach()
    if prod(dilation) == 1:
        return weight
    sides = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    wide = weight.new_zeros(*weight.shape[:2], *sides)
    every = (slice(None), slice(None), *(slice(None, None, each) for each in dilation))
    wide[every] = weight
    return wide


def _as_module(affine: ShiftedConvolution) -> nn.Module:
    outputs, inputs = affine.kernel.shape[0], affine.kernel.shape[1] * affine.groups
    build: Any = _CONVOLUTIONS[len(affine.sides)]
    with torch.random.fork_rng(devices=[]):
        layer: nn.Module = build(
            inputs,
            outputs,
            affine.sides,
            affine.stride,
            affine.padding,
            groups=affine.groups,
            device=affine.kernel.device,
            dtype=affine.kernel.dtype,
        )
    layer.weight = nn.Parameter(affine.kernel)
    layer.bias = nn.Parameter(affine.bias)
    return layer.eval()
