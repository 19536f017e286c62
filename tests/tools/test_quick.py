"""Which tests a change reaches."""

from __future__ import annotations

from tests.tools.quick import ALWAYS, MOST_IMPORTERS, reached


def test_a_change_reaches_the_tests_of_its_folder_or_its_room(tmp_path):
    for folder in ("instruments/stiffness", "gates", "cli"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "tests" / "gates" / "test_se.py").touch()
    (tmp_path / "tests" / "cli" / "test_page.py").write_text(
        "from attnlab.page.parts import Table\nfrom attnlab.gates.second import Second\n"
    )
    for number in range(MOST_IMPORTERS + 1):
        (tmp_path / "tests" / "cli" / f"test_{number}.py").write_text("import attnlab._errors\n")
    (tmp_path / "tests" / "instruments" / "stiffness" / "test_total.py").touch()
    (tmp_path / "tests" / "instruments" / "test_registry.py").touch()
    files = [
        "src/attnlab/instruments/registry.py",
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
        "tests/instruments/test_registry.py",
        "tests/instruments/stiffness",
        "tests/gates",
        "tests/cli/test_page.py",
        "tests/gates/test_se.py",
        "tests/docs/test_documents.py",
    ]
