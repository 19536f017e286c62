"""What an observer is told, against hooks and formulas written here."""

from __future__ import annotations

import pytest
import timm
import torch
from tests.surgery.insertion.networks import FunctionalBlock, Plain, Shared, SlotBlock, TwoPathBlock
from torch import nn

import attnlab
from attnlab._errors import InputError
from attnlab.gates import InstanceEnhancementBatchNorm
from attnlab.residuals import Observer, SeenGate, watchable
from attnlab.residuals.form import Multiplier
from attnlab.residuals.gates import GateSource
from attnlab.residuals.watching import watching
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Diary(Observer):
    def __init__(self) -> None:
        self.events: list[tuple] = []

    def call_begun(self, arguments, keywords):
        self.events.append(("begun", len(arguments), tuple(keywords)))

    def call_ended(self, output):
        self.events.append(("ended", output))

    def step_seen(self, seen):
        self.events.append(("step", seen.step.label, seen.shortcut.clone(), seen.branch.clone()))

    def gate_seen(self, seen):
        self.events.append(("gate", seen.gate.name, seen.value.clone(), seen.branch.clone()))


@pytest.mark.parametrize("block", [SlotBlock, FunctionalBlock])
def test_calls_gates_and_steps_in_their_order(block):
    torch.manual_seed(0)
    net, _ = attnlab.insert(Plain(block), "se")
    net.eval()
    diary = Diary()
    with watching(net, diary) as found, torch.no_grad():
        assert [step.label for step in found.steps] == ["1.0", "1.1", "1.2"]
        output = net(x=IMAGES)
    expected, x = [("begun", 0, ("x",))], net.stem(IMAGES)
    for number, each in enumerate(net.blocks):
        if block is SlotBlock:
            convolution, norm, relu = each.branch
            f = relu(norm(convolution(x)))
        else:
            f = torch.tanh(each.conv(x))
        gate = each.attnlab.gate(f)
        expected.append(("gate", f"blocks.{number}.attnlab", gate, f))
        expected.append(("step", f"1.{number}", x, f * gate))
        x = x + f * gate
    expected.append(("ended", output))
    assert len(diary.events) == len(expected)
    for event, wanted in zip(diary.events, expected, strict=True):
        for found_part, part in zip(event, wanted, strict=True):
            if isinstance(part, torch.Tensor):
                torch.testing.assert_close(found_part, part)
            else:
                assert found_part == part


def leftovers(model: nn.Module) -> int:
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m.__dict__.keys() & METHODS)
        for m in model.modules()
    )


METHODS = {"forward", "step_size"}


@pytest.mark.parametrize("gate", ["se", "step", "iebn"])
def test_nothing_is_left_behind(gate):
    torch.manual_seed(0)
    net, _ = attnlab.insert(Plain(SlotBlock), gate)
    net.eval()
    before, hooks = net(IMAGES), leftovers(net)
    with watching(net, Observer()):
        assert torch.equal(net(IMAGES), before)
    assert leftovers(net) == hooks
    with pytest.raises(RuntimeError, match="channels"), watching(net, Diary()):
        net(torch.randn(1, 4, 8, 8))
    assert leftovers(net) == hooks
    assert torch.equal(net(IMAGES), before)


def test_an_observer_inside_another():
    net, _ = attnlab.insert(Plain(FunctionalBlock).eval(), "se")
    outer, inner, found = Diary(), Diary(), watchable(net)
    with watching(net, outer, found=found), watching(net, inner, found=found), torch.no_grad():
        net(IMAGES)
    told = [event[:2] for event in outer.events[1:-1]]
    assert told == [event[:2] for event in inner.events[1:-1]]
    assert len(told) == 6


class Half(Observer):
    """Puts 0.5 in the place of every gate, and adds tensors of the branch's shape meanwhile."""

    def gate_seen(self, seen):
        _ = torch.ones(2, 8, 8, 8) + torch.ones(2, 8, 8, 8)
        return torch.full_like(seen.value, 0.5)

    def step_seen(self, seen):
        _ = seen.branch + seen.shortcut


@pytest.mark.parametrize("gate", ["se", "step", "dia"])
def test_a_value_can_be_replaced(gate):
    model = Plain(FunctionalBlock).double().eval()
    net, _ = attnlab.insert(model, gate)
    images = IMAGES.double()
    with watching(net, Half()):
        found = net(images)
    x = model.stem(images)
    for block in model.blocks:
        x = x + 0.5 * torch.tanh(block.conv(x))
    torch.testing.assert_close(found, model.head(x.mean((2, 3))))


class Values(Observer):
    def __init__(self) -> None:
        self.seen = {}

    def gate_seen(self, seen):
        self.seen[seen.gate.name] = seen


def test_gates_of_the_network_itself_and_inside_norms():
    torch.manual_seed(0)
    net = timm.create_model("seresnet18").eval()
    given = []
    net.layer2[0].se.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    values = Values()
    with watching(net, values, torch.randn(1, 3, 64, 64)) as found, torch.no_grad():
        net(torch.randn(2, 3, 64, 64))
        se = net.layer2[0].se
        hidden = torch.relu(se.bn(se.fc1(given[-1].mean((2, 3), keepdim=True))))
        expected = torch.sigmoid(se.fc2(hidden))
    seen = values.seen["layer2.0.se"]
    assert (seen.gate.kind, seen.step.label, seen.position) == ("own", "2.0", "end")
    assert seen.branch is None
    torch.testing.assert_close(seen.value, expected)
    assert {gate.kind for gate in found.gates} == {"own"}

    net, _ = attnlab.insert(Plain(SlotBlock).eval(), "iebn", start="identity")
    norm = net.blocks[1].branch[1]
    assert isinstance(norm, InstanceEnhancementBatchNorm)
    nn.init.normal_(norm.gate.weight)
    given.clear()
    norm.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    with watching(net, values), torch.no_grad():
        net(IMAGES)
    seen = values.seen["blocks.1.branch.1"]
    pooled = given[-1].mean((2, 3), keepdim=True)
    weight, bias = (each.view(1, 8, 1, 1) for each in (norm.gate.weight, norm.gate.bias))
    expected = torch.sigmoid(weight * pooled + bias) * norm.gate_scale
    assert norm.gate_scale != 1
    torch.testing.assert_close(seen.value.view(3, 8, 1, 1), expected)
    assert (seen.gate.kind, seen.gate.label, seen.position) == ("norm", "1.1", "inside")


def test_a_module_that_runs_several_times():
    """Each call is another step; the network's own modules called alone are not told."""
    net, diary = Shared().eval(), Diary()
    with watching(net, diary, IMAGES[:1]), torch.no_grad():
        net(IMAGES)
        net.block(net.stem(IMAGES))
    x = net.stem(IMAGES)
    assert [event[1] for event in diary.events if event[0] == "step"] == ["1.0", "1.0:1", "1.0:2"]
    for event in (event for event in diary.events if event[0] == "step"):
        torch.testing.assert_close(event[2], x)
        x = net.block(x)


def test_another_path_than_on_the_example_is_an_error_not_a_wrong_step():
    net = Plain(TwoPathBlock)
    with watching(net, Diary(), IMAGES[:1]), pytest.raises(InputError) as caught:
        net.train()(IMAGES)
    assert str(caught.value) == (
        "'blocks.0' made 2 additions like that of step 1.0, of which 1 were seen on the example, "
        "so the step cannot be told. Pass an example that takes this path: example=..."
    )


def test_keys_are_those_of_the_plain_network():
    plain = Plain(FunctionalBlock).eval()
    keys = [step.key for step in attnlab.steps(plain)]
    assert len(set(keys)) == 3
    net, _ = attnlab.insert(plain, "cbam")
    net, _ = attnlab.insert(net, "step")
    assert [step.key for step in watchable(net).steps] == keys
    assert [attachment.site.step.key for _, attachment in attachments(net)] == [
        key for key in keys for _ in range(2)
    ]


def test_a_gate_at_an_addition_after_one_behind_a_module():
    """The additions inside the first gate are not those of the second one's host."""

    class Sums(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.branch = nn.Conv2d(channels, channels, 1)

        def forward(self, x):
            return x + self.branch(x)

    class Adds(attnlab.gates.BranchGate):
        def forward(self, branch):
            return torch.sigmoid(branch + branch)

        def start_constant(self):
            raise NotImplementedError

    model = Plain(Sums).double().eval()
    first, _ = attnlab.insert(model, Adds)
    net, _ = attnlab.insert(first, "step")
    images = IMAGES.double()
    x = model.stem(images)
    for block, gated in zip(model.blocks, net.blocks, strict=True):
        f = block.branch(x)
        f = f * torch.sigmoid(2 * f)
        x = x + f * gated.attnlab_b.gate(x, f)
    torch.testing.assert_close(net(images), model.head(x.mean((2, 3))))


def test_a_value_inside_a_norm_can_be_replaced():
    """What is told and taken includes the scale that makes the start the identity."""
    net, _ = attnlab.insert(Plain(SlotBlock).eval(), "iebn", start="identity")
    norm = net.blocks[1].branch[1]
    assert norm.gate_scale != 1
    given = []
    norm.register_forward_hook(lambda _, inputs, output: given.append((inputs[0], output)))
    with watching(net, Half()), torch.no_grad():
        net(IMAGES)
        *_, (x, found) = given
        mean, variance, weight, bias = (
            each.view(1, 8, 1, 1)
            for each in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
        )
        expected = (x - mean) / torch.sqrt(variance + norm.eps) * weight * 0.5 + bias
    torch.testing.assert_close(found, expected)


class AddsInPlace(nn.Module):
    """What is written to is returned, not what `add_` returns; takes a number besides the state."""

    def __init__(self, channels: int, onto: str) -> None:
        super().__init__()
        self.conv, self.onto = nn.Conv2d(channels, channels, 1), onto

    def forward(self, x, factor: float = 1.0):
        if self.onto == "branch":
            branch = self.conv(x) * factor
            branch.add_(x)
            return branch
        if self.onto == "shortcut":
            x.add_(self.conv(x) * factor)
            return x
        x.mul_(0.5)
        return x + self.conv(x) * factor


class Chained(nn.Module):
    def __init__(self, onto: str) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.blocks = nn.ModuleList(AddsInPlace(8, onto) for _ in range(2))

    def forward(self, images):
        x = self.stem(images)
        for block in self.blocks:
            x = block(x, 0.5)
        return x


class Twice(Observer):
    """Doubles every branch, and keeps what it was told."""

    def __init__(self) -> None:
        self.told = []

    def step_seen(self, seen):
        self.told.append((seen.mutated, seen.branch, seen.branch.clone()))
        return 2 * seen.branch


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("onto", ["branch", "shortcut", "neither"])
def test_a_branch_can_be_replaced_where_it_is_added_in_place(onto, mode):
    torch.manual_seed(0)
    net, twice = Chained(onto).double().eval(), Twice()
    images = IMAGES.double()
    with watching(net, twice, images[:1]), mode():
        found = net(images)
    with torch.no_grad():
        x = net.stem(images)
        for block in net.blocks:
            x = x * 0.5 if onto == "neither" else x
            x = x + 2 * 0.5 * block.conv(x)
    torch.testing.assert_close(found, x)
    assert len(twice.told) == 2
    for mutated, branch, then in twice.told:
        # Versions are not counted in inference mode, so that nothing can be said there.
        assert mutated == (onto == "neither" and mode is torch.no_grad)
        assert torch.equal(branch, then) == (onto != "branch")


def told(value: torch.Tensor, branch: torch.Tensor | None, axis: int, *multipliers: Multiplier):
    """A gate of this value, as an observer is told of it."""
    gate = GateSource("gate", "inserted", nn.Identity(), axis, "", {}, multipliers=multipliers)
    return SeenGate(gate, value, branch, None, "end")


@pytest.mark.parametrize(
    ("shape", "axis", "order", "expected"),
    [
        ((2, 3, 4, 5), 1, (0, 1, 2, 3), (2, 3, 20)),
        ((2, 5, 8), 2, (0, 2, 1), (2, 8, 5)),
        ((2, 4, 5, 8), 3, (0, 3, 1, 2), (2, 8, 20)),
        ((1, 8), 1, (0, 1), (1, 8, 1)),
    ],
)
def test_values_by_channel(shape, axis, order, expected):
    value, branch = torch.randn(2, *shape)
    by_channel = value.permute(order).reshape(expected)
    assert torch.equal(told(value, None, axis).by_channel(), by_channel)
    if len(shape) > 2:
        seen = told(value, branch, axis).pair()
        assert torch.equal(seen[0], by_channel)
        assert torch.equal(seen[1], branch.permute(order).reshape(expected))


def test_a_gate_is_stretched_along_what_it_multiplies():
    value, branch = torch.rand(2, 3, 1, 1), torch.rand(2, 3, 4, 5)
    seen = told(value, branch, 1).pair()
    assert torch.equal(seen[0], value.view(2, 3, 1).expand(2, 3, 20))
    assert torch.equal(seen[1], branch.flatten(2))


def test_values_of_products_by_channel():
    scale = Multiplier("size", "parameter", (1, 8))
    value = torch.rand(1, 8)
    assert torch.equal(told(value, None, -1, scale).by_channel(), value.view(1, 8, 1))
    one = Multiplier("size", "state", (2, 5, 1))
    value = torch.rand(2, 5, 1)
    assert torch.equal(told(value, None, -1, one).by_channel(), value.view(2, 1, 5))
    heads = Multiplier("inside", "state", (2, 5, 3, 4), channel_axes=(2, 3))
    value, branch = torch.rand(2, 2, 5, 3, 4)
    expected = value.permute(0, 2, 3, 1).reshape(2, 12, 5)
    assert torch.equal(told(value, None, -1, heads).by_channel(), expected)
    seen = told(value, branch, -1, heads).pair()
    assert torch.equal(seen[0], expected)
    assert torch.equal(seen[1], branch.permute(0, 2, 3, 1).reshape(2, 12, 5))
    few = Multiplier("size", "state", (5, 4), channel_axes=(1,))  # without the axis of inputs
    value, branch = torch.rand(5, 4), torch.rand(2, 5, 4)
    seen = told(value, branch, -1, few).pair()
    assert torch.equal(seen[0], value.t().expand(2, 4, 5))
    assert torch.equal(seen[1], branch.transpose(1, 2))
