"""Discovery of residual steps, on networks written to trap it and on real ones of each kind."""

import re
from dataclasses import replace

import pytest
import torch
from tests.surgery.insertion.networks import (
    Branch,
    FunctionalBlock,
    InPlaceBlock,
    OverwritingBlock,
    Plain,
    Shared,
    SlotBlock,
)
from torch import nn

import attnlab
from attnlab._errors import InputError, StepsNotFoundError


def plan(found):
    return [(step.label, step.kind) for step in found]


@pytest.mark.parametrize("block", [SlotBlock, FunctionalBlock, InPlaceBlock, OverwritingBlock])
def test_every_way_to_write_an_addition(block):
    found = attnlab.steps(Plain(block))
    assert plan(found) == [("1.0", "identity"), ("1.1", "identity"), ("1.2", "identity")]
    assert [step.name for step in found] == ["blocks.0", "blocks.1", "blocks.2"]
    assert {step.shape for step in found} == {(1, 8, 8, 8)}


def test_the_module_behind_the_branch_is_named():
    found = attnlab.steps(Plain(SlotBlock, depth=1))
    assert found[0].branch_modules == ("blocks.0.branch.2", "blocks.0.branch")
    assert attnlab.steps(Plain(FunctionalBlock, depth=1))[0].branch_modules == ()


def test_own_resnet_has_its_stages_and_projections():
    found = attnlab.steps(attnlab.create("resnet20"))
    assert [step.label for step in found] == [
        f"{stage}.{block}" for stage in (1, 2, 3) for block in range(3)
    ]
    assert {step.activation for step in found} == {"relu"}
    kinds = {step.label: step.kind for step in found}
    assert kinds["1.1"] == "identity"
    assert kinds["2.0"] == kinds["3.0"] == "projection"


def test_resnet164_has_54_steps_of_which_51_are_identity():
    with torch.device("meta"):
        found = attnlab.steps(attnlab.create("resnet164"))
    assert len(found) == 54
    assert sum(step.kind == "identity" for step in found) == 51


@pytest.mark.parametrize(
    ("name", "blocks"),
    [("resnet18", (2, 2, 2, 2)), ("resnet50", (3, 4, 6, 3)), ("mobilenet_v2", None)],
)
def test_torchvision(name, blocks):
    with torch.device("meta"):
        found = attnlab.steps(attnlab.create(f"torchvision:{name}"))
    if blocks is not None:
        per_stage = [len({s.block for s in found if s.stage == k + 1}) for k in range(len(blocks))]
        assert tuple(per_stage) == blocks
    else:  # residual where stride 1 and equal width: 1 + 2 + 3 + 2 + 2
        assert len(found) == 10


def test_vit_has_two_parts_per_block_on_one_stage():
    with torch.device("meta"):
        found = attnlab.steps(attnlab.create("torchvision:vit_b_16"))
    assert len(found) == 24
    assert {step.stage for step in found} == {1}
    assert [step.part for step in found] == [0, 1] * 12
    assert {step.channel_axis for step in found} == {2}
    assert {step.channels for step in found} == {768}


def test_a_token_mixing_mlp_is_gated_per_feature():
    found = attnlab.steps(attnlab.create("timm:mixer_s32_224", img_size=64))
    assert {step.channel_axis for step in found} == {2}
    assert {step.channels for step in found} == {512}


def test_channels_last_windows_keep_the_feature_axis():
    swin = attnlab.create("timm:swin_tiny_patch4_window7_224", img_size=112)
    found = attnlab.steps(swin)
    assert [step.channels for step in found][::4] == [96, 192, 384, 384, 384, 768]
    assert len(found) == 24


def test_hugging_face_encoder():
    transformers = pytest.importorskip("transformers")
    configuration = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64,
        image_size=32, patch_size=8,
    )  # fmt: skip
    found = attnlab.steps(transformers.ViTModel(configuration))
    assert [step.label for step in found] == ["1.0", "1.0:1", "1.1", "1.1:1", "1.2", "1.2:1"]


def test_the_model_is_left_as_it_was():
    model = attnlab.create("resnet20").train()
    model.layer1[0].bn1.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    attnlab.steps(model)
    assert model.training
    assert not model.layer1[0].bn1.training
    assert torch.equal(random_state, torch.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks


def test_nothing_is_left_behind_when_the_model_raises():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError(f"out of luck with {x.ndim} axes")

    with pytest.raises(InputError, match="out of luck"):
        attnlab.steps(Broken())
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks


def test_a_module_run_several_times_makes_several_steps():
    found = attnlab.steps(Shared())
    assert len(found) == 3
    assert {step.owner_calls for step in found} == {3}


class PaddedBlock(nn.Module):
    """A linear branch to more channels; the shortcut is padded with zeros."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Conv2d(channels, channels + 2, 3, padding=1)

    def forward(self, x):
        return torch.relu(nn.functional.pad(x, (0, 0, 0, 0, 0, 2)) + self.branch(x))


def test_a_padded_shortcut_beside_a_linear_branch():
    network = nn.Sequential(nn.Conv2d(3, 4, 1), PaddedBlock(4), PaddedBlock(6))
    found = attnlab.steps(network, torch.randn(1, 3, 8, 8))
    assert plan(found) == [("1.0", "projection"), ("2.0", "projection")]
    assert [step.branch_modules for step in found] == [("1.branch",), ("2.branch",)]


def test_sums_that_are_no_steps():
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Branch(), Branch()
            self.position = nn.Parameter(torch.zeros(1, 8, 8, 8))

        def forward(self, x):
            x = x + self.position  # an embedding
            return self.a(x) + self.b(x)  # a merge of two equal branches

    with pytest.raises(StepsNotFoundError):
        attnlab.steps(Sums(), torch.randn(1, 8, 8, 8))


def test_a_query_is_no_state():
    class PooledAttention(nn.Module):
        """x + attention(x), where the attention adds its query to its output, as MViT does."""

        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            q = self.q(x)
            attention = torch.softmax(q @ self.k(x).transpose(1, 2), -1)
            return x + (attention @ self.v(x) + q)

    found = attnlab.steps(PooledAttention(), torch.randn(1, 4, 8))
    assert [step.kind for step in found] == ["identity"]
    assert (found[0].key.addition, found[0].owner_additions) == (1, 2)


def test_parts_of_a_cell_are_no_steps():
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heavy = nn.ModuleList(Branch() for _ in range(3))
            self.light = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(3))

        def forward(self, x):
            pairs = zip(self.heavy, self.light, strict=True)
            return torch.cat([heavy(x) + light(x) for heavy, light in pairs], 1)

    with pytest.raises(StepsNotFoundError):
        attnlab.steps(Cell(), torch.randn(1, 8, 8, 8))


def test_two_streams_that_meet_make_no_projection():
    class Meet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(8, 8, 1)

        def forward(self, x, y):
            return self.layer(x + y)

    class Streams(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pixels, self.patches = Branch(), nn.Conv2d(8, 8, 1)
            self.blocks = nn.ModuleList([Meet()])

        def forward(self, x):
            return self.blocks[0](self.patches(x), self.pixels(x))

    with pytest.raises(StepsNotFoundError):
        attnlab.steps(Streams(), torch.randn(1, 8, 8, 8))


def test_message_for_a_network_without_steps():
    with torch.device("meta"):
        vgg = attnlab.create("torchvision:vgg11_bn")
    with pytest.raises(StepsNotFoundError) as caught:
        attnlab.steps(vgg)
    assert str(caught.value) == (
        "VGG has no residual step. Looked for additions of two feature maps of one shape where one "
        "was computed from the other, in one run on an input of shape (1, 3, 224, 224): 0 such "
        "additions, none of them a step.\n"
        "To put a gate after each of its 8 norms that feed an activation (the papers' placement "
        "for VGG): insert(model, gate, where='norms').\n"
        "To name sites by hand, pass the modules after whose output a gate is to act: "
        "insert(model, gate, where=['features.1', 'features.5'])."
    )


def test_message_for_an_example_that_does_not_fit():
    with pytest.raises(InputError) as caught:
        attnlab.steps(attnlab.create("resnet20", in_channels=1), torch.randn(1, 3, 32, 32))
    assert str(caught.value).startswith(
        "ResNet (torch.float32 on cpu) does not run on an example of shape (1, 3, 32, 32): "
    )


def test_one_norm_that_feeds_an_activation_is_named():
    """Not one that runs twice, nor one that something else reads too."""

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.other, self.twice = (nn.BatchNorm2d(3) for _ in range(3))
            self.layer = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            x = torch.relu(self.norm(self.layer(x)))
            x = self.other(x)
            x = torch.relu(x) * x
            return torch.relu(self.twice(torch.relu(self.twice(x))))

    with pytest.raises(StepsNotFoundError) as caught:
        attnlab.steps(Plain(), torch.ones(2, 3, 4, 4))
    assert str(caught.value) == (
        "Plain has no residual step. Looked for additions of two feature maps of one shape where "
        "one was computed from the other, in one run on an input of shape (2, 3, 4, 4): 0 such "
        "additions, none of them a step.\n"
        "To put a gate after its norm that feeds an activation (the papers' placement for VGG): "
        "insert(model, gate, where='norms').\n"
        "To name sites by hand, pass the modules after whose output a gate is to act: "
        "insert(model, gate, where=['norm'])."
    )


def test_a_network_without_norms_names_its_first_parts():
    network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1))
    with pytest.raises(StepsNotFoundError) as caught:
        attnlab.steps(network, torch.ones(2, 3, 4, 4))
    assert str(caught.value).endswith(
        "0 such additions, none of them a step.\n"
        "To name sites by hand, pass the modules after whose output a gate is to act: "
        "insert(model, gate, where=['0', '1'])."
    )


class Ends(nn.Module):
    """A step, and what becomes of its sum."""

    def __init__(self, after) -> None:
        super().__init__()
        self.branch, self.after = Branch(), after

    def forward(self, x):
        return self.after(self.branch(x) + x)


@pytest.mark.parametrize(
    ("after", "activation"),
    [
        (torch.relu, "relu"),
        (lambda x: torch.nn.functional.gelu(x).exp(), "gelu"),
        (lambda x: x * 2, ""),
        (lambda x: torch.relu(x) + 2 * x, ""),  # something else reads it
        (lambda x: torch.nn.functional.glu(x, 1), ""),  # half of the channels
        (lambda x: x, ""),
    ],
)
def test_the_activation_of_a_sum(after, activation):
    found = attnlab.steps(Ends(after), torch.ones(2, 8, 4, 4))
    assert found[0].activation == activation
    assert found[0].branch_operand == 0
    assert found[0].owner_calls == 1
    assert not found[0].branch_shared


def test_which_additions_could_be_a_step():
    key = attnlab.steps(Ends(torch.relu), torch.ones(2, 8, 4, 4))[0].key
    assert (key.owner, key.call, key.axes, key.channel_axis, key.channels) == ("", 0, 4, 1, 8)
    assert (key.addition, key.plain) == (0, True)
    assert key.could_be((5, 8, 7, 9))
    assert not key.could_be((5, 8, 7, 9), plain=False)
    assert not key.could_be((5, 7, 8, 8))
    assert not key.could_be((5, 8, 7))
    assert not key.could_be((5, 8, 7, 9, 9))
    minus = replace(key, plain=False)
    assert minus.could_be((5, 8, 7, 9), plain=False)
    assert not minus.could_be((5, 8, 7, 9))


def test_a_step_as_a_line():
    (step,) = attnlab.steps(Ends(torch.relu), torch.ones(2, 8, 4, 4))
    line = str(step)
    place = step.source
    assert re.fullmatch(r"test_steps\.py:\d+", place)
    assert (
        line == f"1.0     identity                            8×4×4          X + f(X)       {place}"
    )
    later = replace(step, stage=2, block=11, part=1)
    assert later.label == "2.11:1"


def test_stages_blocks_and_parts_are_numbered():
    """A stage begins where the state has another size, or at a projection."""

    class Double(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Branch(), Branch()

        def forward(self, x):
            x = x + self.one(x)
            return x + self.two(x)

    class Project(nn.Module):
        def __init__(self, stride: int) -> None:
            super().__init__()
            self.short, self.branch = nn.Conv2d(8, 8, 1, stride), Branch()
            self.pool = nn.MaxPool2d(stride) if stride > 1 else nn.Identity()

        def forward(self, x):
            return self.short(x) + self.branch(self.pool(x))

    network = nn.Sequential(
        Double(), Ends(nn.Identity()), Project(1), Double(), Project(2), nn.MaxPool2d(2), Double()
    )
    found = attnlab.steps(network, torch.ones(2, 8, 16, 16))
    assert [step.label for step in found] == [
        *["1.0", "1.0:1", "1.1"],
        *["2.0", "2.1", "2.1:1"],
        *["3.0", "4.0", "4.0:1"],
    ]
