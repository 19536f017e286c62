"""What cannot be folded is refused with its site and its reason, and nothing is changed."""

from __future__ import annotations

import copy

import pytest
import timm
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import attnlab
from attnlab._errors import FoldError, InputError, OptionError
from attnlab.surgery.insertion import attachments

from .networks import Chain, Residual, relative, stir, stir_gates

C = 8
IMAGES = torch.randn(2, C, 6, 6, generator=torch.Generator().manual_seed(0))


class Twice(nn.Module):
    """One convolution, used for the branch and before it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(C, C, 1)

    def forward(self, x):
        return self.conv(torch.tanh(self.conv(x)))


class Tied(nn.Module):
    """Two convolutions, one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(C, C, 1), nn.Conv2d(C, C, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class TiedElsewhere(nn.Module):
    """The other owner of the weight does not run in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.unused = nn.Conv2d(C, C, 1), nn.Conv2d(C, C, 1)
        self.unused.weight = self.conv.weight

    def forward(self, x):
        return self.conv(x) + (self.unused(x) if self.training else 0)


class FunctionalNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(C, C, 1)

    def forward(self, x):
        return nn.functional.normalize(self.conv(x), dim=1)


class FixedKernel(nn.Module):
    """A kernel that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.ones(C, C, 1, 1))

    def forward(self, x):
        return nn.functional.conv2d(torch.sin(x), self.kernel)


class ReadByAttention(nn.Module):
    """Attention over channels without a layer that could undo the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(C, C, 1)

    def forward(self, x):
        x = self.conv(x)
        return x * torch.sigmoid(x.mean((2, 3), keepdim=True))


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(C, C, 1)

    def forward(self, x):
        return self.conv(x) + 1.0


class Bordered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(C, C, 3)

    def forward(self, x):
        return nn.functional.pad(self.conv(x), (1, 1, 1, 1), value=1.0)


class TokenMixer(nn.Module):
    """A linear layer over positions: its bias is not per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(36, 36)

    def forward(self, x):
        return self.mix(x.flatten(2)).view_as(x)


class Of(nn.Module):
    """What a function makes of a convolution."""

    def __init__(self, function, channels: int = C) -> None:
        super().__init__()
        self.conv, self.function = nn.Conv2d(C, channels, 1), function
        self.register_buffer("kernel", torch.ones(C, 1, 1, 1))
        self.scale, self.unlisted = (
            nn.Parameter(torch.ones(C)),
            [nn.Parameter(torch.ones(C, C, 1, 1))],
        )

    def forward(self, x):
        return self.function(self, self.conv(x))


class Looking(nn.Module):
    """Attention over positions, whose matrix is used too, or is for values of all heads."""

    def __init__(self, heads: bool) -> None:
        super().__init__()
        self.attention, self.heads = nn.MultiheadAttention(C, 2, batch_first=True), heads
        self.query, self.value = nn.Linear(C, C), nn.Linear(C, C // 2)

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2)
        if self.heads:
            query = self.query(tokens).unflatten(2, (2, -1)).transpose(1, 2)
            value = self.value(tokens)[:, None]
            out = nn.functional.scaled_dot_product_attention(query, query, value)
            out = out.transpose(1, 2).flatten(2)
        else:
            out, matrix = self.attention(tokens, tokens, tokens)
            out = out * torch.sigmoid(matrix.sum())
        return out.transpose(1, 2).reshape(x.shape)


def of(name: str, function, channels: int = C):
    """A builder of that name."""

    def build() -> nn.Module:
        return Of(function, channels)

    build.__name__ = name
    return build


def matrix_of_attention() -> nn.Module:
    return Looking(heads=False)


def values_of_all_heads() -> nn.Module:
    return Looking(heads=True)


def silu() -> nn.Module:
    return nn.Sequential(nn.Conv2d(C, C, 1), nn.SiLU())


def no_affine() -> nn.Module:
    return nn.Sequential(nn.Conv2d(C, C, 1), nn.BatchNorm2d(C, affine=False))


NONE = (
    "None of them folds where it is. Put them after layers that can take them when you insert "
    "(where=[names of norms or convolutions], for asr also place='norm'), and train again."
)
REASONS = {
    Twice: "the parameter 'branch.conv.bias' is also read by conv2d in 'branch.conv'",
    Tied: "the parameter 'branch.first.weight' is also read by conv2d in 'branch.first'",
    TiedElsewhere: "the parameter 'branch.conv.weight' is a buffer or shared with another module",
    FunctionalNorm: "normalize in 'branch' does not let a scaling of its input through",
    FixedKernel: "the parameter 'branch.kernel' is a buffer or shared with another module",
    ReadByAttention: "conv2d in 'branch.conv' is also read by mean in 'branch'",
    Shifted: "add in 'branch' adds a number that the gate would have to scale",
    Bordered: "pad in 'branch' adds a border that is not zero",
    TokenMixer: "linear in 'branch.mix' has a bias on another axis than the gate",
    of("shifted left", lambda _, x: 2 - x): (
        "sub in 'branch' adds a number that the gate would have to scale"
    ),
    of("shifted down", lambda _, x: x - 2): (
        "sub in 'branch' adds a number that the gate would have to scale"
    ),
    of("divided", lambda _, x: x.cos() / (4 + x)): (
        "cos in 'branch' does not let a scaling of its input through"
    ),
    of("cubic", lambda _, x: nn.functional.interpolate(x, scale_factor=1.0, mode="bicubic")): (
        "interpolate in 'branch' interpolates with mode 'bicubic', whose coefficients are partly "
        "negative"
    ),
    of("several of a channel", lambda m, x: nn.functional.conv2d(x, m.kernel, groups=4), 4): (
        "the parameter 'branch.kernel' is a buffer or shared with another module"
    ),
    of("mean of channels", lambda _, x: x.mean(1, keepdim=True).expand(-1, C, -1, -1)): (
        "expand in 'branch' mixes channels that have different gates"
    ),
    of("number on a product", lambda m, x: nn.functional.group_norm(x, 2, 1 + 2 * m.scale)): (
        "mul in 'branch' makes what a number is added to, which the gate would have to scale"
    ),
    of("computed order", lambda _, x: x.flatten(2)[..., x[0, 0].flatten().argsort()].view_as(x)): (
        "getitem in 'branch' selects by a computed index"
    ),
    of(
        "rows of another axis",
        lambda _, x: torch.zeros_like(x).index_add(1, torch.arange(C), x),
    ): "index_add in 'branch' adds along another axis than the first",
    of(
        "rows of several gates",
        lambda _, x: (
            torch.zeros_like(x.transpose(0, 1))
            .index_add(0, torch.arange(C), x.transpose(0, 1))
            .transpose(0, 1)
        ),
    ): "index_add in 'branch' adds rows that have different gates",
    of("unlisted", lambda m, x: nn.functional.conv2d(x.tanh(), m.unlisted[0])): (
        "a parameter is a parameter that the network does not list"
    ),
    of("made", lambda _, x: nn.functional.conv2d(x.tanh(), torch.ones(C, C, 1, 1))): (
        "ones in 'branch' does not let a scaling of its input through"
    ),
    matrix_of_attention: (
        "multi_head_attention_forward in 'branch.attention' hands out its attention matrix as well"
    ),
    values_of_all_heads: (
        "scaled_dot_product_attention in 'branch' shares its values between heads"
    ),
    silu: "silu in 'branch.1' does not let a scaling of its input through",
}


def gated(branch: nn.Module, spec: str = "asr:se") -> nn.Module:
    torch.manual_seed(0)
    network = stir(Residual(branch, nn.Identity(), C, axis=1))
    return stir_gates(attnlab.insert(network, spec, example=IMAGES)[0])


@pytest.mark.parametrize("branch", REASONS, ids=lambda build: build.__name__)
def test_reason(branch):
    network = gated(branch())
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(FoldError) as raised:
        attnlab.fold(network, example=IMAGES, inplace=True)
    assert str(raised.value) == (
        f"The gates of 1 of 1 sites cannot be folded:\n  branch: {REASONS[branch]}.\n{NONE}"
    )
    assert list(before) == list(network.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def same_data(branch: Tied) -> None:
    branch.second.weight = nn.Parameter(branch.first.weight.data)


def overlapping(branch: Tied) -> None:
    memory = torch.randn(C * C + 1)
    branch.first.weight.data = memory[1:].view(C, C, 1, 1)
    branch.second.weight = nn.Parameter(memory[:-1].view(C, C, 1, 1))


@pytest.mark.parametrize("tie", [same_data, overlapping])
def test_parameters_in_one_memory(tie):
    torch.manual_seed(0)
    branch = Tied()
    tie(branch)
    network = Residual(branch, nn.Identity(), C, axis=1).eval()
    attnlab.insert(network, "asr:se", example=IMAGES, inplace=True)
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(FoldError, match="weight' is a buffer or shared with another module"):
        attnlab.fold(network, example=IMAGES, inplace=True)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_parameters_side_by_side_in_one_memory():
    torch.manual_seed(0)
    branch = Tied()
    memory = torch.randn(2, C, C, 1, 1)
    branch.first.weight = nn.Parameter(memory[0])
    branch.second.weight = nn.Parameter(memory[1])
    network = stir(Residual(branch, nn.Identity(), C, axis=1))
    stir_gates(attnlab.insert(network, "asr:se", example=IMAGES, inplace=True)[0])
    want = network(IMAGES).detach()
    attnlab.fold(network, example=IMAGES, inplace=True)
    torch.testing.assert_close(network(IMAGES).detach(), want)


class Follows(nn.Module):
    """Layers after a gate, and what a function makes of it."""

    def __init__(self, function) -> None:
        super().__init__()
        self.conv, self.function = nn.Conv2d(C, C, 1), function

    def forward(self, x):
        return self.function(self.conv, x)


FOLLOWING = {
    "leaves": (lambda _, x: x, "the gated tensor leaves the network"),
    "as a weight": (
        lambda _, x: nn.functional.conv2d(torch.ones(1, 1, 6, 6), x[0, :, None]),
        "conv2d in 'follow' reads the gated tensor as its weight",
    ),
    "split": (
        lambda c, x: c(torch.cat(x.chunk(2, 1), 1)),
        "chunk in 'follow' is split, which is only followed back",
    ),
    "below": (
        lambda c, x: c(torch.ones_like(x)).cos() / x,
        "div in 'follow' does not let a scaling of its input through",
    ),
    "with itself": (
        lambda c, x: c(x * x),
        "mul in 'follow' does not let a scaling of its input through",
    ),
    "shifted": (
        lambda c, x: c(x + 1),
        "add in 'follow' does not let a scaling of its input through",
    ),
    "cubic": (
        lambda c, x: c(nn.functional.interpolate(x, scale_factor=1.0, mode="bicubic")),
        "interpolate in 'follow' interpolates with mode 'bicubic', whose coefficients are partly "
        "negative",
    ),
    "bordered": (
        lambda c, x: c(nn.functional.pad(x, (1, 1), value=2.0)),
        "pad in 'follow' adds a border that is not zero",
    ),
    "chosen": (
        lambda c, x: c(x[:, :, torch.ones(6).argsort()]),
        "getitem in 'follow' selects by a computed index",
    ),
    "mixed": (
        lambda c, x: c(x.mean(1, keepdim=True).expand_as(x)),
        "mean in 'follow' mixes channels that have different gates",
    ),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_cannot_take_it_either(name):
    """After an activation that lets no gate back."""
    function, reason = FOLLOWING[name]
    torch.manual_seed(0)
    network = Chain(nn.SiLU(), Follows(function)).eval()
    gated, _ = attnlab.insert(network, "asr:se", ["layer"], example=IMAGES)
    with pytest.raises(FoldError) as raised:
        attnlab.fold(gated, example=IMAGES)
    assert str(raised.value) == (
        "The gates of 1 of 1 sites cannot be folded:\n"
        "  layer: silu in 'layer' does not let a scaling of its input through; and after it, "
        f"{reason}.\n{NONE}"
    )


def test_norm_without_affine_parameters():
    with pytest.raises(FoldError) as raised:
        attnlab.fold(gated(no_affine()), example=IMAGES)
    assert str(raised.value) == (
        "The gates of 1 of 1 sites cannot be folded:\n"
        "  branch: batch_norm in 'branch.1' has no affine parameters to take the gate.\n"
        "Give norms without affine parameters some, which adds keys: add_affine=True."
    )


def test_partial_is_advised_where_some_fold():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(C, C, 1), nn.Sequential(nn.Conv2d(C, C, 1))

        def forward(self, x):
            x = x + self.first(x)
            return x + torch.tanh(self.second(x))

    network, _ = attnlab.insert(Two(), "asr:se", example=IMAGES)
    with pytest.raises(FoldError) as raised:
        attnlab.fold(network, example=IMAGES)
    assert str(raised.value) == (
        "The gates of 1 of 2 sites cannot be folded:\n"
        "  1.0:1 in the network: tanh does not let a scaling of its input through.\n"
        "Keep the gates there and fold the others: partial=True."
    )
    network, _ = attnlab.insert(Two(), "asr:se+se", example=IMAGES)
    with pytest.raises(FoldError, match=r"or keep them and fold the others \(partial=True\)\."):
        attnlab.fold(network, example=IMAGES)


def test_gate_that_depends_on_the_input():
    with pytest.raises(FoldError) as raised:
        attnlab.fold(gated(nn.Conv2d(C, C, 1), "se"), example=IMAGES)
    assert str(raised.value) == (
        "The gates of 1 of 1 sites cannot be folded:\n"
        "  branch: its gate depends on the input.\n"
        "Train with a constant gate instead (insert(model, 'asr:se')), or replace these by "
        "constants from images (fold_constants, fold_budget)."
    )


@pytest.mark.parametrize("spec", ["se", "cbam", "step", "dia"])
def test_every_site_that_depends_on_the_input_is_named(spec):
    network, receipt = attnlab.insert(attnlab.create("resnet20"), spec)
    with pytest.raises(FoldError, match=f"The gates of {len(receipt.sites)} of") as raised:
        attnlab.fold(network)
    for _, attachment in attachments(network):
        assert attachment.site.module in str(raised.value)


def test_norms_with_a_gate_inside():
    network, _ = attnlab.insert(attnlab.create("resnet20"), "iebn")
    with pytest.raises(FoldError) as raised:
        attnlab.fold(network)
    assert str(raised.value) == (
        "19 norms of ResNet (bn1, layer1.0.bn1, layer1.0.bn2, ...) are IEBN, whose gate is part of "
        "the norm and depends on the input. Expected gates that are constant: "
        "insert(model, 'asr:ie')."
    )


def test_negative_gates_and_relu():
    branch = nn.Sequential(nn.Conv2d(C, C, 1), nn.ReLU())
    network = stir(Residual(branch, nn.Identity(), C, axis=1))
    network, _ = attnlab.insert(network, "asr:se", example=IMAGES, activation="tanh")
    stir_gates(network)
    ((_, attachment),) = attachments(network)
    negative = int((attachment.gate.constant() < 0).sum())
    assert negative > 0
    with pytest.raises(FoldError, match=f"{negative} of its gates are negative"):
        attnlab.fold(network, example=IMAGES)


def test_nothing_to_fold():
    with pytest.raises(FoldError) as raised:
        attnlab.fold(nn.Linear(3, 3), example=torch.ones(1, 3))
    assert str(raised.value) == (
        "Linear carries no gate that could be folded, and no constant of its own such as "
        "LayerScale. Expected a network from insert(model, 'asr:se') or the like; fold_constants "
        "and fold_budget also take one with squeeze-and-excitation of its own."
    )


def test_parameters_on_several_processes(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = fully_shard(gated(nn.Conv2d(C, C, 1)), mesh=mesh)
        with pytest.raises(InputError) as raised:
            attnlab.fold(sharded)
    finally:
        torch.distributed.destroy_process_group()
    assert str(raised.value) == (
        "The network's parameters are distributed over processes (fully_shard), and none has all "
        "their values. Fold the network before it is sharded, or one with its full state dict."
    )


def test_meta_device():
    with pytest.raises(InputError, match="meta device"):
        attnlab.fold(gated(nn.Conv2d(C, C, 1)).to("meta"))


def test_wrapped():
    with pytest.raises(InputError, match="wrapped or scripted"):
        attnlab.fold(torch.compile(gated(nn.Conv2d(C, C, 1))))


def test_tolerance():
    with pytest.raises(OptionError, match="tolerance"):
        attnlab.fold_constants(gated(nn.Conv2d(C, C, 1)), [IMAGES], tolerance=-1.0)


def test_a_different_path_on_each_run_is_not_handed_out():
    class Alternating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.runs = nn.Conv2d(C, C, 1), 0

        def forward(self, x):
            self.runs += 1
            return self.conv(x) if self.runs % 2 else torch.tanh(self.conv(x))

    with pytest.raises(FoldError, match="differs from the original in float64"):
        attnlab.fold(gated(Alternating()), example=IMAGES)


def test_network_that_does_not_run_in_float64_is_checked_in_its_own_precision():
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(C, C, 1)

        def forward(self, x):
            return self.conv(x.float())

    class Alternating(Single):
        runs = 0

        def forward(self, x):
            Alternating.runs += 1  # of the class, so that copies go on counting
            return super().forward(x) * (1 if Alternating.runs % 2 else 2)

    _, receipt = attnlab.fold(gated(Single()), example=IMAGES)
    assert receipt.float64_change is None
    (note,) = receipt.notes
    assert note.startswith("checked in float32 only (to 1e-03), because it does not run in float64")
    with pytest.raises(FoldError, match="differs from the original in float32"):
        attnlab.fold(gated(Alternating()), example=IMAGES)


def test_weight_standardisation():
    branch = timm.layers.StdConv2d(C, C, 1)
    with pytest.raises(FoldError, match="standardises a weight, which undoes any scaling of it"):
        attnlab.fold(gated(branch), example=IMAGES, add_affine=True)


def test_partial_keeps_what_cannot_go_and_says_so():
    torch.manual_seed(0)
    network = stir(timm.create_model("xcit_nano_12_p16_224", depth=2, num_classes=3)).eval()
    images = torch.randn(1, 3, 64, 64)
    network = stir_gates(attnlab.insert(network, "asr:se", example=images)[0]).double()
    images = images.double()
    with pytest.raises(FoldError, match="2 of 10 sites"):
        attnlab.fold(network, example=images)
    rest, receipt = attnlab.fold(network, example=images, partial=True)
    assert [row.site for row in receipt.kept] == [
        "cls_attn_blocks.0.drop_path2",
        "cls_attn_blocks.1.drop_path2",
    ]
    assert receipt.kept[0].kept == (
        "cat in 'cls_attn_blocks.0' is also read by add in 'cls_attn_blocks.0'"
    )
    assert "kept        1 (cls_attn_blocks.0.drop_path2)" in str(receipt)
    assert len(list(attachments(rest))) == 2
    with torch.no_grad():
        assert relative(network(images), rest(images)) <= 1e-12


def test_partial_folds_asr_in_front_of_se():
    torch.manual_seed(0)
    network, _ = attnlab.insert(stir(attnlab.create("resnet20")), "asr:se+se")
    network = stir_gates(network).eval().double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    rest, receipt = attnlab.fold(network, partial=True)
    assert len(list(attachments(rest))) == 9
    assert all(row.into and row.kept == "its gate depends on the input" for row in receipt.rows)
    alone, _ = attnlab.insert(attnlab.create("resnet20"), "se")
    assert len(rest.state_dict()) == len(alone.state_dict())
    with torch.no_grad():
        assert relative(network(images), rest(images)) <= 1e-12


def test_a_constant_gate_behind_se_stays():
    network = gated(nn.Conv2d(C, C, 1), "se+asr:se").double()
    rest, receipt = attnlab.fold(network, example=IMAGES.double(), partial=True)
    assert len(list(attachments(rest))) == 2
    assert receipt.rows[0].into == ()
    assert relative(network(IMAGES.double()), rest(IMAGES.double())) == 0.0


class Returning(nn.Module):
    """The network returns what the branch of its second step is made of, as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(C, C, 3, padding=1) for _ in range(3))

    def forward(self, x):
        features = []
        for conv in self.convs:
            features.append(conv(x))
            x = x + 0.5 * features[-1]
        return x, features[1]


def test_what_the_network_returns_as_well_is_not_scaled():
    torch.manual_seed(0)
    gated, _ = attnlab.insert(Returning().eval(), "asr:se", example=IMAGES)
    stir_gates(gated)
    with pytest.raises(FoldError) as error:
        attnlab.fold(gated, example=IMAGES)
    assert str(error.value) == (
        "The gates of 1 of 3 sites cannot be folded:\n"
        "  1.0:1 in the network: conv2d in 'convs.1' is also returned by the network.\n"
        "Keep the gates there and fold the others: partial=True."
    )
    folded, receipt = attnlab.fold(gated, example=IMAGES, partial=True)
    assert len(receipt.sites) == 2
    with torch.no_grad():
        for got, expected in zip(folded(IMAGES), gated(IMAGES), strict=True):
            torch.testing.assert_close(got, expected)


def test_a_gate_does_not_pass_another_that_stays():
    """The outer gate would have to go through the inner one, which depends on the input."""
    torch.manual_seed(0)
    network = Chain(nn.Sequential(nn.Conv2d(C, C, 1), nn.Identity()), nn.Tanh())
    network, _ = attnlab.insert(network, "se", ["layer.0"], example=IMAGES)
    network, _ = attnlab.insert(network, "asr:se", ["layer.1"], example=IMAGES)
    rest, receipt = attnlab.fold(network, example=IMAGES, partial=True)
    assert len(list(attachments(rest))) == 2
    reasons = {row.site: row.kept for row in receipt.rows}
    assert reasons["layer.1"] == (
        "the gate 'attnlab_layer_0' depends on the input; and after it, tanh in 'follow' "
        "does not let a scaling of its input through"
    )
