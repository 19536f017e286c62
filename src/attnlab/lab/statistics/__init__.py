"""What numbers over seeds say: paired differences, intervals for a fixed and for an open number of
seeds, Holm's correction, and how many seeds would do."""

from attnlab.lab.statistics.anytime import anytime_p_value as anytime_p_value
from attnlab.lab.statistics.anytime import e_value as e_value
from attnlab.lab.statistics.equivalent import equivalence as equivalence
from attnlab.lab.statistics.equivalent import judge as judge
from attnlab.lab.statistics.paired import holm as holm
from attnlab.lab.statistics.paired import judge_differences as judge_differences
from attnlab.lab.statistics.paired import paired_difference as paired_difference
from attnlab.lab.statistics.paired import summarize as summarize
from attnlab.lab.statistics.paired import unpaired_difference as unpaired_difference
from attnlab.lab.statistics.power import seeds_needed as seeds_needed
