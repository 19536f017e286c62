"""What is on disk: results, measurements and studies, as files.

Knows no network and no task, so that pages and tables can be made of what is stored alone.
"""

from attnlab.results.damage import DamagedFileError as DamagedFileError
from attnlab.results.metric import Metric as Metric
from attnlab.results.result import Measured as Measured
from attnlab.results.result import RunResult as RunResult
from attnlab.results.run import StoredRun as StoredRun
