"""`attnlab study`: many runs, many seeds, here or on a cluster, and what they say."""

from __future__ import annotations

import tyro

from attnlab.cli._study_new import New, new
from attnlab.cli._study_plan import Plan, plan
from attnlab.cli._study_run import Run, run
from attnlab.cli._study_show import Measure, Show, measure, show
from attnlab.cli._study_status import Status, status

Action = New | Plan | Run | Status | Show | Measure


def study(action: tyro.conf.OmitSubcommandPrefixes[Action]) -> None:
    """Many runs, many seeds, here or on a cluster, and what they say beyond seed noise.

    Examples:
      attnlab study new mine.toml
      attnlab study plan demo
      attnlab study run demo
      attnlab study status demo
      attnlab study show demo
      attnlab study measure demo --images 1000
    """
    if isinstance(action, New):
        new(action)
    elif isinstance(action, Plan):
        plan(action)
    elif isinstance(action, Run):
        run(action)
    elif isinstance(action, Status):
        status(action)
    elif isinstance(action, Measure):
        measure(action)
    else:
        show(action)
