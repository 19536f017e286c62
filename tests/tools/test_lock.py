"""constraints.txt has every package that the tests need, each with hashes."""

from __future__ import annotations

import re

import pytest
from tests.tools.lock import FILE, Release, _fits, needed

HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def test_every_package_has_a_version_and_hashes() -> None:
    first, *lines = FILE.read_text(encoding="utf-8").splitlines()
    assert first.startswith("#")
    pinned: dict[str, int] = {}
    for line in lines:
        found = re.fullmatch(r"([a-z0-9-]+)==[^ ;]+( ; sys_platform == \"\w+\")? \\", line)
        if found is not None:
            pinned[found[1]] = 0
            continue
        assert HASH.fullmatch(line), line
        pinned[list(pinned)[-1]] += 1
    assert list(pinned) == sorted(pinned)
    assert min(pinned.values()) >= 1
    assert set(needed()) - set(pinned) == set()


@pytest.mark.parametrize(
    ("interpreter", "abi", "fits"),
    [
        ("py3", "none", True),
        ("py2", "none", False),
        ("cp311", "cp311", True),
        ("cp313", "cp313", True),
        ("cp310", "cp310", False),
        ("cp313", "cp313t", False),
        ("cp39", "abi3", True),
        ("pp311", "pypy311_pp73", False),
    ],
)
def test_wheels_for_the_pythons_that_we_support(interpreter: str, abi: str, fits: bool) -> None:
    assert _fits(interpreter, abi) is fits


def test_what_macos_has_no_wheels_of_is_not_asked_for_there() -> None:
    linux = {"a-1-cp311-cp311-manylinux_2_28_x86_64.whl": "0" * 64}
    anywhere = {**linux, "a-1-cp311-cp311-macosx_11_0_arm64.whl": "1" * 64}
    assert list(Release("a", "1", linux, here=True).lines()) == [
        'a==1 ; sys_platform == "linux" \\',
        f"    --hash=sha256:{'0' * 64}",
    ]
    assert list(Release("a", "1", anywhere, here=True).lines()) == [
        "a==1 \\",
        f"    --hash=sha256:{'0' * 64} \\",
        f"    --hash=sha256:{'1' * 64}",
    ]
    assert next(Release("a", "1", anywhere, here=False).lines()).endswith('"darwin" \\')
