"""The words of the papers, each in one sentence, where a page uses them."""

from __future__ import annotations

from attnlab.report.parts import Folded, Words

_DEFINITIONS = {
    "step": (
        "one residual block: it adds something to the features, x → x + f(x).",
        "docs/explanation/step-size.md",
    ),
    "gate": (
        "what an attention module multiplies f(x) by, one number per channel or place: the size of "
        "the step.",
        "docs/gates.md",
    ),
    "NSI": (
        "neural stiffness index: how far one step moves the features, relative to their length; 0 "
        "does nothing, 1 moves them by as much as they are long.",
        "docs/stiffness.md",
    ),
    "TNS": (
        "total neural stiffness: one number for a network, large where single steps stick out of "
        "their stage; 0 where all steps are alike.",
        "docs/stiffness.md",
    ),
    "δ(M)": (
        "share of the images for which some step is larger than M: 1 at the left bottom, falling "
        "to 0; TNS is its volume.",
        "docs/stiffness.md",
    ),
    "p̂(M)": ("share of the steps that are larger than M.", "docs/stiffness.md"),
    "M₁": (
        "how far above the mean of its stage a step must be, relatively, to count as stiff.",
        "docs/stiffness.md",
    ),
    "M₂": ("how large the NSI of a step must be at least, to count as stiff.", "docs/stiffness.md"),
    "ratio": (
        "how much a gate differs between images, relative to how much it differs between channels; "
        "0 is the same gate for every image.",
        "docs/stripe.md",
    ),
    "fold": (
        "to multiply a constant gate into the weights beside it, which leaves the plain network.",
        "docs/fold.md",
    ),
    "Δ": (
        "the result with a module minus the result of the plain network of the same seed.",
        "docs/studies.md",
    ),
    "interval": (
        "where the true mean of Δ lies, in 95 of 100 such studies; if 0 is inside, no difference "
        "is shown.",
        "docs/studies.md",
    ),
    "Holm": (
        "a correction of p-values for asking about several modules at once.",
        "docs/studies.md",
    ),
}


def words(*names: str) -> Folded:
    """The sentences for some words, behind a line that opens them."""
    entries = [(name, *_DEFINITIONS[name]) for name in names]
    return Folded(f"Words: {', '.join(names)}", [Words(entries)])
