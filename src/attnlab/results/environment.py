"""Where a run took place: versions, processor, threads, commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

_PACKAGES = (
    "attnlab",
    "torchvision",
    "timm",
    "lightning-fabric",
    "numpy",
    "scikit-learn",
    "ultralytics",
)


def environment() -> dict[str, object]:
    """Return what a reader needs to judge, and to repeat, a run."""
    cuda = torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "packages": {"torch": torch.__version__, **_versions()},
        "system": platform.platform(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if cuda else "none",
        "host": platform.node(),
        "commit": _commit(),
        "command": sys.argv,
    }


def _versions() -> dict[str, str]:
    """Return the versions of what is installed: a base install trains nothing, but times
    networks."""
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def processor() -> str:
    """Return what the system calls it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of attnlab's checkout, with `+` when it has changes; None outside of one."""
    folder = Path(__file__).parent

    def ask(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = ask("rev-parse", "HEAD")
        # An installed copy inside somebody else's repository is not that repository's commit.
        tracked = ask("ls-files", "environment.py")
        changed = ask("status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit + ("+" if changed else "") if commit and tracked else None
