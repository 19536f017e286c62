"""A verdict for results that others made: logs of any training, compared row by row over seeds."""

from attnlab.lab.comparison.log import Log as Log
from attnlab.lab.comparison.read import read_logs as read_logs
from attnlab.lab.comparison.result import ComparisonResult as ComparisonResult
from attnlab.lab.comparison.show import to_text as to_text
