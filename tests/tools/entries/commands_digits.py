"""Commands that read digits by name; see `FAULTS` in `tests/tools/ledger.py`."""

from __future__ import annotations

import json

from tests.tools.entries import place as places
from tests.tools.entries import shorten as shortened
from tests.tools.entries import stiffness as stiff
from tests.tools.entries import stripe as stripes
from tests.tools.entries.command import printed, written
from tests.tools.entries.shared import picked, receipt

DIGITS = ("--data", "digits", "--limit", "16")


def stiffness() -> object:
    return stiff.shown(
        written("out/stiffness.json", "stiffness", "resnet20", *DIGITS, "--out", "out")
    )


def stripe() -> object:
    more = ("--gate", "se", *DIGITS, "--out", "out")
    return stripes.shown(written("out/stripe.json", "stripe", "resnet20", *more))


def place() -> object:
    found = {}
    for strategy in ("stiffest", "effect"):
        more = ("--budget", "2", "--strategy", strategy, *DIGITS, "--json")
        found[strategy] = places.shown(json.loads(printed("place", "resnet20", *more)))
    return found


def fold_constants() -> object:
    printed("insert", "resnet20", "--gate", "se", "-o", "gated.safetensors")
    more = ("--constants", "--data", "digits", "--limit", "32", "--budget", "all")
    made = written("plain.fold.json", "fold", "gated.safetensors", "-o", "plain.safetensors", *more)
    return {**receipt(made), **picked(made, "predicted measured accuracy_before accuracy_after")}


def shorten() -> object:
    more = ("--remove", "1", "--plan", *DIGITS, "--out", "out")
    return shortened.shown_curves(written("out/shorten.json", "shorten", "resnet20", *more))
