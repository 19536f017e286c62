"""The operators as torch sees them: shapes, derivatives, compile, export, vmap, counters."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attnlab._errors import InputError
from attnlab.evolution import (
    Involution2d,
    KernelChoice,
    LocalAttention2d,
    Window,
    av,
    kernel_choices,
    local_attention,
    native_status,
    qk,
    sc,
    spanned_av,
    use_native,
)
from attnlab.evolution._kernels import kernel_for

LAYERS = {
    "involution": lambda: nn.Sequential(
        Involution2d(8, 3, 2, 2), Involution2d(8, 3, 2, 2, stride=2, dilation=2)
    ),
    "attention": lambda: LocalAttention2d(8, 8, 3, 2),
}


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture
def fresh_compiler():
    """Nothing of an earlier test or run: what was compiled for one path may serve another."""
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("backend")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_pass_torch_library_checks():
    torch.manual_seed(0)
    window = Window.centred(3).flat()
    x, maps, row, bias = leaf(2, 4, 5, 6), leaf(2, 2, 9, 5, 6), leaf(2, 1, 3), leaf(2, 9)
    span = (leaf(18, 4), leaf(18), 2, window)
    settings = (2, 0.5, True, window)
    ops = torch.ops.attnlab
    stats = ops.attention([x, x, x], None, [], *settings)[1].detach()
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    for operator, inputs in (
        (ops.av.default, (maps, x, window)),
        (ops.qk.default, (x, x, 2, window)),
        (ops.sc.default, (maps, x, [5, 6], window)),
        (ops.spanned_av.default, (x, x, *span)),
        (ops.attention.default, ([x, x, x], bias, [row, row], *settings)),
        (ops.attention.default, ([leaf(2, 12, 5, 6)], None, [], *settings)),
    ):
        torch.library.opcheck(operator, inputs, test_utils=checks)
    with torch.no_grad():
        inputs = (x, stats, [x, x, x], bias, [row, row], *settings)
        torch.library.opcheck(ops.attention_backward.default, inputs, test_utils=checks[:2])
        inputs = (x, x, x, *span)
        torch.library.opcheck(ops.spanned_av_backward.default, inputs, test_utils=checks[:2])


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("native", "name"), [(True, "attention"), (False, "attention"), (False, "involution")]
)
def test_compiled_layers_have_the_gradients_of_eager_ones(native, name):
    """Whole layers: their convolutions make the compiler choose a layout of its own."""
    torch.manual_seed(0)
    layer = LAYERS[name]().eval()
    x = leaf(2, 8, 7, 6)
    inputs = [x, *layer.parameters()]

    def gradients(function):
        return torch.autograd.grad(function(x).square().sum(), inputs)

    with use_native(native):
        expected = gradients(layer)
        got = gradients(torch.compile(layer, fullgraph=True))
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("backend")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_export_keeps_the_operators_until_they_are_decomposed():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 7, 6)
    layer = nn.Sequential(Involution2d(8, 3), LocalAttention2d(8, 8, 3, 2, stride=2)).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: batch},))

    def operators(program):
        targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        return {target for target in targets if target.startswith("attnlab.")}

    assert operators(program) == {"attnlab.spanned_av.default", "attnlab.attention.default"}
    plain = program.run_decompositions()
    assert operators(plain) == set()
    more = torch.cat((x, x.flip(0), x))
    for exported in (program, plain):
        torch.testing.assert_close(exported.module()(more), layer(more), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_onnx():
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    x = torch.randn(2, 8, 7, 6)
    layer = nn.Sequential(
        Involution2d(8, 3, dilation=2), LocalAttention2d(8, 8, 3, 2, "relative", stride=2)
    ).eval()
    file = io.BytesIO()
    torch.onnx.export(layer, (x,), file, dynamo=True, verbose=False)
    session = runtime.InferenceSession(file.getvalue())
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), layer(x), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("backend")
def test_vmap_is_a_loop():
    torch.manual_seed(0)
    window = Window.centred(3)
    x, y = torch.randn(2, 3, 2, 4, 5, 6)
    maps = torch.randn(2, 3, 2, 9, 5, 6)
    bias, row, weight = torch.randn(3, 2, 9), torch.randn(2, 1, 3), torch.randn(3, 18, 4)

    def spanned(features, x, weight, bias):
        return spanned_av(features, x, weight, bias, 2, window)

    def attend(q, k, bias):
        return local_attention(q, k, k, 2, window, bias=bias, relative=(row, row))

    for function, axes, inputs in (
        (lambda m, x: av(m, x, window), (1, 0), (maps, x)),
        (lambda m, x: av(m, x, window), (None, 0), (maps[:, 0], x)),
        (lambda q, x: qk(q, x, 2, window), (0, 0), (y, x)),
        (lambda m, y: sc(m, y, (5, 6), window), (1, 0), (maps, y)),
        (spanned, (0, None, None, None), (x, y[0], weight[0], weight[0, :, 0])),
        (spanned, (0, 0, 2, None), (x, y, weight.movedim(0, 2), weight[0, :, 0])),
        (attend, (0, None, None), (x, y[0], bias[0])),
        (attend, (0, 0, 0), (x, y, bias)),
    ):
        got = torch.func.vmap(function, axes)(*inputs)
        for i in range(3):
            pairs = zip(inputs, axes, strict=True)
            one = function(*(t if axis is None else t.select(axis, i) for t, axis in pairs))
            torch.testing.assert_close(got[i], one)


@pytest.mark.usefixtures("backend")
def test_counted_operations():
    """Two per multiply-add. Attention: q·k and S·v; backward the scores again and four more."""
    window, pixels, taps = Window.centred(3), 2 * 5 * 6, 9
    x, maps, value = leaf(2, 4, 5, 6), leaf(2, 2, 9, 5, 6), leaf(2, 6, 5, 6)

    def counted(run):
        with FlopCounterMode(display=False) as counter:
            run()
        return counter.get_total_flops()

    one = 2 * taps * pixels * 4
    assert counted(lambda: av(maps, x, window)) == one
    assert counted(lambda: av(maps, x, window).sum().backward()) == 3 * one
    assert counted(lambda: qk(x, x, 2, window)) == one
    assert counted(lambda: sc(maps, x, (5, 6), window)) == one
    weight = leaf(18, 3)
    spanned = lambda: spanned_av(x[:, :3], x, weight, None, 2, window)  # noqa: E731
    span = 2 * pixels * 18 * 3
    assert counted(spanned) == span + one
    assert counted(lambda: spanned().sum().backward()) == 4 * span + 3 * one
    scores, values = 2 * taps * pixels * 4, 2 * taps * pixels * 6
    attend = lambda: local_attention(x, x, value, 2, window)  # noqa: E731
    assert counted(attend) == scores + values
    assert counted(lambda: attend().sum().backward()) == 4 * scores + 3 * values
    layer = LocalAttention2d(4, 4, 3, 2)
    projection = 2 * pixels * 4 * 12
    assert counted(lambda: layer(x.detach())) == projection + 2 * one


@pytest.mark.usefixtures("backend")
def test_autocast_computes_in_bfloat16():
    torch.manual_seed(0)
    x = torch.randn(2, 16, 9, 9)
    for layer in (Involution2d(16, 3), LocalAttention2d(16, 16, 3, 2, "relative")):
        expected = layer.eval()(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = layer(x)
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.float(), expected, rtol=0.1, atol=0.1)


def test_which_kernels_run():
    status = native_status()
    cpu = {choice.dtype: choice for choice in kernel_choices() if choice.device == "cpu"}
    assert list(cpu) == ["float32", "float64", "bfloat16", "float16"]
    if status.available:
        assert str(cpu["float32"]) == f"cpu float32: native ({status.variant}, {status.reason})"
        assert cpu["float16"] == KernelChoice(
            "cpu", "float16", "torch", "the native kernels take float32, float64, bfloat16"
        )
    with use_native(False):
        assert str(kernel_for("cpu", torch.float32)) == (
            "cpu float32: torch (switched off by use_native(False))"
        )
        assert native_status().reason == "switched off by use_native(False)"
    assert kernel_for("mps", torch.float32).reason == "there are no kernels for mps"


@pytest.mark.usefixtures("backend")
def test_the_maxima_and_sums_of_attention_have_no_derivative():
    """They are what the backward pass needs, and nothing of theirs is ever differentiated."""
    x = leaf(1, 4, 5, 6)
    window = Window.centred(3).flat()
    out, stats = torch.ops.attnlab.attention([x, x, x], None, [], 2, 0.5, True, window)
    assert out.requires_grad
    assert not stats.requires_grad


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_forward_mode_is_refused():
    window, x, maps = Window.centred(3), torch.randn(1, 2, 4, 4), torch.randn(1, 1, 9, 4, 4)
    for run, point in (
        (lambda x: av(maps, x, window), x),
        (lambda x: local_attention(x, x, x, 1, window), x),
        (lambda bias: local_attention(x, x, x, 1, window, bias=bias), torch.zeros(1, 9)),
    ):
        with pytest.raises(InputError) as caught:
            torch.func.jvp(run, (point,), (point,))
        assert str(caught.value) == (
            "The operators of attnlab.evolution have no forward-mode derivatives (torch.func.jvp, "
            "jacfwd). Use reverse mode: backward, torch.autograd.grad or torch.autograd.functional."
        )


def test_tensors_of_two_devices_are_refused():
    x, maps = torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 9, 4, 4, device="meta")
    with pytest.raises(InputError) as caught:
        av(maps, x, Window.centred(3))
    assert str(caught.value) == "Expected all tensors on one device but got cpu, meta."
    with pytest.raises(InputError) as caught:
        local_attention(x, x, x, 1, Window.centred(3), bias=torch.zeros(1, 9, device="meta"))
    assert str(caught.value) == "Expected all tensors on one device but got cpu, meta."
