"""Insertion: the formula at every kind of host, and everything a user's network must survive."""

import copy
import io
import pickle
import re

import pytest
import torch
from tests.surgery.insertion.networks import (
    BiasedAttentionBlock,
    BranchOverwritingBlock,
    FunctionalBlock,
    InPlaceBlock,
    OverwritingBlock,
    Plain,
    Shared,
    SlotBlock,
    TwoPathBlock,
)
from torch import nn

import attnlab
from attnlab._errors import InputError, OptionError, SiteError
from attnlab.gates import GATES, BranchGate, DenseImplicitAttention, SqueezeExcitation, StepGate
from attnlab.surgery.insertion import attachments, remove

BLOCKS = [SlotBlock, FunctionalBlock, InPlaceBlock, OverwritingBlock]


class Ramp(BranchGate):
    """0.5, 0.6, ... over the channels, whatever the input."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.values = nn.Parameter(0.5 + 0.1 * torch.arange(channels))

    def forward(self, branch):
        return self.values[None, :, None, None].to(branch.dtype)

    def start_constant(self) -> float:
        nn.init.constant_(self.values, 0.5)
        return 0.5


class Tilt(StepGate):
    """Reads both ends: the mean of x_t minus half the mean of f."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, shortcut, branch):
        tilt = shortcut.mean((2, 3), keepdim=True) - 0.5 * branch.mean((2, 3), keepdim=True)
        return tilt * self.weight[None, :, None, None]

    def start_constant(self) -> float:
        raise NotImplementedError


def branch_of(block, x):
    """The branch of one of the test blocks, written out."""
    if isinstance(block, SlotBlock):
        return block.branch(x)
    return torch.tanh(block.conv(x))


def by_hand(model, x, gate):
    x = model.stem(x)
    for block in model.blocks:
        branch = branch_of(block, x)
        x = x + branch * gate(x, branch)
    return model.head(x.mean((2, 3)))


@pytest.mark.parametrize("block", BLOCKS)
def test_a_branch_gate_multiplies_the_branch(block):
    model = Plain(block).double().eval()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    network, receipt = attnlab.insert(model, Ramp)
    values = torch.arange(8, dtype=torch.float64) * 0.1 + 0.5
    expected = by_hand(model, images, lambda *_: values[None, :, None, None])
    torch.testing.assert_close(network(images), expected, rtol=1e-6, atol=1e-7)
    assert len(receipt.sites) == 3
    assert receipt.parameters_added == 24


@pytest.mark.parametrize("block", BLOCKS)
def test_a_step_gate_sees_both_ends(block):
    model = Plain(block).double().eval()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    network, _ = attnlab.insert(model, Tilt)
    expected = by_hand(
        model,
        images,
        lambda x, f: x.mean((2, 3), keepdim=True) - 0.5 * f.mean((2, 3), keepdim=True),
    )
    torch.testing.assert_close(network(images), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_gradients_are_those_of_the_formula(mode):
    model = Plain(InPlaceBlock).double()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    network, _ = attnlab.insert(model, Tilt)
    getattr(network, mode)()
    network(images).square().sum().backward()
    by_hand(
        model,
        images,
        lambda x, f: x.mean((2, 3), keepdim=True) - 0.5 * f.mean((2, 3), keepdim=True),
    ).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(network.get_parameter(name).grad, parameter.grad)


def test_dia_hands_its_memory_from_block_to_block():
    model = Plain(SlotBlock).double().eval()
    network, receipt = attnlab.insert(model, "dia")
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    (_, first), *others = attachments(network)
    cell = first.gate
    x, memory = model.stem(images), None
    for block in model.blocks:
        branch = block.branch(x)
        gate, memory = cell(branch, memory)
        x = x + branch * gate
    torch.testing.assert_close(network(images), model.head(x.mean((2, 3))))
    assert len(others) == 2
    assert all(not list(attachment.parameters()) for _, attachment in others)
    assert receipt.parameters_added == sum(p.numel() for p in cell.parameters())
    torch.testing.assert_close(network(images), network(images))  # nothing is left of the last run


@pytest.mark.parametrize("gate", [*GATES, "asr:se", "asr:se*2", "asr:se+se", "asr:ie"])
def test_keys_values_and_the_users_model_are_kept(gate):
    model = Plain(SlotBlock)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    network, _ = attnlab.insert(model, gate)
    after = network.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert list(model.state_dict()) == list(before)
    assert not list(attachments(model))
    missing, unexpected = network.load_state_dict(before, strict=False)
    assert not unexpected
    assert all("attnlab" in name or "gate" in name for name in missing)


@pytest.mark.parametrize("gate", [*GATES, "asr:se", "asr:se*3", "asr:se+se"])
def test_identity_start_leaves_the_output_and_trains_at_once(gate):
    torch.manual_seed(0)
    model = Plain(SlotBlock, channels=64).eval()
    images = torch.randn(4, 3, 8, 8)
    network, receipt = attnlab.insert(model, gate, start="identity")
    expected = model(images)
    assert (network(images) - expected).abs().max() <= 1e-6 * expected.abs().max()
    assert receipt.relative_change <= 1e-6
    network(images).sum().backward()
    new = set(network.state_dict()) - set(model.state_dict())
    homes = {re.sub(r"(attnlab(_\w+)?|gate)\..*", r"\1", name) for name in new}
    trained = {name for name, _ in network.named_parameters()}
    assert len(homes) >= 3
    for home in homes:
        own = [name for name in trained if name.startswith(f"{home}.")]
        gradients = [network.get_parameter(name).grad for name in own]
        # Of a DIA cell, only the first attachment of its stage has parameters.
        assert not own or any(g is not None and g.abs().sum() > 0 for g in gradients), home


def test_identity_start_survives_a_checkpoint():
    model = attnlab.create("resnet20").eval()
    images = torch.randn(2, 3, 32, 32)
    identity, _ = attnlab.insert(model, "se", start="identity")
    again, _ = attnlab.insert(model, "se", start="identity")
    again.load_state_dict(identity.state_dict())
    torch.testing.assert_close(again(images), model(images), rtol=1e-6, atol=1e-6)
    paper, _ = attnlab.insert(model, "se")
    with pytest.raises(RuntimeError, match=r"attnlab\.scale"):
        paper.load_state_dict(identity.state_dict())


@pytest.mark.parametrize("block", [SlotBlock, FunctionalBlock])
@pytest.mark.parametrize("gate", ["se", "step", "dia"])
class TestSurvives:
    """Deepcopy, pickle, compile, export, and training, at both kinds of host."""

    @pytest.fixture
    def network(self, block, gate):
        torch.manual_seed(0)
        return attnlab.insert(Plain(block, channels=64), gate)[0].eval()

    @pytest.fixture
    def images(self):
        return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))

    def test_deepcopy(self, network, images):
        copied = copy.deepcopy(network)
        expected = network(images)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.zero_()
        torch.testing.assert_close(copied(images), expected)

    def test_pickle(self, network, images):
        restored = pickle.loads(pickle.dumps(network))
        torch.testing.assert_close(restored(images), network(images))

    def test_state_dict_round_trip(self, network, images, block, gate):
        torch.manual_seed(7)
        other = attnlab.insert(Plain(block, channels=64), gate)[0].eval()
        stream = io.BytesIO()
        torch.save(network.state_dict(), stream)
        stream.seek(0)
        other.load_state_dict(torch.load(stream, weights_only=True))
        torch.testing.assert_close(other(images), network(images))

    def test_compile_fullgraph(self, network, images):
        torch._dynamo.reset()
        compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(images), network(images))
        compiled.train()
        compiled(images).sum().backward()
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                assert parameter.grad is not None

    def test_export(self, network, images):
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
        more = torch.randn(5, 3, 8, 8)
        torch.testing.assert_close(program.module()(more), network(more))

    def test_training_moves_every_gate(self, network, images):
        network.train()
        before = {n: p.detach().clone() for n, p in network.named_parameters() if "attnlab" in n}
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            network(images).square().mean().backward()
            optimizer.step()
        moved = {n for n, p in network.named_parameters() if n in before and (p != before[n]).any()}
        for name, attachment in attachments(network):
            own = [f"{name}.{n}" for n, _ in attachment.named_parameters()]
            assert not own or moved.intersection(own)

    def test_removal_restores_the_plain_network(self, network, images, block):
        plain = Plain(block, channels=64).eval()
        remove(network)
        assert list(network.state_dict()) == list(plain.state_dict())
        assert {type(m) for m in network.modules()} == {type(m) for m in plain.modules()}
        plain.load_state_dict(network.state_dict())
        torch.testing.assert_close(network(images), plain(images), rtol=0, atol=0)


def test_gates_stack_in_the_order_of_insertion():
    model = Plain(SlotBlock).double().eval()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    once, _ = attnlab.insert(model, Ramp)
    twice, receipt = attnlab.insert(once, Ramp)
    values = (torch.arange(8, dtype=torch.float64) * 0.1 + 0.5) ** 2
    expected = by_hand(model, images, lambda *_: values[None, :, None, None])
    torch.testing.assert_close(twice(images), expected, rtol=1e-6, atol=1e-7)
    assert receipt.notes == ("the network already carried 3 of our gates; the new ones follow",)
    remove(twice)
    torch.testing.assert_close(twice(images), model(images))


def test_step_gate_after_and_before_a_branch_gate_in_one_block():
    model = Plain(FunctionalBlock).eval()
    images = torch.randn(2, 3, 8, 8)
    for first, second in (("sem", "step"), ("step", "sem"), ("dia", "step")):
        network, _ = attnlab.insert(model, first, start="identity")
        network, _ = attnlab.insert(network, second, start="identity")
        torch.testing.assert_close(network(images), model(images), rtol=1e-5, atol=1e-6)
        assert len(list(attachments(network))) == 6


@pytest.mark.parametrize(
    ("name", "sites", "channels"),
    [
        ("vgg19_bn", 16, 5504),
        ("mobilenet_v1", 26, None),
        ("shufflenet_v2", 16, 58 * 4 + 116 * 8 + 232 * 4),
        ("repvgg_a0", 22, None),
    ],
)
def test_networks_without_additions_use_the_papers_places(name, sites, channels):
    network, receipt = attnlab.insert(attnlab.create(name), "se")
    placed = [attachment.site.channels for _, attachment in attachments(network)]
    assert len(receipt.sites) == len(placed) == sites
    if channels is not None:
        assert sum(placed) == channels


def test_norms_before_activations_of_any_network():
    with torch.device("meta"):
        vgg = attnlab.create("torchvision:vgg11_bn")
    _, receipt = attnlab.insert(vgg, "ie", where="norms")
    assert len(receipt.sites) == 8
    assert receipt.parameters_added == 2 * (64 + 128 + 2 * 256 + 4 * 512)


def test_both_additions_of_a_transformer_block_are_on_the_receipt():
    _, receipt = attnlab.insert(attnlab.create("timm:test_vit").eval(), "step")
    assert receipt.sites == tuple(f"blocks.{b}{part}" for b in range(6) for part in ("", ":1"))
    assert receipt.parameters_added == 12 * 6 * 64  # 6C at each


def test_sites_of_one_name_are_told_apart_on_the_receipt():
    """The first three additions of the block are on one stage, the last two on another; the last of
    all is made by the network itself."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(5))

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                x = nn.functional.avg_pool2d(x, 2) if number == 3 else x
                x = x + torch.tanh(layer(x))
            return x

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.block, self.last = nn.Conv2d(3, 8, 1), Block(), nn.Conv2d(8, 8, 1)

        def forward(self, x):
            x = self.block(self.stem(x))
            return x + torch.tanh(self.last(x))

    gated, receipt = attnlab.insert(Network(), "se+srm", example=torch.randn(1, 3, 8, 8))
    assert receipt.sites == ("block (1.0)", "block:1 (1.0:1)", "block:2", "block (2.0)",
                             "block:1 (2.0:1)", "2.1")  # fmt: skip
    assert len(list(attachments(gated))) == 2 * 6
    assert "sites       6: block (1.0), block:1 (1.0:1), " in str(receipt)


def test_sites_named_by_hand():
    with torch.device("meta"):
        vgg = attnlab.create("torchvision:vgg11_bn")
    network, receipt = attnlab.insert(vgg, "ie", where=["features.1", "features.5"])
    assert receipt.sites == ("features.1", "features.5")
    assert [name for name, _ in attachments(network)] == [
        "attnlab_features_1",
        "attnlab_features_5",
    ]


def test_dtype_device_mode_and_memory_format_follow_the_host():
    model = attnlab.create("resnet20").to(torch.bfloat16, memory_format=torch.channels_last).train()
    network, _ = attnlab.insert(model, "se")
    for _, attachment in attachments(network):
        assert {p.dtype for p in attachment.parameters()} == {torch.bfloat16}
        assert attachment.training
    images = torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
    features = {}
    network.layer2[1].register_forward_hook(lambda *seen: features.update(o=seen[2]))
    network(images.contiguous(memory_format=torch.channels_last))
    assert features["o"].is_contiguous(memory_format=torch.channels_last)


def test_half_precision_on_the_cpu():
    model = attnlab.create("resnet20").half().eval()
    network, _ = attnlab.insert(model, "se", start="identity")
    images = torch.randn(2, 3, 32, 32).half()
    torch.testing.assert_close(network(images), model(images), rtol=0, atol=0)


def test_half_precision_that_does_not_run_is_explained():
    class NoHalf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            raise RuntimeError(f'"some_kernel" not implemented for {x.dtype}')

    with pytest.raises(InputError) as caught:
        attnlab.insert(NoHalf().half(), "se")
    assert str(caught.value) == (
        "NoHalf (torch.float16 on cpu) does not run on an example of shape (1, 3, 224, 224): "
        '"some_kernel" not implemented for torch.float16\n'
        "Many CPU operations do not take float16. Insert into model.float() (or model.bfloat16()) "
        "and call .half() on the result, or move the model to a GPU first."
    )


def test_frozen_parameters_stay_frozen():
    model = attnlab.create("resnet20").requires_grad_(False)
    network, receipt = attnlab.insert(model, "se", start="identity")
    assert all(p.requires_grad == ("attnlab" in n) for n, p in network.named_parameters())
    assert "frozen parameters stay frozen; the gates train" in receipt.notes[0]


def test_random_drops_come_after_the_gate():
    model = attnlab.create("timm:vit_tiny_patch16_224", img_size=32, drop_path_rate=0.2)
    network, _ = attnlab.insert(model, "se")
    classes = {
        type(network.get_submodule(attachment.site.module)).__name__
        for _, attachment in attachments(network)
    }
    assert "DropPath" in {type(module).__name__ for module in model.modules()}
    assert not classes & {"DropPath", "Dropout"}


def test_present_attention_is_kept_and_said():
    model = attnlab.create("timm:seresnet18")
    network, receipt = attnlab.insert(model, "eca")
    assert "attention of its own (SEModule)" in receipt.notes[0]
    assert {a.site.module for _, a in attachments(network)} == {
        f"layer{stage}.{block}.se" for stage in (1, 2, 3, 4) for block in (0, 1)
    }


def test_ddp_after_insertion_synchronises_the_gates(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        network, _ = attnlab.insert(Plain(FunctionalBlock), "step")
        parallel = nn.parallel.DistributedDataParallel(network)
        parallel(torch.randn(2, 3, 8, 8)).sum().backward()
        assert all(p.grad is not None for p in network.parameters())
        with pytest.raises(InputError, match=r"Insert into model\.module and wrap the result"):
            attnlab.insert(parallel, "se")
    finally:
        torch.distributed.destroy_process_group()


def test_compiled_models_are_refused_by_name():
    fix = r"torch\.compile\(insert\(model\._orig_mod, gate\)\[0\]\)"
    with pytest.raises(InputError, match=fix):
        attnlab.insert(torch.compile(Plain(SlotBlock)), "se")


def test_shared_blocks_are_refused_by_name():
    with pytest.raises(SiteError) as caught:
        attnlab.insert(Shared(), "se")
    assert str(caught.value).startswith(
        "No gate can act at 3 of 3 sites:\n  1.0 block: its addition is made by 'block' "
        "(FunctionalBlock, networks.py:"
    )
    assert "which runs 3 times in one forward: one gate there would act on all of them" in str(
        caught.value
    )


def test_an_addition_that_overwrites_the_branch_is_refused():
    with pytest.raises(SiteError, match="overwrites the branch in place"):
        attnlab.insert(Plain(BranchOverwritingBlock), "se")


def test_another_path_than_at_insertion_is_an_error_not_a_wrong_gate():
    network, _ = attnlab.insert(Plain(TwoPathBlock), "se")
    network.eval()(torch.randn(2, 3, 8, 8))
    expected = "made 2 additions like the gated one, of which 1 were seen"
    with pytest.raises(SiteError, match=expected):
        network.train()(torch.randn(2, 3, 8, 8))


def test_additions_that_depend_on_the_batch_size_do_not_shift_the_gate():
    model = Plain(BiasedAttentionBlock).double().eval()
    network, _ = attnlab.insert(model, Tilt)  # the example has a batch of one
    for batch in (1, 2, 3):
        images = torch.randn(batch, 3, 8, 8, dtype=torch.float64)
        x = model.stem(images)
        for block in model.blocks:
            branch = block.branch(x)
            tilt = x.mean((2, 3), keepdim=True) - 0.5 * branch.mean((2, 3), keepdim=True)
            x = x + branch * tilt
        torch.testing.assert_close(network(images), model.head(x.mean((2, 3))))


def test_a_failed_insertion_in_place_changes_nothing():
    class Fails(Ramp):
        def forward(self, branch):
            raise RuntimeError(f"no gate for {branch.ndim} axes")

    for block in (SlotBlock, FunctionalBlock):
        model = Plain(block).eval()
        images = torch.randn(2, 3, 8, 8)
        expected, keys = model(images), list(model.state_dict())
        with pytest.raises(RuntimeError, match="no gate for 4 axes"):
            attnlab.insert(model, Fails, inplace=True)
        assert list(model.state_dict()) == keys
        torch.testing.assert_close(model(images), expected, rtol=0, atol=0)


def test_inplace_returns_the_same_model():
    model = Plain(SlotBlock)
    network, _ = attnlab.insert(model, "se", inplace=True)
    assert network is model
    assert len(list(attachments(model))) == 3


def test_iebn_replaces_all_norms_but_the_shortcuts():
    network, receipt = attnlab.insert(attnlab.create("torchvision:resnet18"), "iebn")
    assert len(receipt.sites) == 1 + 16
    assert not any("downsample" in name for name in receipt.sites)
    assert "layer2.0.downsample.1.gate.weight" not in network.state_dict()


def test_iebn_in_chosen_blocks_only():
    _, receipt = attnlab.insert(attnlab.create("resnet20"), "iebn", where="stages:2")
    assert receipt.sites == tuple(f"layer2.{b}.bn{n}" for b in range(3) for n in (1, 2))


def test_iebn_refuses_networks_without_plain_batch_norm():
    with pytest.raises(SiteError) as caught:
        attnlab.insert(attnlab.create("timm:vit_tiny_patch16_224", img_size=32), "iebn")
    assert str(caught.value) == (
        "'iebn' replaces BatchNorm2d modules, and VisionTransformer has none at all. Choose a gate "
        "that reads the branch, for example 'ie', the same gate after any layer."
    )


def test_options_reach_the_gate_and_unknown_ones_are_errors():
    _, receipt = attnlab.insert(Plain(SlotBlock, channels=64), "se", reduction=4)
    assert receipt.parameters_added == 3 * (2 * 64 * 16 + 16 + 64)
    with pytest.raises(OptionError) as caught:
        attnlab.insert(attnlab.create("resnet20"), "se", reducton=4)
    assert str(caught.value) == (
        "Gate 'se' has no option 'reducton'. Did you mean 'reduction'? It takes: reduction, bias, "
        "nonlinearity, squash, trainable."
    )


def test_a_class_that_builds_no_gate_is_refused():
    with pytest.raises(OptionError, match="but it built a Identity"):
        attnlab.insert(Plain(SlotBlock), lambda channels: nn.Identity(channels))


def test_receipt_counts_by_hand():
    model = Plain(SlotBlock)
    _, receipt = attnlab.insert(model, "se")
    # stem 3·8 per pixel, three 3×3 convolutions of 8·8 channels, the head
    assert receipt.macs_before == 64 * (24 + 3 * 9 * 64) + 8 * 5
    assert receipt.macs_added == 3 * (8 * 1 + 1 * 8)
    assert receipt.parameters_before == sum(p.numel() for p in model.parameters())


def test_options_of_a_class_of_ones_own() -> None:
    class Sized(Tilt):
        def __init__(self, channels: int, size: float, power: float = 1.0) -> None:
            super().__init__(channels)
            self.size, self.power = size, power

    net = attnlab.create("resnet20").eval()
    _, receipt = attnlab.insert(net, Tilt)
    _, more = attnlab.insert(net, Tilt, include_first=True)
    assert (len(receipt.sites), len(more.sites)) == (7, 9)
    with pytest.raises(OptionError) as error:
        attnlab.insert(net, Sized, size=1.0, powre=2.0)
    assert str(error.value) == (
        "Gate Sized has no option 'powre'. Did you mean 'power'? It takes: size, power."
    )
    with pytest.raises(OptionError) as error:
        attnlab.insert(net, Sized)
    assert str(error.value) == (
        "Gate Sized cannot be built from channels alone: missing a required argument: 'size'."
    )


@pytest.mark.parametrize(
    ("first", "others", "message"),
    [
        (
            DenseImplicitAttention,
            SqueezeExcitation,
            "Expected a StageGate but changing built SqueezeExcitation.",
        ),
        (
            SqueezeExcitation,
            nn.Identity,
            "Expected a gate (a subclass of attnlab.gates.BranchGate, StepGate or StageGate) "
            "but got Identity.",
        ),
    ],
)
def test_a_builder_must_build_the_same_kind_of_gate_everywhere(first, others, message):
    """It is asked once with 64 channels, before anything is touched; later it may differ."""

    def changing(channels: int) -> nn.Module:
        if channels == 64:
            return first(channels)
        return others(channels)

    network = attnlab.create("resnet20")
    with pytest.raises(attnlab.AttnlabError) as raised:
        attnlab.insert(network, changing, where="stages:1")
    assert str(raised.value) == message
