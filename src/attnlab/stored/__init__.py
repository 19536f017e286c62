"""What is on disk: results, measurements and studies, as files of this and earlier versions.

Knows no network and no task, so that pages and tables can be made of what is stored alone.
"""

from attnlab.stored.comparison import StoredComparison as StoredComparison
from attnlab.stored.comparison import write_comparison as write_comparison
from attnlab.stored.damage import DamagedFileError as DamagedFileError
from attnlab.stored.measured import Measured as Measured
from attnlab.stored.metric import Metric as Metric
from attnlab.stored.result import RunResult as RunResult
from attnlab.stored.run import StoredRun as StoredRun
