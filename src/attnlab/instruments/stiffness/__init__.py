"""Trajectories of a network's states: the stiffness of its steps, exact, in constant memory."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on

if TYPE_CHECKING:
    from attnlab.instruments.stiffness.capture import Captured as Captured
    from attnlab.instruments.stiffness.capture import CapturedStep as CapturedStep
    from attnlab.instruments.stiffness.compare import StiffnessComparison as StiffnessComparison
    from attnlab.instruments.stiffness.compare import compare_networks as compare_networks
    from attnlab.instruments.stiffness.compare import rank as rank
    from attnlab.instruments.stiffness.conventions import StepNorms as StepNorms
    from attnlab.instruments.stiffness.conventions import nsi as nsi
    from attnlab.instruments.stiffness.grid import Grid as Grid
    from attnlab.instruments.stiffness.grid import proportion_integral as proportion_integral
    from attnlab.instruments.stiffness.grid import regular_grid as regular_grid
    from attnlab.instruments.stiffness.measure import StiffnessWarning as StiffnessWarning
    from attnlab.instruments.stiffness.result import StiffestStep as StiffestStep
    from attnlab.instruments.stiffness.result import StiffnessResult as StiffnessResult
    from attnlab.instruments.stiffness.spectrum import (
        krylov_stiffness_index as krylov_stiffness_index,
    )
    from attnlab.instruments.stiffness.stages import usable as usable
    from attnlab.instruments.stiffness.step_index import step_indices as step_indices
    from attnlab.instruments.stiffness.total import tns as tns

__getattr__, __dir__ = handed_on(
    __name__,
    capture=(
        "Captured",
        "CapturedStep",
    ),
    compare=("StiffnessComparison", "compare_networks", "rank"),
    conventions=(
        "StepNorms",
        "nsi",
    ),
    grid=(
        "Grid",
        "proportion_integral",
        "regular_grid",
    ),
    measure=("StiffnessWarning",),
    result=(
        "StiffestStep",
        "StiffnessResult",
    ),
    spectrum=("krylov_stiffness_index",),
    stages=("usable",),
    step_index=("step_indices",),
    total=("tns",),
)
