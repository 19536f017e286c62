"""Steps are gone, exactly: against branches multiplied by zero with hooks, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import timm
import torch
import torchvision
from tests.instruments.removal.by_hand import answer, zeroed
from tests.surgery.folding.networks import relative, stir, stir_gates
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab._errors import ShortenError
from attnlab.networks.backbones.resnet import bottleneck_resnet
from attnlab.surgery.insertion import attachments

SMALL = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))


def made(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return stir(build()).eval()


def vit(**options: object) -> nn.Module:
    return timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        embed_dim=24,
        depth=3,
        num_classes=5,
        **options,
    )


class AfterNorm(nn.Module):
    """Two blocks whose input has negative values: their ReLU must stay."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, x):
            return F.relu(x + self.norm(self.conv(x)))

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.blocks = nn.Sequential(self.Block(), self.Block())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def torchvision_vit() -> nn.Module:
    network = torchvision.models.VisionTransformer(32, 8, 2, 2, 24, 48, num_classes=5)
    nn.init.normal_(network.heads.head.weight)
    return network


ENCODER = "encoder.layers.encoder_layer_"
CASES = {
    "ours": (
        lambda: attnlab.create("resnet20"),
        ["layer1.0", "3.2"],
        ["layer1.0.bn2", "layer3.2.bn2"],
        {"layer1.0": "identity", "layer3.2": "identity"},
        ["layer1.0.", "layer3.2."],
    ),
    "ours, bottleneck": (
        lambda: bottleneck_resnet(20),
        ["2.1"],
        ["layer2.1.bn3"],
        {"layer2.1": "identity"},
        ["layer2.1."],
    ),
    "relu stays": (
        AfterNorm,
        ["blocks.0"],
        ["blocks.0.norm"],
        {"blocks.0": "relu"},
        ["blocks.0."],
    ),
    "timm resnet": (
        lambda: timm.create_model("resnet26", num_classes=5),
        ["layer1.1", "layer4.1"],
        ["layer1.1.bn3", "layer4.1.bn3"],
        {"layer1.1": "identity", "layer4.1": "identity"},
        ["layer1.1.", "layer4.1."],
    ),
    "torchvision resnet": (
        lambda: torchvision.models.resnet18(num_classes=5),
        ["layer1.0", "layer1.1"],
        ["layer1.0.bn2", "layer1.1.bn2"],
        {"layer1.0": "identity", "layer1.1": "identity"},
        ["layer1.0.", "layer1.1."],
    ),
    "convnext": (
        lambda: timm.create_model("convnext_atto", num_classes=5),
        ["stages.2.blocks.3"],
        ["stages.2.blocks.3.drop_path"],
        {"stages.2.blocks.3": "identity"},
        ["stages.2.blocks.3."],
    ),
    "attention of a ViT": (
        vit,
        ["1.1"],
        ["blocks.1.attn"],
        {
            "blocks.1.norm1": "identity",
            "blocks.1.attn": "identity",
            "blocks.1.drop_path1": "nothing",
        },
        ["blocks.1.norm1.", "blocks.1.attn."],
    ),
    "MLP of a ViT with layer scale": (
        lambda: vit(init_values=0.5),
        ["1.2:1"],
        ["blocks.2.ls2"],
        {
            "blocks.2.norm2": "identity",
            "blocks.2.mlp": "identity",
            "blocks.2.ls2": "identity",
            "blocks.2.drop_path2": "nothing",
        },
        ["blocks.2.norm2.", "blocks.2.mlp.", "blocks.2.ls2."],
    ),
    "a whole block of a ViT": (
        vit,
        ["blocks.0"],
        ["blocks.0.attn", "blocks.0.mlp"],
        {"blocks.0": "identity"},
        ["blocks.0."],
    ),
    "torchvision ViT": (
        torchvision_vit,
        ["1.0", "1.1:1"],
        [f"{ENCODER}0.self_attention", f"{ENCODER}1.mlp"],
        {
            f"{ENCODER}0.ln_1": "identity",
            f"{ENCODER}0.self_attention": "identity:2",
            f"{ENCODER}0.dropout": "nothing",
            f"{ENCODER}1.ln_2": "identity",
            f"{ENCODER}1.mlp": "nothing",
        },
        [f"{ENCODER}{each}." for each in ("0.ln_1", "0.self_attention", "1.ln_2", "1.mlp")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_is_the_network_with_branches_times_zero(case: str) -> None:
    build, remove, ends, replaced, gone = CASES[case]
    network = made(build)
    shorter, receipt = attnlab.shorten(network, remove, example=SMALL)
    expected = answer(network, SMALL, ends)
    assert relative(answer(network, SMALL), expected) > 1e-3, "the branch does something"
    assert relative(expected, answer(shorter, SMALL)) <= 1e-12
    assert receipt.error is not None
    assert receipt.error <= 1e-12
    assert receipt.precision == "float64"
    assert receipt.replaced == replaced
    _check_parameters(network, shorter, gone)
    before, after = (attnlab.steps(each, SMALL) for each in (network, shorter))
    assert len(before) - len(after) == len(ends)


def _check_parameters(network: nn.Module, shorter: nn.Module, gone: Sequence[str]) -> None:
    """What is left has its name and its values, and every parameter gets a gradient."""
    left = {k: v for k, v in network.state_dict().items() if not k.startswith(tuple(gone))}
    state = shorter.state_dict()
    assert list(state) == list(left)
    assert all(torch.equal(state[key], left[key]) for key in left)
    shorter(SMALL).square().sum().backward()
    assert [name for name, p in shorter.named_parameters() if p.grad is None] == []


def test_the_receipt_counts() -> None:
    network = made(lambda: attnlab.create("resnet20"))
    shorter, receipt = attnlab.shorten(network, ["layer2.1"], example=SMALL)
    block = sum(p.numel() for p in network.layer2[1].parameters())
    assert block == 2 * (32 * 32 * 9 + 2 * 32)
    assert receipt.parameters_before - receipt.parameters_after == block
    # Two 3×3 convolutions of 32 channels on 16×16, for two images.
    assert receipt.macs_before - receipt.macs_after == 2 * 2 * 32 * 32 * 9 * 16 * 16
    with torch.no_grad():
        change = (shorter(SMALL) - network(SMALL)).abs().max()
    assert receipt.max_change == pytest.approx(change.item(), rel=1e-5)
    assert str(receipt).splitlines()[-1] == "  2.1 (layer2.1) goes: it was named"


def test_the_network_itself_is_left_alone() -> None:
    network = made(lambda: attnlab.create("resnet20")).train()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    modules = list(network.modules())
    shorter, _ = attnlab.shorten(network, 2, images=[SMALL], repair=True)
    assert all(module.training for module in network.modules())
    assert all(a is b for a, b in zip(modules, network.modules(), strict=True))
    assert all(torch.equal(state[key], value) for key, value in network.state_dict().items())
    assert not any(len(m._forward_hooks) or "forward" in m.__dict__ for m in shorter.modules())
    assert all(module.training for module in shorter.modules())


@pytest.mark.parametrize("gate", ["se", "asr:se", "step", "iebn"])
def test_gates_go_with_their_step(gate: str) -> None:
    network = stir_gates(attnlab.insert(made(lambda: attnlab.create("resnet20")), gate)[0]).eval()
    shorter, receipt = attnlab.shorten(network, ["layer1.1", "layer2.2"], example=SMALL)
    home = "bn2" if gate == "iebn" else "attnlab"
    # The branch ends in bn2, and what a gate multiplies there is zero already.
    expected = answer(network, SMALL, ["layer1.1.bn2", "layer2.2.bn2"])
    assert relative(expected, answer(shorter, SMALL)) <= 1e-12
    assert relative(answer(network, SMALL), expected) > 1e-3
    gone = (*receipt.gates, *receipt.own_gates)
    assert f"layer1.1.{home}" in gone
    assert f"layer2.2.{home}" in gone
    assert all(name.startswith(("layer1.1.", "layer2.2.")) for name in gone)
    assert not any(key.startswith(("layer1.1.", "layer2.2.")) for key in shorter.state_dict())
    if gate != "iebn":
        kept = {name for name, _ in attachments(network)} - set(gone)
        assert {name for name, _ in attachments(shorter)} == kept


def test_gates_of_a_transformer_part_go_and_the_other_part_keeps_its_own() -> None:
    network = stir_gates(attnlab.insert(made(vit), "se", example=SMALL)[0]).eval()
    shorter, receipt = attnlab.shorten(network, ["1.1"], example=SMALL)
    assert relative(answer(network, SMALL, ["blocks.1.attn"]), answer(shorter, SMALL)) <= 1e-12
    assert len(receipt.gates) == 1
    assert len(list(attachments(shorter))) == 5


def test_a_shared_memory_is_refused() -> None:
    network = attnlab.insert(made(lambda: attnlab.create("resnet20")), "dia")[0]
    with pytest.raises(ShortenError) as error:
        attnlab.shorten(network, ["layer1.1"], example=SMALL)
    assert str(error.value) == (
        "Step 1.1 (layer1.1) cannot be removed: its gate 'layer1.1.attnlab' hands a memory on to "
        "the next block, whose gate would change."
    )


class Bare(nn.Module):
    """Steps of a network without blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 3, 1) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, x):
        x = x + torch.tanh(self.first(x))
        x = x + self.second(x * self.scale)
        return x + self.third(x)


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("1.0", "its block does more than this step, and no module of it makes the branch"),
        ("1.0:1", "its branch uses 'scale', of a module that stays"),
    ],
)
def test_what_would_be_left_over_is_refused(label: str, reason: str) -> None:
    with pytest.raises(ShortenError) as error:
        attnlab.shorten(made(Bare), [label], example=SMALL)
    assert str(error.value) == f"Step {label} cannot be removed: {reason}."


def test_a_network_without_blocks() -> None:
    shorter, _ = attnlab.shorten(made(Bare), ["1.0:2"], example=SMALL)
    assert relative(answer(made(Bare), SMALL, ["third"]), answer(shorter, SMALL)) <= 1e-12
    # Only that one can go, so it is the most.
    _, receipt = attnlab.shorten(made(Bare), 1, images=[SMALL])
    assert receipt.sites == ("1.0:2",)


class TwoSteps(nn.Module):
    """A block with a step that stays and one whose branch is made in some way of two layers."""

    def __init__(self, form: Callable[..., Tensor]) -> None:
        super().__init__()
        self.kept, self.first, self.second = (nn.Conv2d(3, 3, 1) for _ in range(3))
        self.bias, self.form = nn.Parameter(torch.ones(3, 1, 1)), form

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * torch.tanh(self.kept(x))
        return x + self.form(self.first(x), self.second(x), self.bias)


FORMS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "sum": (lambda a, b, _: a + b, ""),
    "difference": (lambda a, b, _: 2 * a - b, ""),
    "channels of both": (lambda a, b, _: torch.cat([a[:, :1], b[:, 1:]], 1), ""),
    "product": (lambda a, b, _: a * b, ""),
    "quotient": (lambda a, b, _: -a / (9 + b), ""),
    "a number more": (lambda a, b, _: a + b + 1, "makes"),
    "a number less": (lambda a, b, _: a + b - 1, "makes"),
    "a bias more": (lambda a, b, bias: a + b + bias, "makes"),
    "less than a bias": (lambda a, b, bias: bias - (a + b), "makes"),
    "in the denominator": (lambda a, b, _: 1 / (9 + a + b), "makes"),
    "exponential": (lambda a, b, _: torch.exp(a + b), "makes"),
    "a parameter": (lambda a, b, bias: (a + b) * bias, "uses"),
}
WHY = {
    "makes": "its block does more than this step, and no module of it makes the branch",
    "uses": "its branch uses '1.bias', of a module that stays",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_branch_goes_if_it_is_zero_where_its_layers_are(form: str) -> None:
    make, reason = FORMS[form]
    network = made(lambda: nn.Sequential(nn.Conv2d(3, 3, 1), TwoSteps(make)))
    if reason:
        with pytest.raises(ShortenError) as error:
            attnlab.shorten(network, ["1.0:1"], example=SMALL)
        assert str(error.value) == f"Step 1.0:1 (1) cannot be removed: {WHY[reason]}."
        return
    shorter, _ = attnlab.shorten(network, ["1.0:1"], example=SMALL)
    with torch.no_grad():
        x = network[0](SMALL)
        x = x + 0.5 * torch.tanh(network[1].kept(x))
        torch.testing.assert_close(shorter(SMALL), x)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.conv(x).chunk(2, 1))


class OfAPair(nn.Module):
    """A block with a step that stays and one whose branch reads both tensors of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.pair, self.out = nn.Conv2d(3, 3, 1), Pair(), nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * torch.tanh(self.kept(x))
        one, other = self.pair(x)
        return x + self.out(one * other)


def test_a_module_of_which_the_branch_reads_two_tensors_stays() -> None:
    network = made(lambda: nn.Sequential(nn.Conv2d(3, 3, 1), OfAPair()))
    shorter, receipt = attnlab.shorten(network, ["1.0:1"], example=SMALL)
    assert receipt.replaced == {"1.out": "nothing"}
    assert isinstance(shorter[1].pair, Pair)
    assert relative(answer(network, SMALL, ["1.out"]), answer(shorter, SMALL)) <= 1e-12


@pytest.mark.parametrize("label", ["1.0", "1.1:1"])
def test_a_transformer_of_hugging_face(label: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2}
    images = {"image_size": 32, "patch_size": 8, "num_attention_heads": 2}
    config = transformers.ViTConfig(**sizes, **images)
    network = made(lambda: transformers.ViTForImageClassification(config))
    shorter, receipt = attnlab.shorten(network, [label], example=SMALL)
    layer, part = int(label[2]), "mlp" if label.endswith(":1") else "attention"
    (end,) = [name for name, _ in network.named_modules() if name.endswith(f"{layer}.{part}")]
    with zeroed(network, [end]), torch.no_grad():
        expected = network(SMALL).logits
    with torch.no_grad():
        assert torch.equal(shorter(SMALL).logits, expected)
    assert receipt.replaced[end].startswith("nothing")


class Shifts(AfterNorm):
    """Blocks that add something of their own to the state of an image before the step."""

    class Block(AfterNorm.Block):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.rand(1, 4, 30, 30))

        def forward(self, x):
            x = x + self.shift
            return x + self.norm(self.conv(x))


def test_what_a_block_adds_to_its_state_itself_stays() -> None:
    network = made(Shifts)
    one = SMALL[:1]
    shorter, _ = attnlab.shorten(network, ["blocks.0"], example=one)
    assert relative(answer(network, one, ["blocks.0.norm"]), answer(shorter, one)) <= 1e-12
    assert [name for name in shorter.state_dict() if name.startswith("blocks.0.")] == [
        "blocks.0.shift"
    ]


def test_no_second_name_keeps_a_block() -> None:
    network = made(lambda: attnlab.create("resnet20"))
    network.favourite = network.layer1[1]
    shorter, _ = attnlab.shorten(network, ["layer1.1"], example=SMALL)
    assert not [key for key in shorter.state_dict() if key.startswith("favourite")]
    assert shorter.favourite is shorter.layer1[1]


def test_twice_is_the_same_as_at_once() -> None:
    network = made(vit)
    once, _ = attnlab.shorten(network, ["blocks.1", "1.2"], example=SMALL)
    first, _ = attnlab.shorten(network, ["1.1:1"], example=SMALL)
    second, _ = attnlab.shorten(first, ["1.1", "1.2"], example=SMALL)
    assert torch.equal(once(SMALL), second(SMALL))
    assert sum(p.numel() for p in once.parameters()) == sum(p.numel() for p in second.parameters())
    assert isinstance(once.blocks[1], nn.Identity)
    assert [str(m) for m in once.blocks] == [str(m) for m in second.blocks]


def test_exports_and_compiles() -> None:
    network, _ = attnlab.shorten(made(vit), ["blocks.0", "1.1", "1.2:1"], example=SMALL)
    expected = network(SMALL)
    exported = torch.export.export(network, (SMALL,)).module()
    torch.testing.assert_close(exported(SMALL), expected)
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(SMALL), expected)


def test_goes_to_onnx(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    from attnlab.surgery.folding.onnx import export_onnx

    shorter, _ = attnlab.shorten(made(AfterNorm), ["blocks.0"], example=SMALL)
    assert export_onnx(shorter, SMALL, tmp_path / "shorter.onnx") < 1e-4


class Chooses(nn.Module):
    """A block that hands on what it chose beside its state, which it adds in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(6, 6), nn.Tanh())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (x.float() + self.branch(x).float()).to(x.dtype), x.argsort(-1)


class Chain(nn.Module):
    """Blocks of which the last reads what the one before chose."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Chooses() for _ in range(3))
        self.reads = reads

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x, chosen = block(x)
            if self.reads and number == 1:
                x = x.gather(-1, chosen)
        return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_that_hands_on_more_than_its_state_goes_if_nobody_reads_that(dtype) -> None:
    torch.manual_seed(0)
    network, x = Chain(reads=False).to(dtype), torch.randn(2, 5, 6).to(dtype)
    shorter, _ = attnlab.shorten(network, ["blocks.1", "blocks.2"], example=x)
    assert not any(isinstance(block, Chooses) for block in shorter.blocks[1:])
    assert torch.equal(shorter(x), network.blocks[0](x)[0])
    reading = Chain(reads=True).to(dtype)
    shorter, _ = attnlab.shorten(reading, ["blocks.1", "blocks.2"], example=x)
    assert [isinstance(block, Chooses) for block in shorter.blocks] == [True, True, False]
    with torch.no_grad():
        state = reading.blocks[0](x)[0]
        torch.testing.assert_close(shorter(x), state.gather(-1, state.argsort(-1)))


class Tapped(nn.Module):
    """Three blocks; `read` has the network read what the second made on its way."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.first(x).relu()
            return x + self.second(self.seen)

    def __init__(self, read: bool) -> None:
        super().__init__()
        self.blocks, self.read = nn.Sequential(*(self.Block() for _ in range(3))), read
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(x)
        return self.head(x + self.blocks[1].seen.sin() if self.read else x)


@pytest.mark.parametrize("read", [False, True])
def test_a_block_that_is_read_inside_stays_and_its_branch_goes(read: bool) -> None:
    network, x = made(lambda: Tapped(read)), torch.randn(5, 6)
    shorter, receipt = attnlab.shorten(network, ["blocks.1"], example=x)
    kind = {"blocks.1.second": "nothing"} if read else {"blocks.1": "identity"}
    assert receipt.replaced == kind
    assert relative(answer(network, x, ["blocks.1.second"]), answer(shorter, x)) <= 1e-12
