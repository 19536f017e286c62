"""How many different inputs it takes to call something constant."""

from __future__ import annotations

ENOUGH = 8
"""Below this many different inputs nothing is called constant. A value that is one of two, each as
often as the other, looks constant on 8 inputs with a chance of 2⁻⁷, below one in a hundred."""


def too_few_inputs(different: int, what: str) -> str:
    """A sentence for the verdict if there were too few different inputs, otherwise nothing."""
    if different >= ENOUGH:
        return ""
    if different <= 1:
        return (
            f"Only one {what}, or copies of one, was seen, so nothing can be said about whether it "
            f"depends on the {what}: give at least {ENOUGH} different ones."
        )
    return (
        f"Only {different} different {what}s were seen, and below {ENOUGH} nothing is called "
        f"constant."
    )
