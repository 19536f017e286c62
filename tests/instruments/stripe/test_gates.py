"""Gates seen while a network runs, against formulas written out here."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import AttnlabError
from attnlab.instruments.stripe.measure import stripe
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(20, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def _batches(size: int) -> list[torch.Tensor]:
    return list(IMAGES.double().split(size))


def _with_gate(gate: str, **options) -> nn.Module:
    torch.manual_seed(0)
    network, _ = attnlab.insert(attnlab.create("resnet20", 10), gate, **options)
    return network.double().eval()


def _collected(network: nn.Module) -> dict[str, torch.Tensor]:
    """Every gate of all images at once, by plain hooks on the gates' modules."""
    found: dict[str, torch.Tensor] = {}
    handles = [
        attachment.gate.register_forward_hook(
            lambda _m, _a, output, name=name: found.__setitem__(name, output.flatten(2).mean(2))
        )
        for name, attachment in attachments(network)
    ]
    with torch.no_grad():
        network(IMAGES.double())
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("size", [1, 7, 20])
def test_streamed_moments_are_those_of_all_images(size):
    network = _with_gate("se")
    expected = _collected(network)
    result = stripe(network, _batches(size), sample=4)
    assert result.images == 20
    assert [site.name for site in result.sites] == list(expected)
    for site in result.sites:
        values = expected[site.name]
        assert site.mean == pytest.approx(values.mean().item(), rel=1e-12)
        across_images = values.std(0, correction=0).mean().item()
        across_channels = values.mean(0).std(correction=0).item()
        assert site.image_spread == pytest.approx(across_images, rel=1e-9, abs=1e-15)
        assert site.channel_spread == pytest.approx(across_channels, rel=1e-9)
        assert site.ratio == pytest.approx(across_images / across_channels, rel=1e-9, abs=1e-14)
        assert site.smallest == pytest.approx(values.min().item(), rel=1e-12)
        assert site.largest == pytest.approx(values.max().item(), rel=1e-12)
        # With as few channels as the reduction one unit is left, which may be dead.
        assert site.constant == bool((values == values[:1]).all())
        assert len(site.sample) == 4


def test_sample_is_of_images_that_were_seen():
    network = _with_gate("se")
    expected = _collected(network)
    result = stripe(network, _batches(6), sample=20)
    for site in result.sites:
        sampled = torch.tensor(site.sample, dtype=torch.float64)
        torch.testing.assert_close(sampled, expected[site.name], rtol=1e-4, atol=0)


def test_learned_vector_gates_are_constant():
    result = stripe(_with_gate("asr:se"), _batches(8))
    assert all(site.constant and site.image_spread == 0 for site in result.sites)
    assert {site.ratio for site in result.sites} == {0.0}


@pytest.mark.parametrize("gate", ["se", "asr:se"])
def test_one_image_and_copies_of_it_prove_nothing(gate):
    network = _with_gate(gate)
    one = IMAGES[:1].double()
    for batches in ([one], [one.expand(20, -1, -1, -1)], [one] * 9):
        found = stripe(network, batches)
        assert found.different_images == 1
        assert not any(site.constant for site in found.sites)
        assert found.verdict == (
            "Only one image, or copies of one, was seen, so nothing can be said about whether it "
            "depends on the image: give at least 8 different ones."
        )
        assert "constant" not in found.table().to_csv()


@pytest.mark.parametrize(("number", "constant"), [(7, False), (8, True), (20, True)])
def test_eight_different_images_are_enough(number, constant):
    batches = [IMAGES[:number].double(), IMAGES[:3].double()]
    found = stripe(_with_gate("asr:se"), batches)
    assert found.images == number + 3
    assert found.different_images == min(number, 8)
    assert {site.constant for site in found.sites} == {constant}
    few = "Only 7 different images were seen, and below 8 nothing is called constant."
    assert found.verdict.endswith(few) is not constant


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_image_that_is_not_finite_is_no_verdict(value):
    given = IMAGES.double()
    given[13, 0, 5, 5] = value
    with pytest.raises(AttnlabError) as error:
        stripe(_with_gate("se"), list(given.split(8)))
    assert str(error.value) == (
        "The gate 'layer1.0.attnlab' has values that are not finite on 1 of 20 images. Expected "
        "images as the network takes them, and weights and a precision in which it computes "
        "numbers."
    )


def test_gates_with_tokens_in_front_of_the_images():
    torch.manual_seed(0)
    layer, images = nn.TransformerEncoderLayer(8, 2, 16), torch.randn(6, 3, 8)
    network, _ = attnlab.insert(
        nn.Sequential(nn.Linear(8, 8), layer).eval(), "token", example=images
    )
    transposed = nn.Sequential(_Transposed(), network)
    with pytest.raises(AttnlabError) as error:
        stripe(transposed, [images.transpose(0, 1)])
    assert str(error.value) == (
        "Expected a gate to have the 3 images along its first axis but got shape (6, 3, 1): the "
        "network puts the tokens in front of the images, or windows of an image side by side. Let "
        "it put the images first, or choose other places for the gates: where=..."
    )


class _Transposed(nn.Module):
    def forward(self, x):
        return x.transpose(0, 1)


def test_fresh_identity_gates_have_no_stripe():
    result = stripe(_with_gate("se", start="identity"), _batches(8))
    assert [site.ratio for site in result.sites] == [None] * 9
    assert result.sites[0].mean == pytest.approx(1, rel=1e-6)
    assert result.verdict == (
        "Neither images nor channels differ at any gate: there is no stripe to see, as in a "
        "network whose gates were not trained."
    )


def test_gates_of_one_value_have_no_stripe_but_a_spread():
    network = _with_gate("token")
    torch.manual_seed(0)
    for name, parameter in network.named_parameters():
        if name.endswith("gate.weight"):
            torch.nn.init.normal_(parameter)
    result = stripe(network, _batches(8))
    number = len(result.sites)
    assert [site.ratio for site in result.sites] == [None] * number
    assert min(site.image_spread for site in result.sites) > 1e-4
    assert result.verdict == (
        "The channels of no gate differ, as in gates of one value for all of them, so there is no "
        f"stripe to see; at {number} of {number} gates the images do."
    )


def test_gates_inside_norms():
    network = _with_gate("iebn")
    name, norm = next(
        (n, m)
        for n, m in network.named_modules()
        if type(m).__name__.endswith("Norm") and "Instance" in type(m).__name__
    )
    seen = []
    handle = norm.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    result = stripe(network, [IMAGES.double()])
    handle.remove()
    gate = torch.sigmoid(
        seen[0].mean((2, 3)) * norm.gate.weight.flatten() + norm.gate.bias.flatten()
    )
    site = next(site for site in result.sites if site.name == name)
    assert site.kind == "norm"
    assert site.mean == pytest.approx(gate.mean().item(), rel=1e-9)


def test_own_excitation_of_timm():
    import timm

    torch.manual_seed(0)
    network = timm.create_model("resnet18", block_args={"attn_layer": "se"}).double().eval()
    name, module = next((n, m) for n, m in network.named_modules() if n.endswith(".se"))
    seen = []
    handle = module.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    result = stripe(network, [IMAGES.double()], channels=16)
    handle.remove()
    hidden = torch.relu(module.bn(module.fc1(seen[-1].mean((2, 3), keepdim=True))))
    gate = torch.sigmoid(module.fc2(hidden))[:, :, 0, 0]
    site = next(site for site in result.sites if site.name == name)
    assert len(result.sites) == 8
    assert site.kind == "own"
    assert site.image_spread == pytest.approx(gate.std(0, correction=0).mean().item(), rel=1e-8)
    assert len(site.sampled_channels) == 16
    assert site.sampled_channels[-1] == site.channels - 1


def test_own_excitation_of_torchvision():
    from torchvision.models import mobilenet_v3_small

    torch.manual_seed(0)
    network = mobilenet_v3_small().double().eval()
    name, module = next(
        (n, m) for n, m in network.named_modules() if type(m).__name__ == "SqueezeExcitation"
    )
    seen = []
    handle = module.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    result = stripe(network, [IMAGES.double()])
    handle.remove()
    pooled = seen[-1].mean((2, 3), keepdim=True)
    gate = nn.functional.hardsigmoid(module.fc2(torch.relu(module.fc1(pooled))))
    site = next(site for site in result.sites if site.name == name)
    assert site.mean == pytest.approx(gate.mean().item(), rel=1e-9)


def test_channels_last_excitation():
    from timm.layers.squeeze_excite import SqueezeExciteCl

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.se = SqueezeExciteCl(12, rd_ratio=0.5)

        def forward(self, images):
            return self.se(images.repeat(1, 4, 1, 1).permute(0, 2, 3, 1))

    torch.manual_seed(0)
    result = stripe(Network().double(), _batches(10))
    assert [site.channels for site in result.sites] == [12]


def test_spatial_maps_are_the_spatial_factor():
    network = _with_gate("cbam")
    name, attachment = next(iter(attachments(network)))
    gate, seen = attachment.gate, []
    handle = gate.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    result = stripe(network, [IMAGES.double()], sample=20)
    handle.remove()
    branch = seen[-1]
    channel = torch.sigmoid(
        gate.excitation(branch.mean((2, 3))) + gate.excitation(branch.amax((2, 3)))
    )
    scaled = branch * channel[:, :, None, None]
    maps = torch.cat((scaled.amax(1, keepdim=True), scaled.mean(1, keepdim=True)), 1)
    spatial = torch.sigmoid(gate.conv(maps))[:, 0]
    pooled = nn.functional.adaptive_avg_pool2d(spatial, 24)
    assert result.sites[0].name == name
    assert len(result.sites[0].maps) == 12
    kept = torch.tensor(result.sites[0].maps, dtype=torch.float64)
    torch.testing.assert_close(kept, pooled[:12], rtol=1e-4, atol=0)


def test_nothing_stays_on_the_network():
    network = _with_gate("cbam")
    before = network(IMAGES[:2].double())
    hooks = sum(len(m._forward_hooks) for m in network.modules())
    network.train()
    with pytest.raises(RuntimeError):
        stripe(network, [IMAGES.double(), torch.zeros(2, 5, 32, 32, dtype=torch.float64)])
    assert network.training
    assert sum(len(m._forward_hooks) for m in network.modules()) == hooks
    assert not any("step_size" in a.__dict__ for _, a in attachments(network))
    assert torch.equal(network.eval()(IMAGES[:2].double()), before)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: stripe(attnlab.create("resnet20", 10), [IMAGES]),
            "ResNet has no gate to watch: no gate that attnlab inserted, no "
            "squeeze-and-excitation module of timm or torchvision, and nothing that multiplies in "
            "its steps (LayerScale, gated attention, hyper-connections). Insert one first, for "
            "example attnlab.insert(model, 'se'), or on the command line --gate se.",
        ),
        (
            lambda: stripe(_with_gate("se"), []),
            "Expected a loader with at least one batch but got an empty one.",
        ),
        (
            lambda: stripe(_with_gate("se"), ["photo.png"]),
            "Expected batches that are a tensor, start with one or with a list of images, or are a "
            "dictionary of inputs but "
            "got str.",
        ),
        (
            lambda: stripe(_with_gate("se"), _batches(4), sample=0),
            "Expected sample to be at least 1 but got 0.",
        ),
    ],
)
def test_messages(build, message):
    with pytest.raises(AttnlabError) as error:
        build()
    assert str(error.value) == message


class Wide(nn.Module):
    """A step of 80 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.branch = nn.Conv2d(3, 80, 4, 4), nn.Conv2d(80, 80, 1)

    def forward(self, images):
        x = self.stem(images)
        return x + self.branch(x)


def test_sixty_four_channels_of_forty_eight_images_are_kept():
    torch.manual_seed(0)
    network, _ = attnlab.insert(Wide().eval(), "se", example=IMAGES[:1])
    (site,) = stripe(network, [IMAGES, IMAGES + 1, IMAGES - 1]).sites
    assert (site.channels, len(site.channel_means)) == (80, 80)
    assert len(site.sample) == 48
    assert {len(row) for row in site.sample} == {64}
    assert (len(site.sampled_channels), site.sampled_channels[-1]) == (64, 79)


def test_256_of_its_own_images_are_watched():
    assert stripe(attnlab.open("resnet20", "digits", gate="se")).images == 256
