"""`attnlab dynamics`: the ODE side of the stiffness paper, regenerated with its caveats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from attnlab.cli._show import check_drawing, console, numbers_table, print_python


def dynamics(
    experiment: Annotated[Literal["theorem2", "three-body"], tyro.conf.Positional],
    out: Path | None = None,
    trajectories: int = 1000,
    seed: int = 0,
) -> None:
    """Regenerate what the stiffness paper says about differential equations, with caveats.

    Examples:
      attnlab dynamics theorem2                     does SAI follow SI? where it does and does not
      attnlab dynamics three-body --out figures     how rarely three bodies come close

    Args:
        experiment: theorem2 or three-body.
        out: folder for the SVG figures.
        trajectories: number of three-body trajectories.
        seed: of random systems and initial states.
    """
    from attnlab._checked import check_whole

    check_drawing(out)
    check_whole("--trajectories", trajectories, 1)
    check_whole("--seed", seed, 0)
    if experiment == "theorem2":
        _theorem2(out, seed)
    else:
        _three_body(out, trajectories, seed)


def _theorem2(out: Path | None, seed: int) -> None:
    from attnlab.instruments.dynamics import figures
    from attnlab.instruments.dynamics.theorem2 import (
        check_identity,
        decay,
        rank_correlations,
        step_bias,
    )

    identity, ratio, rows = check_identity(seed=seed), decay(), rank_correlations(seed=seed)
    print("Theorem 2: SAI = SI·sqrt(c + Q). What holds, and what does not follow.\n")
    print(
        f"1. Exact for linear symmetric systems: largest relative error "
        f"{identity.largest_relative_error:.1e} over {identity.systems} random systems."
    )
    print(
        f"2. c belongs to the state: SAI/SI goes from {ratio.ratio[0]:.2g} to "
        f"{ratio.ratio[-1]:.1g} within t = 10/SI of one system, whose SI is constant."
    )
    print(f"3. A step of 1/SI biases the observed SAI by {100 * step_bias():.0f} %.")
    print("4. Spearman correlation of SI and SAI along solutions:")
    cells = [
        (row.problem, f"{row.correlation:+.2f}", f"{row.observed:+.2f}", f"{row.largest_si:.3g}")
        for row in rows
    ]
    console().print(numbers_table(("problem", "SAI", "observed", "largest SI"), cells))
    print("SAI measures rapid variation of the solution, not numerical stiffness.")
    _save(out, {"decay": figures.decay_figure(ratio), "rank": figures.rank_figure(rows)})
    print()
    print_python(
        "from attnlab.instruments.dynamics.theorem2 import rank_correlations",
        f"rank_correlations(seed={seed})",
    )


def _three_body(out: Path | None, trajectories: int, seed: int) -> None:
    from attnlab.instruments.dynamics import figures
    from attnlab.instruments.dynamics.three_body import encounter_shares, summary

    found = encounter_shares(trajectories, seed)
    numbers = summary(found)
    cells = [
        (
            "trajectories with a close encounter, %",
            f"{numbers.with_encounter:.1f} ± {numbers.with_encounter_error:.1f}",
            "91.4",
        ),
        (
            "time in close encounters, within those, %",
            f"{numbers.time:.2f} ± {numbers.time_error:.2f}",
            "4.2",
        ),
    ]
    console().print(numbers_table(("", "here", "paper"), cells))
    print(
        f"{numbers.trajectories} trajectories, DOP853 at rtol 1e-10, largest relative energy "
        f"drift {numbers.largest_energy_drift:.0e}."
    )
    print(
        "The paper defines neither trajectories nor encounters. The definition used here (see\n"
        "attnlab.instruments.dynamics.three_body) was chosen at round values to fit: consistent, "
        "not confirmed."
    )
    _save(out, {"encounters": figures.encounter_figure(found.share)})
    print()
    print_python(
        "from attnlab.instruments.dynamics.three_body import encounter_statistics",
        f"encounter_statistics({trajectories}, seed={seed})",
    )


def _save(out: Path | None, specs: dict[str, dict[str, object]]) -> None:
    from attnlab.page.plot import write_svg

    if out is not None:
        for name, spec in specs.items():
            print(f"wrote {write_svg(spec, out / f'{name}.svg')}")
