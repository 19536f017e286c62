"""`make demo` runs, and says what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.slow
def test_demo() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(DEMO)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    shown = ended.stdout
    assert "  1.0     identity   layer1.0" in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if re.search(r"\d%", line)}
    # SE at C = 16, 32, 64: (49, 162, 580) parameters, three of each; the adaptor's 6 C act on the
    # steps with an identity shortcut: three, two and two.
    assert rows["se"][1:3] == ["9", f"+{3 * (49 + 162 + 580):,}"]
    assert rows["step"][1:3] == ["7", f"+{6 * (3 * 16 + 2 * 32 + 2 * 64):,}"]
    assert all(float(row[-1]) < 1e-6 for row in rows.values())
    (total,) = [line.split() for line in shown.splitlines() if line.split()[:1] == ["TNS"]]
    assert len(total) == 4
    assert all(float(value) > 0 for value in total[1:])
    assert "Every copy has all state-dict keys of the network: True" in shown
    assert "State-dict keys are those of the network before insertion: True" in shown
    assert "→ 272,474 (-2,709)" in shown
    assert "attnlab try eca timm:resnet50" in shown
