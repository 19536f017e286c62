"""Every operator equals the written-out Evolution formula, and an independent implementation."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from attnlab._errors import InputError, OptionError, UnknownNameError
from attnlab.evolution import (
    OPERATORS,
    ChannelAttention2d,
    DenseKernel,
    DynamicConv2d,
    EvolutionConv2d,
    Involution2d,
    KernelFunction,
    LocalAttention2d,
    MapKernel,
    MixtureFunction,
    ODConvFunction,
    WeightNetFunction,
    Window,
    as_evolution,
    describe_operator,
    evolve,
)

CLOSE = {"rtol": 0, "atol": 1e-10}

LAYERS = {
    "involution": lambda: Involution2d(8, 3, 2, 2),
    "involution strided": lambda: Involution2d(8, 5, 8, 2, stride=2, dilation=2),
    "attention": lambda: LocalAttention2d(8, 12, 3, 3),
    "attention absolute": lambda: LocalAttention2d(8, 12, 3, 3, "absolute", projection=True),
    "attention relative": lambda: LocalAttention2d(
        8, 12, (3, 5), 3, "relative", stride=2, projection=True, bias=True
    ),
    "attention zero": lambda: LocalAttention2d(8, 4, 3, 2, "relative", boundary="zero"),
    "channel attention": lambda: ChannelAttention2d(8, 6, 3, bias=True),
    "channel attention out": lambda: ChannelAttention2d(8, 6, 3, per="output", stride=2),
    "condconv": lambda: DynamicConv2d(8, 6, 3, padding=1, groups=2, bias=True),
    "dyconv": lambda: DynamicConv2d(8, 6, 4, 2, routing="softmax", temperature=30.0),
    "weightnet": lambda: EvolutionConv2d(8, 6, 3, WeightNetFunction(8, 6, 3), padding=1),
    "odconv": lambda: EvolutionConv2d(8, 6, 3, ODConvFunction(8, 6, 3, groups=2), stride=2),
    "convolution": lambda: nn.Conv2d(8, 6, (3, 2), (1, 2), (1, 2), (2, 1), groups=2),
    "depthwise": lambda: nn.Conv2d(8, 8, 3, padding="same", groups=8),
    "convolution spread": lambda: nn.Conv2d(8, 6, (2, 3), dilation=(2, 3), padding="same"),
    "convolution inside": lambda: nn.Conv2d(8, 6, (2, 3), padding="valid"),
}


def randomised(layer):
    """In float64 and eval mode, with no parameter at a special value."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    for module in layer.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
    return layer.double().eval()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("size", [(7, 9), (8, 6)])
def test_is_an_evolution(name, size):
    torch.manual_seed(0)
    layer = randomised(LAYERS[name]())
    x = torch.randn(2, 8, *size, dtype=torch.float64)
    torch.testing.assert_close(layer(x), as_evolution(layer)(x), **CLOSE)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", [name for name in LAYERS if "conv" not in name])
def test_trains(name):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    layer(torch.randn(2, 8, 7, 9)).square().mean().backward()
    # Scores that differ by a constant give one softmax: a first gradient of zero is legitimate.
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(8, 8), (7, 9)])
def test_involution_by_unfold(stride, size):
    """The authors' layer, written with unfold; odd maps pool with rounding up."""
    torch.manual_seed(0)
    layer = randomised(Involution2d(12, 5, 3, 4, stride))
    x = torch.randn(2, 12, *size, dtype=torch.float64)
    pooled = F.avg_pool2d(x, stride, stride, ceil_mode=True)
    maps = layer.span(layer.reduce(pooled))
    rows, columns = maps.shape[2:]
    windows = F.unfold(x, 5, padding=2, stride=stride).view(2, 3, 4, 25, rows, columns)
    expected = (maps.view(2, 3, 1, 25, rows, columns) * windows).sum(3).view(2, 12, rows, columns)
    torch.testing.assert_close(layer(x), expected, **CLOSE)


@pytest.mark.usefixtures("backend")
def test_involution_keeps_no_maps():
    """49 numbers per group and pixel would be three times the input; nothing that large is kept."""
    layer, x = Involution2d(32, 7, 2), torch.randn(4, 32, 9, 9, requires_grad=True)
    kept = []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x)
    assert max(kept) == x.numel()
    assert sum(kept) < layer.kernel(x).maps.numel()


def test_a_changed_span_is_called():
    """A hook on it, or another layer in its place: then its weights do not say what it does."""
    torch.manual_seed(0)
    layer, x = Involution2d(8, 3, 2, 2).eval(), torch.randn(1, 8, 5, 5)
    expected = layer(x)
    calls = []
    handle = layer.span.register_forward_hook(lambda *_: calls.append("hook"))
    torch.testing.assert_close(layer(x), expected)
    assert calls == ["hook"]
    handle.remove()
    layer.span = nn.Sequential(layer.span, nn.Tanh())
    assert not torch.allclose(layer(x), expected)


def growth(layer):
    """The factor by which twice the input gives more output, in eval mode."""
    x = torch.randn(2, 16, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        return float(layer(2 * x).norm() / layer(x).norm())


def test_how_involution_grows_with_its_input():
    """With the square for the authors' layer; in proportion after a linear start, or if the norm
    inside takes the statistics of each image."""
    torch.manual_seed(0)
    layer = Involution2d(16, 3).double().eval()
    nn.init.zeros_(layer.span.bias)
    assert growth(layer) == pytest.approx(4)
    layer.reduce[1] = nn.GroupNorm(1, 4, eps=0).double()
    assert growth(layer) == pytest.approx(2)
    linear = Involution2d(16, 3, start="linear").double().eval()
    assert growth(linear) == pytest.approx(2)
    x = torch.randn(64, 16, 12, 12, dtype=torch.float64)
    with torch.no_grad():
        inner = linear(x)[..., 1:-1, 1:-1]
        taps = linear.span.bias.square().sum()
    assert float(inner.var()) == pytest.approx(float(taps), rel=0.05)


def test_a_linear_start_learns_its_maps():
    torch.manual_seed(0)
    layer = Involution2d(16, 3, start="linear")
    layer(torch.randn(2, 16, 6, 6)).square().sum().backward()
    assert layer.span.weight.grad.abs().max() > 0


def test_involution_parameters():
    layer = Involution2d(64, 7)
    assert layer.groups == 4
    # reduce 64·16, its norm 2·16, span 16·4·49 with bias.
    assert sum(p.numel() for p in layer.parameters()) == 1024 + 32 + 16 * 196 + 196


def test_channel_attention_has_one_map_per_channel():
    """S^c · W_V[m, c] (maps, then mixing) and S^m · W_V[m, c] (mixing, then maps), by loops."""
    torch.manual_seed(0)
    x = torch.randn(1, 3, 5, 5, dtype=torch.float64)
    for per in ("input", "output"):
        layer = randomised(ChannelAttention2d(3, 4, 3, per=per))
        query, key = layer.query(x)[0], layer.key(x)[0]
        weight = layer.value.weight[:, :, 0, 0]
        values = x[0] if per == "input" else layer.value(x)[0]
        mixed = torch.zeros_like(values)
        for c in range(values.shape[0]):
            for i in range(5):
                for j in range(5):
                    taps = [
                        (u, v)
                        for u in range(3)
                        for v in range(3)
                        if 0 <= i + u - 1 < 5 and 0 <= j + v - 1 < 5
                    ]
                    scores = torch.stack(
                        [
                            query[c, i, j] * key[c, i + u - 1, j + v - 1]
                            + layer.tap_scores[c, 3 * u + v]
                            for u, v in taps
                        ]
                    ).softmax(0)
                    mixed[c, i, j] = sum(
                        s * values[c, i + u - 1, j + v - 1]
                        for s, (u, v) in zip(scores, taps, strict=True)
                    )
        expected = torch.einsum("mc,cij->mij", weight, mixed) if per == "input" else mixed
        torch.testing.assert_close(layer(x)[0], expected, **CLOSE)


def test_mixture_is_a_convolution_per_image():
    torch.manual_seed(0)
    layer = randomised(DynamicConv2d(6, 4, 3, padding=1, experts=3))
    x = torch.randn(2, 6, 5, 5, dtype=torch.float64)
    route = layer.function.route[0]
    for image, out in zip(x, layer(x), strict=True):
        weights = torch.sigmoid(route.weight @ image.mean((1, 2)) + route.bias)
        kernel = sum(w * k for w, k in zip(weights, layer.function.bank, strict=True))
        torch.testing.assert_close(out, F.conv2d(image[None], kernel, padding=1)[0], **CLOSE)


@pytest.mark.parametrize("temperature", [1.0, 30.0])
def test_a_softmax_over_experts_has_a_temperature(temperature):
    torch.manual_seed(0)
    options = {"experts": 3, "routing": "softmax", "temperature": temperature}
    layer = randomised(DynamicConv2d(6, 4, 3, padding=1, **options))
    x = torch.randn(2, 6, 5, 5, dtype=torch.float64)
    seen = []
    layer.function.route[-1].register_forward_hook(lambda _, __, scores: seen.append(scores))
    found = layer(x)
    for image, out, scores in zip(x, found, seen[0], strict=True):
        weights = torch.exp(scores.flatten() / temperature)
        weights = weights / weights.sum()
        kernel = sum(w * k for w, k in zip(weights, layer.function.bank, strict=True))
        torch.testing.assert_close(out, F.conv2d(image[None], kernel, padding=1)[0], **CLOSE)


def written_out(function, x, size, groups):
    """ODConv one image, output channel and window at a time, with the attentions that it has."""
    pad = size // 2
    padded = F.pad(x, (pad,) * 4)
    outputs, per_group = function.bank.shape[1:3]
    each = outputs // groups
    out = torch.zeros(len(x), outputs, *x.shape[2:], dtype=x.dtype)
    for b in range(len(x)):
        hidden = function.squeeze(x[b : b + 1].mean((2, 3), keepdim=True)).flatten()

        def attention(layer, of=hidden):
            return 1 / (1 + torch.exp(-(layer.weight @ of + layer.bias)))

        channels = attention(function.channel)
        share = torch.ones(1, dtype=x.dtype)
        if function.expert is not None:
            powers = torch.exp(function.expert.weight @ hidden + function.expert.bias)
            share = powers / powers.sum()
        kernel = sum(s * k for s, k in zip(share, function.bank, strict=True))
        if function.space is not None:
            kernel = kernel * attention(function.space).view(size, size)
        for m in range(outputs):
            first = m // each * per_group
            mine = padded[b, first : first + per_group]
            mine = mine * channels[first : first + per_group, None, None]
            filters = 1.0 if function.filter is None else attention(function.filter)[m]
            for i in range(x.shape[2]):
                for j in range(x.shape[3]):
                    window = mine[:, i : i + size, j : j + size]
                    out[b, m, i, j] = filters * (window * kernel[m]).sum()
    return out


@pytest.mark.parametrize(
    ("channels", "size", "groups", "experts", "missing"),
    [
        ((4, 6), 3, 1, 3, set()),
        ((4, 6), 3, 2, 3, set()),
        ((4, 6), 1, 1, 3, {"space"}),
        ((4, 4), 3, 4, 3, {"filter"}),
        ((4, 8), 3, 4, 3, set()),
        ((4, 4), 1, 4, 3, {"filter", "space"}),
        ((4, 6), 3, 1, 1, {"expert"}),
        ((4, 6), 1, 1, 1, {"space", "expert"}),
    ],
)
def test_odconv_has_the_attentions_of_its_kernel(channels, size, groups, experts, missing):
    """No spatial attention of one pixel, no filter attention of depthwise kernels, none among
    experts of one; the authors' code is the same to rounding."""
    torch.manual_seed(0)
    function = randomised(ODConvFunction(*channels, size, experts, groups))
    layer = EvolutionConv2d(*channels, size, function, padding=size // 2).eval()
    assert {n for n in ("filter", "space", "expert") if getattr(function, n) is None} == missing
    x = torch.randn(2, channels[0], 4, 5, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), written_out(function, x, size, groups), **CLOSE)
    torch.testing.assert_close(layer(x), as_evolution(layer)(x), **CLOSE)


@pytest.mark.parametrize(("channels", "hidden"), [(4, 16), (256, 16), (512, 32)])
def test_the_hidden_width_is_at_least_sixteen(channels, hidden):
    assert WeightNetFunction(channels, 2, 1).squeeze.out_features == hidden
    assert ODConvFunction(channels, 2, 1).squeeze[0].out_channels == hidden


@pytest.mark.parametrize("parts", [1, 2])
def test_weightnet_weights_are_grouped(parts):
    """Each part of an output channel's kernel comes from 2 / parts activations alone."""
    torch.manual_seed(0)
    function = randomised(WeightNetFunction(4, 3, 3, parts=parts))
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    activation = function.activate(function.squeeze(x.mean((2, 3)))).sigmoid()
    written = function.write.weight[:, :, 0, 0].view(3 * parts, 36 // parts, 2 // parts)
    expected = torch.einsum("bki,kji->bkj", activation.view(2, 3 * parts, -1), written)
    kernel = function(x, EvolutionConv2d(4, 3, 3, function).window).weight
    torch.testing.assert_close(kernel.flatten(1), expected.flatten(1), **CLOSE)


def test_a_kernel_function_of_ones_own():
    """A designer's operator: maps that are the window's own values, a self-correlation."""

    class Correlation(KernelFunction):
        scope = "window"

        def forward(self, x, window):
            maps = F.unfold(x.mean(1, keepdim=True), window.kernel_size, padding=window.padding)
            maps = maps.unflatten(2, window.output_size(*x.shape[2:])).unsqueeze(1)
            return MapKernel(maps, window, x.shape[1])

    torch.manual_seed(0)
    layer = EvolutionConv2d(4, 4, 3, Correlation(), padding=1)
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(layer(x), as_evolution(layer)(x), **CLOSE)
    assert torch.autograd.gradcheck(layer, (x[:1, :, :3, :3].detach().requires_grad_(),))


def test_dense_kernel_is_the_formula():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    weight = torch.randn(2, 5, 5, 3, 3, 2, 6, dtype=torch.float64)

    class Anything(KernelFunction):
        scope = "none"

        def forward(self, _x, window):
            return DenseKernel(weight, window, groups=2)

    layer = EvolutionConv2d(4, 6, 3, Anything(), padding=1)
    torch.testing.assert_close(layer(x), evolve(x, weight, groups=2, padding=1))


@pytest.mark.parametrize("name", OPERATORS)
def test_describe(name):
    text = describe_operator(OPERATORS[name].build(16, 3))
    specific = {"involution", "local_attention", "channel_attention"}
    assert text.space == ("specific" if name in specific else "agnostic")
    assert text.generation == (
        "input-agnostic" if name in ("convolution", "depthwise") else "input-specific"
    )
    assert text.aggregation.startswith("3×3 pixels")
    assert str(text).startswith(text.operator)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: Involution2d(30, groups=4),
            InputError,
            "Expected groups to divide the 30 channels but got 4. The nearest that does is 3.",
        ),
        (
            lambda: Involution2d(16, start="linea"),
            UnknownNameError,
            "Unknown start 'linea'. Did you mean 'linear'? Expected one of: paper, linear.",
        ),
        (
            lambda: Involution2d(16, kernel_size=4),
            OptionError,
            "Expected an odd kernel_size but got 4: a centred window has a middle pixel. Use 5, or "
            "EvolutionConv2d with an explicit padding.",
        ),
        (
            lambda: LocalAttention2d(8, 10, 3, heads=4),
            OptionError,
            "Expected heads to divide the 10 output channels but got 4.",
        ),
        (
            lambda: LocalAttention2d(8, 6, 3, heads=2, positional="relative"),
            OptionError,
            "Expected an even number of channels per head for the relative encoding but got 3 "
            "(6 channels, 2 heads).",
        ),
        (
            lambda: LocalAttention2d(8, 8, positional="relativ"),
            UnknownNameError,
            "Unknown positional encoding 'relativ'. Did you mean 'relative'? Expected one of: "
            "absolute, relative, transformer-xl.",
        ),
        (
            lambda: Involution2d(16)(torch.zeros(2, 8, 5, 5)),
            InputError,
            "Involution2d expected x of shape (B, 16, H, W) but got (2, 8, 5, 5).",
        ),
        (
            lambda: MixtureFunction(8, 8, 3, routing="top1"),
            UnknownNameError,
            "Unknown routing 'top1'. Expected one of: sigmoid, softmax.",
        ),
        (
            lambda: WeightNetFunction(4, 3, 3, parts=0),
            OptionError,
            "Expected parts to divide multiplier=2 and the 36 weights of an output channel but got "
            "parts=0.",
        ),
        (
            lambda: WeightNetFunction(4, 3, 3, parts=4),  # divides 36, but not 2
            OptionError,
            "Expected parts to divide multiplier=2 and the 36 weights of an output channel but got "
            "parts=4.",
        ),
        (
            lambda: WeightNetFunction(4, 3, (3, 1), multiplier=5, parts=5),  # divides 5, but not 12
            OptionError,
            "Expected parts to divide multiplier=5 and the 12 weights of an output channel but got "
            "parts=5.",
        ),
        (
            lambda: as_evolution(nn.Linear(3, 3)),
            OptionError,
            "Expected an nn.Conv2d or an operator of attnlab.evolution but got Linear.",
        ),
        (
            lambda: as_evolution(nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")),
            OptionError,
            "An Evolution reads zeros outside the image, so padding_mode must be 'zeros' but is "
            "'reflect'. Pad the input yourself.",
        ),
        *(
            (
                lambda size=size, dilation=dilation: as_evolution(
                    nn.Conv2d(3, 3, size, dilation=dilation, padding="same")
                ),
                OptionError,
                "padding='same' is one-sided for this kernel; give it as numbers.",
            )
            for size, dilation in (((2, 3), 1), ((3, 2), 1), ((3, 4), (2, 3)))
        ),
    ],
)
def test_errors(build, error, message):
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == message


def test_there_are_four_experts_as_in_the_paper():
    """K = 4 in DyConv (Chen et al., CVPR 2020)."""
    layer = DynamicConv2d(8, 4, 3, routing="softmax")
    assert next(m.bank for m in layer.modules() if hasattr(m, "bank")).shape == (4, 4, 8, 3, 3)
    assert MixtureFunction(8, 4, 3, routing="softmax").bank.shape == (4, 4, 8, 3, 3)


def test_dynamic_convolution_is_the_mixture_that_the_paper_writes():
    """A bottleneck of a quarter with a ReLU between two layers, and a softmax over the experts."""
    layer = randomised(DynamicConv2d(8, 4, 3, padding=1, experts=3, routing="softmax")).double()
    x = torch.randn(2, 8, 5, 5).double()
    function = next(m for m in layer.modules() if hasattr(m, "bank"))
    first, second = (m for m in function.route if isinstance(m, torch.nn.Linear))
    pooled = x.flatten(2).mean(2)
    hidden = (pooled @ first.weight.T + first.bias).clamp_min(0)
    assert hidden.shape == (2, 2)
    scores = (hidden @ second.weight.T + second.bias) / function.temperature
    shares = scores.exp() / scores.exp().sum(1, keepdim=True)
    for image, share, found in zip(x, shares, layer(x), strict=True):
        kernel = (share[:, None, None, None, None] * function.bank).sum(0)
        expected = torch.nn.functional.conv2d(image[None], kernel, padding=1)[0]
        torch.testing.assert_close(found, expected)


class OfSecondOrder(KernelFunction):
    """Maps that are made by layers whose weights are made of the input too."""

    scope = "image"

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = DynamicConv2d(channels, 4, 1, experts=2)
        self.span = DynamicConv2d(4, 2 * 9, 1, experts=3)

    def forward(self, x: torch.Tensor, window: Window) -> MapKernel:
        maps = self.span(self.reduce(x).tanh()).unflatten(1, (2, 9))
        return MapKernel(maps, window, x.shape[1])


def test_a_kernel_of_second_order_is_an_evolution():
    """Equal to the formula, and by hand, image by image, to the layers that were generated."""
    torch.manual_seed(0)
    layer = EvolutionConv2d(6, 6, 3, OfSecondOrder(6), padding=1).double()
    x = torch.randn(2, 6, 5, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(as_evolution(layer)(x), layer(x), rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(layer, (x,))
    function = layer.function
    for one, image in enumerate(x.detach()):
        weights = []
        features = image
        for made in (function.reduce, function.span):
            pooled = features.mean((1, 2))
            mixed = made.function.route(pooled).sigmoid()
            weights.append(torch.einsum("e,eoihw->oihw", mixed, made.function.bank)[..., 0, 0])
            features = torch.einsum("oi,ihw->ohw", weights[-1], features)
            features = features.tanh() if made is function.reduce else features
        maps = features.view(2, 9, 5, 4).repeat_interleave(3, 0)
        taps = F.unfold(image[None], 3, padding=1).view(6, 9, 5, 4)
        torch.testing.assert_close(layer(x)[one], (maps * taps).sum(1), rtol=0, atol=1e-12)


def test_a_deformable_convolution_is_an_evolution_of_a_wide_window():
    torch.manual_seed(0)
    reach, taps = 2, 9
    x = torch.randn(2, 4, 6, 5, dtype=torch.float64)
    weight = torch.randn(3, 4, 3, 3, dtype=torch.float64)
    offset = reach * torch.rand(2, taps, 2, 6, 5, dtype=torch.float64).mul(2).sub(1)
    expected = torchvision.ops.deform_conv2d(x, offset.flatten(1, 2), weight, padding=1)
    wide = 3 + 2 * (reach + 1)  # bilinear reading touches one pixel more
    places = torch.arange(wide, dtype=torch.float64) - wide // 2
    kernel = torch.zeros(2, 6, 5, wide, wide, 4, 3, dtype=torch.float64)
    for tap in range(taps):
        row, column = divmod(tap, 3)
        down = offset[:, tap, 0] + row - 1
        right = offset[:, tap, 1] + column - 1
        rows, columns = (
            (1 - (places - moved[..., None]).abs()).clamp(min=0) for moved in (down, right)
        )
        kernel += torch.einsum("bhwu,bhwv,mc->bhwuvcm", rows, columns, weight[..., row, column])
    found = evolve(x, kernel, padding=wide // 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
