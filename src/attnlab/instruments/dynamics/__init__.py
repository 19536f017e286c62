"""The ODE side of stiffness: SI and SAI, classical stiff problems, three bodies."""

from attnlab.instruments.dynamics.problems import PROBLEMS as PROBLEMS
from attnlab.instruments.dynamics.problems import Problem as Problem
from attnlab.instruments.dynamics.problems import (
    observed_stiffness_aware_index as observed_stiffness_aware_index,
)
from attnlab.instruments.dynamics.problems import solve as solve
from attnlab.instruments.dynamics.problems import stiffness_aware_index as stiffness_aware_index
from attnlab.instruments.dynamics.problems import stiffness_index as stiffness_index
