"""The Triton kernels on a machine without a GPU: interpreted for numbers, compiled for targets.

Neither shows speed, nor races; that each element of an output has one writer is how the kernels are
made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attnlab._errors import InputError
from attnlab.evolution import Window
from attnlab.evolution._kernels import kernel_for

pytest.importorskip("triton")
HERE = Path(__file__).parent
NUMERICAL = (
    "interpreted",
    "test_primitives.py::test_against_unfold",
    "test_attention.py::test_equals_masked_attention",
    "test_attention.py::test_zero_boundary_is_unfold",
)


@pytest.mark.slow
@pytest.mark.parametrize("part", [NUMERICAL[:1], NUMERICAL[1:]], ids=["edges", "existing tests"])
def test_in_the_interpreter(part):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, *(str(HERE / name) for name in part)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert "passed" in result.stdout
    assert "skipped" not in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiles_without_spilling(target):
    from benchmarks.speed.triton_kernels import KERNELS, MAPS, build, fixed

    for name in KERNELS:
        whole = name not in MAPS
        built = build(name, target, fixed(32 if whole else 16, 3136, whole), 32)
        assert built.spilled_bytes == 0, built
        assert 16 <= built.registers <= 168, built
        assert built.shared_bytes <= 4096, built


def test_the_kernels_of_a_gpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert (
        str(kernel_for("cuda", torch.bfloat16)) == "cuda bfloat16: triton (compiled at first use)"
    )
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert str(kernel_for("cpu", torch.float32)) == "cpu float32: triton (interpreted on the CPU)"
    monkeypatch.setenv("ATTNLAB_NATIVE", "off")
    assert str(kernel_for("cuda", torch.float32)) == "cuda float32: torch (ATTNLAB_NATIVE=off)"
    monkeypatch.delenv("ATTNLAB_NATIVE")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert str(kernel_for("cuda", torch.float32)) == "cuda float32: torch (triton is not installed)"


def test_offsets_of_more_than_32_bits_are_refused():
    from attnlab.evolution._triton.launch import _sizes

    assert _sizes(64, (4096, 8191), (4096, 8191), Window.centred(3).flat())["width"] == 8191
    with pytest.raises(InputError) as caught:
        _sizes(64, (4096, 8192), (4096, 8192), Window.centred(3).flat())
    assert str(caught.value) == (
        "The Triton kernels count the numbers of one group of one image in 32 bits, and 64 planes "
        "of 4096 × 8192 are too many. Use more groups, or `with "
        "attnlab.evolution.use_native(False):`."
    )


def test_blocks_hold_whole_heads_and_fit_the_map():
    from attnlab.evolution._triton.tuning import TILE, candidates, fixed

    for channels in (1, 3, 16, 20, 64, 128):
        for pixels in (1, 49, 196, 3136):
            for whole in (False, True):
                choices = candidates(channels, pixels, whole)
                assert choices[0] == fixed(channels, pixels, whole)
                assert len(set(choices)) == len(choices) <= 12
                for blocks in choices:
                    assert blocks.channels * blocks.pixels <= TILE
                    assert blocks.channels.bit_count() == blocks.pixels.bit_count() == 1
                    if whole:
                        assert channels <= blocks.channels < 2 * channels
