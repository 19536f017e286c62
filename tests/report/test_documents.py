"""Python in the documents of stripes and reports runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["stripe.md", "report.md"])
def test_python_runs(name, capsys):
    text = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})
    if name == "stripe.md":
        assert "[[0.05 0.02]]" in capsys.readouterr().out
