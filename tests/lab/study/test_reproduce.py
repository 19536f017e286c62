"""What a page needs to say of a study so that others can run it again and cite it."""

from __future__ import annotations

import re

from tests.lab.study._small import small_study

from attnlab.lab.study.definition import load_study, new_study
from attnlab.lab.study.plan import bibliography


def test_commands_name_the_study_as_it_can_be_run(tmp_path):
    file = tmp_path / "of-my-own.toml"
    new_study(file)
    for study, given in (
        (load_study("demo"), "demo"),
        (load_study("stepnet-table1").smaller(), "stepnet-table1 --small"),
        (load_study(file), str(file)),
        (load_study(file).with_seeds([7]), str(file)),
        (small_study(name="of-python"), "of-python.toml"),
    ):
        assert study.invocation.command("run") == f"attnlab study run {given}"
        report_line = f"attnlab report runs --study {study.name} -o report.html"
        assert study.invocation.report(study.name, "-o", "report.html") == report_line


def test_bibliography_of_composed_gates():
    text = bibliography(["none", "asr:se*2", "asr:se+eca", "iebn"], stiffness=True)
    assert re.findall(r"@\w+{(\w+),", text) == [
        "huang2023understanding",
        "huang2024stripe",
        "hu2018squeeze",
        "wang2020eca",
        "liang2020instance",
    ]
    assert text.count("{") == text.count("}")
