"""The ODE side of stiffness: SI and SAI, classical stiff problems, three bodies."""

from attnlab.dynamics.indices import (
    observed_stiffness_aware_index as observed_stiffness_aware_index,
)
from attnlab.dynamics.indices import stiffness_aware_index as stiffness_aware_index
from attnlab.dynamics.indices import stiffness_index as stiffness_index
from attnlab.dynamics.problems import PROBLEMS as PROBLEMS
from attnlab.dynamics.problems import Problem as Problem
from attnlab.dynamics.problems import solve as solve
