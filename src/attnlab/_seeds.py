"""Independent random streams from one seed, by purpose.

Each purpose and epoch has a stream of its own, so that nothing a gate draws moves what another
part draws, two runs with one seed see the same data in the same order, and a run that resumes at
an epoch needs no stored random state.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A seed for one purpose: `derive(0, "order", 3)`."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *purpose: str | int) -> torch.Generator:
    """A generator on the CPU for one purpose, so that every device draws the same numbers."""
    import torch  # not with the file: to read `where` takes a seed and no tensor

    return torch.Generator().manual_seed(derive(seed, *purpose))
