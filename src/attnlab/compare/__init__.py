"""A verdict for results that others made: logs of any training, compared row by row over seeds."""

from attnlab.compare.compare import compare as compare
from attnlab.compare.log import Log as Log
from attnlab.compare.read import read_logs as read_logs
from attnlab.compare.show import to_text as to_text
