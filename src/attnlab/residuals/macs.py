"""Multiply-accumulates of one run: torch's own formulas, summed.

`torch.utils.flop_counter.FlopCounterMode` also attributes them to modules through gradient hooks,
which fails on a network that hands a parameter to a module (CaiT's class token) without gradients.
torch's fused transformer layers have no formula, so they are off while counting.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class MacCounter(TorchDispatchMode):
    """Counts convolutions, matrix products and attention while entered; see `macs`."""

    def __init__(self) -> None:
        super().__init__()
        self._operations = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would wrap `__torch_dispatch__` so that nothing in it is compiled. Nothing is, and
        the wrapper takes twice as long as most operations of a small network."""
        return False

    @property
    def macs(self) -> int:
        return self._operations // 2

    def __enter__(self) -> MacCounter:
        self._fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        torch.backends.mha.set_fastpath_enabled(self._fused)
        super().__exit__(kind, error, traceback)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        output = function(*args, **(kwargs or {}))
        formula = flop_registry.get(function._overloadpacket)
        if formula is not None:
            self._operations += formula(*args, **(kwargs or {}), out_val=output)
        return output
