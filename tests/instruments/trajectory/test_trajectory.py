"""States by hooks and CKA by its textbook formula, and what the distances must not depend on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import InputError
from attnlab.instruments.trajectory import cka_distances, nsi_distances
from attnlab.instruments.trajectory.similarity import inner_products, unit_products


def unbiased_hsic(k: np.ndarray, other: np.ndarray) -> float:
    """Song et al. (2012), equation 5, term by term."""
    n = len(k)
    k, other = k - np.diag(np.diag(k)), other - np.diag(np.diag(other))
    ones = np.ones(n)
    trace = np.trace(k @ other)
    sums = (ones @ k @ ones) * (ones @ other @ ones) / ((n - 1) * (n - 2))
    return (trace + sums - 2 / (n - 2) * (ones @ k @ other @ ones)) / (n * (n - 3))


def textbook_cka(x: torch.Tensor, y: torch.Tensor) -> float:
    k, other = ((each @ each.T).numpy() for each in (x.double(), y.double()))
    scale = unbiased_hsic(k, k) * unbiased_hsic(other, other)
    return unbiased_hsic(k, other) / scale**0.5


def ours(x: torch.Tensor, y: torch.Tensor) -> float:
    return float(unit_products(inner_products(x)) @ unit_products(inner_products(y)))


def test_products_give_the_textbook_cka() -> None:
    torch.manual_seed(0)
    x = torch.randn(20, 7, dtype=torch.float64)
    y = x @ torch.randn(7, 30, dtype=torch.float64) + torch.randn(20, 30, dtype=torch.float64)
    assert ours(x, y) == pytest.approx(textbook_cka(x, y), abs=1e-12)


def test_wide_states_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    states = torch.randn(5, 2, 4, dtype=torch.float64)
    monkeypatch.setattr("attnlab.instruments.trajectory.similarity._COLUMNS", 3)
    flat = states.flatten(1)
    torch.testing.assert_close(inner_products(states), flat @ flat.T)


def test_noise_has_nothing_in_common_with_noise() -> None:
    torch.manual_seed(0)
    assert abs(ours(torch.randn(64, 4096), torch.randn(64, 4096))) < 0.05


def test_the_basis_does_not_matter() -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 12, dtype=torch.float64)
    rotation, _ = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))
    assert ours(x, 3 * x @ rotation + 5) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_equal_states_have_no_direction_and_others_have_at_any_scale(scale: float) -> None:
    assert not unit_products(inner_products(torch.full((10, 5), 0.1 * scale))).any()
    different = torch.randn(10, 5, generator=torch.Generator().manual_seed(0))
    assert ours(scale * different, different) == pytest.approx(1, abs=1e-6)


class Twice(nn.Module):
    """Two steps, one of them through a ReLU after the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.states: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x + self.one(x)
        second = torch.relu(first + self.two(first))
        self.states = [first.detach(), second.detach()]
        return second


def test_states_are_those_of_the_network() -> None:
    torch.manual_seed(0)
    network, x = Twice().eval(), torch.randn(12, 6)
    found = attnlab.trajectory(network, [x])
    network(x)
    for step, state in zip(found.steps, network.states, strict=True):
        assert step.products == pytest.approx(
            unit_products(inner_products(state)).tolist(), rel=1e-5, abs=1e-7
        )
    expected = ((network.states[0] - x).norm(dim=1) / x.norm(dim=1)).mean()
    assert found.steps[0].nsi == pytest.approx(float(expected), rel=1e-6)


def test_as_many_images_as_are_wanted_of_all_batches() -> None:
    torch.manual_seed(0)
    network, images = Twice().eval(), torch.randn(80, 6)

    def batches(*numbers: int) -> Iterator[torch.Tensor]:
        yield from images.split([*numbers, 80 - sum(numbers)])
        raise AssertionError("no more were needed")

    whole = attnlab.trajectory(network, [images[:64]], name="mine")
    assert (whole.images, whole.network) == (64, "mine")
    for found in (
        attnlab.trajectory(network, batches(32, 32)),
        attnlab.trajectory(network, batches(30, 50)),
        attnlab.trajectory(network, [images]),
    ):
        assert found.images_checksum == whole.images_checksum
        assert found.steps == whole.steps
    few = attnlab.trajectory(network, [images[:9], images[9:20]])
    assert few.images == 20


def test_images_of_two_sizes_are_refused() -> None:
    for other in (torch.randn(8, 3, 16, 16), [torch.randn(3, 16, 16)] * 8):
        with pytest.raises(InputError, match="Expected images of one size"):
            attnlab.trajectory(attnlab.create("resnet20"), [torch.randn(8, 3, 32, 32), other])


def test_distance_to_itself_is_zero_and_to_others_is_not() -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 3, 32, 32)
    one, other = (attnlab.trajectory(attnlab.create("resnet20"), [x]) for _ in range(2))
    assert cka_distances(one, one) == pytest.approx([0] * 9, abs=1e-5)
    assert min(cka_distances(one, other)) > 0.001
    assert nsi_distances(one, one) == [0] * 9
    assert type(one).from_json(one.to_json()) == one


def test_other_images_are_refused() -> None:
    torch.manual_seed(0)
    network = attnlab.create("resnet20")
    one, other = (attnlab.trajectory(network, [torch.randn(8, 3, 32, 32)]) for _ in range(2))
    with pytest.raises(InputError, match="different images"):
        cka_distances(one, other)


@pytest.mark.parametrize("number", [1, 7])
def test_few_images_are_refused(number: int) -> None:
    with pytest.raises(InputError, match=f"at least 8 different images but got {number}"):
        attnlab.trajectory(attnlab.create("resnet20"), [torch.randn(number, 3, 32, 32)])


def test_no_images_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        attnlab.trajectory(attnlab.create("resnet20"), [])
    assert str(caught.value) == (
        "Expected at least 8 different images but got 0: a trajectory says how alike the states of "
        "different images are."
    )


def test_copies_of_one_image_are_refused() -> None:
    """Their states have no direction, so every distance would be 1 without a word."""
    copies = torch.randn(1, 3, 32, 32).expand(16, -1, -1, -1)
    with pytest.raises(InputError, match="at least 8 different images but got 1"):
        attnlab.trajectory(attnlab.create("resnet20"), [copies])


def test_gates_do_not_change_the_steps_that_are_compared() -> None:
    torch.manual_seed(0)
    images, net = [torch.randn(8, 3, 32, 32)], attnlab.create("resnet20")
    plain = attnlab.trajectory(net, images)
    for gate in ("se", "bam", "dia", "iebn", "ema"):
        gated, _ = attnlab.insert(net, gate)
        distances = cka_distances(plain, attnlab.trajectory(gated, images))
        assert len(distances) == 9
        assert max(distances) > 1e-4  # the states with the gates, not those without
