"""What capture says of gates, against the network's formula written out here.

The formula takes the gates' modules from the network and multiplies by itself.
"""

from __future__ import annotations

import pytest
import timm
import torch
import transformers
from tests.residuals.streams import glm5_next, stirred, tokens
from torch import Tensor, nn
from torch.nn.functional import batch_norm, linear
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab._errors import InputError
from attnlab.gates import BranchGate
from attnlab.instruments.stiffness import nsi, step_indices
from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stripe.measure import gate_values
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()


class Block(nn.Module):
    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(self.act(self.bn1(self.conv1(x))))))


class Network(nn.Module):
    input_size = (3, 8, 8)

    def __init__(self, checkpointed: bool | None = None) -> None:
        """`checkpointed`: not at all, re-entrant (True) or not (False)."""
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            if self.checkpointed is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.checkpointed)
        return x


def network(**options: bool) -> Network:
    torch.manual_seed(0)
    net = Network(**options).double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    return net.eval()


def normalised(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    return batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)


def gates_behind(net: nn.Module) -> dict[str, list[nn.Module]]:
    found: dict[str, list[nn.Module]] = {}
    for _, attachment in attachments(net):
        found.setdefault(attachment.site.module, []).append(attachment.gate)
    return found


def by_hand(net: Network, images: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor, object]]:
    """‖x‖, ‖f‖ before the gates after bn2, ‖f ⊗ Δt‖, ‖x_{t+1} − x‖ and Δt of every block."""
    gates = gates_behind(net)

    def gated(name: str, x: Tensor) -> tuple[Tensor, Tensor | None]:
        product = None
        for gate in gates.get(name, ()):
            value = gate(x)
            product = value if product is None else product * value
            x = x * value
        return x, product

    x = torch.relu(gated("norm", normalised(net.norm, net.stem(images)))[0])
    rows = []
    for number, block in enumerate(net.blocks):
        inner, _ = gated(f"blocks.{number}.bn1", normalised(block.bn1, block.conv1(x)))
        f = normalised(block.bn2, block.conv2(torch.relu(inner)))
        update, gate = gated(f"blocks.{number}.bn2", f)
        after = torch.relu(x + update)
        if gate is not None:
            gate = gate.mean((2, 3)).expand(len(images), -1)
        norms = (each.flatten(1).norm(dim=1) for each in (x, f, update, after - x))
        rows.append((*norms, gate))
        x, _ = gated(f"blocks.{number}", after)
    return rows


def assert_captured(steps, expected) -> None:
    for found, (x, f, update, change, gate) in zip(steps, expected, strict=True):
        torch.testing.assert_close(found.shortcut, x, check_dtype=False, rtol=1e-6, atol=0)
        torch.testing.assert_close(found.branch, f, check_dtype=False, rtol=1e-6, atol=0)
        torch.testing.assert_close(found.update, update, check_dtype=False, rtol=1e-6, atol=0)
        torch.testing.assert_close(found.change, change, check_dtype=False, rtol=1e-6, atol=0)
        if gate is None:
            assert found.gate is None
        else:
            torch.testing.assert_close(found.gate, gate, check_dtype=False)


END = "blocks.1.bn2"
PLACES = {
    "one, by name": ("se", [END]),
    "one, as a text": ("se", END),
    "two of three": ("eca", ["blocks.0.bn2", "blocks.2.bn2"]),
    "an inner norm": ("se", ["blocks.1.bn1"]),
    "two sites of one step": ("se", ["blocks.1.bn1", END]),
    "norms": ("se", "norms"),  # the stem's and each block's first
    "before the first step": ("se", ["norm"]),
    "a block's output": ("se", ["blocks.0"]),
    "two gates at one site": ("asr:se+se", [END]),
    "two maps at one site": ("cbam+cbam", [END]),
    "where it is by default": ("se", None),
}


@pytest.mark.parametrize("place", PLACES)
def test_gates_at_any_place(place):
    gate, where = PLACES[place]
    net, _ = attnlab.insert(network(), gate, where=where)
    with torch.no_grad():
        expected = by_hand(net, IMAGES)
        with capture(net) as steps:
            net(IMAGES)
            assert_captured(steps, expected)


def test_gates_of_two_insertions_at_one_site():
    net, _ = attnlab.insert(network(), "se")
    net, _ = attnlab.insert(net, "cbam", where=[END])
    assert [len(gates) for gates in gates_behind(net).values()] == [1, 2, 1]
    with torch.no_grad():
        expected = by_hand(net, IMAGES)
        with capture(net) as steps:
            net(IMAGES)
            assert_captured(steps, expected)


class Ramp(BranchGate):
    """Adds maps of the branch's own shape, as a residual step would."""

    def forward(self, branch: Tensor) -> Tensor:
        double = branch + branch
        mixed = branch + torch.tanh(double)
        return torch.sigmoid(mixed.mean((2, 3), keepdim=True))

    def start_constant(self) -> float:
        raise NotImplementedError


@pytest.mark.parametrize("where", [None, "norms", [END]])
def test_additions_inside_a_gate_are_not_the_networks(where):
    plain = network()
    net, _ = attnlab.insert(plain, Ramp, where=where)
    names = [step.name for step in attnlab.steps(plain)]
    assert [step.name for step in attnlab.steps(net)] == names
    assert [s.key for s in attnlab.steps(net)] == [s.key for s in attnlab.steps(plain)]
    with torch.no_grad():
        expected = by_hand(net, IMAGES)
        with capture(net) as steps:
            net(IMAGES)
            assert_captured(steps, expected)


# torch says so of re-entrant checkpoints in a run without gradients.
no_gradients = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")


@no_gradients
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("place", ["one, by name", "norms", "two maps at one site"])
def test_gates_inside_checkpointed_blocks(reentrant, place):
    gate, where = PLACES[place]
    net, _ = attnlab.insert(network(checkpointed=reentrant), gate, where=where)
    with torch.no_grad():
        expected = by_hand(net, IMAGES)
    with capture(net) as steps:
        output = net(IMAGES.clone().requires_grad_(True))
        assert_captured(steps, expected)
        output.sum().backward()  # runs every block once more
        assert_captured(steps, expected)
        output = net(IMAGES.clone().requires_grad_(True))
        assert_captured(steps, expected)
    plain = network()
    plain, _ = attnlab.insert(plain, gate, where=where)
    plain.load_state_dict(net.state_dict())
    plain(IMAGES).sum().backward()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(net.get_parameter(name).grad, parameter.grad)


@no_gradients
@pytest.mark.parametrize("of", ["branch", "state"])
def test_indices_inside_checkpointed_blocks(of):
    found = {}
    for reentrant in (None, False, True):
        net, _ = attnlab.insert(network(checkpointed=reentrant), "se", where=[END])
        found[reentrant] = step_indices(net, IMAGES[:2], of=of, accept_artefact=True, vectors=50)
    for plain, checkpointed in zip(found[None], found[False], strict=True):
        torch.testing.assert_close(plain.spectral.value, checkpointed.spectral.value)
    assert {index.reason for index in found[True]} == {
        "it runs without gradients, as inside a re-entrant checkpoint: use_reentrant=False"
    }


def test_gates_inside_timm_checkpointing():
    torch.manual_seed(0)
    vit = timm.create_model("test_vit", init_values=0.5).double().eval()
    net, _ = attnlab.insert(vit, "se", where=["blocks.1.attn", "blocks.2.mlp.fc2", "blocks.3.ls2"])
    net.set_grad_checkpointing()
    images = torch.randn(2, 3, 160, 160).double()
    attention, inner, scaled = (attachment for _, attachment in attachments(net))
    rows = {}

    def tokens(x: Tensor, attachment) -> Tensor:
        return attachment.gate(x.movedim(2, 1)[..., None])[..., 0].movedim(1, 2)

    with torch.no_grad():
        x = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
        for number, block in enumerate(vit.blocks):
            f = block.attn(block.norm1(x))
            if number == 1:  # layer scale follows: the gate is a part of f
                f = f * tokens(f, attention)
            f = f * block.ls1.gamma
            rows[f"1.{number}"] = x, f, f, None
            x = x + f
            hidden = block.mlp.act(block.mlp.fc1(block.norm2(x)))
            f = linear(hidden, block.mlp.fc2.weight, block.mlp.fc2.bias)
            if number == 2:
                f = f * tokens(f, inner)
            f = f * block.ls2.gamma
            gate = tokens(f, scaled) if number == 3 else None
            update = f if gate is None else f * gate
            rows[f"1.{number}:1"] = x, f, update, gate
            x = x + update
    with capture(net, images[:1]) as steps:
        net(images.requires_grad_(True)).sum().backward()
        found = {each.step.label: each for each in steps}
    assert list(found) == list(rows)
    for label, (x, f, update, gate) in rows.items():
        for ours, theirs in zip(
            (found[label].shortcut, found[label].branch, found[label].update),
            (x, f, update),
            strict=True,
        ):
            torch.testing.assert_close(
                ours, theirs.flatten(1).norm(dim=1), check_dtype=False, rtol=1e-6, atol=0
            )
        assert (found[label].gate is None) == (gate is None)
    torch.testing.assert_close(found["1.3:1"].gate, rows["1.3:1"][3][:, 0], check_dtype=False)


class Twice(nn.Module):
    """The same gated network, under another name, on two inputs in one forward."""

    input_size = (3, 8, 8)

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Identity(), net)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.inner(2 * x)


def test_a_gated_network_inside_another_that_calls_it_twice():
    net, _ = attnlab.insert(network(), "se", where=[END])
    with torch.no_grad():
        expected = by_hand(net, IMAGES) + by_hand(net, 2 * IMAGES)
        outer = Twice(net)
        with capture(outer) as steps:
            outer(IMAGES)
            assert_captured(steps, expected)


def test_results_say_which_steps_are_gated():
    """The issue's case: the gate is on 2.1, and `paper` counts the branch before it."""
    torch.manual_seed(0)
    plain = attnlab.create("resnet20").eval()
    net, _ = attnlab.insert(plain, "se", where=["layer2.1.bn2"])
    images = torch.randn(4, 3, 32, 32)
    inputs = {}
    hook = net.layer2[1].conv2.register_forward_hook(lambda *seen: inputs.update(f=seen[2]))
    state = net.layer2[1].register_forward_pre_hook(lambda _, a: inputs.update(x=a[0].clone()))
    with torch.no_grad():
        net(images)
    hook.remove()
    state.remove()
    branch = normalised(net.layer2[1].bn2, inputs["f"])
    expected = branch.flatten(1).norm(dim=1) / inputs["x"].flatten(1).norm(dim=1)
    result = stiffness(net, [images], convention="paper")
    assert [step.label for step in result.nsi if step.gated] == ["2.1"]
    found = next(step for step in result.nsi if step.label == "2.1")
    assert found.mean == pytest.approx(expected.mean().item(), rel=1e-5)
    inner, _ = attnlab.insert(plain, "se", where=["layer3.0.bn1", "bn1"])
    assert [s.label for s in stiffness(inner, [images]).nsi if s.gated] == ["3.0"]


class Shuffled(nn.Module):
    """Two gates of one step: before and after a change of layout."""

    input_size = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 1)
        self.conv, self.last = nn.Conv2d(6, 6, 3, padding=1), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        tokens = self.conv(x).flatten(2).transpose(1, 2)
        return x.flatten(2).transpose(1, 2) + self.last(tokens)


def test_gates_in_two_layouts():
    images = IMAGES.float()
    for gate, fails in (("cbam", True), ("se", False)):
        net, _ = attnlab.insert(Shuffled().eval(), gate, where=["conv", "last"])
        with capture(net) as steps, torch.no_grad():
            if fails:
                with pytest.raises(InputError) as caught:
                    net(images)
                assert str(caught.value) == (
                    "'attnlab_conv', 'attnlab_last': these gates of one step differ from place to "
                    "place, in two layouts, so their product is not known. Capture the network "
                    "with one of them."
                )
                continue
            net(images)
            first, second = gates_behind(net).values()
            f = nn.functional.conv2d(net.stem(images), net.conv.weight, net.conv.bias, padding=1)
            one = first[0](f)
            two = second[0]((f * one).flatten(2)[..., None])
            (step,) = steps
            torch.testing.assert_close(step.gate, (one * two)[:, :, 0, 0])
            torch.testing.assert_close(step.branch, f.flatten(1).norm(dim=1))


class TwoPaths(Network):
    """Runs its last block on large batches only."""

    def forward(self, x: Tensor) -> Tensor:
        many = len(x) > 1
        x = torch.relu(self.norm(self.stem(x)))
        for block in self.blocks[: 3 if many else 2]:
            x = block(x)
        return x


def test_a_gate_that_did_not_run_on_the_example_is_refused_by_name():
    net, _ = attnlab.insert(TwoPaths().eval(), "se", example=IMAGES.float())
    with capture(net, IMAGES[:1].float()), pytest.raises(InputError) as caught:
        net(IMAGES.float())
    assert str(caught.value) == (
        "The gate 'blocks.2.attnlab' acts in a call that was not made on the example, so its step "
        "is not known. Pass an example that takes this path: example=..."
    )


def test_nsi_of_the_conventions_differs_only_where_a_gate_ends_the_branch():
    net, _ = attnlab.insert(network(), "se", where=["blocks.0.bn1", END])
    with capture(net) as steps, torch.no_grad():
        net(IMAGES)
        ratio = nsi(steps.norms, "paper") / nsi(steps.norms, "branch")
    torch.testing.assert_close(ratio[:, [0, 2]], torch.ones_like(ratio[:, [0, 2]]))
    assert (ratio[:, 1] > 1.2).all()


def text_decoder() -> nn.Module:
    config = transformers.Qwen3NextConfig(
        vocab_size=99,
        hidden_size=24,
        num_hidden_layers=2,
        layer_types=["full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=32,
        mlp_only_layers=[0, 1],
        max_position_embeddings=64,
        use_cache=False,
    )
    return stirred(transformers.Qwen3NextForCausalLM(config))


def test_gated_attention_of_the_network_itself_is_captured_over_tokens_that_count() -> None:
    model = text_decoder()
    ids = torch.randint(1, 90, (3, 9))
    mask = (torch.arange(9) < torch.tensor([9, 4, 6])[:, None]).long()
    seen: list[Tensor] = []
    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_hook(lambda _m, _a, output: seen.append(output))
    with capture(model, {"input_ids": ids}) as steps, torch.no_grad():
        seen.clear()
        model(input_ids=ids, attention_mask=mask)
        found = list(steps)
    for number, projected in enumerate(seen):
        gate = projected.unflatten(-1, (4, 2, 8))[..., 1, :].sigmoid().flatten(-2)
        expected = (gate * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        ((name, value),) = found[2 * number].own_gates.items()
        assert name == f"model.layers.{number}.self_attn:inside"
        torch.testing.assert_close(value, expected)
        assert found[2 * number + 1].own_gates == {}
    with capture(model, {"input_ids": ids}, own_gates=False) as steps, torch.no_grad():
        model(input_ids=ids, attention_mask=mask)
        assert [step.own_gates for step in steps] == [{}] * 4


def test_layer_scale_and_matrices_over_streams_are_captured() -> None:
    vit = timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=1).eval()
    with capture(vit, torch.randn(2, 3, 28, 28)) as steps, torch.no_grad():
        vit(torch.randn(2, 3, 28, 28))
        attention, mlp = steps
    for step, scale in ((attention, vit.blocks[0].ls1), (mlp, vit.blocks[0].ls2)):
        (value,) = step.own_gates.values()
        torch.testing.assert_close(value, scale.gamma.detach().expand(2, -1))

    streams = glm5_next()
    seen = gate_values(streams, [tokens()])
    with capture(streams, tokens()) as steps, torch.no_grad():
        streams(**tokens())
        found = {name: value for step in steps for name, value in step.own_gates.items()}
    assert {name.rpartition(":")[2] for name in found} == {"carry", "read", "write", "inside"}
    assert found.keys() == seen.keys()
    for name, value in found.items():
        torch.testing.assert_close(value.float(), seen[name], msg=name)
