"""Intervals, p-values and verdicts."""

from __future__ import annotations

from tests.tools.entries.shared import picked

PLAIN = {0: 91.2, 1: 90.8, 2: 91.5, 3: 91.1, 4: 90.6, 5: 91.3}
BETTER = {0: 91.7, 1: 91.0, 2: 91.9, 3: 91.8, 4: 91.0, 5: 91.6}
ALIKE = {0: 91.1, 1: 90.9, 2: 91.5, 3: 91.0, 4: 90.7, 5: 91.4}

DIFFERENCE = "mean low high p_value seeds std anytime_low anytime_high anytime_p"
EQUIVALENCE = "to margin mean low high p_value seeds sequential adjusted_p verdict"


def paired() -> object:
    from attnlab.lab.statistics import paired_difference, summarize

    return {
        "better": picked(paired_difference(BETTER, PLAIN), DIFFERENCE),
        "alike": picked(paired_difference(ALIKE, PLAIN, 0.9), DIFFERENCE),
        "two": picked(paired_difference({0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.0, 2: 3.0}), DIFFERENCE),
        "one": picked(paired_difference({0: 1.0}, {0: 0.5}), DIFFERENCE),
        "summary": picked(summarize(list(PLAIN.values())), "mean std number"),
    }


def unpaired() -> object:
    from attnlab.lab.statistics import unpaired_difference

    found = unpaired_difference(list(BETTER.values()), list(PLAIN.values())[:4])
    return picked(found, DIFFERENCE)


def anytime() -> object:
    from attnlab.lab.statistics import anytime_p_value, e_value

    differences = [BETTER[seed] - PLAIN[seed] for seed in PLAIN]
    return {
        "e": [e_value(differences[:n]) for n in range(2, 7)],
        "p": [anytime_p_value(differences[:n]) for n in range(2, 7)],
        "another prior": e_value(differences, g=4.0),
    }


def equivalent() -> object:
    from attnlab.lab.statistics import equivalence, judge

    family = {
        "better": equivalence(BETTER, PLAIN, 0.3, to="plain"),
        "alike": equivalence(ALIKE, PLAIN, 0.3, to="plain"),
        "looked": equivalence(ALIKE, PLAIN, 0.3, to="plain", sequential=True),
    }
    return {name: picked(found, EQUIVALENCE) for name, found in judge(family).items()}


def compared() -> object:
    from attnlab.lab.statistics import holm, judge_differences, paired_difference

    family = {name: paired_difference(each, PLAIN) for name, each in _family().items()}
    found: dict[str, object] = {"holm": holm([0.01, 0.04, 0.03, 0.5])}
    for sequential in (False, True):
        for better in ("higher", "lower"):
            verdicts = judge_differences(family, sequential=sequential, better=better)
            found[f"{sequential} {better}"] = {
                name: picked(each, "adjusted_p verdict low high p_value")
                for name, each in verdicts.items()
            }
    return found


def _family() -> dict[str, dict[int, float]]:
    return {"better": BETTER, "alike": ALIKE}


def power() -> object:
    from attnlab.lab.statistics import seeds_needed

    return [
        seeds_needed(effect, 0.3, sequential=sequential)
        for effect in (0.5, 0.2, 0.1)
        for sequential in (False, True)
    ]
