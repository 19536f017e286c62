"""How many seeds a wished effect needs."""

from __future__ import annotations

import math

from attnlab._checked import check_whole
from attnlab._errors import InputError
from attnlab._extras import needs
from attnlab.lab.statistics.anytime import check_level, is_real_number, t_limit
from attnlab.lab.statistics.paired import LEVEL


def seeds_needed(
    effect: float,
    spread: float,
    level: float = LEVEL,
    power: float = 0.8,
    sequential: bool = False,
    most: int = 1000,
) -> int | None:
    """The least number of paired seeds that shows an effect with the probability `power`.

    Both rules are computed, not simulated: the t statistic of n differences has a noncentral t
    distribution, and the rule asks it to be beyond a limit. For the anytime rule that is one look,
    at n. Whoever looks after every seed has decided by then with a higher probability and stops
    earlier, so the number is an upper bound, by 10 to 20 % where it is more than a dozen.

    Args:
        effect: the true mean of the paired difference that is to be shown, of either sign.
        spread: the standard deviation of the paired difference (`PairedDifference.std`).
        level: one minus the error rate. For m modules side by side, 1 - 0.05/m is what Holm asks of
            the first of them.
        power: probability of a verdict.
        sequential: the anytime rule in place of the t-test with a number of seeds fixed beforehand.
        most: where to stop counting.

    Returns:
        The number, or None if it is more than `most`.
    """
    _check(effect, spread, level, power, most)
    size = abs(effect) / spread
    for number in range(2, most + 1):
        if _shown(size, number, level, sequential) >= power:
            return number
    return None


def _shown(size: float, number: int, level: float, sequential: bool) -> float:
    """The probability that this number of seeds shows an effect of `size` standard deviations."""
    with needs("study"):
        from scipy import stats  # here, because it takes a second that no worker needs

    freedom = number - 1
    limit = t_limit(number, level) if sequential else stats.t.isf((1 - level) / 2, freedom)
    if math.isinf(limit):  # so few that no difference would be believed
        return 0.0
    shift = size * math.sqrt(number)
    above, below = stats.nct.sf(limit, freedom, shift), stats.nct.cdf(-limit, freedom, shift)
    return float(above + below)


def _check(effect: float, spread: float, level: float, power: float, most: int) -> None:
    if not is_real_number(effect) or not 0 < abs(effect) < math.inf:
        raise InputError(
            f"Expected an effect other than zero but got {effect!r}. No number of seeds shows that "
            f"there is no effect."
        )
    if not is_real_number(spread) or not 0 < spread < math.inf:
        raise InputError(
            f"Expected a spread of the paired differences above zero but got {spread!r}. It takes "
            f"two seeds with different differences to know one."
        )
    check_level(level)
    if not is_real_number(power) or not 0 < power < 1:
        raise InputError(f"Expected a power between 0 and 1 but got {power!r}.")
    check_whole("most", most, 2)
