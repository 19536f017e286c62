"""Which values of a metric are better, by its name; and whether all runs have it in one unit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from attnlab._errors import InputError


class KnownWord(NamedTuple):
    """What a word in a metric's name says."""

    better: Literal["higher", "lower"]
    share: bool
    """Whether people write it both as a share of one and in per cent."""


def _words(better: Literal["higher", "lower"], share: bool, words: str) -> dict[str, KnownWord]:
    return dict.fromkeys(words.split(), KnownWord(better, share))


KNOWN: dict[str, KnownWord] = {
    **_words("higher", True, "accuracy acc top map ap ar f1 auc auroc auprc iou miou dice"),
    **_words("higher", True, "precision recall sensitivity specificity ssim r2 bleu sacrebleu"),
    **_words("higher", True, "rouge rougel mcc kappa pearson spearman"),
    **_words("higher", False, "psnr fps"),
    **_words("lower", True, "error err ece eer wer cer brier"),
    **_words("lower", False, "loss logloss crossentropy nll perplexity ppl bpb bpc bpd"),
    **_words("lower", False, "mae mse rmse fid lpips latency time seconds ms"),
}
"""By word; a number after it is left out (`mAP50`, `top1`, `acc@5`). `ms` counts at the end of a
name only, because MS-SSIM is higher for the better."""

_LEAST_GAP = 10
"""Values up to 1 and values above 1 are taken for shares and per cent only if no two of them are
closer than this factor. Error rates of 0.9 % and 1.3 % are not; 0.9 and 9 % would be."""


def direction(metric: str) -> Literal["higher", "lower"] | None:
    """Return which values are better; None if the name does not say it.

    A word for the lower at the end decides: `top1_error` and `dice_loss` are an error and a loss.
    Other names with words of both kinds, and negated ones (`neg_mean_squared_error`), say nothing.
    """
    words = _known_words(metric)
    if not words or re.search(r"(?:^|[^a-z])(?:neg|negative|minus)(?:$|[^a-z])", metric.lower()):
        return None
    kinds = {word.better for word in words}
    return words[-1].better if len(kinds) == 1 or words[-1].better == "lower" else None


def check_units(metric: str, values: Mapping[str, Sequence[float]]) -> None:
    """Refuse a metric that is a share of one in some runs and in per cent in others.

    Args:
        metric: its name. Losses, times and the like are never in per cent, so they are not looked
            at; an unknown name may be anything, so it is.
        values: of each row, one per run.
    """
    words = _known_words(metric)
    if words and not words[-1].share:
        return
    # Zero is zero in every unit, and a run that diverged has none.
    runs = [(value, row) for row, own in values.items() for value in own if 0 < value < math.inf]
    shares = [run for run in runs if run[0] <= 1]
    cents = [run for run in runs if run[0] > 1]
    if not shares or not cents or max(cents)[0] > 100:
        return
    if min(cents)[0] < _LEAST_GAP * max(shares)[0]:
        return
    raise InputError(
        f"{metric!r} seems to be a share in some runs and per cent in others: "
        f"{min(shares)[0]:g} to {max(shares)[0]:g} in {len(shares)} runs (such as "
        f"{shares[0][1]}), {min(cents)[0]:g} to {max(cents)[0]:g} in {len(cents)} (such as "
        f"{cents[0][1]}). Write all of them in one unit; leave out runs that failed."
    )


def _known_words(metric: str) -> list[KnownWord]:
    name = re.sub(r"cross[^a-z]?entropy", "crossentropy", metric.lower())
    parts = [part for part in re.split(r"[^a-z0-9]+", name) if part]
    found = []
    for place, part in enumerate(parts):
        word = part if part in KNOWN else part.rstrip("0123456789")
        if word in KNOWN and (word != "ms" or place == len(parts) - 1):
            found.append(KNOWN[word])
    return found
