"""Settings that must be made before torch is imported, and figures that are drawn once."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Some CPUs announce AMX but end bfloat16 layers with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _figures_drawn_once(shared_folder: Path) -> Iterator[None]:
    """Draw every figure once in a test run: most pages of the tests differ in a sentence, and
    drawing their figures was 95 % of their time (40 ms of a core for each of 22).

    What is kept is what the drawing program answered to the very same words in this run.
    """
    if importlib.util.find_spec("vl_convert") is None:
        yield
        return
    import vl_convert

    kept = shared_folder / "figures"
    kept.mkdir(exist_ok=True)
    draw = vl_convert.vegalite_to_svg

    def drawn_once(*given: object, **named: object) -> str:
        key = hashlib.sha256(json.dumps([given, named]).encode()).hexdigest()
        file = kept / key
        if not file.exists():
            own = kept / f"{key}-{os.getpid()}"
            own.write_text(draw(*given, **named), encoding="utf-8")
            own.replace(file)
        return file.read_text(encoding="utf-8")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vl_convert, "vegalite_to_svg", drawn_once)
        yield
