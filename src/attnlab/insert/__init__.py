"""Find the residual steps of a network, put gates on them, and say what changed."""

from attnlab.insert.steps import Step as Step
from attnlab.insert.steps import steps as steps
