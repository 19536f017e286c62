"""Noise in whole networks: what is kept, when it acts, and what it goes with."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.surgery import noise
from attnlab.surgery.noise import noisy_norm

X = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def network(gate: str | None = None, **options: Any) -> nn.Module:
    """resnet20 with statistics away from 0 and 1."""
    torch.manual_seed(0)
    made = attnlab.create("resnet20")
    if gate is not None:
        made, _ = attnlab.insert(made, gate, example=X, **options)
    with torch.no_grad():
        made.train()(X)
    return made.eval()


def seeded(made: nn.Module, x: Tensor = X) -> Tensor:
    torch.manual_seed(7)
    with torch.no_grad():
        return made(x)


def test_keys_and_values_are_kept_and_off_is_the_same_to_the_bit() -> None:
    made = network()
    state = {name: value.clone() for name, value in made.state_dict().items()}
    before, classes = seeded(made), [type(module) for module in made.modules()]
    noise.attach(made, noise.random(0.5))  # in training only
    assert torch.equal(seeded(made), before)
    noise.attach(made, noise.random(0.5), "test")
    assert not torch.equal(seeded(made), before)
    for name, value in made.state_dict().items():
        assert torch.equal(value, state[name]), name
    noise.detach(made)
    assert torch.equal(seeded(made), before)
    assert [type(module) for module in made.modules()] == classes
    assert noise.carried(made) == {}


@pytest.mark.parametrize(
    ("during", "training", "test"),
    [("training", True, False), ("test", False, True), ("both", True, True)],
)
def test_training_and_test_apart(during: Any, training: bool, test: bool) -> None:
    made = network()
    expected = [seeded(copy.deepcopy(made).train(mode)) for mode in (True, False)]
    noise.attach(made, noise.constant(0.8, 0.5), during)
    found = [seeded(copy.deepcopy(made).train(mode)) for mode in (True, False)]
    changed = [not torch.equal(*pair) for pair in zip(found, expected, strict=True)]
    assert changed == [training, test]


def test_a_norm_in_eval_mode_in_a_network_that_trains_has_the_noise_of_test() -> None:
    norm = nn.BatchNorm2d(3).eval()
    made = nn.Sequential(norm)
    made.training = True
    noise.attach(made, noise.constant(0, 2), "test")
    assert torch.equal(made(X), torch.full_like(X, 2.0))


def test_default_times() -> None:
    for given, during in ((noise.constant(1, 1), "both"), (noise.random(1), "training")):
        assert noise.attach(network(), given).during == during
    assert noise.attach(network(), noise.batch(2)).during == "training"


def test_the_context_takes_out_its_own_noise_also_after_an_error() -> None:
    made = network()
    before = seeded(made)
    noise.attach(made, noise.constant(1, 0.1))
    under = seeded(made)
    with noise.noisy(made, noise.random(0.3), "test") as receipt:
        assert not torch.equal(seeded(made), under)
        assert len(receipt.norms) == 21

    def fails() -> None:
        with noise.noisy(made, noise.random(0.3), "test"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert torch.equal(seeded(made), under)
    assert set(noise.carried(made).values()) == {((noise.constant(1, 0.1), "both"),)}
    noise.detach(made)
    assert torch.equal(seeded(made), before)


def test_copies_and_pickles_carry_it() -> None:
    made = network("se")
    noise.attach(made, noise.random(0.3, "image"), "test")
    expected = seeded(made)
    assert torch.equal(seeded(copy.deepcopy(made)), expected)
    assert torch.equal(seeded(pickle.loads(pickle.dumps(made))), expected)


@pytest.mark.parametrize(
    "given", [noise.constant(0.8, 0.5), noise.random(0.3), noise.batch(2)], ids=lambda g: g.label
)
def test_compiled(given: noise.Noise) -> None:
    made = network("asr:se")
    noise.attach(made, given, "both")
    expected = seeded(made)
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(seeded(compiled), expected, rtol=1e-4, atol=1e-4)
    noise.detach(made)
    assert not torch.allclose(seeded(made), expected, atol=1e-2)


@pytest.mark.parametrize("gate", ["se", "step", "iebn", "asr:se", "dia"])
def test_gates_and_noise_in_one_network(gate: str) -> None:
    """The addition at which a step gate acts is still told from all others."""
    made = network(gate)
    own = sum(isinstance(m, nn.BatchNorm2d) for m in attnlab.create("resnet20").modules())
    with noise.noisy(made, noise.random(0.3, "image"), "both") as receipt:
        assert len(receipt.norms) == own
        loss = made.train()(X).square().mean()
        loss.backward()
        assert all(parameter.grad is not None for parameter in made.parameters())


def test_gates_that_follow_the_noise() -> None:
    made = network()
    noise.attach(made, noise.constant(0.9, 0.1))
    before = seeded(made)
    gated, receipt = attnlab.insert(made, "se", start="identity", example=X)
    torch.testing.assert_close(seeded(gated), before, rtol=1e-4, atol=1e-5)
    assert receipt.max_change < 1e-4  # type: ignore[operator]
    assert len(noise.carried(gated)) == 21


def test_constant_noise_folds_with_the_gates() -> None:
    made = network("asr:se")
    noise.attach(made, noise.constant(0.8, 0.5))
    expected = seeded(made)
    plain, receipt = attnlab.fold(made, example=X)
    assert receipt.float64_change is not None
    assert receipt.float64_change < 1e-12
    torch.testing.assert_close(seeded(plain), expected, rtol=1e-4, atol=1e-4)
    assert list(plain.state_dict()) == list(attnlab.create("resnet20").state_dict())
    fused, _ = attnlab.fold(made, example=X, fuse=True)
    torch.testing.assert_close(seeded(fused), expected, rtol=1e-4, atol=1e-4)


def test_noise_of_training_does_not_keep_a_network_from_folding() -> None:
    made = network("asr:se")
    expected = seeded(made)
    noise.attach(made, noise.random(0.3))
    plain, _ = attnlab.fold(made, example=X)
    torch.testing.assert_close(seeded(plain), expected, rtol=1e-4, atol=1e-4)


def test_a_network_that_is_random_in_test_folds_draw_by_draw() -> None:
    """The affine that takes the gate lies after the noise."""
    made = network("asr:se")
    noise.attach(made, noise.random(0.3), "test")
    expected = seeded(made)
    plain, receipt = attnlab.fold(made, example=X)
    assert receipt.float64_change is not None
    assert receipt.float64_change < 1e-12
    torch.testing.assert_close(seeded(plain), expected, rtol=1e-4, atol=1e-4)


def test_capture_sees_the_noise() -> None:
    made = network()
    noise.attach(made, noise.constant(0.8, 0.5))
    branches = []
    norm = made.get_submodule("layer1.0.bn2")
    hook = norm.register_forward_hook(lambda _m, _i, output: branches.append(output))
    with torch.no_grad(), attnlab.capture(made, X) as captured:
        made(X)
    hook.remove()
    torch.testing.assert_close(next(iter(captured)).branch, branches[-1].flatten(1).norm(dim=1))
    noise.detach(made)
    with torch.no_grad(), attnlab.capture(made, X) as clean:
        made(X)
    assert not torch.allclose(next(iter(clean)).branch, next(iter(captured)).branch, rtol=0.05)


def test_timms_norm_with_an_activation_is_disturbed_before_it() -> None:
    from timm.layers import BatchNormAct2d

    norm = BatchNormAct2d(3, act_layer=nn.ReLU).double().eval()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.uniform_(-1, 1)
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    x = X.double()
    noise.attach(norm, noise.constant(0.8, -0.5))
    rows = [v[:, None, None] for v in (norm.running_mean, norm.running_var, norm.weight, norm.bias)]
    x_hat = (x - rows[0]) / (rows[1] + norm.eps).sqrt()
    expected = torch.relu(rows[2] * (0.8 * x_hat - 0.5) + rows[3])
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "norms"),
    [("efficientnet_b0", 49), ("convnext_atto", 17), ("vit_tiny_patch16_224", 25)],
)
def test_norms_of_timm(name: str, norms: int) -> None:
    made = timm.create_model(name).eval()
    x = torch.randn(1, 3, 224, 224)
    before = seeded(made, x)
    with noise.noisy(made, noise.random(0.2), "test") as receipt:
        assert (len(receipt.norms), receipt.others) == (norms, ())
        assert not torch.allclose(seeded(made, x), before, atol=1e-3)
    assert torch.equal(seeded(made, x), before)


def test_norms_inside_gates_are_left_alone() -> None:
    made = network("srm")
    inside = [n for n, m in made.named_modules() if isinstance(m, nn.BatchNorm1d)]
    assert inside
    assert not set(inside) & set(noise.attach(made, noise.constant(0.5, 0.5)).norms)


def test_synchronised_norms() -> None:
    """Without processes they are norms like others; the affine for those with is checked here."""
    made = nn.SyncBatchNorm.convert_sync_batchnorm(network())
    plain = network()
    for each in (made, plain):
        noise.attach(each, noise.constant(0.8, 0.5))
    assert torch.equal(seeded(made), seeded(plain))
    norm = nn.SyncBatchNorm(3).double().train()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.uniform_(-1, 1)
    x, own = X.double(), (norm.weight, norm.bias)
    noises = [noise.constant(0.8, 0.5), noise.constant(2, 1)]
    found = noisy_norm._synchronised(norm, norm.forward, noises, x)
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
    x_hat = 2 * (0.8 * (x - mean) / (variance + norm.eps).sqrt() + 0.5) + 1
    expected = norm.weight[:, None, None] * x_hat + norm.bias[:, None, None]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert (norm.weight, norm.bias) == own
    found.sum().backward()
    assert norm.weight.grad is not None


def test_receipt() -> None:
    made = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4))
    assert str(noise.attach(made, noise.random(0.3, "image"), "both")) == (
        "random σ = 0.3 per image, in training and in test\n"
        "  norms       1: 0\n"
        "  not reached 1: 2 (InstanceNorm2d)"
    )
    assert noise.carried(made) == {"0": ((noise.random(0.3, "image"), "both"),)}


def test_batch_noise_does_not_reach_norms_without_a_batch() -> None:
    made = nn.Sequential(nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.InstanceNorm2d(3))
    receipt = noise.attach(made, noise.batch(2))
    assert receipt.norms == ("0",)
    assert receipt.others == ("2 (InstanceNorm2d)", "1")


def test_of_many_norms_the_first_three_and_the_last_are_listed() -> None:
    def line(number: int) -> str:
        made = nn.Sequential(*(nn.BatchNorm2d(3) for _ in range(number)))
        return str(noise.attach(made, noise.random(0.3), "test")).splitlines()[1]

    assert line(4) == "  norms       4: 0, 1, 2, 3"
    assert line(5) == "  norms       5: 0, 1, 2, … 4"
    assert line(9) == "  norms       9: 0, 1, 2, … 8"


@pytest.mark.parametrize(
    ("number", "named"),
    [(1, "0"), (4, "0, 1, 2, 3"), (5, "0, 1, 2, … 4"), (9, "0, 1, 2, … 8")],
)
def test_a_receipt_names_up_to_four_norms(number: int, named: str) -> None:
    made = nn.Sequential(*(nn.BatchNorm2d(3) for _ in range(number)))
    assert str(noise.attach(made, noise.batch(2), "test")) == (
        f"batch statistics of 2, in test\n  norms       {number}: {named}"
    )


def test_noise_by_its_numbers() -> None:
    given = (noise.constant(0.8, -0.5), noise.random(0.25, "layer"), noise.batch(3))
    assert [each.label for each in given] == [
        "constant (0.8, -0.5)",
        "random σ = 0.25 per layer",
        "batch statistics of 3",
    ]
    assert [each.strength for each in given] == [(0.8, -0.5), (0.25,), (3,)]
    assert [each.default_during for each in given] == ["both", "training", "training"]
    assert given[0].draw(4, 3, X) == (0.8, -0.5)
    for per, shape in (("layer", (1,)), ("channel", (3,)), ("image", (4, 3))):
        like = torch.ones(1, dtype=torch.float64)
        scale, shift = noise.random(0.0, per).draw(4, 3, like)  # type: ignore[arg-type]
        assert scale.shape == shift.shape == shape
        assert scale.dtype == shift.dtype == torch.float64
        assert bool((scale == 1).all() and (shift == 0).all())


@pytest.mark.parametrize("number", [True, 2.0, 1, -2])
def test_a_batch_is_a_whole_number_of_two_images_or_more(number: Any) -> None:
    assert message(OptionError, noise.batch, number) == (
        "Expected n to be a whole number of at least 2, because one value has no variance, but got "
        f"{number!r}."
    )


class ChannelNorm(nn.Module):
    """A norm by its name, without layers in it; a part of it is of no class that is known."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.weight = nn.Parameter(torch.ones(3))


class NormBlock(nn.Module):
    """No norm, whatever its name: it has layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.LayerNorm(3)


def test_what_is_a_norm_and_what_is_not_reached() -> None:
    made = nn.ModuleDict(
        {
            "one": ChannelNorm(),
            "block": NormBlock(),
            "batch": nn.BatchNorm2d(3),
        }
    )
    receipt = noise.attach(made, noise.random(0.1))
    assert receipt.norms == ("block.norm", "batch")
    assert receipt.others == ("one (ChannelNorm)",)
    receipt = noise.attach(made, noise.batch(2))
    assert receipt.norms == ("batch",)
    assert receipt.others == ("one (ChannelNorm)", "block.norm")
    assert list(noise.carried(made)) == ["block.norm", "batch"]
    assert noise.carried(made)["batch"] == (
        (noise.random(0.1), "training"),
        (noise.batch(2), "training"),
    )
    alone = nn.BatchNorm2d(3)
    assert noise.attach(alone, noise.constant(1, 0)).norms == ("",)
    assert noise.carried(alone) == {"": ((noise.constant(1, 0), "both"),)}
    noise.detach(alone)
    assert noise.carried(alone) == {}
    assert not alone._forward_pre_hooks


def test_a_network_without_a_place_for_noise_of_a_batch() -> None:
    none = nn.Sequential(nn.Linear(3, 3))
    assert message(InputError, noise.attach, none, noise.batch(4)) == (
        "Sequential has no BatchNorm, so there is no place for noise (batch statistics of 4). "
        "Choose a network with norms."
    )
    other = nn.Sequential(nn.InstanceNorm2d(3))
    assert message(InputError, noise.attach, other, noise.constant(1, 0)) == (
        "Sequential has no BatchNorm, LayerNorm or GroupNorm, so there is no place for noise "
        "(constant (1, 0)). It has 0 (InstanceNorm2d). Choose a network with norms."
    )


class Twice(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(super().forward(input))


def message(error: type[Exception], function: Any, *arguments: Any) -> str:
    with pytest.raises(error) as caught:
        function(*arguments)
    return str(caught.value)


def test_errors_say_what_to_do() -> None:
    assert message(OptionError, noise.random, -0.1) == (
        "Expected sigma to be at least 0 but got -0.1."
    )
    assert message(OptionError, noise.random, float("nan")) == (
        "Expected sigma to be a finite number but got nan."
    )
    assert message(OptionError, noise.constant, "0.8", 1) == (
        "Expected a to be a finite number but got '0.8'."
    )
    assert message(Exception, noise.random, 0.1, "chanel") == (
        "Unknown per of random noise 'chanel'. Did you mean 'channel'? Expected one of: layer, "
        "channel, image."
    )
    assert message(OptionError, noise.batch, 1) == (
        "Expected n to be a whole number of at least 2, because one value has no variance, but got "
        "1."
    )
    assert message(Exception, noise.attach, network(), noise.constant(1, 1), "train") == (
        "Unknown time of noise 'train'. Did you mean 'training'? Expected one of: training, test, "
        "both."
    )
    assert message(OptionError, noise.attach, network(), "random") == (
        "Expected a noise, such as attnlab.surgery.noise.random(0.3), but got 'random'."
    )
    vgg = attnlab.create("torchvision:vgg11")
    assert message(InputError, noise.attach, vgg, noise.random(0.3)) == (
        "VGG has no BatchNorm, LayerNorm or GroupNorm, so there is no place for noise (random σ = "
        "0.3 per channel). Choose a network with norms."
    )
    tokens = nn.Sequential(nn.LayerNorm(8))
    assert message(InputError, noise.attach, tokens, noise.batch(4)) == (
        "Sequential has no BatchNorm, so there is no place for noise (batch statistics of 4). It "
        "has 0. Choose a network with norms, or random or constant noise."
    )
    small = nn.BatchNorm2d(3)
    noise.attach(small, noise.batch(8))
    assert message(InputError, small, X) == (
        "Batch noise takes the statistics of 8 images, but a batch has 4. Use batches of at least "
        "8, and drop_last = true where the last one is smaller."
    )
    lazy = nn.Sequential(nn.LazyBatchNorm2d())
    assert message(InputError, noise.attach, lazy, noise.random(0.3)) == (
        "'0' does not know its size yet (LazyBatchNorm2d). Run the network once, then attach noise."
    )
    twice = Twice(3)
    noise.attach(twice, noise.constant(1, 1))
    assert message(InputError, twice, X) == (
        "Twice calls torch's norm functions 2 times in one forward, expected once, so noise has no "
        "place in it. Take the noise out, or use another norm."
    )
    norm = nn.SyncBatchNorm(3)
    given = [noise.random(0.3, "image")]
    assert message(InputError, noisy_norm._synchronised, norm, norm.forward, given, X) == (
        "SyncBatchNorm takes its statistics over all processes, where random σ = 0.3 per image has "
        "no place. Use noise per channel or layer, or leave the norms unsynchronised."
    )


def test_iebn_is_one_of_the_norms() -> None:
    made = network("iebn")
    receipt = noise.attach(made, noise.constant(0.8, 0.8))
    kinds = [type(made.get_submodule(name)) for name in receipt.norms]
    assert sum(issubclass(kind, InstanceEnhancementBatchNorm) for kind in kinds) == 19
