"""The package may not fetch or send anything; it keeps its settings in a folder of the test. What
it changes of Python, numpy and torch when it is imported is put back, for the tests of others."""

from __future__ import annotations

import builtins
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

os.environ["YOLO_OFFLINE"] = "True"
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.mkdtemp(prefix="yolo-"))
os.environ["YOLO_AUTOINSTALL"] = "False"
os.environ["YOLO_VERBOSE"] = "False"


@pytest.fixture(autouse=True)
def determinism_as_before() -> Iterator[None]:
    """Their trainers turn it on for the process."""
    enabled = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(enabled)


@pytest.fixture(scope="session")
def ultralytics() -> Any:
    """The package; the tests that ask for it are skipped where it cannot be imported."""
    shown, threads = np.get_printoptions(), torch.get_num_threads()
    originals = {name: getattr(builtins, name) for name in ("print", "open")}
    saved, loaded = torch.save, torch.load
    try:
        if importlib.util.find_spec("ultralytics") is None:
            pytest.skip('needs Ultralytics: pip install "attnlab[ultralytics]"')
        import ultralytics
        from ultralytics import YOLO  # noqa: F401 (imported when it is first asked for)
    except ImportError as error:  # also where a library that it loads is missing
        pytest.skip(f"Ultralytics cannot be imported: {error}")
    finally:
        np.set_printoptions(**{k: v for k, v in shown.items() if k != "override_repr"})
        torch.set_printoptions(profile="default")
        torch.set_num_threads(threads)
        torch.save, torch.load = saved, loaded
        for name, original in originals.items():
            setattr(builtins, name, original)
    return ultralytics
