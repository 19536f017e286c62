"""The page of one measurement that a command left as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from attnlab._errors import InputError
from attnlab.report.read import RENDERED


def result_page(path: str | Path) -> str:
    """HTML of the stiffness, the gates or the fold in a file, whichever it is."""
    file = Path(path)
    pages: dict[str, Callable[[str], str]] = {
        "attnlab stiffness": _stiffness,
        "attnlab stripe": _stripe,
        "attnlab fold": _fold,
    }
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text)
    except ValueError:
        raise InputError(f"{str(file)!r} is no JSON. Expected {RENDERED}.") from None
    # "attnlab fold 1": the number is the version, which the result's own reader checks.
    kind = str(found.get("format", "")).rpartition(" ")[0] if isinstance(found, dict) else ""
    if kind not in pages:
        raise InputError(f"{str(file)!r} is no result that has a page. Expected {RENDERED}.")
    return pages[kind](text)


def _stiffness(text: str) -> str:
    from attnlab.report.small import stiffness_page
    from attnlab.trajectory import StiffnessResult

    return stiffness_page(StiffnessResult.from_json(text))


def _stripe(text: str) -> str:
    from attnlab.report.small import stripe_page
    from attnlab.stripe import StripeResult

    return stripe_page(StripeResult.from_json(text))


def _fold(text: str) -> str:
    from attnlab.fold import FoldReceipt
    from attnlab.report.small import fold_page

    return fold_page(FoldReceipt.from_json(text))
