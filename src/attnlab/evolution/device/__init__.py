"""Try the operators on a device: whether they are right, then how fast, compared with others and
with the device's limits."""

from attnlab.evolution.device.contest import Case as Case
from attnlab.evolution.device.contest import PeerTimes as PeerTimes
from attnlab.evolution.device.contest import Work as Work
from attnlab.evolution.device.contest import least_work as least_work
from attnlab.evolution.device.contest import race as race
from attnlab.evolution.device.correctness import EDGES as EDGES
from attnlab.evolution.device.correctness import TOLERANCES as TOLERANCES
from attnlab.evolution.device.correctness import Checked as Checked
from attnlab.evolution.device.correctness import Edge as Edge
from attnlab.evolution.device.correctness import check as check
from attnlab.evolution.device.machine import Limits as Limits
from attnlab.evolution.device.machine import device_named as device_named
from attnlab.evolution.device.machine import limits as limits
from attnlab.evolution.device.machine import machine_facts as machine_facts
