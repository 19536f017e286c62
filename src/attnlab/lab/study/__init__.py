"""Studies: a grid of runs, where they are worked on, and what they say."""

from typing import TYPE_CHECKING

from attnlab._folders import handed_on
from attnlab.results.table import StudyTable as StudyTable

if TYPE_CHECKING:
    from attnlab.lab.study.current import refresh as refresh
    from attnlab.lab.study.current import up_to_date as up_to_date
    from attnlab.lab.study.definition import Study as Study
    from attnlab.lab.study.definition import load_study as load_study
    from attnlab.lab.study.estimate import PlannedStudy as PlannedStudy
    from attnlab.lab.study.estimate import plan_study as plan_study
    from attnlab.lab.study.executors import Executor as Executor
    from attnlab.lab.study.executors import LocalExecutor as LocalExecutor
    from attnlab.lab.study.executors import RayExecutor as RayExecutor
    from attnlab.lab.study.executors import SlurmExecutor as SlurmExecutor
    from attnlab.lab.study.files import list_studies as list_studies
    from attnlab.lab.study.grid import planned_runs as planned_runs
    from attnlab.lab.study.measure import measure_study as measure_study
    from attnlab.lab.study.run import run_study as run_study
    from attnlab.lab.study.run import run_until_decided as run_until_decided
    from attnlab.lab.study.shared import SharedTable as SharedTable
    from attnlab.lab.study.shared import submit_rows as submit_rows
    from attnlab.lab.study.status import planned_status as planned_status
    from attnlab.lab.study.status import show_study as show_study
    from attnlab.lab.study.status import study_status as study_status
    from attnlab.lab.study.store import Store as Store

__getattr__, __dir__ = handed_on(
    __name__,
    current=(
        "refresh",
        "up_to_date",
    ),
    definition=(
        "Study",
        "load_study",
    ),
    estimate=(
        "PlannedStudy",
        "plan_study",
    ),
    executors=(
        "Executor",
        "LocalExecutor",
        "RayExecutor",
        "SlurmExecutor",
    ),
    files=("list_studies",),
    grid=("planned_runs",),
    measure=("measure_study",),
    run=(
        "run_study",
        "run_until_decided",
    ),
    shared=(
        "SharedTable",
        "submit_rows",
    ),
    status=(
        "planned_status",
        "show_study",
        "study_status",
    ),
    store=("Store",),
)
