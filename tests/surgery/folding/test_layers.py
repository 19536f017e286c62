"""Every kind of layer that takes a gate, against the formula."""

from __future__ import annotations

import copy

import pytest
import timm
import torch
from torch import nn

import attnlab
from attnlab._errors import FoldError
from attnlab.surgery.insertion import attachments

from .networks import Chain, Residual, in_both_modes, relative, stir, stir_gates

C = 8


def gate_of(network: nn.Module) -> torch.Tensor:
    """v = Att(ψ) of the one gate, with SE written out."""
    ((_, attachment),) = attachments(network)
    vector = torch.ones(C, dtype=torch.float64)
    for each in attachment.gate.vectors:
        psi, layers = each.psi[0, :, 0, 0].double(), each.attention.excitation
        hidden = torch.relu(layers.fc1.weight.double() @ psi + layers.fc1.bias.double())
        vector = vector * torch.sigmoid(
            layers.fc2.weight.double() @ hidden + layers.fc2.bias.double()
        )
    return vector.detach()


class Conv1D(nn.Module):
    """GPT-2's linear layer: the weight is (in, out)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


def rows(dimensions: int):
    return lambda v: v.reshape(-1, *[1] * (dimensions - 1))


LAYERS = {
    "conv1d": (nn.Conv1d(4, C, 3), (2, 4, 9), {"weight": rows(3), "bias": rows(1)}),
    "conv2d": (nn.Conv2d(4, C, 3, groups=2), (2, 4, 7, 7), {"weight": rows(4), "bias": rows(1)}),
    "conv3d": (nn.Conv3d(4, C, 2, bias=False), (2, 4, 4, 4, 4), {"weight": rows(5)}),
    "transposed": (
        nn.ConvTranspose2d(4, C, 3, stride=2),
        (2, 4, 4, 4),
        {"weight": lambda v: v[None, :, None, None], "bias": rows(1)},
    ),
    "transposed, one axis": (
        nn.ConvTranspose1d(4, C, 3),
        (2, 4, 6),
        {"weight": lambda v: v[None, :, None], "bias": rows(1)},
    ),
    "transposed, three axes": (
        nn.ConvTranspose3d(4, C, 2, stride=2),
        (2, 4, 3, 3, 3),
        {"weight": lambda v: v[None, :, None, None, None], "bias": rows(1)},
    ),
    "transposed, grouped": (
        nn.ConvTranspose2d(4, C, 3, groups=2),
        (2, 4, 4, 4),
        # (in, out / groups): inputs 0 and 1 make the first four channels
        {"weight": lambda v: v.view(2, 1, 4).expand(2, 2, 4).reshape(4, 4, 1, 1), "bias": rows(1)},
    ),
    "linear": (nn.Linear(6, C), (2, 5, 6), {"weight": rows(2), "bias": rows(1)}),
    "linear of GPT-2": (
        Conv1D(6, C),
        (2, 5, 6),
        {"weight": lambda v: v[None, :], "bias": rows(1)},
    ),
    "batch norm": (nn.BatchNorm2d(C), (4, C, 5, 5), {"weight": rows(1), "bias": rows(1)}),
    "batch norm of vectors": (nn.BatchNorm1d(C), (4, C), {"weight": rows(1), "bias": rows(1)}),
    "group norm": (nn.GroupNorm(4, C), (2, C, 5, 5), {"weight": rows(1), "bias": rows(1)}),
    "instance norm": (
        nn.InstanceNorm2d(C, affine=True),
        (2, C, 5, 5),
        {"weight": rows(1), "bias": rows(1)},
    ),
    "layer norm": (nn.LayerNorm(C), (2, 5, C), {"weight": rows(1), "bias": rows(1)}),
    "layer norm without bias": (nn.LayerNorm(C, bias=False), (2, 5, C), {"weight": rows(1)}),
    "rms norm": (nn.RMSNorm(C), (2, 5, C), {"weight": rows(1)}),
    "timm attention": (
        timm.layers.Attention(C, num_heads=2),
        (2, 5, C),
        {"proj.weight": rows(2), "proj.bias": rows(1)},
    ),
    "timm layer scale": (timm.layers.LayerScale(C), (2, 5, C), {"gamma": rows(1)}),
    "weight norm": (
        nn.utils.parametrizations.weight_norm(nn.Linear(6, C)),
        (2, 5, 6),
        {"parametrizations.weight.original0": rows(2), "bias": rows(1)},
    ),
    "timm standardised convolution": (
        timm.layers.ScaledStdConv2d(4, C, 3),
        (2, 4, 5, 5),
        {"gain": rows(4), "bias": rows(1)},
    ),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layer(kind):
    layer, shape, formulas = LAYERS[kind]
    torch.manual_seed(0)
    network = stir(Chain(copy.deepcopy(layer), nn.Tanh())).double()
    images = torch.randn(*shape, dtype=torch.float64)
    gated, _ = attnlab.insert(
        network, "asr:se*2", ["layer"], example=images, activation="sigmoid", initial=0.1,
        layer_initial=None,
    )  # fmt: skip
    stir_gates(gated)
    vector = gate_of(gated)
    plain, receipt = attnlab.fold(gated, example=images)
    assert set(receipt.rows[0].into) == {f"layer.{name}" for name in formulas}
    for name, value in network.layer.named_parameters():
        found = plain.layer.get_parameter(name)
        expected = value * formulas[name](vector) if name in formulas else value
        assert relative(expected, found) <= 1e-15
    for name, value in network.layer.named_buffers():
        assert torch.equal(value, plain.layer.get_buffer(name))
    for expected, found in zip(
        in_both_modes(gated, images), in_both_modes(plain, images), strict=True
    ):
        assert relative(expected, found) <= 1e-12


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def test_multi_head_attention_takes_it_in_the_output_projection():
    torch.manual_seed(0)
    network = stir(Residual(SelfAttention(), nn.Identity(), C, axis=-1)).double()
    images = torch.randn(2, 5, C, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    plain, receipt = attnlab.fold(gated, example=images)
    assert receipt.rows[0].into == (
        "branch.attention.out_proj.weight",
        "branch.attention.out_proj.bias",
    )
    assert relative(gated(images), plain(images)) <= 1e-14
    # The value projection, where the paper's supplement puts it, is not the place.
    ((_, attachment),) = attachments(gated)
    wrong = copy.deepcopy(network)
    with torch.no_grad():
        values = slice(2 * C, 3 * C)
        vector = attachment.gate.constant()
        wrong.branch.attention.in_proj_weight[values] *= vector[:, None]
        wrong.branch.attention.in_proj_bias[values] *= vector
    assert relative(gated(images), wrong(images)) > 1e-2


class Values(nn.Module):
    """Attention whose output is the branch: only its values can take a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, x):
        query, value = (part(x)[:, None] for part in (self.query, self.value))
        return nn.functional.scaled_dot_product_attention(query, query, value)[:, 0]


def test_attention_takes_it_through_its_values():
    torch.manual_seed(0)
    network = stir(Residual(Values(), nn.Identity(), C, axis=-1)).double()
    tokens = torch.randn(2, 5, C, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=tokens)[0])
    ((_, attachment),) = attachments(gated)
    vector = attachment.gate.constant().detach()
    plain, receipt = attnlab.fold(gated, example=tokens)
    assert set(receipt.rows[0].into) == {"branch.value.weight", "branch.value.bias"}
    value, found = network.branch.value, plain.branch.value
    assert relative(value.weight * vector[:, None], found.weight) <= 1e-15
    assert relative(value.bias * vector, found.bias) <= 1e-15
    assert torch.equal(network.branch.query.weight, plain.branch.query.weight)
    assert relative(gated(tokens), plain(tokens)) <= 1e-14


class Square(nn.Module):
    """Its output is a product of what it computed with itself: a gate would count twice."""

    def __init__(self, times: bool) -> None:
        super().__init__()
        self.conv, self.times = nn.Conv2d(C, C, 1), times

    def forward(self, x):
        made = self.conv(x)
        return made * made if self.times else made @ made


@pytest.mark.parametrize("times", [True, False], ids=["x * x", "x @ x"])
def test_a_product_with_itself_is_refused(times):
    network = Residual(Square(times), nn.Identity(), C, axis=1).double()
    images = torch.randn(2, C, 4, 4, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    with pytest.raises(FoldError, match="multiplies the tensor with itself"):
        attnlab.fold(gated, example=images)


class Concatenated(nn.Module):
    """Two layers make the branch; the second half of one of them is used elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(C, C, 1), nn.Conv2d(C, C // 2, 1)

    def forward(self, x):
        first, other = self.left(x).chunk(2, dim=1)
        return torch.cat((self.right(x), first), dim=1) * torch.sigmoid(other.mean())


class Windows(nn.Module):
    """A linear layer between cyclic shift, partition into windows, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(C, C)

    def forward(self, x):
        x = torch.roll(x.permute(0, 2, 3, 1), (1, 2), (1, 2))
        x = x.view(-1, 2, 2, 2, 2, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, C)
        x = self.layer(x)
        x = x.view(-1, 2, 2, 2, 2, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, C)
        return torch.roll(x, (-1, -2), (1, 2)).permute(0, 3, 1, 2)


class Pooled(nn.Module):
    """Layers, pools and interpolation that let a gate through."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(C, C, 3, padding=1)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.layer(x)), 2)
        x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
        return nn.functional.avg_pool2d(nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"), 3, 1)


class Summed(nn.Module):
    """A sum of two layers and a learned bias, scaled by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(C, C, 1), nn.Conv2d(C, C, 3, padding=1)
        self.shift = nn.Parameter(torch.randn(C, 1, 1))

    def forward(self, x):
        return (self.first(x) - self.second(x) / 3 + self.shift) * 0.5


class Product(nn.Module):
    """`x @ weight`, not a module of torch.nn."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(C, C))

    def forward(self, x):
        return (x.flatten(2).transpose(1, 2) @ self.weight).transpose(1, 2).view_as(x)


class Rows(nn.Module):
    """A product of matrices that both come from layers: the gate is on its rows, the left ones."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.mix = nn.Conv2d(C, C, 1), nn.Conv2d(C, 16, 1)

    def forward(self, x):
        return (self.value(x).flatten(2) @ self.mix(x).flatten(2)).view_as(x)


class Divided(nn.Module):
    """A learned scale that divides must not take a gate that multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.scale = nn.Conv2d(C, C, 1), nn.Parameter(torch.full((C, 1, 1), 2.0))

    def forward(self, x):
        return self.value(x) / self.scale


class Named(nn.Module):
    """Sums, products and quotients of operands that are given by name."""

    def __init__(self, function) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(C, C, 1), nn.Conv2d(C, C, 3, padding=1)
        self.function = function

    def forward(self, x):
        return self.function(self.first(x), self.second(x))


BY_NAME = {
    "add": (lambda a, b: torch.add(input=a, other=b), ["first", "second"]),
    "sub": (lambda a, b: torch.sub(input=a, other=b), ["first", "second"]),
    "mul": (lambda a, b: torch.mul(input=a, other=b.sigmoid()), ["first"]),
    "mul, right": (lambda a, b: torch.mul(a.sigmoid(), other=b), ["second"]),
    "div": (lambda a, b: torch.div(input=a, other=2 + b.tanh()), ["first"]),
    "div, right": (lambda a, b: torch.div(a, other=2 + b.tanh()), ["first"]),
}


class GatedUnit(nn.Module):
    """A product of two layers: one of them takes the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.control = nn.Conv2d(C, C, 1), nn.Conv2d(C, C, 1)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.control(x))


class MixedTokens(nn.Module):
    """A linear layer over positions, without a bias: a gate per channel passes it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix = nn.Conv2d(C, C, 1), nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return self.mix(self.conv(x).flatten(2)).view_as(x)


class Columns(nn.Module):
    """Attention written out: the gate is on the columns, which are those of the values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2)
        query = self.query(tokens)
        mixed = torch.softmax(query @ query.transpose(1, 2), -1) @ self.value(tokens)
        return mixed.transpose(1, 2).reshape(x.shape)


class Blurred(nn.Module):
    """A fixed kernel for each channel, which cannot take a gate, after a layer that can."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(C, C, 1)
        self.register_buffer("kernel", torch.rand(C, 1, 3, 3))

    def forward(self, x):
        return nn.functional.conv2d(self.conv(x), self.kernel, padding=1, groups=C)


class Added(nn.Module):
    """A number is added to a learned scale before it multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(C, 1, 1))

    def forward(self, x):
        return torch.tanh(x) * (1 + self.scale)


class Taken(Added):
    """A number is taken from it."""

    def forward(self, x):
        return torch.tanh(x) * (self.scale - 0.5)


class TakenFrom(Added):
    """It is taken from a number."""

    def forward(self, x):
        return torch.tanh(x) * (2 - self.scale)


class Sides(nn.Module):
    """Zeros that are added or taken away, a product by a number on the left, and a quotient."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = nn.Conv2d(C, C, 1), nn.Parameter(torch.rand(C, 1, 1))

    def forward(self, x):
        return 3.0 * ((0 + self.conv(x) - 0.0) / (2 + torch.tanh(x)))


BRANCHES = {
    MixedTokens: {"conv.weight", "conv.bias"},
    Columns: {"value.weight", "value.bias"},
    Blurred: {"conv.weight", "conv.bias"},
    Added: {"scale"},
    Taken: {"scale"},
    TakenFrom: {"scale"},
    Sides: {"conv.weight", "conv.bias"},
    Concatenated: {"left.weight", "left.bias", "right.weight", "right.bias"},
    Windows: {"layer.weight", "layer.bias"},
    Pooled: {"layer.weight", "layer.bias"},
    Summed: {"first.weight", "first.bias", "second.weight", "second.bias", "shift"},
    Product: {"weight"},
    Rows: {"value.weight", "value.bias"},
    Divided: {"value.weight", "value.bias"},
    GatedUnit: {"value.weight", "value.bias"},
}


@pytest.mark.parametrize("branch", BRANCHES, ids=lambda kind: kind.__name__)
def test_way_to_the_layers(branch):
    torch.manual_seed(0)
    network = stir(Residual(branch(), nn.Identity(), C, axis=1)).double()
    images = torch.randn(2, C, 4, 4, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    plain, receipt = attnlab.fold(gated, example=images)
    assert {name.removeprefix("branch.") for name in receipt.rows[0].into} == BRANCHES[branch]
    assert relative(gated(images), plain(images)) <= 1e-14


@pytest.mark.parametrize("name", BY_NAME)
def test_operands_may_be_given_by_name(name):
    function, layers = BY_NAME[name]
    torch.manual_seed(0)
    network = Residual(Named(function), nn.Identity(), C, axis=1).double()
    images = torch.randn(2, C, 4, 4, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    plain, receipt = attnlab.fold(gated, example=images)
    assert set(receipt.rows[0].into) == {
        f"branch.{layer}.{kind}" for layer in layers for kind in ("weight", "bias")
    }
    assert relative(gated(images), plain(images)) <= 1e-14


@pytest.mark.parametrize(("branch", "number"), [(Added, 1), (Taken, -0.5), (TakenFrom, -2)])
def test_a_scale_with_a_number_added_takes_the_gate_with_the_number(branch, number):
    torch.manual_seed(0)
    network = Residual(branch(), nn.Identity(), C, axis=1).double()
    images = torch.randn(2, C, 4, 4, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    vector = gate_of(gated)[:, None, None]
    plain, _ = attnlab.fold(gated, example=images)
    expected = (network.branch.scale + number) * vector - number
    assert relative(expected, plain.branch.scale) <= 1e-15


def test_channels_that_others_read_are_not_scaled():
    torch.manual_seed(0)
    network = stir(Residual(Concatenated(), nn.Identity(), C, axis=1)).double()
    images = torch.randn(2, C, 4, 4, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    vector = gate_of(gated)
    plain, _ = attnlab.fold(gated, example=images)
    factor = torch.cat((vector[C // 2 :], torch.ones(C // 2)))
    assert relative(network.branch.left.bias * factor, plain.branch.left.bias) <= 1e-15
    assert relative(network.branch.right.bias * vector[: C // 2], plain.branch.right.bias) <= 1e-15


def test_next_layer_takes_it_where_the_one_before_cannot():
    """A norm without affine parameters, then a grouped convolution."""
    torch.manual_seed(0)
    follow = nn.Sequential(nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(C, 4, 3, groups=2))
    network = stir(Chain(nn.BatchNorm2d(C, affine=False), follow)).double()
    images = torch.randn(3, C, 8, 8, dtype=torch.float64)
    gated, _ = attnlab.insert(network, "asr:se", ["layer"], example=images)
    vector = gate_of(stir_gates(gated))
    plain, receipt = attnlab.fold(gated, example=images)
    assert receipt.rows[0].into == ("follow.2.weight",)
    # (out, in / groups): outputs 0 and 1 read the first four channels
    factor = vector.view(2, 1, 4).expand(2, 2, 4).reshape(4, 4, 1, 1)
    assert relative(network.follow[2].weight * factor, plain.follow[2].weight) <= 1e-15
    for expected, found in zip(
        in_both_modes(gated, images), in_both_modes(plain, images), strict=True
    ):
        assert relative(expected, found) <= 1e-12


def test_the_linear_layer_of_gpt_2_takes_it_on_its_input():
    torch.manual_seed(0)
    norm = nn.LayerNorm(C, elementwise_affine=False)
    network = Chain(norm, nn.Sequential(Conv1D(C, 4), nn.Tanh())).double()
    tokens = torch.randn(2, 5, C, dtype=torch.float64)
    gated, _ = attnlab.insert(
        network, "asr:se", ["layer"], example=tokens, activation="sigmoid", layer_initial=None
    )
    vector = gate_of(stir_gates(gated))
    plain, receipt = attnlab.fold(gated, example=tokens)
    assert receipt.rows[0].into == ("follow.0.weight",)
    assert relative(network.follow[0].weight * vector[:, None], plain.follow[0].weight) <= 1e-15
    assert relative(gated(tokens), plain(tokens)) <= 1e-14


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(C, affine=False),
        nn.GroupNorm(2, C, affine=False),
        nn.InstanceNorm2d(C),
        nn.LayerNorm((C, 4, 4), elementwise_affine=False),
        nn.RMSNorm((C, 4, 4), elementwise_affine=False),
    ],
    ids=lambda norm: type(norm).__name__,
)
def test_affine_parameters_are_added_on_request(norm):
    torch.manual_seed(0)
    branch = nn.Sequential(nn.Conv2d(C, C, 1), norm)
    network = Residual(branch, nn.Identity(), C, axis=1).double()
    images = torch.randn(3, C, 4, 4, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    plain, receipt = attnlab.fold(gated, example=images, add_affine=True)
    assert "branch.1.weight" in receipt.rows[0].into
    assert receipt.notes == ("added affine parameters, so new keys, to branch.1",)
    made = plain.branch[1]
    told = [getattr(made, name) for name in ("affine", "elementwise_affine") if hasattr(made, name)]
    assert told == [True]  # what it prints, and what copies of it are built by
    added = set(plain.state_dict()) - set(network.state_dict())
    assert added in ({"branch.1.weight", "branch.1.bias"}, {"branch.1.weight"})
    for expected, found in zip(
        in_both_modes(gated, images), in_both_modes(plain, images), strict=True
    ):
        assert relative(expected, found) <= 1e-12


class Fork(nn.Module):
    """Two ways from the gate that meet again in front of one convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2 * C, 4, 1)

    def forward(self, x):
        return self.conv(torch.cat((torch.relu(x), 2 * x), dim=1))


def test_ways_that_meet_again_in_front_of_the_next_layer():
    torch.manual_seed(0)
    network = stir(Chain(nn.SiLU(), Fork())).double()
    images = torch.randn(2, C, 4, 4, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", ["layer"], example=images)[0])
    vector = gate_of(gated)
    plain, receipt = attnlab.fold(gated, example=images)
    assert receipt.rows[0].into == ("follow.conv.weight",)
    expected = network.follow.conv.weight * torch.cat((vector, vector))[None, :, None, None]
    assert relative(expected, plain.follow.conv.weight) <= 1e-15
    assert relative(gated(images), plain(images)) <= 1e-14
