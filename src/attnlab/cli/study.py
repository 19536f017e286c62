"""`attnlab study`: many runs, many seeds, here or on a cluster, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from attnlab.cli._study_plan import PlanStudy, plan_command
from attnlab.cli._study_run import RunStudy, run_command
from attnlab.cli._study_show import MeasureStudy, ShowStudy, measure_command, show_command
from attnlab.cli._study_status import ShowStatus, status_command
from attnlab.cli._study_submit import SubmitRows, submit_command


@dataclass(frozen=True)
class NewStudy:
    """Write a study file to start from.

    Examples:
      attnlab study new mine.toml
      attnlab study new mine.toml --like language-gates
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Where to; an existing file is not touched."""
    like: str | None = None
    """A study of attnlab's to copy, so that you change it instead of writing one."""


def new_command(action: NewStudy) -> None:
    """Write it."""
    from attnlab.lab.study.definition import new_study

    path = new_study(action.path, action.like)
    print(f"wrote {path}")
    print(f"next: attnlab study plan {path}")


Action = (
    Annotated[NewStudy, tyro.conf.subcommand("new")]
    | Annotated[PlanStudy, tyro.conf.subcommand("plan")]
    | Annotated[RunStudy, tyro.conf.subcommand("run")]
    | Annotated[ShowStatus, tyro.conf.subcommand("status")]
    | Annotated[ShowStudy, tyro.conf.subcommand("show")]
    | Annotated[MeasureStudy, tyro.conf.subcommand("measure")]
    | Annotated[SubmitRows, tyro.conf.subcommand("submit")]
)


def study(action: tyro.conf.OmitSubcommandPrefixes[Action]) -> None:
    """Many runs, many seeds, here or on a cluster, and what they say beyond seed noise.

    Examples:
      attnlab study new mine.toml
      attnlab study plan demo
      attnlab study run demo
      attnlab study status demo
      attnlab study show demo
      attnlab study measure demo --images 1000
      attnlab study submit demo --table table.json
    """
    if isinstance(action, NewStudy):
        new_command(action)
    elif isinstance(action, PlanStudy):
        plan_command(action)
    elif isinstance(action, RunStudy):
        run_command(action)
    elif isinstance(action, ShowStatus):
        status_command(action)
    elif isinstance(action, MeasureStudy):
        measure_command(action)
    elif isinstance(action, SubmitRows):
        submit_command(action)
    else:
        show_command(action)
