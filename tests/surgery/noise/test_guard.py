"""Noise that was lost with its norm is named, not missed."""

from __future__ import annotations

import copy
import io
import time
from typing import Any

import pytest
import torch
from tests.surgery.noise.test_attach import X, network, seeded
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import attnlab
from attnlab._errors import NoiseLostError
from attnlab.surgery import noise

TAIL = (
    "afterwards, and ResNet would answer without that noise. Run that tool first, then attach; or "
    "take the noise out before it: attnlab.surgery.noise.detach(network)."
)


def lost(made: nn.Module) -> str:
    with pytest.raises(NoiseLostError) as caught:
        made(X)
    return str(caught.value)


def synchronised(made: nn.Module) -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(made)


def test_norms_exchanged_for_synchronised_ones() -> None:
    made = network()
    noise.attach(made, noise.random(0.3))
    made = synchronised(made)
    assert lost(made) == (
        f"The norm 'bn1' carried noise, but it was exchanged for a SyncBatchNorm {TAIL}"
    )


def test_one_norm_of_one_block() -> None:
    made: Any = network()
    noise.attach(made, noise.constant(0.8, 0.5))
    block = made.layer2[1]
    block.conv2, block.bn2 = fuse_conv_bn_eval(block.conv2, block.bn2), nn.Identity()
    assert lost(made) == (
        f"The norm 'layer2.1.bn2' carried noise, but it was exchanged for an Identity {TAIL}"
    )


def test_a_block_taken_away() -> None:
    made: Any = network()
    noise.attach(made, noise.random(0.3))
    made.layer2 = nn.Sequential(*list(made.layer2)[:-1])
    assert lost(made) == f"The norm 'layer2.2.bn1' carried noise, but it was taken away {TAIL}"


def test_a_class_put_back_by_a_tool() -> None:
    made: Any = network()
    noise.attach(made, noise.random(0.3), "both")
    made.layer1[0].bn2.__class__ = nn.BatchNorm2d
    assert lost(made) == (
        f"The norm 'layer1.0.bn2' carried noise, but it was made a plain BatchNorm2d {TAIL}"
    )
    noise.detach(made)
    assert torch.equal(seeded(made), seeded(network()))


def test_gates_inside_norms_taken_out() -> None:
    made = network("iebn")
    noise.attach(made, noise.random(0.3))
    attnlab.remove(made)
    assert lost(made) == (
        f"The norm 'bn1' carried noise, but it was exchanged for a BatchNorm2d {TAIL}"
    )


def test_what_only_moves_a_norm_is_fine() -> None:
    made: Any = network()
    noise.attach(made, noise.random(0.3), "both")
    expected = seeded(made)
    made.layer3 = nn.Sequential(nn.Sequential(made.layer3))
    assert torch.equal(seeded(made), expected)
    made.layer3[0][0][1].bn1 = nn.BatchNorm2d(64)
    assert "'layer3.1.bn1'" in lost(made)


def test_what_fuses_by_class_leaves_norms_with_noise() -> None:
    """torch's fusions look for BatchNorm2d itself, and a norm with noise is a subclass."""
    from torch.fx.experimental.optimization import fuse

    made = network()
    noise.attach(made, noise.constant(0.8, 0.5))
    expected = seeded(made)
    torch.testing.assert_close(seeded(fuse(made)), expected)
    with pytest.raises((AssertionError, NotImplementedError), match="fuser method"):
        torch.ao.quantization.fuse_modules(copy.deepcopy(made), [["conv1", "bn1"]])


def test_copies_and_files_are_guarded_too() -> None:
    made = network()
    noise.attach(made, noise.random(0.3))
    copied = copy.deepcopy(made)
    stream = io.BytesIO()
    torch.save(made, stream)
    stream.seek(0)
    read = torch.load(stream, weights_only=False)
    for each in (copied, read):
        seeded(each)
        assert "'bn1'" in lost(synchronised(each))
    seeded(made)  # the original is as it was


def test_noise_that_was_taken_out_is_not_missed() -> None:
    made = network()
    expected = seeded(made)
    with noise.noisy(made, noise.random(0.3)):
        pass
    noise.attach(made, noise.random(0.3))
    noise.detach(made)
    assert not made._forward_pre_hooks
    with noise.noisy(made, noise.random(0.3)):
        made = synchronised(made)
    assert not made._forward_pre_hooks
    torch.testing.assert_close(seeded(made), expected)
    noise.attach(made, noise.random(0.3))
    noise.detach(made.layer1)
    made.layer1[0].bn1 = nn.BatchNorm2d(16)
    seeded(made)
    made.layer2[0].bn1 = nn.BatchNorm2d(32)
    assert "'layer2.0.bn1'" in lost(made)
    noise.detach(made)
    seeded(made)


def test_compiled_networks_are_guarded() -> None:
    made: Any = network()
    noise.attach(made, noise.constant(0.8, 0.5))
    expected = seeded(made)
    compiled: Any = torch.compile(made, backend="eager", fullgraph=True)
    torch.testing.assert_close(seeded(compiled), expected)
    torch._dynamo.reset()
    compiled = torch.compile(made, backend="eager")
    seeded(compiled)
    made.layer3[1].bn1 = nn.BatchNorm2d(64).eval()
    with pytest.raises(NoiseLostError, match=r"'layer3\.1\.bn1'"):
        compiled(X)
    torch._dynamo.reset()


def test_it_costs_little() -> None:
    made = network()
    noise.attach(made, noise.random(0.3))
    (guard,) = made._forward_pre_hooks.values()
    started = time.perf_counter()
    for _ in range(100):
        guard(made, ())
    assert time.perf_counter() - started < 0.1  # a millisecond each; it takes some microseconds
