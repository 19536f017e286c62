"""Noise is not a step: a gate on it would scale random numbers."""

import functools

import pytest
import torch
from tests.surgery.insertion.networks import Branch, Plain, SlotBlock
from tests.surgery.insertion.randomness import (
    AddedNoise,
    AlwaysDropped,
    Autoencoder,
    NoisyBlock,
    Shuffled,
)
from torch.distributions import Normal

import attnlab
from attnlab._errors import StepsNotFoundError

DRAWS = {
    "randn_like": torch.randn_like,
    "randn": lambda x: torch.randn(x.shape),
    "own generator": lambda x: torch.randn(x.shape, generator=torch.Generator().manual_seed(3)),
    "empty.normal_": lambda x: torch.empty_like(x).normal_(),
    "clone.normal_": lambda x: x.clone().normal_(),
    "normal": lambda x: torch.normal(torch.zeros_like(x), 1.0),
    "uniform_": lambda x: x.new_empty(x.shape).uniform_(-1, 1),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
    "rsample": lambda x: Normal(torch.zeros_like(x), torch.ones_like(x)).rsample(),
}
draws = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def owners(model) -> list[str]:
    return [step.owner for step in attnlab.steps(model.eval(), IMAGES)]


@draws
@pytest.mark.parametrize("heavy_mean", [False, True])
def test_the_sample_of_an_autoencoder_is_not_a_step(draw, heavy_mean):
    model = Autoencoder(draw, heavy_mean=heavy_mean).eval()
    assert owners(model) == ["encoder.1", "decoder.0", "decoder.1"]
    _network, receipt = attnlab.insert(model, "se", example=IMAGES)
    assert receipt.sites == ("encoder.1.branch", "decoder.0.branch", "decoder.1.branch")
    with pytest.raises(attnlab.AttnlabError):
        attnlab.insert(model, "step", where="blocks:3", example=IMAGES)


@pytest.mark.parametrize("root", [False, True])
def test_the_deviation_of_an_autoencoder_that_draws_in_training_only_is_not_a_step(root):
    class InTraining(Autoencoder):
        def drawn(self, mean, deviation):
            if root:
                deviation = (2 * deviation.log()).exp().sqrt()
            return torch.randn_like(mean) * deviation if self.training else deviation

    assert owners(InTraining(None)) == ["encoder.1", "decoder.0", "decoder.1"]


def test_a_branch_that_ends_in_an_exponential_is_a_step():
    """Nothing but a mean that was made from the same state has a deviation."""

    class Exponential(Branch):
        def forward(self, x):
            return x + super().forward(x).exp()

    assert owners(Plain(Exponential)) == ["blocks.0", "blocks.1", "blocks.2"]


@draws
def test_a_branch_times_noise_is_not_a_step(draw):
    with pytest.raises(StepsNotFoundError):
        attnlab.steps(Plain(functools.partial(NoisyBlock, draw)), IMAGES)


@draws
def test_noise_in_a_residual_block(draw):
    model = Plain(functools.partial(AddedNoise, draw))
    found = attnlab.steps(model, IMAGES)
    assert [step.owner for step in found] == ["blocks.0", "blocks.1", "blocks.2"]
    assert [step.key.addition for step in found] == [0, 0, 0]


@pytest.mark.parametrize("block", [SlotBlock, Shuffled, AlwaysDropped])
def test_what_only_chooses_is_not_noise(block):
    assert owners(Plain(block)) == ["blocks.0", "blocks.1", "blocks.2"]


def test_an_autoencoder_of_diffusers():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    model = diffusers.AutoencoderKL(
        block_out_channels=(8,), latent_channels=4, norm_num_groups=4, sample_size=8
    ).eval()
    example = {"sample": IMAGES, "sample_posterior": True}
    found = attnlab.steps(model, example)
    assert found
    assert all(step.owner.startswith(("encoder.", "decoder.")) for step in found)


@pytest.mark.parametrize("residual_units", [0, 2])
def test_an_autoencoder_of_monai_that_draws_in_training_only(residual_units):
    networks = pytest.importorskip("monai.networks.nets", reason="monai is not installed")
    model = networks.VarAutoEncoder(
        spatial_dims=2, in_shape=IMAGES.shape[1:], out_channels=3, latent_size=4, channels=(4, 8),
        strides=(1, 2), num_res_units=residual_units,
    ).eval()  # fmt: skip
    if not residual_units:
        with pytest.raises(StepsNotFoundError):
            attnlab.steps(model, IMAGES)
        return
    found = owners(model)
    assert len(found) == 4
    assert all(owner.startswith(("encode.", "decode.")) for owner in found)


def test_an_autoencoder_of_monai():
    networks = pytest.importorskip("monai.networks.nets", reason="monai is not installed")
    model = networks.AutoencoderKL(
        spatial_dims=2, in_channels=3, out_channels=3, channels=(8,), latent_channels=4,
        num_res_blocks=1, norm_num_groups=4, attention_levels=(False,),
    ).eval()  # fmt: skip
    found = attnlab.steps(model, IMAGES)
    assert found
    assert all(step.owner.startswith(("encoder.", "decoder.")) for step in found)
