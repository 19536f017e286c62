"""Parts of a budget, each against its formula: the bound, the halves, the statistics of norms."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from scipy import stats
from torch import nn

from attnlab.surgery.folding._cost import Judge
from attnlab.surgery.folding._halves import Part, halves
from attnlab.surgery.folding._norms import Norms, set_statistics


def test_the_bound_is_one_sided_and_holds_95_of_100() -> None:
    torch.manual_seed(0)
    change = torch.rand(50).double()
    found = Judge("loss", (), (), ()).cost_of([(change, torch.ones(50).double())])
    error = change.std(correction=0) / 50**0.5
    expected = float(change.mean() + stats.norm.ppf(0.95) * error)
    assert found.value == pytest.approx(float(change.mean()))
    assert found.bound == pytest.approx(expected, rel=1e-4)


def test_the_bound_of_a_ratio_is_that_of_its_residuals() -> None:
    """Changes that are one share of the sizes have no error, however much the sizes differ."""
    size = torch.linspace(1, 9, 20).double()
    judge = Judge("loss", (), (), ())
    assert judge.cost_of([(0.25 * size, size)]) == pytest.approx((0.25, 0.25, None, None))
    change = size.square()
    ratio = change.mean() / size.mean()
    error = (change - ratio * size).square().mean().sqrt() / 20**0.5 / size.mean()
    bound = float(ratio + stats.norm.ppf(0.95) * error)
    assert judge.cost_of([(change, size)]).bound == pytest.approx(bound, rel=1e-4)


def test_nothing_to_relate_a_change_to_is_no_bound() -> None:
    judge = Judge("loss", (), (), ())
    for change, size in ((torch.ones(5), torch.zeros(5)), (torch.full((5,), nan), torch.ones(5))):
        assert judge.cost_of([(change.double(), size.double())])[:2] == (inf, inf)


@pytest.mark.parametrize(
    ("images", "sizes"), [(64, [64, 64]), (66, [33, 33, 33, 33]), (40, [60, 20])]
)
def test_halves_run_up_to_64_images_at_once(images, sizes) -> None:
    batches = [torch.full((images, 1), float(number)) for number in range(4)]
    found = halves(nn.Identity(), batches)
    assert [part.images for part in found.choosing] == sizes
    assert [part.images for part in found.held_out] == sizes
    seen = torch.cat([part.inputs for part in found.choosing])
    torch.testing.assert_close(
        seen.flatten().unique(return_counts=True)[1], torch.full((4,), images // 2)
    )


def test_every_second_image_is_held_out_across_batches_of_odd_size() -> None:
    images = torch.arange(132.0)[:, None]
    found = halves(nn.Identity(), images.split(33))
    for parts, first in ((found.choosing, 0), (found.held_out, 1)):
        assert torch.equal(torch.cat([part.inputs for part in parts]), images[first::2])


def test_images_of_two_sizes_do_not_run_together() -> None:
    found = halves(nn.Identity(), [torch.ones(20, 1, 4, 4), torch.ones(20, 1, 6, 6)])
    assert [tuple(part.inputs.shape) for part in found.choosing] == [(10, 1, 4, 4), (10, 1, 6, 6)]


class Shifted(nn.Module):
    """A norm after something that can be changed, with an epsilon that is not small."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = 1.0, 0.0
        self.norm = nn.BatchNorm1d(3, eps=0.5)
        nn.init.uniform_(self.norm.running_mean, 0.5, 1.5)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x):
        return self.norm(self.scale * x + self.shift)


def test_statistics_move_by_what_the_norm_sees() -> None:
    torch.manual_seed(0)
    network = Shifted().double().eval()
    first, second = torch.randn(30, 3).double(), 3 * torch.randn(10, 3).double()
    parts = [Part(first, None, 30), Part(second, None, 10)]
    mean, variance = (b.clone() for b in (network.norm.running_mean, network.norm.running_var))
    norms = Norms.of(network, parts)
    set_statistics(network, norms.moved(network))  # nothing changed, so nothing moves
    torch.testing.assert_close(network.norm.running_mean, mean)
    torch.testing.assert_close(network.norm.running_var, variance)
    network.scale, network.shift = 2.0, 0.25
    set_statistics(network, norms.moved(network))
    shift, ratio = torch.zeros(3).double(), torch.zeros(3).double()
    for images in (first, second):
        share = len(images) / 40
        shift += share * (images.mean(0) + 0.25)  # (2 m + 0.25) − m
        spread = images.var(0, correction=0)
        ratio += share * ((4 * spread + 0.5) / (spread + 0.5)).log()
    torch.testing.assert_close(network.norm.running_mean, mean + shift)
    torch.testing.assert_close(network.norm.running_var, (variance + 0.5) * ratio.exp() - 0.5)
