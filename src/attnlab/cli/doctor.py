"""`attnlab doctor`: versions, devices, threads, optional parts, one fix line per problem."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnlab._words import counted
from attnlab.cli._show import console, print_python, table

PURPOSES = {
    "torch": "everything",
    "torchvision": "networks 'torchvision:NAME'",
    "timm": "networks 'timm:NAME'",
    "scipy": "studies, pages and dynamics",
    "lightning-fabric": "training and studies",
    "scikit-learn": "the digits",
    "vl-convert-python": "figures and pages",
    "onnx": "ONNX export",
    "onnxruntime": "running what was exported to ONNX",
    "onnxscript": "ONNX export",
    "faster-coco-eval": "AP of detectors",
    "pandas": "results as data frames",
    "ray": "studies on a Ray cluster",
    "ultralytics": "gates in Ultralytics' networks",
    "submitit": "studies on a Slurm cluster",
    "transformers": "Hugging Face networks",
}
_IMPORTED_AS = {
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "vl-convert-python": "vl_convert",
}
_USED_WHERE_PRESENT = ("transformers>=4.50",)
PYTHON = (3, 11)

_BFLOAT16 = (
    "import torch; layer = torch.nn.Linear(64, 64).bfloat16(); "
    "layer(torch.ones(64, 64, dtype=torch.bfloat16))"
)


@dataclass(frozen=True)
class Requirement:
    """A distribution that attnlab uses."""

    name: str
    minimum: str
    required: bool

    @property
    def module(self) -> str:
        return _IMPORTED_AS.get(self.name, self.name.replace("-", "_"))

    @property
    def purpose(self) -> str:
        return f"; used for {PURPOSES[self.name]}" if self.name in PURPOSES else ""


@dataclass(frozen=True)
class Finding:
    """One line of the report; with a `fix`, a problem."""

    section: str
    name: str
    state: str
    fix: str = ""
    required: bool = False
    """Whether attnlab cannot work as long as the problem lasts."""
    left_out: bool = False
    """An optional part that is not installed: no problem, but a fix is told."""


def doctor() -> None:
    """Show versions, devices, threads and optional parts, with one fix line per problem.

    The exit code is 1 if a required part is missing, too old or broken, else 0.

    Examples:
      attnlab doctor
      attnlab doctor && make demo
    """
    found = diagnose()
    rows = [(finding.section, finding.name, finding.state) for finding in found]
    console().print(table((("", "left"), ("part", "left"), ("state", "left")), _grouped(rows)))
    problems = [finding for finding in found if finding.fix and not finding.left_out]
    for finding in problems:
        kind = "required" if finding.required else "optional"
        print(f"{finding.name} ({kind}): {finding.state}")
        print(f"  fix: {finding.fix}")
    if not problems:
        print("No problem found.")
    left_out = [finding for finding in found if finding.left_out]
    if left_out:
        print("Not installed, and only needed for what they are used for:")
    for finding in left_out:
        print(f"  {finding.name}: {finding.fix}")
    print()
    print_python("from attnlab.cli.doctor import diagnose", "diagnose()")
    if any(finding.required for finding in problems):
        raise SystemExit(1)


def diagnose() -> list[Finding]:
    """Everything that `attnlab doctor` looks at, in order."""
    from attnlab import __version__

    found = [_python(), Finding("versions", "attnlab", __version__)]
    try:
        requirements = importlib.metadata.requires("attnlab") or []
    except importlib.metadata.PackageNotFoundError:
        install = f"{shlex.quote(sys.executable)} -m pip install --editable ."
        return [*found, Finding("versions", "attnlab", "is not installed", install, True)]
    found += [_part(part) for part in requirements_of(requirements)]
    if not any(finding.name == "torch" and finding.fix for finding in found):
        found += _machine()
    return found


def requirements_of(requirements: Iterable[str]) -> list[Requirement]:
    """The distributions that `requirements` name, those for development left out."""
    found: dict[str, Requirement] = {}
    for text in (*requirements, *_USED_WHERE_PRESENT):
        match = re.match(r"([\w.-]+?)>=([\d.]+)(?:.*extra == ['\"](\w+))?", text)
        if match is None:
            continue
        name, minimum, extra = match.groups()
        if extra not in ("dev", "docs") and name not in found:
            found[name] = Requirement(
                name, minimum, extra is None and text not in _USED_WHERE_PRESENT
            )
    first = [name for name in PURPOSES if name in found]
    return [found[name] for name in dict.fromkeys((*first, *found))]


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info >= PYTHON:
        return Finding("versions", "python", version)
    wanted = ".".join(map(str, PYTHON))
    fix = f"python{wanted} -m venv .venv && .venv/bin/pip install attnlab"
    return Finding("versions", "python", f"{version}, but attnlab needs {wanted}", fix, True)


def _part(part: Requirement) -> Finding:
    section = "versions" if part.required else "optional"
    installed = _version(part.name)
    requirement = shlex.quote(f"{part.name}>={part.minimum}")
    install = f"{shlex.quote(sys.executable)} -m pip install {requirement}"
    if installed is None:
        state = f"not installed{part.purpose}"
        absent = not part.required
        return Finding(section, part.name, state, install, part.required, absent)
    if _release(installed) < _release(part.minimum):
        state = f"{installed} is older than {part.minimum}{part.purpose}"
        return Finding(section, part.name, state, install, part.required)
    error = _import_error(part.module) if part.required else ""
    if error:
        again = install.replace("pip install", "pip install --force-reinstall --no-deps")
        return Finding(section, part.name, f"{installed} does not import: {error}", again, True)
    return Finding(section, part.name, installed)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers: `2.15.0+cu130` is (2, 15, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def _import_error(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:
        # Not only ImportError: a torchvision built for another torch raises RuntimeError.
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return ""


def _machine() -> Iterator[Finding]:
    import torch

    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    capability = torch.backends.cpu.get_cpu_capability()
    yield Finding("machine", "cpu", f"{counted(cores, 'core')}, torch uses {capability}")
    yield _threads(torch.get_num_threads(), cores)
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        yield Finding("machine", "accelerator", "none; everything runs on the cpu")
    else:
        count = torch.accelerator.device_count()
        yield Finding("machine", "accelerator", f"{count} × {accelerator.type}")
    yield _compiler()
    if _announces_amx():
        yield _bfloat16()


def _threads(threads: int, cores: int) -> Finding:
    state = f"{threads} of torch on {counted(cores, 'core')}"
    fix = f"export OMP_NUM_THREADS={cores}" if threads > cores else ""
    return Finding("machine", "threads", state, fix)


def _compiler() -> Finding:
    from attnlab._native_build import BuildError, compiler

    try:
        return Finding("optional", "c++ compiler", shlex.join(compiler()))
    except BuildError as error:
        fix = "xcode-select --install" if sys.platform == "darwin" else "sudo apt install g++"
        state = f"{error}; used for fast kernels of attnlab.evolution, pure torch otherwise"
        return Finding("optional", "c++ compiler", state, fix)


def _announces_amx() -> bool:
    information = Path("/proc/cpuinfo")
    return information.exists() and "amx_bf16" in information.read_text()


def _bfloat16() -> Finding:
    """Some virtual machines announce AMX and end its use with an illegal instruction, which no
    exception handler sees: so it is tried in a process of its own."""
    ended = subprocess.run([sys.executable, "-c", _BFLOAT16], capture_output=True).returncode
    if ended >= 0:
        return Finding("machine", "bfloat16", "works (AMX)")
    return Finding(
        "machine",
        "bfloat16",
        f"a bfloat16 layer ends the process with signal {-ended}: AMX is announced but not usable",
        "export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16",
    )


def _grouped(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The rows section by section, the section's name only at its first row."""
    ordered = sorted(rows, key=lambda row: ("versions", "machine", "optional").index(row[0]))
    previous = [""] + [section for section, _, _ in ordered[:-1]]
    return [
        ("" if section == before else section, name, state)
        for (section, name, state), before in zip(ordered, previous, strict=True)
    ]
