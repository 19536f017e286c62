"""Whoever reads runs without torch knows the result of every measurement."""

from __future__ import annotations

import subprocess
import sys

from attnlab.lab.measures import MEASUREMENTS


def test_every_kind_of_result_is_known_without_torch() -> None:
    code = (
        "import sys, attnlab.lab.study.current; from attnlab.results.base import FORMATS\n"
        "assert 'torch' not in sys.modules; print(*(name.split()[1] for name in FORMATS))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(MEASUREMENTS) <= set(done.stdout.split())
