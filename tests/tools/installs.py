"""What users install works in an environment with nothing else: the package, its extra `study`, and
that with `ray`. Versions are those of constraints.txt.

Usage: python -m tests.tools.installs
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.tools.lock import FILE

ROOT = Path(__file__).parents[2]
_STUDY = """
from attnlab.lab.study import Study, {executor}, run_study
study = Study(
    name="small", data={{"name": "digits", "train_subset": 100, "test_subset": 50}},
    backbone="resnet20", attention=["none", "se"], seeds=1,
    recipe={{"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 50}},
)
outcomes = run_study(study, "{executor}", {executor}())
assert [each.status for each in outcomes] == ["done", "done"], [each.message for each in outcomes]
"""
STEPS = {
    "": """
import torch, attnlab
gated, _ = attnlab.insert(attnlab.create("resnet20").eval(), "asr:se")
_, receipt = attnlab.fold(gated)
assert receipt.relative_change < 1e-5
assert attnlab.stiffness(gated, [torch.randn(2, 3, 32, 32)]).tns > 0
""",
    "study": _STUDY.format(executor="LocalExecutor")
    + "import attnlab; attnlab.report('LocalExecutor', 'page.html', 'small')",
    "study,ray": _STUDY.format(executor="RayExecutor"),
}
"""What is run after each of the installs, which are made one on the other."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "environment" / "bin" / "python"
        venv.create(python.parents[1], with_pip=True)
        pins = Path(folder) / "pins.txt"
        lines = FILE.read_text(encoding="utf-8").splitlines()
        # Without hashes, or pip would refuse the folder of the package, which has none.
        pins.write_text("\n".join(each.rstrip(" \\") for each in lines if "==" in each))
        for number, (extra, program) in enumerate(STEPS.items()):
            what = f"{ROOT}[{extra}]" if extra else str(ROOT)
            install = (python, "-m", "pip", "install", "--quiet", "--constraint", pins, what)
            _timed(f"pip install .[{extra}]" if extra else "pip install .", install, folder)
            _timed("  pip check", (python, "-m", "pip", "check"), folder)
            script = Path(folder) / f"{number}.py"
            script.write_text(f"if __name__ == '__main__':\n    exec({program!r})\n")
            _timed("  works", (python, "-P", script), folder)


def _timed(what: str, command: tuple[object, ...], folder: str) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [str(each) for each in command], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{what} failed\n{done.stdout}{done.stderr}")
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
