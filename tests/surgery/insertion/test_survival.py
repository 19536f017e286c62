"""What tools make of a network with gates: it answers as before, or refuses in words of ours."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from pathlib import Path

import pytest
import timm
import torch
from tests.surgery.folding.test_detectors import IMAGE, faster_rcnn
from tests.surgery.insertion.detectors import DetrLike, FeaturePyramid, YoloLike
from tests.surgery.insertion.networks import FunctionalBlock, Plain, SlotBlock
from timm.utils import reparameterize_model
from torch import nn
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab._errors import GateLostError, SiteError
from attnlab.gates import SqueezeExcitation
from attnlab.surgery.insertion import attachments
from attnlab.surgery.insertion._marked import MarkHook
from attnlab.testing import Tool, check_tool, compiling_tools, exchanging_tools

TOOLS = {tool.name: tool for tool in (*exchanging_tools(), *compiling_tools())}
GATES = ("se", "asr:se", "step", "dia", "iebn")
LOST_NORMS = (
    "SyncBatchNorm",
    "timm convert_sync_batchnorm",
    "timm freeze",
    "timm freeze_batch_norm_2d",
)
REFUSED = {
    *((name, "iebn") for name in LOST_NORMS),
    *(("torch.jit.script", gate) for gate in ("se", "step", "dia", "iebn")),
}
"""All others are equal."""
SLOW = ("torch.compile", "torch.export strict")

WHAT_TO_DO = (
    " Run that tool first and insert afterwards; or fold the gates first, if they are constant: "
    "attnlab.fold(network), with fuse=True to fuse as well. To go on without what is lost: "
    "attnlab.remove(network, only_lost=True)."
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("tool", "gate"),
    [
        (tool, gate)
        for tool in TOOLS
        for gate in GATES
        if tool not in SLOW or gate in ("se", "step")
    ],
)
def test_tool(tool, gate):
    expected = "refused" if (tool, gate) in REFUSED else "equal"
    assert check_tool(TOOLS[tool], gate) == expected


def test_the_law_sees_a_lost_gate():
    lose = Tool("lose", lambda network, _: (attnlab.remove(network), network)[1])
    with pytest.raises(AssertionError, match="after lose the output is off by"):
        check_tool(lose, "se")
    fail = Tool("fail", lambda _, __: 1 / 0)
    with pytest.raises(AssertionError, match="fail fails on the network with gates, as on"):
        check_tool(fail, "se")


def images(*size: int) -> torch.Tensor:
    return torch.randn(*(size or (2, 3, 8, 8)), generator=torch.Generator().manual_seed(1))


def gated(network: nn.Module, gate: str = "se", **options: object) -> nn.Module:
    made, _ = attnlab.insert(network.eval(), gate, **options)
    return made


# Networks as people have them, and the conversion that everybody calls.


@pytest.mark.parametrize(
    ("network", "example"),
    [
        (YoloLike, images(2, 3, 16, 16)),
        (FeaturePyramid, images(2, 3, 32, 32)),
        (DetrLike, images(2, 3, 16, 16)),
        (lambda: faster_rcnn(nn.BatchNorm2d), [IMAGE]),
    ],
    ids=["yolo", "pyramid", "detr", "faster-rcnn"],
)
@pytest.mark.parametrize("gate", ["se", "asr:se"])
def test_synchronised_norms_in_detectors(network, example, gate):
    made = gated(network(), gate, example=(example,))
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(made))
    names = {type(module) for module in converted.modules()}
    assert nn.SyncBatchNorm in names or network is DetrLike
    with torch.no_grad():
        torch.testing.assert_close(converted(example), made(example))
    assert made.state_dict().keys() == converted.state_dict().keys()


def test_gates_learn_after_the_conversion():
    made = nn.SyncBatchNorm.convert_sync_batchnorm(gated(Plain(SlotBlock)))
    made(images()).sum().backward()
    for _, attachment in attachments(made):
        for parameter in attachment.parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().sum() > 0


def test_a_fused_block_that_lost_its_norm_refuses():
    network = gated(YoloLike(), "se", where=["blocks.0.cv2.bn"], example=images(2, 3, 16, 16))
    network.fuse()  # as Ultralytics does: fused convolution, norm deleted, forward rebound
    with pytest.raises(GateLostError) as error:
        network(images(2, 3, 16, 16))
    assert str(error.value) == (
        "The gate 'blocks.0.cv2.attnlab_bn' acted after 'blocks.0.cv2.bn', but ConvBlock has no "
        "module 'bn' any more: a tool that fuses or rebuilds modules took it away after "
        "insertion." + WHAT_TO_DO
    )


def test_a_fused_block_keeps_the_gate_behind_it():
    network = gated(YoloLike(), "se", example=images(2, 3, 16, 16))
    assert {a.site.module for _, a in attachments(network)} == {"blocks.0.cv2", "blocks.1.cv2"}
    want = network(images(2, 3, 16, 16))
    network.fuse()
    torch.testing.assert_close(network(images(2, 3, 16, 16)), want, atol=1e-4, rtol=1e-4)


def test_a_rebuilt_block_refuses():
    network = gated(Plain(SlotBlock))
    network.blocks[1] = SlotBlock().eval()
    with pytest.raises(GateLostError) as error:
        network(images())
    assert str(error.value) == (
        "The gate 'blocks.1.attnlab' acted after 'blocks.1.branch', but a module on the way there "
        "was exchanged for another after insertion, and Plain would answer without the gate."
        + WHAT_TO_DO
    )
    attnlab.remove(network, only_lost=True)
    assert network(images()).shape == (2, 5)
    assert len(list(attachments(network))) == 2


def test_two_rebuilt_blocks_refuse():
    network = gated(Plain(SlotBlock))
    for place in (0, 2):
        network.blocks[place] = SlotBlock().eval()
    with pytest.raises(GateLostError) as error:
        network(images())
    assert str(error.value) == (
        "The gate 'blocks.0.attnlab' acted after 'blocks.0.branch', but a module on the way there "
        "was exchanged for another after insertion, and Plain would answer without the gate, and 1 "
        "more are lost as well." + WHAT_TO_DO
    )


def test_a_rebuilt_block_with_a_gate_at_its_addition_refuses():
    network = gated(Plain(FunctionalBlock), "step")
    del network.blocks[2]
    network.blocks.append(FunctionalBlock().eval())
    with pytest.raises(GateLostError, match=r"acted at an addition of 'blocks.2', but a module on"):
        network(images())


class Reparameterised(nn.Module):
    """x + conv(x), which `fuse` makes one convolution of, as RepViT's blocks do."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x + self.conv(x)

    @torch.no_grad()
    def fuse(self) -> nn.Module:
        fused = copy.deepcopy(self.conv)
        fused.weight += torch.eye(len(fused.weight))[:, :, None, None]
        return fused


def test_reparameterised_blocks_refuse():
    plain = Plain(Reparameterised).eval()
    network = gated(plain)
    torch.testing.assert_close(reparameterize_model(plain)(images()), plain(images()))
    with pytest.raises(GateLostError) as error:
        reparameterize_model(network)(images())
    assert str(error.value) == (
        "The gate 'blocks.0.attnlab' acted after 'blocks.0.conv', but a module on the way there "
        "was exchanged for another after insertion, and Plain would answer without the gate, and 2 "
        "more are lost as well." + WHAT_TO_DO
    )
    assert network(images()).shape == (2, 5)  # timm works on a copy


@pytest.mark.parametrize("gate", ["se", "step", "iebn"])
def test_a_child_of_the_network_itself_is_not_exchanged_silently(gate):
    network = gated(Plain(SlotBlock), gate)
    network.blocks = Plain(SlotBlock).eval().blocks
    for _ in range(2):  # refused once, refused always
        with pytest.raises(GateLostError, match="exchanged for"):
            network(images())


def test_the_backbone_of_a_detector_is_not_exchanged_silently():
    network = gated(FeaturePyramid(), "se", example=images(2, 3, 32, 32))
    name, child = next((n, c) for n, c in network.named_children() if list(attachments(c)))
    setattr(network, name, getattr(FeaturePyramid().eval(), name))
    assert list(attachments(child))
    with pytest.raises(GateLostError):
        network(images(2, 3, 32, 32))


def test_a_child_of_a_network_inside_another_is_not_exchanged_silently():
    network = gated(nn.Sequential(Plain(SlotBlock), nn.ReLU()), "se", example=images())
    network[0].blocks = Plain(SlotBlock).eval().blocks
    with pytest.raises(GateLostError, match=r"acted after .0.blocks.0.branch., but a module on"):
        network(images())


def test_repvit_reparameterised():
    plain = timm.create_model("repvit_m0_9", num_classes=5).eval()
    given = images(1, 3, 64, 64)
    network = gated(plain, "se", example=given)
    with torch.no_grad():
        torch.testing.assert_close(
            reparameterize_model(plain)(given), plain(given), atol=1e-4, rtol=1e-4
        )
        with pytest.raises(GateLostError):
            reparameterize_model(network)(given)


class TwoNames(Plain):
    """Runs its blocks, and has them under another name as well."""

    def __init__(self) -> None:
        super().__init__(SlotBlock)
        self.named = nn.ModuleDict({"first": self.blocks[0]})


def test_a_gate_that_is_there_and_does_not_run_refuses():
    network = gated(TwoNames())
    network.blocks[0] = SlotBlock().eval()
    assert network.named["first"].attnlab is not None
    for _ in range(2):
        with pytest.raises(GateLostError) as error:
            network(images())
    assert str(error.value) == (
        "The gate 'blocks.0.attnlab' acted after 'blocks.0.branch', but a module on the way there "
        "was exchanged, or given another forward, after insertion, and TwoNames would answer "
        "without the gate." + WHAT_TO_DO
    )


def test_a_name_that_nothing_runs_may_be_exchanged():
    network = gated(TwoNames())
    want = network(images())
    network.named["first"] = SlotBlock().eval()
    for _ in range(2):
        torch.testing.assert_close(network(images()), want)


def test_a_module_that_is_wrapped_keeps_its_gates():
    network = gated(Plain(SlotBlock))
    want = network(images())
    network.blocks = nn.Sequential(network.blocks, nn.Identity())
    torch.testing.assert_close(network(images()), want)
    compiled = torch.compile(copy.deepcopy(network), backend="eager")
    torch.testing.assert_close(compiled(images()), want)


def test_a_wrapped_module_before_torch_compile():
    network = gated(Plain(SlotBlock))
    want = network(images())
    network.blocks = nn.Sequential(network.blocks)
    compiled = torch.compile(network, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(images()), want)


WAYS = ["attribute", "children", "block", "gate", "forward"]


def refused_after_its_first_compiled_run(way):
    network, other = gated(Plain(SlotBlock)), gated(Plain(SlotBlock))
    network.blocks, other.blocks = (nn.Sequential(*each.blocks) for each in (network, other))
    compiled = torch.compile(network, backend="eager")
    torch.testing.assert_close(compiled(images()), network(images()))
    if way == "attribute":
        network.blocks = other.blocks
    elif way == "children":
        network._modules["blocks"] = other.blocks
    elif way == "block":
        network.blocks._modules["0"] = other.blocks[0]
    elif way == "gate":
        name = next(name for name, _ in attachments(network))
        parent, _, child = name.rpartition(".")
        network.get_submodule(parent)._modules[child] = other.get_submodule(name)
    else:
        network.blocks.forward = lambda x: x
    with pytest.raises(GateLostError):
        compiled(images())


@pytest.mark.parametrize("way", WAYS)
def test_what_is_exchanged_after_the_first_compiled_run_is_refused(way):
    torch._dynamo.reset()  # below torch's limit of graphs for one forward
    refused_after_its_first_compiled_run(way)


def test_what_is_exchanged_past_the_limit_of_graphs_is_refused():
    # Torch then runs the network as it is, and compiles functions that it calls one by one.
    torch._dynamo.reset()
    for way in [*WAYS, *WAYS]:
        refused_after_its_first_compiled_run(way)


def exchange(network, other, plain, way):
    first = network.blocks[0]
    if way == "plain container":
        network.blocks = plain.blocks
    elif way == "copied container":
        network.blocks = copy.deepcopy(network.blocks)
    elif way == "forward of a block":
        first.forward = lambda x: x
    else:
        blocks = {
            "plain block": plain.blocks[0],
            "identity": nn.Identity(),
            "copied block": copy.deepcopy(first),
            "another's block": other.blocks[0],
            "the same block twice": network.blocks[1],
        }
        network.blocks._modules["0"] = blocks[way]


@pytest.mark.parametrize(
    "way",
    [
        *("plain container", "copied container", "plain block", "copied block", "identity"),
        *("another's block", "the same block twice", "forward of a block"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_network_that_has_run_refuses_what_loses_gates_compiled_or_not(way, compiled):
    torch._dynamo.reset()
    networks = gated(Plain(SlotBlock)), gated(Plain(SlotBlock)), Plain(SlotBlock).eval()
    for each in networks:
        each.blocks = nn.Sequential(*each.blocks)
    run = torch.compile(networks[0], backend="eager") if compiled else networks[0]
    for _ in range(2):  # the first proves that the gates act in these rows, and is not compiled
        run(images())
    exchange(*networks, way)
    with pytest.raises(GateLostError):
        run(images())


def test_blocks_that_are_compiled_one_by_one_in_one_network_after_another():
    torch._dynamo.reset()
    for _ in range(2):  # the second finds the graphs of the run that proved the first
        network = gated(Plain(SlotBlock))
        with torch.no_grad():
            expected = network(images())
            for number, block in enumerate(network.blocks):
                network.blocks[number] = torch.compile(block, backend="eager")
            for _ in range(2):
                torch.testing.assert_close(network(images()), expected)


def test_torch_compile_guards_no_list_of_ours():
    # Each of its entries was a guard of each call: as much as a gate takes.
    network = gated(Plain(SlotBlock))
    found = torch._dynamo.explain(network)(images())
    assert found.graph_count == 1
    names = [guard.name for guard in found.out_guards]
    assert any("attnlab" in name for name in names)
    lists = (".ways", ".ends", ".passed", ".carried", ".carriers", ".forwards")
    assert [name for name in names if any(f".guard{each}" in name for each in lists)] == []


def test_a_new_forward_on_the_way_that_leaves_the_gates_out_refuses():
    network = gated(Plain(SlotBlock))
    want = network(images())
    network.blocks.forward = _offloaded(network.blocks.forward)
    torch.testing.assert_close(network(images()), want)
    network.blocks.forward = lambda x: x
    for _ in range(2):
        with pytest.raises(GateLostError, match="and 2 more are lost as well"):
            network(images())


def test_a_lost_gate_is_seen_without_the_networks_forward():
    class Timmish(Plain):
        def forward_features(self, x):
            return self.blocks(self.stem(x))

        def forward(self, x):
            return self.head(self.forward_features(x).mean((2, 3)))

    network = gated(Timmish(SlotBlock))
    want = network.forward_features(images())
    network.blocks[0] = copy.deepcopy(network.blocks[0])  # with its own copy of the gate
    with pytest.raises(GateLostError):
        network.forward_features(images())
    assert want.shape == (2, 8, 8, 8)


def test_a_norm_with_a_gate_inside_is_not_exchanged_silently():
    network = nn.SyncBatchNorm.convert_sync_batchnorm(gated(Plain(SlotBlock), "iebn"))
    with pytest.raises(GateLostError) as error:
        network(images())
    assert str(error.value) == (
        "The norm 'blocks.0.branch.1' had a gate inside (iebn), but it was exchanged for a "
        "SyncBatchNorm after insertion, and Plain would answer without the gate." + WHAT_TO_DO
    )
    attnlab.remove(network, only_lost=True)
    assert network(images()).shape == (2, 5)


def test_a_second_insertion_keeps_the_gate_behind_an_exchanged_norm():
    first = gated(Plain(SlotBlock), "asr:se", where=["blocks.0.branch.1"])
    second = gated(first, "iebn", start="identity")
    torch.testing.assert_close(second(images()), first(images()))


# Forwards that tools replace.


@pytest.mark.parametrize("block", [SlotBlock, FunctionalBlock])
def test_a_forward_that_calls_the_one_before_acts_once(block):
    network = gated(Plain(block))
    want = network(images())
    for module in network.blocks:
        module.forward = _offloaded(module.forward)
    torch.testing.assert_close(network(images()), want)
    torch.testing.assert_close(pickle.loads(pickle.dumps(copy.deepcopy(network)))(images()), want)


@pytest.mark.parametrize("block", [SlotBlock, FunctionalBlock])
def test_a_forward_that_was_replaced_before_insertion(block):
    network = Plain(block).eval()
    want = gated(network)(images())
    for module in network.blocks:
        module.forward = _offloaded(module.forward)
    torch.manual_seed(0)
    made, reference = gated(network), gated(Plain(block))
    reference.load_state_dict(made.state_dict())
    torch.testing.assert_close(made(images()), reference(images()))
    assert want.shape == (2, 5)


class _offloaded:  # noqa: N801 (stands for a function, but can be pickled)
    def __init__(self, forward):
        self.forward = forward

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


def test_a_new_forward_that_leaves_the_host_out_refuses():
    network = gated(Plain(SlotBlock))
    network.blocks[0].forward = lambda x: x
    with pytest.raises(GateLostError) as error:
        network(images())
    assert str(error.value) == (
        "The gate 'blocks.0.attnlab' acts after 'blocks.0.branch', but SlotBlock ran its 'branch' "
        "0 times instead of once: its forward or its modules were changed after insertion."
        + WHAT_TO_DO
    )


# Containers.


def test_a_root_sequential_has_the_children_that_it_had():
    plain = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU()).eval()
    network = gated(plain, "asr:se", where=["1"], example=images())
    ((_, attachment),) = attachments(network)
    vector = attachment.constant().float()[None, :, None, None]
    want = torch.relu(plain[1](plain[0](images())) * vector)
    torch.testing.assert_close(network(images()), want)
    assert len(network) == 3
    assert [type(child) for child in network] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert network[-1] is network._modules["2"]
    torch.testing.assert_close(network[2:](network[:2](images())), want)
    network.insert(0, nn.Identity())
    network.append(nn.Identity())
    torch.testing.assert_close(network(images()), want)
    del network[0]
    torch.testing.assert_close(network(images()), want)
    with pytest.raises(SiteError) as error:
        del network[1]
    assert str(error.value) == (
        "'1' of Sequential cannot be taken out: the gate 'attnlab_1' acts after it. Take that off "
        "first: attnlab.remove(network)."
    )


def test_a_container_that_runs_all_children_is_gated_once():
    class Row(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x):
            for child in self.children():
                x = child(x)
            return x

    plain, x = Row().eval(), images()
    gated, _ = attnlab.insert(plain, "se", where=["b"], example=x)
    (gate,) = (m for m in gated.modules() if isinstance(m, SqueezeExcitation))
    branch = plain(x)
    assert torch.equal(gated(x), branch * gate(branch))


@pytest.mark.parametrize("container", [nn.ModuleList, nn.ModuleDict])
def test_a_root_that_is_a_list_or_a_dict(container):
    class Root(container):
        def forward(self, x):
            for child in self.values() if isinstance(self, nn.ModuleDict) else self:
                x = x + child(x)
            return x, len(self)

    children = [nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)]
    plain = Root(children if container is nn.ModuleList else dict(zip("ab", children, strict=True)))
    network = gated(plain, "asr:se", example=images())
    assert len(list(attachments(network))) == 2
    want = images()
    for child, (_, attachment) in zip(children, attachments(network), strict=True):
        want = want + child(want) * attachment.constant().float()[None, :, None, None]
    output, length = network(images())
    torch.testing.assert_close(output, want)
    assert length == 2


# Graphs.


def test_an_addition_of_the_traced_module_itself():
    network = gated(FunctionalBlock(3), "se", example=images())
    with pytest.raises(SiteError) as error:
        torch.fx.symbolic_trace(network)
    assert str(error.value) == (
        "FunctionalBlock has a gate at an addition of its own forward, which torch.fx cannot show: "
        "a symbolic trace knows no shapes. torch.export.export(network, (images,)).module() is a "
        "graph with the gate in it. Where the gated addition is made by a module inside the "
        "network, torch.fx records that module whole."
    )


def test_a_traced_graph_has_the_gates_and_their_parameters():
    network = gated(Plain(SlotBlock))
    graph = torch.fx.symbolic_trace(network)
    assert dict(graph.named_parameters()).keys() == dict(network.named_parameters()).keys()
    torch.testing.assert_close(graph(images()), network(images()))
    graph(images()).sum().backward()
    assert all(p.grad is not None for p in graph.parameters())


def test_a_traced_part_keeps_its_gates_when_fused():
    network = gated(Plain(SlotBlock), "se", where=["blocks.0.branch.1"])
    part = network.blocks
    from torch.fx.experimental.optimization import fuse

    state = network.stem(images())
    torch.testing.assert_close(fuse(part)(state), part(state), atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_scripting_says_what_cannot_be_scripted():
    instead = (
        " torch.export.export(network, (images,)) and torch.jit.trace(network, images) take every "
        "gate; constant gates can be folded first: attnlab.fold(network)."
    )
    with pytest.raises(SiteError) as error:
        torch.jit.script(gated(Plain(FunctionalBlock), "step"))
    assert str(error.value) == (
        "torch.jit.script cannot compile the gate 'blocks.0.attnlab', which acts at an addition "
        "inside the forward of FunctionalBlock." + instead
    )
    with pytest.raises(SiteError) as error:
        torch.jit.script(nn.Sequential(gated(Plain(SlotBlock), "asr:se")))
    assert str(error.value) == (
        "torch.jit.script reached Plain, which carries gates, as a part of another network. Script "
        "the network that gates were inserted into." + instead
    )
    with pytest.raises(SiteError) as error:
        torch.jit.script(gated(Plain(SlotBlock), "iebn"))
    assert str(error.value) == (
        "torch.jit.script cannot compile the norm 'blocks.0.branch.1', which has a gate inside "
        "(iebn)." + instead
    )


def test_onnx(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network = nn.SyncBatchNorm.convert_sync_batchnorm(gated(Plain(SlotBlock)))
    file = tmp_path / "network.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(network, (images(),), str(file), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: images().numpy()})
    torch.testing.assert_close(torch.from_numpy(output), network(images()), atol=1e-5, rtol=1e-4)


# Threads, processes, checkpointing.


def test_dia_in_four_threads():
    network = gated(attnlab.create("resnet20"), "dia")
    given = [torch.randn(2, 3, 32, 32) for _ in range(4)]
    got: dict[int, torch.Tensor] = {}
    with torch.no_grad():
        want = [network(each) for each in given]

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(10):
                got[number] = network(given[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        torch.testing.assert_close(got[number], want[number], atol=1e-6, rtol=0)


class Checkpointed(Plain):
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x.mean((2, 3)))


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("reentrant", [True, False])
def test_dia_refuses_checkpointed_blocks_by_name(reentrant):
    Checkpointed.reentrant = reentrant
    network = gated(Checkpointed(SlotBlock), "dia")
    with pytest.raises(SiteError) as error:
        network(images().requires_grad_()).sum().backward()
    assert str(error.value) == (
        "The gate 'blocks.2.attnlab' (DenseImplicitAttention) goes on with what the block before "
        "it in the stage left, but that block did not run. Activation checkpointing does so when "
        "it computes a block once more: checkpoint whole stages, or none (for timm, "
        "model.set_grad_checkpointing(False)), or choose another gate. A block on its own can only "
        "be the first of its stage."
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_dia_in_a_checkpointed_stage(reentrant):
    network = gated(Plain(SlotBlock), "dia")
    state = network.stem(images()).detach().requires_grad_()
    network.blocks(state).sum().backward()
    want, state.grad = state.grad, None
    checkpoint(network.blocks, state, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close(state.grad, want)


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("gate", ["se", "step"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks(gate, reentrant):
    Checkpointed.reentrant = reentrant
    network = gated(Checkpointed(FunctionalBlock), gate)
    gradients = []
    for forward in (Plain.forward, Checkpointed.forward):
        network.zero_grad()
        given = images().requires_grad_()
        forward(network, given).sum().backward()
        gradients.append([p.grad for p in network.parameters()])
    torch.testing.assert_close(*gradients)


class PartCheckpointed(nn.Module):
    """A block that checkpoints its own inside, the addition too, as those of mmcv do."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.5))
        self.reentrant = None

    def forward(self, x):
        def inner(x):
            return x + self.scale * self.conv(x)

        if self.reentrant is None:
            return inner(x)
        return checkpoint(inner, x, use_reentrant=self.reentrant)


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("gate", ["se", "asr:se", "step"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_an_addition_in_a_checkpointed_part_of_a_forward(gate, reentrant):
    network = gated(Plain(PartCheckpointed), gate).train()
    want = network(images())
    for block in network.blocks:
        block.reentrant = reentrant
    with torch.no_grad():  # nothing is run again
        torch.testing.assert_close(network(images()), want)
    with pytest.raises(SiteError) as error:
        network(images())
    assert str(error.value) == (
        "The gate 'blocks.0.attnlab' acts at an addition of 'blocks.0', which is made in a part of "
        "that module's forward whose activations are checkpointed: the backward pass runs that "
        "part alone once more, without the gate. Switch checkpointing off inside of the module, "
        "and checkpoint it as a whole."
    )


class ShortCheckpointed(PartCheckpointed):
    """The same with a branch that a layer returns, so that in eval mode it comes marked."""

    def __init__(self, channels):
        super().__init__(channels)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        def inner(x):
            return x + self.norm(self.conv(x))

        if self.reentrant is None:
            return inner(x)
        return checkpoint(inner, x, use_reentrant=self.reentrant)


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("gates", [["step"], ["step", "step"]])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_marked_addition_in_a_checkpointed_part_of_a_forward(gates, reentrant):
    network = Plain(ShortCheckpointed)
    for gate in gates:
        network = gated(network, gate).eval()
    marks = [m for m in network.modules() for h in m._forward_hooks.values() if type(h) is MarkHook]
    assert len(marks) == len(network.blocks)
    want = network(images())
    given = images().requires_grad_()
    checkpoint(network.blocks[0], network.stem(given), use_reentrant=reentrant)  # all of a block
    for block in network.blocks:
        block.reentrant = reentrant
    with torch.no_grad():
        torch.testing.assert_close(network(images()), want)
    with pytest.raises(SiteError, match="in a part of that module's forward whose activations are"):
        network(images())


def test_a_checkpointed_block_that_checkpoints_nothing_inside():
    network = gated(Plain(PartCheckpointed), "step").train()
    given = [images().requires_grad_() for _ in range(2)]
    network.blocks[0](network.stem(given[0])).sum().backward()
    checkpoint(network.blocks[0], network.stem(given[1]), use_reentrant=True).sum().backward()
    torch.testing.assert_close(given[1].grad, given[0].grad)


def test_one_process_of_ddp(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        ddp = Tool("DDP", lambda network, _: nn.parallel.DistributedDataParallel(network))
        assert check_tool(ddp, "se") == "equal"
        assert check_tool(ddp, "step") == "equal"
    finally:
        torch.distributed.destroy_process_group()


def test_data_parallel_copies_are_refused():
    network = gated(Plain(SlotBlock))
    replica = network._replicate_for_data_parallel()  # as nn.DataParallel makes them
    with pytest.raises(SiteError) as error:
        replica(images())
    assert str(error.value) == (
        "nn.DataParallel runs copies of a network's modules without their gates. Use "
        "nn.parallel.DistributedDataParallel."
    )


# Taking gates off.


@pytest.mark.parametrize(
    ("gate", "block", "options"),
    [
        *(
            (gate, block, {})
            for gate in ("se", "step", "dia", "asr:se+se")
            for block in (SlotBlock, FunctionalBlock)
        ),
        ("iebn", SlotBlock, {}),
        ("step", SlotBlock, {"structure": "conv-iebn"}),
    ],
)
def test_remove(gate, block, options):
    plain = Plain(block).eval()
    network = gated(plain, gate, **options)
    attnlab.remove(network)
    assert torch.equal(network(images()), plain(images()))
    assert list(network.state_dict()) == list(plain.state_dict())
    for mine, own in zip(network.modules(), plain.modules(), strict=True):
        assert type(mine) is type(own)
        assert mine.__dict__.keys() == own.__dict__.keys()
        assert not mine._forward_hooks
    assert attnlab.remove(network) is None  # nothing to do


def test_the_page_shows_this_table():
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "tools.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    (head,) = (row for row in rows if row[0] == "tool")
    assert head[1:] == [f"`{gate}`" for gate in GATES]
    shown = {row[0]: row[1:] for row in rows if row[0] in TOOLS}
    assert shown == {
        tool: ["refused" if (tool, gate) in REFUSED else "equal" for gate in GATES]
        for tool in TOOLS
    }
