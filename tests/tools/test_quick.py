"""Which tests a change reaches."""

from __future__ import annotations

from tests.tools.quick import ALWAYS, reached


def test_a_change_reaches_the_tests_of_its_folder_or_its_room(tmp_path):
    for folder in ("instruments/stiffness", "gates", "cli"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "tests" / "gates" / "test_se.py").touch()
    files = [
        "src/attnlab/instruments/stiffness/native/__init__.py",
        "src/attnlab/gates/se.py",
        "src/attnlab/page/parts.py",
        "src/attnlab/_errors.py",
        "tests/gates/test_se.py",
        "tests/gates/test_gone.py",
        "docs/start.md",
        "Makefile",
    ]
    assert reached(files, tmp_path) == [
        *ALWAYS,
        "tests/instruments/stiffness",
        "tests/gates",
        "tests/gates/test_se.py",
        "tests/docs/test_documents.py",
    ]
