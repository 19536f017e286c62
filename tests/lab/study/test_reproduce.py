"""What a page needs to say of a study so that others can run it again and cite it."""

from __future__ import annotations

import re

from attnlab.lab.study.plan import _commands, bibliography


def test_commands_name_the_study_as_it_can_be_run():
    report_line = "attnlab report runs --study {} -o report.html"
    for name, given in {
        "demo": "demo",
        "stepnet-table1-small": "stepnet-table1 --small",
        "of-my-own": "of-my-own.toml",
    }.items():
        expected = f"attnlab study run {given}\n{report_line.format(name)}"
        assert _commands(name) == expected


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
