"""The words of what can be chosen. A page reads them of a result, so nothing is imported here."""

from __future__ import annotations

from typing import Literal

Convention = Literal["state", "normed", "branch", "paper"]
"""What NSI is measured on; `attnlab.instruments.stiffness.conventions` says it of each."""
Granularity = Literal["step", "block"]
"""What one step is: a residual addition, or all additions of a block."""
Tokens = Literal["all", "class", "patch"]
"""Which tokens of a transformer's states are counted."""
