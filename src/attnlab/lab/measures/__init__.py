"""What is measured of a finished run, apart from its training, re-runnable."""

from attnlab.lab.measures.apply import Applied as Applied
from attnlab.lab.measures.apply import apply_run as apply_run
from attnlab.lab.measures.folded import FoldedRun as FoldedRun
from attnlab.lab.measures.folded import fold_run as fold_run
from attnlab.lab.measures.folded import load_folded as load_folded
from attnlab.lab.measures.run import MEASUREMENTS as MEASUREMENTS
from attnlab.lab.measures.run import measure_run as measure_run
from attnlab.lab.measures.run import missing as missing
from attnlab.lab.measures.speed import time_interleaved as time_interleaved
