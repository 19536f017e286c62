"""The site, built once for all tests and processes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from tests.docs.blocks import ROOT


@pytest.fixture(scope="session")
def site(shared_folder: Path) -> Path:
    """The folder of the built site; building it strictly is a test by itself."""
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("zensical is not installed: pip install 'attnlab[docs]'")
    project = shared_folder / "site_project"
    with FileLock(shared_folder / "site.lock"):
        if not project.exists():
            build(project)
    built = project / "site"
    assert (built / "index.html").exists(), (project / "log.txt").read_text(encoding="utf-8")
    return built


def build(project: Path) -> None:
    """Build beside the checkout, so that its own site/ and cache stay as they are."""
    project.mkdir()
    (project / "mkdocs.yml").write_bytes((ROOT / "mkdocs.yml").read_bytes())
    shutil.copytree(ROOT / "docs", project / "docs")  # Zensical takes no link for it
    (project / "src").symlink_to(ROOT / "src")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, encoding="utf-8")
    log = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    (project / "log.txt").write_text(log, encoding="utf-8")
    (project / "code.txt").write_text(str(done.returncode))
