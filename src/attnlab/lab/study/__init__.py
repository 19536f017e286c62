"""Studies: a grid of runs, where they are worked on, and what they say."""

from attnlab.lab.study.definition import Study as Study
from attnlab.lab.study.definition import list_studies as list_studies
from attnlab.lab.study.definition import load_study as load_study
from attnlab.lab.study.estimate import PlannedStudy as PlannedStudy
from attnlab.lab.study.estimate import plan_study as plan_study
from attnlab.lab.study.executors import Executor as Executor
from attnlab.lab.study.executors import LocalExecutor as LocalExecutor
from attnlab.lab.study.executors import RayExecutor as RayExecutor
from attnlab.lab.study.executors import SlurmExecutor as SlurmExecutor
from attnlab.lab.study.grid import planned_runs as planned_runs
from attnlab.lab.study.measure import measure_study as measure_study
from attnlab.lab.study.plan import refresh as refresh
from attnlab.lab.study.plan import up_to_date as up_to_date
from attnlab.lab.study.run import run_study as run_study
from attnlab.lab.study.run import run_until_decided as run_until_decided
from attnlab.lab.study.status import show_study as show_study
from attnlab.lab.study.status import study_status as study_status
from attnlab.lab.study.store import Store as Store
from attnlab.results.table import StudyTable as StudyTable
