"""Captured norms against states that the test's own networks write down themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import attnlab
from attnlab import _errors
from attnlab.instruments.stiffness import nsi
from attnlab.instruments.stiffness.capture import capture
from attnlab.surgery.insertion import attachments


class Block(nn.Module):
    """A residual block that can add in every way found in the wild, and keeps a diary."""

    def __init__(self, channels: int, how: str = "plain", last: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.how = how
        self.last = nn.Identity() if last is None else last
        self.diary: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = self.norm(self.conv(x))
        before, branch = x.clone(), f.clone()
        if self.how == "plain":
            y = x + f
        elif self.how == "branch first":
            y = torch.add(f, x)
        elif self.how == "into the branch":
            f += x
            y = f
        elif self.how == "into the state":
            x += f
            y = x
        else:
            y = f.add_(x)
        y = self.last(y)
        self.diary.append((before, branch, y.clone()))
        return y


WAYS = ["plain", "branch first", "into the branch", "into the state", "add_"]


def network(how: str = "plain", last: nn.Module | None = None, blocks: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    stem = nn.Conv2d(3, 6, 3, padding=1)
    net = nn.Sequential(stem, *(Block(6, how, last) for _ in range(blocks)))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return net.eval()


IMAGES = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def expected(net: nn.Sequential) -> list[tuple[torch.Tensor, ...]]:
    """‖x‖, ‖f‖, ‖x_{t+1} − x‖ from the diaries, in float64."""
    rows = []
    for block in net[1:]:
        x, f, y = (tensor.detach().double().flatten(1) for tensor in block.diary[-1])
        rows.append((x.norm(dim=1), f.norm(dim=1), (y - x).norm(dim=1)))
    return rows


def assert_captured(steps, net, rtol=1e-5):
    for found, (x, f, change) in zip(steps, expected(net), strict=True):
        torch.testing.assert_close(found.shortcut.double(), x, rtol=rtol, atol=1e-6)
        torch.testing.assert_close(found.branch.double(), f, rtol=rtol, atol=1e-6)
        torch.testing.assert_close(found.update.double(), f, rtol=rtol, atol=1e-6)
        torch.testing.assert_close(found.change.double(), change, rtol=rtol, atol=1e-6)
        assert found.gate is None


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    "last", [None, nn.ReLU(inplace=True), nn.ReLU(), nn.SiLU(), nn.LeakyReLU()]
)
def test_norms_of_every_way_to_add(how, last):
    net = network(how, last)
    with capture(net, IMAGES[:1]) as steps, torch.no_grad():
        net(IMAGES)
        assert_captured(steps, net)
        assert not any(step.mutated for step in steps)


def test_parametric_activation():
    net = network("plain", nn.PReLU(6))
    with capture(net, IMAGES[:1]) as steps, torch.no_grad():
        net(IMAGES)
        assert_captured(steps, net)


@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference"])
def test_gradient_modes(mode):
    net = network(last=nn.ReLU(inplace=True))
    context = {
        "grad": torch.enable_grad,
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
    }[mode]
    with capture(net, IMAGES[:1]) as steps, context():
        net(IMAGES)
        assert_captured(steps, net)
        assert not any(step.shortcut.requires_grad for step in steps)


def test_channels_last():
    net = network(last=nn.ReLU()).to(memory_format=torch.channels_last)
    with capture(net, IMAGES[:1]) as steps, torch.no_grad():
        net(IMAGES.to(memory_format=torch.channels_last))
        assert_captured(steps, net)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes_are_reduced_in_float32_at_least(dtype):
    net = network().to(dtype)
    with capture(net, IMAGES[:1].to(dtype)) as steps, torch.no_grad():
        net(IMAGES.to(dtype))
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        assert steps.norms.shortcut.dtype == wide
        for found, (x, f, _) in zip(steps, expected(net), strict=True):
            torch.testing.assert_close(found.shortcut.double(), x, rtol=1e-5, atol=0)
            torch.testing.assert_close(found.branch.double(), f, rtol=1e-5, atol=0)


def test_autocast():
    net = network()
    with capture(net, IMAGES[:1]) as steps, torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            net(IMAGES)
        for found, (x, f, _) in zip(steps, expected(net), strict=True):
            assert found.branch.dtype == torch.float32
            torch.testing.assert_close(found.shortcut.double(), x, rtol=1e-4, atol=0)
            torch.testing.assert_close(found.branch.double(), f, rtol=1e-4, atol=0)


class TwiceInPlace(nn.Module):
    """A block of two steps that write into one of their operands, with a diary of copies: where
    it began, the sum of its branches and where it ended."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(6, 6, 3, padding=1) for _ in range(2))
        self.how = how
        self.diary: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start, total = x.clone(), torch.zeros_like(x)
        for layer in self.layers:
            f = layer(x)
            total += f
            if self.how == "into the state":
                x += f
            else:
                f += x
                x = f
        self.diary.append((start, total, x.clone()))
        return x


@pytest.mark.parametrize("how", ["into the state", "into the branch"])
def test_a_block_that_adds_in_place(how):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 1), *(TwiceInPlace(how) for _ in range(3))).eval()
    with capture(net, IMAGES[:1], granularity="block") as steps, torch.no_grad():
        net(IMAGES)
        assert len(steps) == 3
        assert_captured(steps, net)


class MutatingBlock(nn.Module):
    """Pre-activation in place: what is added is relu(x), not the x that came in."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(torch.relu_(x))


def test_a_state_changed_in_place_is_noticed():
    net = nn.Sequential(nn.Conv2d(3, 6, 1), MutatingBlock(), MutatingBlock()).eval()
    with capture(net, IMAGES[:1]) as steps, torch.no_grad():
        state = torch.relu(net[0](IMAGES))
        net(IMAGES)
        found = list(steps)
        assert [step.mutated for step in found] == [True, True]
        torch.testing.assert_close(found[0].shortcut, state.flatten(1).norm(dim=1))


def leftovers(model: nn.Module) -> list[str]:
    return [
        name
        for name, module in model.named_modules()
        if "forward" in module.__dict__
        or "step_size" in module.__dict__
        or module._forward_pre_hooks
        or module._forward_hooks_always_called
    ]


def test_nothing_is_left_behind():
    net = network()
    before = net(IMAGES)
    with capture(net, IMAGES[:1]):
        assert leftovers(net)
        assert torch.equal(net(IMAGES), before)
    assert leftovers(net) == []


def test_nothing_is_left_behind_after_an_exception():
    net = network()
    with pytest.raises(RuntimeError, match="channels"), capture(net, IMAGES[:1]):
        net(torch.randn(1, 4, 8, 8))
    assert leftovers(net) == []
    with pytest.raises(ZeroDivisionError), capture(net, IMAGES[:1]):
        raise ZeroDivisionError
    assert leftovers(net) == []
    # The function mode is gone as well: an addition here is nobody's step.
    with capture(net, IMAGES[:1]) as steps:
        _ = IMAGES + IMAGES
        with pytest.raises(_errors.InputError):
            list(steps)


def test_only_the_last_forward_is_kept():
    net = network()
    with capture(net, IMAGES[:1]) as steps, torch.no_grad():
        net(IMAGES)
        net(IMAGES[:2])
        assert steps.norms.shortcut.shape == (2, 3)


def test_a_module_called_twice_makes_two_steps():
    shared = Block(6)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block = nn.Conv2d(3, 6, 1), shared

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(self.block(self.stem(x)))

    net = Twice().eval()
    with capture(net, IMAGES[:1]) as steps, torch.no_grad():
        net(IMAGES)
        states = [x.flatten(1).norm(dim=1) for x, _, _ in shared.diary[-2:]]
        for found, state in zip(steps, states, strict=True):
            torch.testing.assert_close(found.shortcut, state)


def test_message_when_nothing_ran():
    net = network()
    with capture(net, IMAGES[:1]) as steps, pytest.raises(_errors.InputError) as error:
        _ = steps.norms
    assert str(error.value) == (
        "3 of 3 steps were not seen in the last forward, the first of them 1.0 (1). Run the "
        "network inside the `with` block; if it takes another path on this input, pass example=."
    )


@pytest.mark.parametrize("gate", ["se", "eca", "cbam", "step", "asr:se"])
def test_inserted_gates_are_seen(gate):
    """‖f‖, ‖f ⊗ Δt‖ and Δt against the attachment called by hand."""
    torch.manual_seed(0)
    net, _ = attnlab.insert(attnlab.create("resnet20"), gate)
    net.eval()
    seen = []
    hooks = [
        attachment.register_forward_hook(
            lambda _, given, out: seen.append((given[0].clone(), out.clone()))
        )
        for _, attachment in attachments(net)
    ]
    with capture(net) as steps, torch.no_grad():
        seen.clear()
        net(torch.randn(3, 3, 32, 32))
        gated = [step for step in steps if step.gate is not None]
        assert len(gated) == len(seen) > 0
        for found, (branch, update) in zip(gated, seen, strict=True):
            torch.testing.assert_close(found.branch, branch.flatten(1).norm(dim=1))
            torch.testing.assert_close(found.update, update.flatten(1).norm(dim=1))
            assert found.gate.shape[0] == 3
            assert found.gate.shape[1] in (1, branch.shape[1])
        if gate == "se":
            branch, update = seen[0]
            by_hand = (update.sum((2, 3)) / branch.sum((2, 3))).flatten()
            torch.testing.assert_close(gated[0].gate.flatten(), by_hand, rtol=1e-3, atol=1e-3)
    for hook in hooks:
        hook.remove()
    assert leftovers(net) == []


def test_conventions_differ_by_the_gate():
    net, _ = attnlab.insert(attnlab.create("resnet20"), "se")
    net.eval()
    with capture(net) as steps, torch.no_grad():
        net(torch.randn(2, 3, 32, 32))
        ratio = nsi(steps.norms, "paper") / nsi(steps.norms, "branch")
    # A fresh SE gate is about one half.
    assert ((ratio > 1.5) & (ratio < 2.7)).all()


def test_against_block_outputs_of_a_whole_network():
    """resnet20: consecutive block outputs by plain hooks, projection blocks left out."""
    torch.manual_seed(0)
    net = attnlab.create("resnet20").eval()
    states = {}
    names = [f"layer{s}.{b}" for s in (1, 2, 3) for b in range(3)]
    for name in names:
        net.get_submodule(name).register_forward_hook(
            lambda _, given, out, name=name: states.update({name: (given[0].clone(), out.clone())})
        )
    images = torch.randn(4, 3, 32, 32)
    with capture(net) as steps, torch.no_grad():
        net(images)
        values = nsi(steps.norms, "state")
    assert [step.name for step in steps.plan.steps] == names
    for column, name in enumerate(names):
        before, after = states[name]
        if before.shape == after.shape:
            expected = (after - before).flatten(1).norm(dim=1) / before.flatten(1).norm(dim=1)
            torch.testing.assert_close(values[:, column], expected, rtol=1e-4, atol=1e-6)


def test_distributed_data_parallel(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/r", rank=0, world_size=1)
    try:
        net = network(last=nn.ReLU())
        wrapped = nn.parallel.DistributedDataParallel(net)
        with capture(wrapped, IMAGES[:1]) as steps:
            wrapped(IMAGES).sum().backward()
            assert_captured(steps, net)
        assert leftovers(net) == []
    finally:
        dist.destroy_process_group()


class BiasedBlock(nn.Module):
    """Adds a bias of its input's shape at batch size 1 only, as window attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(1, 2, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = self.conv(x)
        scores = f[:, :2] + self.bias
        return x + f * scores.mean(1, keepdim=True)


@pytest.mark.parametrize("example", [1, 3])
@pytest.mark.parametrize("inputs", [1, 2, 5])
def test_steps_are_recognised_at_every_batch_size(example, inputs):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 1), BiasedBlock(), BiasedBlock()).eval()
    with capture(net, IMAGES[:example]) as steps, torch.no_grad():
        net(IMAGES[:inputs])
        state = net[0](IMAGES[:inputs])
        for block, found in zip(net[1:], steps, strict=True):
            after = block(state)
            torch.testing.assert_close(found.shortcut, state.flatten(1).norm(dim=1))
            update = (after - state).flatten(1).norm(dim=1)
            torch.testing.assert_close(found.update, update, rtol=1e-4, atol=1e-5)
            state = after


def test_another_image_size_than_the_example():
    net = network()
    with capture(net, torch.randn(1, 3, 16, 16)) as steps, torch.no_grad():
        net(IMAGES)
        assert_captured(steps, net)


class TokensFirst(nn.Module):
    """Blocks of torch as they come, with the tokens in front of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16) for _ in range(2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.patches(x).flatten(2).permute(2, 0, 1)).mean(0)


def test_tokens_in_front_of_the_inputs():
    torch.manual_seed(0)
    network = TokensFirst().eval()
    images = torch.randn(4, 3, 16, 16)  # as many tokens as makes four times the inputs
    for batches in ([images], [images[:2], images[2:]]):
        with pytest.raises(_errors.InputError) as error:
            attnlab.stiffness(network, batches)
        assert str(error.value) == (
            f"Expected the state of step 1.0 (blocks.0) to have the {len(batches[0])} inputs along "
            f"its first axis but got shape (16, {len(batches[0])}, 8), with the tokens in front of "
            f"them. Let the network put the inputs first (batch_first=True of torch's layers), or "
            f"pass one input at a time."
        )
    one_by_one = attnlab.stiffness(network, images.split(1))
    for block in network.blocks:
        block.self_attn.batch_first = True
    network.forward = lambda x: network.blocks(  # type: ignore[method-assign]
        network.patches(x).flatten(2).transpose(1, 2)
    ).mean(1)
    assert attnlab.stiffness(network, [images]).tns == pytest.approx(one_by_one.tns, rel=1e-6)
