"""Studies: a grid of runs, where they are worked on, and what they say."""

from attnlab.stored.table import StudyTable as StudyTable
from attnlab.study.definition import Study as Study
from attnlab.study.definition import list_studies as list_studies
from attnlab.study.definition import load_study as load_study
from attnlab.study.estimate import Plan as Plan
from attnlab.study.estimate import plan_study as plan_study
from attnlab.study.executors import Executor as Executor
from attnlab.study.executors import LocalExecutor as LocalExecutor
from attnlab.study.executors import RayExecutor as RayExecutor
from attnlab.study.executors import SlurmExecutor as SlurmExecutor
from attnlab.study.grid import planned_runs as planned_runs
from attnlab.study.measure import measure_study as measure_study
from attnlab.study.plan import refresh as refresh
from attnlab.study.plan import up_to_date as up_to_date
from attnlab.study.run import run_study as run_study
from attnlab.study.run import run_until_decided as run_until_decided
from attnlab.study.status import show_study as show_study
from attnlab.study.status import study_status as study_status
from attnlab.study.store import Store as Store
