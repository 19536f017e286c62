"""The words of the papers, one sentence each, where a page uses them; and where the docs say more.

A page is one file that fetches nothing, and the documentation has no address of its own, so its
pages are named by their place in the repository, each with the heading.
"""

from __future__ import annotations

from attnlab.page.parts import Folded, Words

_DEFINITIONS = {
    "step": (
        "one residual block: it adds something to the features, x → x + f(x).",
        "docs/explanation/steps.md#an-update-of-a-state",
    ),
    "gate": (
        "what an attention module multiplies f(x) by, one number per channel or place: the size of "
        "the step.",
        "docs/explanation/step-size.md#a-module-returns-its-gate",
    ),
    "NSI": (
        "neural stiffness index: how far one step moves the features, relative to their length; 0 "
        "does nothing, 1 moves them by as much as they are long.",
        "docs/stiffness.md#what-is-computed",
    ),
    "TNS": (
        "total neural stiffness: one number for a network, large where single steps stick out of "
        "their stage; 0 where all steps are alike.",
        "docs/explanation/tns.md#the-definition",
    ),
    "δ(M)": (
        "share of the inputs for which some step is larger than M: 1 at the bottom left, falling "
        "to 0; TNS is its volume.",
        "docs/explanation/tns.md#the-definition",
    ),
    "p̂(M)": (
        "share of the steps that are larger than M.",
        "docs/explanation/tns.md#the-stiffness-proportion",
    ),
    "M₁": (
        "how far above the mean of its stage a step must be, relatively, to count as stiff.",
        "docs/explanation/tns.md#the-definition",
    ),
    "M₂": (
        "how large the NSI of a step must at least be to count as stiff.",
        "docs/explanation/tns.md#the-definition",
    ),
    "ratio": (
        "how much a gate differs between images, relative to how much it differs between channels; "
        "0 is the same gate for every image.",
        "docs/stripe.md#the-numbers",
    ),
    "fold": (
        "to multiply a constant gate into the weights beside it, which leaves the plain network.",
        "docs/fold.md#where-the-gate-goes",
    ),
    "Δ": (
        "the result with a module minus the result of the plain network of the same seed.",
        "docs/studies.md#what-the-table-says",
    ),
    "interval": (
        "where the true mean of Δ lies, in 95 of 100 such studies; if 0 is inside, no difference "
        "is shown.",
        "docs/studies.md#what-the-table-says",
    ),
    "Holm": (
        "a correction of p-values for asking about several modules at once.",
        "docs/studies.md#what-the-table-says",
    ),
}


def words(*names: str) -> Folded:
    """The sentences for some words, which a click on one line opens."""
    entries = [(name, *_DEFINITIONS[name]) for name in names]
    return Folded(f"Words: {', '.join(names)}", [Words(entries)])
