"""Whether a network's own attention modules do what a gate does: multiply, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.residuals import GateSource, Observer, SeenGate, Watchable
from attnlab.residuals.example import Example, call, evaluating
from attnlab.residuals.watching import watching

_MOST = 1e-4  # relative: rounding of float32, and far less than anything that is added


class _Products(Observer):
    def __init__(self, gates: Sequence[GateSource]) -> None:
        self.names = {gate.name for gate in gates}
        self.values: dict[str, Tensor] = {}
        self.inputs: dict[str, Tensor] = {}
        self.wrong: set[str] = set()

    def gate_seen(self, seen: SeenGate) -> None:
        if seen.gate.name in self.names:
            self.values[seen.gate.name] = seen.by_channel()

    def begun(self, name: str) -> Any:
        def hook(_module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self.inputs[name] = arguments[0].detach().clone()

        return hook

    def ended(self, name: str, axis: int) -> Any:
        def hook(_module: nn.Module, _arguments: Any, output: Any) -> None:
            branch, value = self.inputs.pop(name), self.values.pop(name, None)
            if value is None or not isinstance(output, Tensor) or output.shape != branch.shape:
                self.wrong.add(name)
                return
            before, after = (x.detach().movedim(axis, 1).flatten(2) for x in (branch, output))
            if value.shape[2] not in (1, before.shape[2]) or not _is_product(before, value, after):
                self.wrong.add(name)

        return hook


def _is_product(before: Tensor, value: Tensor, after: Tensor) -> bool:
    try:
        error = (before * value - after).abs().max()
    except RuntimeError:  # other channels, or other rows
        return False
    return bool(error <= _MOST * after.abs().max().clamp_min(torch.finfo(after.dtype).tiny))


def not_products(model: nn.Module, found: Watchable, example: Example | None) -> dict[str, str]:
    """Of the network's own gates, those whose module does not return its input times its gate; by
    name, with what to say."""
    own = [gate for gate in found.gates if gate.kind == "own"]
    produced = {name: node for node in found.run.graph.nodes for name, _ in node.produced_by}
    observer = _Products(own)
    with ExitStack() as hooks:
        for gate in own:
            if gate.name not in produced:
                continue
            module, axis = model.get_submodule(gate.name), produced[gate.name].channels_on
            hooks.enter_context(module.register_forward_pre_hook(observer.begun(gate.name)))
            hooks.enter_context(module.register_forward_hook(observer.ended(gate.name, axis)))
        hooks.enter_context(watching(model, observer, found=found))
        with evaluating(model):
            call(model, example)
    return {
        gate.name: f"{type(gate.module).__name__} does not return its input times what its "
        f"{gate.submodule!r} returns"
        for gate in own
        if gate.name in observer.wrong
    }
