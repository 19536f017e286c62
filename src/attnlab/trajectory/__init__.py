"""Trajectories of a network's states: the stiffness of its steps, exact, in constant memory."""

from attnlab.trajectory.capture import Captured as Captured
from attnlab.trajectory.capture import CapturedStep as CapturedStep
from attnlab.trajectory.capture import capture as capture
from attnlab.trajectory.compare import Comparison as Comparison
from attnlab.trajectory.compare import compare as compare
from attnlab.trajectory.conventions import StepNorms as StepNorms
from attnlab.trajectory.conventions import nsi as nsi
from attnlab.trajectory.grid import Grid as Grid
from attnlab.trajectory.grid import proportion_integral as proportion_integral
from attnlab.trajectory.grid import regular_grid as regular_grid
from attnlab.trajectory.measure import StiffnessWarning as StiffnessWarning
from attnlab.trajectory.measure import stiffness as stiffness
from attnlab.trajectory.result import StiffestStep as StiffestStep
from attnlab.trajectory.result import StiffnessResult as StiffnessResult
from attnlab.trajectory.spectrum import stiffness_index as stiffness_index
from attnlab.trajectory.stages import usable as usable
from attnlab.trajectory.step_index import step_indices as step_indices
from attnlab.trajectory.stiffest import stiffest as stiffest
from attnlab.trajectory.total import tns as tns
