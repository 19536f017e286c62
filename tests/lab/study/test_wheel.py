"""A wheel, built and looked into: the papers' studies are found where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.programs import program

ROOT = Path(__file__).parents[3]
STUDIES = sorted(file.name for file in (ROOT / "studies").glob("*.toml"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, unpacked as an installer does it."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed: pip install hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    environment = {k: v for k, v in os.environ.items() if k != "ATTNLAB_PREBUILD"}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(
        [*command, "--directory", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("attnlab-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    return site


def _python(installed: Path, folder: Path, *arguments: str) -> str:
    """Output of a new interpreter in `folder` that sees the wheel and not the checkout."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_the_studies_as_they_are(installed: Path) -> None:
    folder = installed / "attnlab" / "_studies"
    assert sorted(file.name for file in folder.iterdir()) == STUDIES
    for name in STUDIES:
        assert (folder / name).read_bytes() == (ROOT / "studies" / name).read_bytes()


def test_installed_studies_load_from_any_directory(installed: Path, tmp_path: Path) -> None:
    code = (
        "import attnlab, attnlab.lab.study as s; print(attnlab.__file__); "
        "[print(name, file, s.load_study(name).name) for name, file in s.list_studies().items()]"
    )
    package, *lines = _python(installed, tmp_path, "-c", code).splitlines()
    assert Path(package).is_relative_to(installed)
    expected = [
        f"{Path(name).stem} {installed / 'attnlab' / '_studies' / name} {Path(name).stem}"
        for name in STUDIES
    ]
    assert lines == expected


def test_installed_command_finds_a_study(installed: Path, tmp_path: Path) -> None:
    run = "from attnlab.cli import main; main()"
    printed = _python(installed, tmp_path, "-c", run, "study", "status", "demo")
    assert "8 waiting" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_readme_of_the_package_has_no_link_that_leads_nowhere(installed: Path) -> None:
    (metadata,) = installed.glob("attnlab-*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    assert "Attention is the step size of a residual network" in text
    assert "](docs/" not in text
    assert "![" not in text
    assert "Studies" in text  # the text of a link stays


def test_links_begin_with_the_address_that_was_configured() -> None:
    module = program("hatch_build.py")
    given = "![a](docs/a.png) [b](docs/b.md#c) [d](#e) [f](https://g.example/h)"
    assert module.package_readme(given, "https://x.example/") == (
        "![a](https://x.example/docs/a.png) [b](https://x.example/docs/b.md#c) [d](#e) "
        "[f](https://g.example/h)"
    )
    assert module.package_readme(given, "") == " b [d](#e) [f](https://g.example/h)"
