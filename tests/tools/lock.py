"""Write constraints.txt: what `make setup` installs, to the byte.

Every package that `.[dev]` needs here, in the version that is installed here, with the SHA-256 of
each file of that version: wheels for the Pythons that we support on any system, and the source. pip
refuses a file that is none of them, so that what a release is cannot change after we saw it. To
move a package:

    .venv/bin/python -m pip install --upgrade PACKAGE
    .venv/bin/python -m tests.tools.lock

The index is the one that pip asks, and the hashes are those that it states; pip holds the files
against them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

FILE = Path(__file__).parents[2] / "constraints.txt"
_SYSTEMS = (
    {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
)
MACHINES = [
    {**system, "python_version": f"3.{minor}", "python_full_version": f"3.{minor}.9"}
    for system in _SYSTEMS
    for minor in (11, 12, 13)
]
HEADER = """\
# What `make setup` installs; written by `python -m tests.tools.lock`.
"""


class Release(NamedTuple):
    """The files of one version of a package."""

    name: str
    version: str
    files: dict[str, str]
    """SHA-256 by the name of the file."""

    here: bool
    """Whether it is installed on this machine, which is Linux."""

    @property
    def marker(self) -> str:
        """Where it is installed, if not everywhere: CUDA has no wheels for macOS."""
        if not self.here:
            return ' ; sys_platform == "darwin"'
        elsewhere = any("linux" not in name and "win" not in name for name in self.files)
        return "" if elsewhere else ' ; sys_platform == "linux"'

    def lines(self) -> Iterator[str]:
        """As pip reads it."""
        hashes = sorted(set(self.files.values()))
        yield f"{self.name}=={self.version}{self.marker} \\"
        for number, each in enumerate(hashes, 1):
            yield f"    --hash=sha256:{each}" + (" \\" if number < len(hashes) else "")


def needed(root: str = "attnlab", extra: str = "dev") -> list[str]:
    """All packages that `root[extra]` needs on any of `MACHINES`, by their normal names. What
    those need that are not installed here is not known, and `pip check` says what is missing."""
    found: set[tuple[str, str]] = set()
    waiting = [(root, extra)]
    while waiting:
        name, extra = waiting.pop()
        for each in map(Requirement, _requires(name)):
            if any(_applies(each, {**machine, "extra": extra}) for machine in MACHINES):
                pairs = {(canonicalize_name(each.name), wanted) for wanted in ("", *each.extras)}
                waiting += sorted(pairs - found)
                found |= pairs
    return sorted({name for name, _ in found} - {root})


def _requires(name: str) -> list[str]:
    try:
        return distribution(name).requires or []
    except PackageNotFoundError:
        return []


def _applies(requirement: Requirement, machine: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(machine)


def released(name: str) -> Release:
    """What the index has of the version that is installed here, else of the newest."""
    files: dict[Version, dict[str, str]] = {}
    for file, sha256 in _listed(name):
        try:
            wheel = parse_wheel_filename(file) if file.endswith(".whl") else None
            found = parse_sdist_filename(file)[1] if wheel is None else wheel[1]
        except (InvalidSdistFilename, InvalidVersion, InvalidWheelFilename):
            continue  # of formats that pip does not install
        if wheel is None or any(_fits(tag.interpreter, tag.abi) for tag in wheel[3]):
            files.setdefault(found, {})[file] = sha256
    try:
        here, wanted = True, Version(distribution(name).version)
    except PackageNotFoundError:
        here, wanted = False, max(each for each in files if not each.is_prerelease)
    if wanted not in files:
        raise SystemExit(f"The index has no file of {name} {wanted}.")
    return Release(name, str(wanted), files[wanted], here)


def _fits(interpreter: str, abi: str) -> bool:
    """Whether a wheel is for a CPython from 3.11 on."""
    found = re.fullmatch(r"cp3(\d+)", interpreter)
    if found is None:
        return interpreter == "py3"
    return abi == "abi3" or (int(found[1]) >= 11 and abi in ("none", interpreter))


def _listed(name: str) -> Iterator[tuple[str, str]]:
    """The files of a package at pip's index, with their hashes. pip has no public way to ask."""
    from pip._internal.commands import create_command
    from pip._internal.index.collector import parse_links
    from pip._internal.models.link import Link

    command: Any = create_command("download")
    options, _ = command.parse_args([])
    with command.main_context():
        finder = command._build_package_finder(options, command.get_default_session(options))
        # The first index alone: other places may hold files of that name that were built there.
        page = finder._link_collector.fetch_response(Link(f"{finder.index_urls[0]}/{name}/"))
        for link in () if page is None else parse_links(page):
            if link.hash_name == "sha256":
                yield link.filename, link.hash


def main() -> None:
    with ThreadPoolExecutor(8) as askers:
        names = needed()
        found = list(askers.map(released, names))
    lines = [line for release in found for line in release.lines()]
    FILE.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{FILE.name}: {len(found)} packages, {sum(len(each.files) for each in found)} files")


if __name__ == "__main__":
    main()
