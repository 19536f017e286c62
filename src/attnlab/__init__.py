"""attnlab: attention as step size.

Put attention into any vision network, measure what it does to the network's feature trajectory, and
fold it away when it turned out to be constant.
"""

from attnlab.create import create as create
from attnlab.fold import fold as fold
from attnlab.insert import Receipt as Receipt
from attnlab.insert import Site as Site
from attnlab.insert import Step as Step
from attnlab.insert import insert as insert
from attnlab.insert import steps as steps
from attnlab.trajectory import capture as capture
from attnlab.trajectory import stiffness as stiffness

__version__ = "0.1.0"
