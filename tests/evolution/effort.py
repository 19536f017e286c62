"""How much of a test is run."""

from __future__ import annotations

from attnlab.evolution._kernels import interpreting


def examples(count: int) -> int:
    """How many examples hypothesis tries: Triton's interpreter takes a second for each."""
    return max(4, count // 20) if interpreting() else count
