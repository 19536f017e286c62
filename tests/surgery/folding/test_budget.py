"""Gates made constant under a budget: which, at what cost, and with which constants."""

from __future__ import annotations

import itertools
from time import perf_counter

import pytest
import timm
import torch
import torchvision
from tests.tools.forked import forking
from timm.models._efficientnet_blocks import SqueezeExcite
from timm.models.hgnet import EseModule
from timm.models.senet import SEModule as LegacySEModule
from torch import Tensor, nn
from torchvision.ops.misc import SqueezeExcitation

import attnlab
from attnlab._errors import FoldError, InputError, OptionError, UnknownNameError
from attnlab.networks.checkpoint import Description, save
from attnlab.surgery.folding import FoldReceipt, cost_curve
from attnlab.surgery.folding._choose import greedy
from attnlab.surgery.folding.onnx import export_onnx
from attnlab.surgery.insertion import attachments

from .networks import Residual, relative, stir

C = 6


def images(count: int, channels: int = 3, size: int = 32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.rand(count, 1, 1, 1, generator=generator) * 3
    return scale * torch.randn(count, channels, size, size, generator=generator)


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return stir(timm.create_model("mobilenetv3_small_050", num_classes=4)).eval()


@pytest.fixture(scope="module")
def folded() -> tuple[nn.Module, list[tuple[Tensor, Tensor]], nn.Module, FoldReceipt]:
    network = small()
    classes = torch.arange(64) % 4
    data = list(zip(images(64).split(16), classes.split(16), strict=True))
    plain, receipt = attnlab.fold_budget(network, data, 0.3)
    return network, data, plain, receipt


def test_constants_are_least_squares_of_the_gated_branch():
    """Against torch's own least squares, channel by channel, on every second image."""
    torch.manual_seed(0)
    network = stir(Residual(nn.Conv2d(C, C, 3, padding=1), nn.Identity(), C, 1)).double().eval()
    data = images(40, C, 5).double()
    gated, _ = attnlab.insert(network, "se", example=data[:1])
    for _, attachment in attachments(gated):
        for parameter in attachment.parameters():
            nn.init.normal_(parameter, std=2.0)
    plain, receipt = attnlab.fold_budget(gated, [data[:7], data[7:]], "all")
    ((_, attachment),) = attachments(gated)
    with torch.no_grad():
        branch = nn.functional.conv2d(
            data[::2], network.branch.weight, network.branch.bias, padding=1
        )
        wanted = branch * attachment.gate(branch)
        constant = torch.cat(
            [
                torch.linalg.lstsq(branch[:, c].reshape(-1, 1), wanted[:, c].reshape(-1, 1))[0][0]
                for c in range(C)
            ]
        )
        plain_mean = attachment.gate(branch).mean(0).flatten()
    assert relative(plain_mean, constant) > 0.01
    assert relative(network.branch.weight * constant[:, None, None, None], plain.branch.weight) < (
        1e-12
    )
    with torch.no_grad():
        before, after = gated(data[1::2]), plain(data[1::2])
    assert receipt.measured == pytest.approx(float((after - before).norm() / before.norm()))
    assert receipt.curve.held_out == receipt.curve.choosing == 20


def test_what_is_held_out_decides_nothing():
    network, data = small(), images(40)
    other = data.clone()
    other[1::2] = images(20, seed=5)
    first, second = (attnlab.fold_budget(network, [batch], "all") for batch in (data, other))
    for name, value in first[0].state_dict().items():
        assert torch.equal(value, second[0].state_dict()[name])
    assert [p.predicted for p in first[1].curve.points] == [
        p.predicted for p in second[1].curve.points
    ]
    assert first[1].measured != second[1].measured


def test_the_receipt_tells_what_was_measured(folded):
    network, data, plain, receipt = folded
    held_out = torch.cat([batch[1::2] for batch, _ in data])
    classes = torch.cat([each[1::2] for _, each in data])
    with torch.no_grad():
        before, after = network(held_out).double(), plain(held_out).double()
    gone = receipt.curve.within(0.3)
    assert 0 < gone < 9
    assert len(receipt.sites) == gone
    assert receipt.measured == pytest.approx(float((after - before).norm() / before.norm()), 1e-3)
    # What the curve says of that point was measured before anything was folded.
    assert receipt.measured == pytest.approx(receipt.curve.points[gone - 1].measured, rel=1e-3)
    assert receipt.predicted == receipt.curve.points[gone - 1].predicted <= 0.3
    assert receipt.accuracy_before == float((before.argmax(1) == classes).double().mean())
    assert receipt.accuracy_after == float((after.argmax(1) == classes).double().mean())
    gained = (after.argmax(1) == classes).double() - (before.argmax(1) == classes).double()
    assert receipt.accuracy_error == pytest.approx(float(gained.std(correction=0) / 32**0.5))
    assert receipt.float64_change <= 1e-12
    assert {row.kept for row in receipt.kept} == {"beyond the budget 0.3"}
    assert FoldReceipt.from_json(receipt.to_json()) == receipt
    assert f"measured {receipt.measured:.4f} on 32 held out" in str(receipt)


def test_a_budget_that_no_gate_fits_takes_none():
    network, data = small(), images(32)
    began = perf_counter()
    plain, receipt = attnlab.fold_budget(network, [data], 1e-9)
    assert 0 < receipt.seconds <= perf_counter() - began
    assert receipt.sites == ()
    assert (receipt.predicted, receipt.measured) == (0.0, 0.0)
    assert torch.equal(plain(data), network(data))


@pytest.mark.parametrize("cost", ["answers", "loss", "accuracy"])
def test_costs(cost):
    """By hand, of the network that comes out."""
    network, classes = small(), torch.arange(40) % 4
    data = images(40)
    plain, receipt = attnlab.fold_budget(network, [(data, classes)], "all", cost=cost)
    with torch.no_grad():
        before, after = (each(data[1::2]).double() for each in (network, plain))
    classes = classes[1::2]
    if cost == "answers":
        expected = (before.argmax(1) != after.argmax(1)).double().mean()
    elif cost == "loss":
        losses = [nn.functional.cross_entropy(each, classes) for each in (before, after)]
        expected = losses[1] - losses[0]
    else:
        right = [(each.argmax(1) == classes).double().mean() for each in (before, after)]
        expected = right[0] - right[1]
    assert receipt.measured == pytest.approx(float(expected), rel=1e-3, abs=1e-6)


def test_nothing_moves_where_gates_are_constant():
    network = small().double()
    for name, module in network.named_modules():
        if name.endswith("conv_reduce"):
            nn.init.zeros_(module.weight)
    data = images(32).double()
    plain, receipt = attnlab.fold_budget(network, [data], 1e-9)
    assert len(receipt.sites) == 9
    assert relative(network(data), plain(data)) <= 1e-10
    for name, value in plain.state_dict().items():
        if "running" in name:
            assert relative(value, network.state_dict()[name]) <= 1e-12
    # Counted on 16 images and never seen: it may be 3 in 16 all the same.
    points = cost_curve(network, [data], cost="answers").points
    assert {(p.predicted, p.bound) for p in points} == {(0.0, 3 / 16)}


class Normed(nn.Module):
    """A gate of its own, then a layer and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, C, 3, padding=1)
        self.attention = timm.layers.SEModule(C, rd_channels=3)
        self.layer = nn.Conv2d(C, C, 1, bias=False)
        self.norm = nn.BatchNorm2d(C)
        self.head = nn.Linear(C, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(self.attention(nn.functional.silu(self.first(x))))
        return self.head(nn.functional.silu(self.norm(x)).mean((2, 3)))


def test_norms_follow_what_they_see():
    """Mean and variance before and after, by hand: the stored ones move by as much."""
    torch.manual_seed(0)
    network = stir(Normed()).double().eval()
    data = 2 * images(60, 3, 6).double()
    plain, _ = attnlab.fold_budget(network, [data], "all")
    chose = data[::2]
    with torch.no_grad():
        made = nn.functional.silu(network.first(chose))
        before, after = network.layer(network.attention(made)), plain.layer(made)
    dims = (0, 2, 3)
    moved = network.norm.running_mean + after.mean(dims) - before.mean(dims)
    assert relative(moved, plain.norm.running_mean) <= 1e-9
    eps = network.norm.eps
    ratio = (after.var(dims, correction=0) + eps) / (before.var(dims, correction=0) + eps)
    wanted = (network.norm.running_var + eps) * ratio - eps
    assert relative(wanted, plain.norm.running_var) <= 1e-9
    assert relative(network.norm.running_var, plain.norm.running_var) > 1e-3


def test_greedy_takes_the_cheapest_next():
    """Against trying all of them each time, for a cost that grows in company."""
    weights = dict(zip("abcdefg", (3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.0), strict=True))
    worse = {frozenset("ba"): 7.0, frozenset("bd"): 2.0, frozenset("cf"): 3.0}
    trials = []

    def cost(keys: frozenset[str]) -> float:
        trials.append(keys)
        together = sum(extra for pair, extra in worse.items() if pair <= keys)
        return sum(weights[key] for key in keys) + together

    found = greedy(weights, cost)
    used = len(trials)
    expected: list[str] = []
    while len(expected) < len(weights):
        left = [key for key in weights if key not in expected]
        expected.append(min(left, key=lambda key: cost(frozenset((*expected, key)))))
    assert found == expected != sorted(weights, key=weights.__getitem__)
    assert used < sum(range(len(weights) + 1))


def test_greedy_tries_all_where_constants_help():
    """A loss may fall."""
    weights = {"a": -1.0, "b": -3.0, "c": 2.0, "d": -2.0}
    assert greedy(weights, lambda keys: sum(weights[key] for key in keys)) == ["b", "d", "a", "c"]


def test_it_is_joint_not_single():
    """Two gates that cancel each other: the curve falls where the second goes, too."""
    costs = {frozenset(): 0.0}
    for keys in itertools.chain.from_iterable(itertools.combinations("abc", n) for n in (1, 2, 3)):
        costs[frozenset(keys)] = float(len(keys))
    costs[frozenset("ac")] = 0.25
    assert greedy("abc", costs.__getitem__)[:2] == ["a", "c"]


OWN = {
    "SqueezeExcite": lambda: SqueezeExcite(C, 0.5, force_act_layer=nn.ReLU),
    "SEModule": lambda: timm.layers.SEModule(C, rd_channels=3),
    "legacy SEModule": lambda: LegacySEModule(C, 2),
    "EffectiveSEModule": lambda: timm.layers.EffectiveSEModule(C),
    "EseModule": lambda: EseModule(C),
    "EcaModule": lambda: timm.layers.EcaModule(C),
    "CecaModule": lambda: timm.layers.CecaModule(C),
    "SqueezeExcitation": lambda: SqueezeExcitation(C, 3, scale_activation=nn.Hardsigmoid),
}


@pytest.mark.parametrize("kind", OWN)
def test_attention_that_networks_bring_along(kind):
    torch.manual_seed(0)
    network = Normed()
    network.attention = OWN[kind]()
    network = stir(network).eval()
    data = images(32, 3, 6)
    plain, receipt = attnlab.fold_budget(network, [data], "all")
    assert receipt.sites == ("attention",)
    assert isinstance(plain.attention, nn.Identity)
    assert receipt.float64_change <= 1e-12
    # The gate, by hand: what the module makes of its input, over its input.
    with torch.no_grad():
        branch = nn.functional.silu(network.first(data[::2])).double()
        gated = network.attention(branch.float()).double()
        constant = (gated * branch).sum((0, 2, 3)) / branch.square().sum((0, 2, 3))
    wanted = network.layer.weight * constant[None, :, None, None]
    assert relative(wanted, plain.layer.weight) < 1e-5


def test_a_network_of_torchvision():
    torch.manual_seed(0)
    network = stir(torchvision.models.mobilenet_v3_small(num_classes=3)).eval()
    plain, receipt = attnlab.fold_budget(network, [images(32)], "all")
    assert len(receipt.sites) == 9
    assert receipt.float64_change <= 1e-12
    assert all(row.error <= 1e-12 for row in receipt.rows)
    assert not any(isinstance(module, SqueezeExcitation) for module in plain.modules())


class SELayer(nn.Module):
    """As in many public repositories: the gate is two-dimensional before it is viewed."""

    def __init__(self, channels: int, *, adds: bool = False) -> None:
        super().__init__()
        self.adds = adds
        self.fc = nn.Sequential(
            nn.Linear(channels, 3), nn.ReLU(), nn.Linear(3, channels), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        gate = self.fc(x.mean((2, 3))).view(len(x), -1, 1, 1)
        return x * gate + x if self.adds else x * gate


def with_own_class(*, adds: bool) -> nn.Module:
    torch.manual_seed(0)
    network = Normed()
    network.attention = SELayer(C, adds=adds)
    return stir(network).eval()


def test_a_class_of_your_own_by_name():
    network, data = with_own_class(adds=False), [images(32, 3, 6)]
    with pytest.raises(FoldError, match="carries no gate that could be made constant"):
        attnlab.fold_budget(network, data, "all")
    plain, receipt = attnlab.fold_budget(network, data, "all", gates={"SELayer": "fc"})
    assert receipt.sites == ("attention",)
    assert isinstance(plain.attention, nn.Identity)
    assert receipt.float64_change <= 1e-12


def test_a_class_that_does_more_than_multiply_is_refused():
    network, data = with_own_class(adds=True), [images(32, 3, 6)]
    rest, receipt = attnlab.fold_budget(network, data, "all", gates={"SELayer": "fc"})
    (row,) = receipt.kept
    assert row.kept == "SELayer does not return its input times what its 'fc' returns"
    assert relative(network(data[0]), rest(data[0])) == 0.0


REFUSALS = {
    "few": (
        lambda net: attnlab.fold_budget(net, [images(31)], 0.1),
        InputError,
        "There are 31 images. Expected at least 32 for a budget: half of them choose, and "
        "half are held out to measure what was chosen. Some hundreds are better.",
    ),
    "none": (
        lambda net: attnlab.fold_budget(net, [], 0.1),
        InputError,
        "The images gave no batch. Expected an iterable of input batches.",
    ),
    "not finite": (
        lambda net: attnlab.fold_budget(net, [images(32), images(32) / torch.zeros(())], 0.1),
        InputError,
        "Batch 1 of the images has values that are not finite. Expected images as the network "
        "takes them.",
    ),
    "no classes": (
        lambda net: cost_curve(net, [images(32)], cost="loss"),
        InputError,
        "cost='loss' needs the class of every image, and the batches have none. Expected batches "
        "(images, classes), or a cost that needs no classes: 'output' or 'answers'.",
    ),
    "other classes": (
        lambda net: cost_curve(net, [(images(32), torch.arange(32))], cost="accuracy"),
        InputError,
        "There are images of class 30, and the network knows 4 classes, from 0 on. Expected "
        "the classes that it was trained for, or a cost that needs none: 'output' or 'answers'.",
    ),
    "cost": (
        lambda net: cost_curve(net, [images(32)], cost="answer"),
        UnknownNameError,
        "Unknown cost 'answer'. Did you mean 'answers'? Expected one of: output, answers, loss, "
        "accuracy.",
    ),
    "budget": (
        lambda net: attnlab.fold_budget(net, [images(32)], "most"),
        OptionError,
        "Expected budget to be a number of at least 0, or 'all', but got 'most'.",
    ),
    "negative": (
        lambda net: attnlab.fold_budget(net, [images(32)], -0.1),
        OptionError,
        "Expected budget to be a number of at least 0, or 'all', but got -0.1.",
    ),
    "repair": (
        lambda net: attnlab.fold_budget(net, [images(32)], 0.1, repair="teach"),
        OptionError,
        "Expected repair to be 'distil' or a Distil but got 'teach'.",
    ),
    "class": (
        lambda net: cost_curve(net, [images(32)], gates={"SqueezeExcit": "gate"}),
        OptionError,
        "MobileNetV3 has no module of the class 'SqueezeExcit'. Did you mean 'SqueezeExcite'? "
        "Expected the name of a class, and the submodule that returns its gate: {'SELayer': "
        "'fc'}.",
    ),
    "submodule": (
        lambda net: cost_curve(net, [images(32)], gates={"SqueezeExcite": "gates"}),
        OptionError,
        "SqueezeExcite has no submodule 'gates'. Did you mean 'gate'? Expected the one that "
        "returns its gate, of: conv_reduce, act1, conv_expand, gate.",
    ),
    "no gate": (
        lambda _: cost_curve(attnlab.create("resnet20"), [images(32)]),
        FoldError,
        "ResNet carries no gate that could be made constant. Expected one that attnlab inserted, "
        "squeeze-and-excitation or ECA of timm or torchvision, gated attention of a language "
        "model, or a class of your own that gates= names.",
    ),
    "another attention": (
        lambda _: cost_curve(timm.create_model("gcresnet33ts", num_classes=3), [images(32)]),
        FoldError,
        "ByobNet carries no gate that could be made constant. Expected one that attnlab inserted, "
        "squeeze-and-excitation or ECA of timm or torchvision, gated attention of a language "
        "model, or a class of your own that gates= names. No constant per channel stands for what "
        "it has: GlobalContext may add to its input as well as multiply it.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    call, kind, text = REFUSALS[name]
    with pytest.raises(kind) as raised:
        call(small())
    assert str(raised.value) == text


def test_a_loader_that_breaks_is_not_swallowed():
    def broken():
        yield images(32)
        raise OSError("cannot read 7.png")

    with pytest.raises(OSError, match="cannot read 7"):
        attnlab.fold_budget(small(), broken(), 0.1)


def test_a_budget_that_the_held_out_images_exceed_is_said():
    network, data = small(), images(40)
    data[1::2] *= 20
    first = cost_curve(network, [data]).points[0]
    assert first.measured > first.predicted
    _, receipt = attnlab.fold_budget(network, [data], first.predicted)
    assert (
        f"on the images held out the cost is {receipt.measured:.4f}, more than the budget "
        f"{first.predicted:g}: give more images, or a smaller budget"
    ) in receipt.notes


def test_no_operator_of_the_gates_is_left(tmp_path, folded):
    """By operator types of the ONNX files: with squeeze-and-excitation, and with all of it out."""
    import onnx

    network, data, *_ = folded
    plain, _ = attnlab.fold_budget(network, data, "all")
    kinds = {}
    for name, each in (("with", network), ("without", plain)):
        export_onnx(each, data[0][0][:2], tmp_path / f"{name}.onnx")
        graph = onnx.load(tmp_path / f"{name}.onnx").graph
        kinds[name] = [node.op_type for node in graph.node]
    assert kinds["with"].count("HardSigmoid") == 9
    assert "HardSigmoid" not in kinds["without"]
    for pooling in ("ReduceMean", "GlobalAveragePool"):
        gone = kinds["with"].count(pooling) - kinds["without"].count(pooling)
        assert gone in (0, 9)
    assert kinds["with"].count("Conv") - kinds["without"].count("Conv") == 18
    assert kinds["without"].count("Mul") == kinds["with"].count("Mul") - 9


def test_the_result_loads_in_a_fresh_process(tmp_path, folded):
    _, data, plain, receipt = folded
    described = Description("timm:mobilenetv3_small_050", 4, input_size=[3, 32, 32])
    save(plain, tmp_path / "plain.safetensors", described.after_fold(plain, receipt))
    torch.save(data[0][0], tmp_path / "images.pt")
    code = (
        "import torch, attnlab\n"
        "network = attnlab.load('plain.safetensors').eval()\n"
        "images = torch.load('images.pt', weights_only=True)\n"
        "with torch.no_grad(): torch.save(network(images), 'answers.pt')\n"
    )
    ended = forking("torch", "torchvision", "timm").run(code, folder=tmp_path)
    assert ended.code == 0, ended.printed
    with torch.no_grad():
        expected = plain(data[0][0])
    assert torch.equal(torch.load(tmp_path / "answers.pt", weights_only=True), expected)
