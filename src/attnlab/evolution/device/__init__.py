"""Try the operators on a device: right first, then how fast, beside others and its limits."""

from attnlab.evolution.device.contest import Case as Case
from attnlab.evolution.device.contest import TimedContestant as TimedContestant
from attnlab.evolution.device.contest import Work as Work
from attnlab.evolution.device.contest import compare as compare
from attnlab.evolution.device.contest import least_work as least_work
from attnlab.evolution.device.correctness import EDGES as EDGES
from attnlab.evolution.device.correctness import TOLERANCES as TOLERANCES
from attnlab.evolution.device.correctness import Checked as Checked
from attnlab.evolution.device.correctness import Edge as Edge
from attnlab.evolution.device.correctness import check as check
from attnlab.evolution.device.machine import facts as facts
from attnlab.evolution.device.machine import place as place
from attnlab.evolution.device.roof import Limits as Limits
from attnlab.evolution.device.roof import limits as limits
