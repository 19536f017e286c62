"""What is read from disk, and that nothing else is needed to make a page of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.lab.pages.simulated import REGRESSION, make_table, prove, simulate

from attnlab._errors import AttnlabError
from attnlab.lab.pages.alerts import alerts
from attnlab.lab.pages.study_page import study_page
from attnlab.lab.pages.write import write_study_page
from attnlab.results import Measured, StoredRun
from attnlab.results.record import read_record
from attnlab.results.study import read_plans, read_study, read_table, write_table

SMALL = {"data": ("cifar10",), "gains": {"se": 0.4, "asr:se": 0.3}, "seeds": 2, "epochs": 4}

_FORBIDDEN = """
import sys
from pathlib import Path
from attnlab.lab.pages.write import write_study_page
write_study_page(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("attnlab.")}
print(*sorted(room for room in rooms if not room.startswith("_")))
print("torch" in sys.modules)
"""


def test_a_page_needs_no_network_and_no_task(tmp_path):
    study = simulate(tmp_path, task=REGRESSION, **SMALL | {"data": ("faces",)})
    page = tmp_path / "page.html"
    command = [sys.executable, "-c", _FORBIDDEN, str(tmp_path), study.name, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.stderr == ""
    assert done.stdout.split() == ["instruments", "lab", "page", "results", "surgery", "False"]
    assert page.is_file()


def test_what_was_written_is_read_again(tmp_path):
    study = simulate(tmp_path, **SMALL)
    directory = tmp_path / "studies" / study.name
    assert read_study(directory) == study
    assert read_table(directory) == make_table(tmp_path, study)
    (plan,) = read_plans(directory).plans
    assert plan.runs == study.runs


def test_states_of_runs(tmp_path):
    study = simulate(tmp_path, **SMALL, finished=0.5, failed="It ended.")
    last = tmp_path / study.runs[-1].folder
    last.mkdir()
    (last / "config.json").write_text("{}")
    record = read_record(tmp_path, study.name)
    assert [run.state for run in record.runs] == 3 * ["done"] + ["failed", "waiting", "begun"]
    text = study_page(record).sections[-1].parts[-2].parts[0].text
    assert text.splitlines()[3] == f"{study.runs[3].run_id}  failed   cifar10 resnet20 plain seed 1"


ANEW = "`attnlab report` and `attnlab study show` make it anew."


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("table.json", None, f"There is no {{}}. {ANEW}"),
        ("table.json", {"rows": []}, f"{{}} is damaged: study: Field required. {ANEW}"),
        (
            "study.json",
            {"study": {}},
            "{} is damaged: it does not say its format, expected 2. `attnlab study run` with the "
            "study's file or name writes it anew.",
        ),
        (
            "study.json",
            {"format": 3},
            "{} is damaged: it has format 3, expected 2: a newer attnlab wrote it. `attnlab study "
            "run` with the study's file or name writes it anew.",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path, file, content, message):
    study = simulate(tmp_path, **SMALL)
    path = tmp_path / "studies" / study.name / file
    path.unlink()
    path.with_name("plans.jsonl").unlink()
    if content is not None:
        path.write_text(json.dumps(content))
    with pytest.raises(AttnlabError) as error:
        write_study_page(tmp_path, study.name, tmp_path / "page.html")
    assert str(error.value) == message.format(path)
    assert not (tmp_path / "page.html").exists()


def test_notes_of_every_measurement_are_alerts(tmp_path):
    study = simulate(tmp_path, **SMALL)
    for entry in study.runs[:2]:
        found = Measured(measurement="noise", found=None, notes=("It was too loud.",))
        StoredRun(tmp_path / entry.folder).write_measured(found)
    found = [(a.text, a.detail) for a in alerts(read_record(tmp_path, study.name))]
    assert ("In 2 of 6 runs:", "It was too loud.") in found
    assert (
        "In 4 of 6 runs:",
        "The network has gates; convention 'state' counts states.",
    ) in found


def test_the_page_does_not_call_gates_constant_on_one_image(tmp_path):
    study = simulate(tmp_path, **SMALL)
    before = {s.title: s for s in study_page(read_record(tmp_path, study.name)).sections}
    assert "different" not in before["Is it constant?"].answer
    for entry in study.runs:
        file = tmp_path / entry.folder / "measured" / "stripe.json"
        if file.is_file() and (content := json.loads(file.read_text()))["found"]:
            content["found"]["different_images"] = 1
            file.write_text(json.dumps(content))
            prove(tmp_path / entry.folder)
    sections = {s.title: s for s in study_page(read_record(tmp_path, study.name)).sections}
    assert sections["Is it constant?"].answer == (
        "Only one image, or copies of one, was seen, so nothing can be said about whether it "
        "depends on the image: give at least 8 different ones."
    )


def test_without_measurements_the_page_says_what_is_missing(tmp_path):
    study = simulate(tmp_path, **SMALL)
    for entry in study.runs:
        for file in (tmp_path / entry.folder / "measured").iterdir():
            file.unlink()
    write_table(tmp_path / "studies" / study.name, make_table(tmp_path, study))
    record = read_record(tmp_path, study.name)
    sections = {section.title: section for section in study_page(record).sections}
    assert sections["What does it do to the features?"].answer.startswith("No run measured stiff")
    assert sections["Is it constant?"].answer.startswith("No finished run has gates")
    assert sections["Where?"].answer.startswith("No run measured stiffness")
    assert not any(alert.text.startswith("Latency") for alert in alerts(record))
    assert write_study_page(tmp_path, study.name, tmp_path / "page.html").is_file()


def test_a_difference_that_is_no_number_is_not_drawn_but_told(tmp_path):
    study = simulate(tmp_path, **SMALL)
    directory = tmp_path / "studies" / study.name
    content = json.loads((directory / "table.json").read_text())
    compared = content["groups"][0]["rows"][1]["comparison"]
    note = "seed 1 has no finite value (module nan, plain 92.0)"
    compared["difference"] |= {"mean": float("nan"), "low": None, "high": None, "p_value": None}
    compared["difference"] |= {"note": note, "cannot_tell": note}
    compared |= {"verdict": "cannot tell", "adjusted_p": None}
    (directory / "table.json").write_text(json.dumps(content))
    text = write_study_page(tmp_path, study.name, tmp_path / "page.html").read_text()
    assert 'aria-label="asr:se: ' in text
    assert 'aria-label="se: +' not in text
    assert "Seed 1 has no finite value" in text
