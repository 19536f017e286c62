"""The gates of a network, taken in while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import StepsNotFoundError
from attnlab.gates import ConvolutionalBlockAttention
from attnlab.instruments.different import DifferentInputs
from attnlab.instruments.stripe._stream import GateStream, Reservoir
from attnlab.residuals import GateSource, Observer, SeenGate
from attnlab.residuals.inputs import number_of_inputs


def usable_gates(
    model: nn.Module, gates: Sequence[GateSource]
) -> tuple[list[GateSource], list[str]]:
    """The gates with one value per image, and notes on the others."""
    notes = [
        f"{gate.name} is left out: it runs {len(gate.calls)} times in one forward."
        for gate in gates
        if len(gate.calls) != 1
    ]
    found = [gate for gate in gates if len(gate.calls) == 1]
    if not gates:
        raise StepsNotFoundError(
            f"{type(model).__name__} has no gate to watch: no gate that attnlab inserted, and no "
            f"squeeze-and-excitation module of timm or torchvision. Insert one first, for example "
            f"attnlab.insert(model, 'se'), or on the command line --gate se."
        )
    if not found:
        raise StepsNotFoundError(
            f"No gate of {type(model).__name__} runs once in one forward, so none has one value "
            f"per image. {' '.join(notes)}"
        )
    return found, notes


class GateStreams(Observer):
    """One stream per gate, of which images samples are kept, and how many of them differ."""

    def __init__(self, gates: Sequence[GateSource], sample: int) -> None:
        self.gates = gates
        self.streams = {gate.name: GateStream(gate.channel_axis) for gate in gates}
        self.reservoir = Reservoir(sample)
        self.different = DifferentInputs()
        self._batch = 0
        self._chosen: list[tuple[int, int]] = []
        self._spatial: dict[str, Tensor] = {}

    def call_begun(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._batch = number_of_inputs(arguments, keywords)
        self._chosen = self.reservoir.choose(self._batch)
        self.different.see(arguments, keywords)

    def gate_seen(self, seen: SeenGate) -> None:
        if seen.gate.name in self.streams:
            self.streams[seen.gate.name].see(seen.value, self._batch, self._chosen)

    def call_ended(self, output: Any) -> None:
        del output
        # CBAM's own spatial factor takes the place of the gate's mean over channels.
        for name, maps in self._spatial.items():
            self.streams[name].see_map(maps, self._chosen)
        self._spatial.clear()

    def spatial_factors(self) -> ExitStack:
        """Have CBAM's spatial attention (B, 1, H, W) seen as well, while entered."""
        hooks = ExitStack()
        for gate in self.gates:
            if isinstance(gate.module, ConvolutionalBlockAttention):
                last = gate.module.conv if gate.module.norm is None else gate.module.norm
                hooks.enter_context(last.register_forward_hook(self._sigmoid(gate.name)))
        return hooks

    def _sigmoid(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: Any, output: Tensor) -> None:
            del module, arguments
            self._spatial[name] = torch.sigmoid(output)

        return hook
