"""The input that is made up for a network that says of itself which it takes."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import attnlab
from attnlab._errors import InputError
from attnlab.residuals.example import (
    as_call,
    check_finite_weights,
    evaluating,
    example_input,
    input_shape,
    measure,
    run_once,
    token_input,
)


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("visformer_tiny", {}, (3, 224, 224)),  # its patch embeddings begin at 112 px
        ("visformer_tiny", {"img_size": 96}, (3, 96, 96)),
        ("vit_tiny_patch16_224", {"img_size": 64}, (3, 64, 64)),
        ("test_resnet", {}, (3, 160, 160)),
    ],
)
def test_timm(name, options, size):
    with torch.device("meta"):
        model = attnlab.create(f"timm:{name}", **options)
    assert example_input(model).shape == (1, *size)


def test_a_size_that_was_set_later_counts():
    model = attnlab.create("timm:vit_tiny_patch16_224", img_size=64)
    model.set_input_size(img_size=96)
    assert example_input(model).shape == (1, 3, 96, 96)


def test_a_declared_size_and_none():
    model = nn.Conv2d(4, 8, 1).double()
    assert example_input(model, 2).shape == (2, 3, 224, 224)
    model.input_size = (4, 8, 8)
    assert example_input(model, 2).shape == (2, 4, 8, 8)
    assert example_input(model).dtype == torch.float64


class Multiplies(nn.Module):
    """Layers with one formula each for what they multiply."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.linear = nn.Linear(4, 6)

    def forward(self, images):
        tokens = self.linear(self.up(self.wide(images)).flatten(2).transpose(1, 2))
        attended = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        return torch.bmm(attended, attended.transpose(1, 2))


def test_multiply_accumulates_are_half_of_torchs_operations():
    model = Multiplies().eval()
    for size in (4, 8, 4):  # what a formula says of the same shapes is kept
        images = torch.randn(2, 4, size, size)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(images)
        assert measure(model, images)[1] == counter.get_total_flops() // 2


class Told(nn.Module):
    """Notes which modes it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.modes = []

    def train(self, mode=True):
        self.modes.append(mode)
        return super().train(mode)


def test_a_network_in_eval_mode_is_not_told_again():
    model = nn.Sequential(Told(), nn.Dropout()).eval()
    model[0].modes.clear()
    with evaluating(model):
        assert not model[1].training
    assert model[0].modes == []
    model[1].train()
    with evaluating(model):
        assert model[0].modes == [False]
        assert not model[1].training
    assert model[1].training
    assert not model[0].training


def test_modes_gradients_and_random_numbers_are_as_before():
    model = nn.Sequential(nn.Dropout(), nn.Linear(2, 2)).train()
    model[1].eval()
    state = torch.get_rng_state()
    seen = []

    def fails():
        with evaluating(model):
            seen.append((torch.is_grad_enabled(), model.training, torch.rand(3)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert seen[0][:2] == (False, False)
    assert torch.is_grad_enabled()
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in model.modules()] == [True, True, False]


class Says(nn.Module):
    """Says of itself what it takes."""

    def __init__(self, **says):
        super().__init__()
        self.layer = nn.Conv2d(says.pop("channels", 3), 2, 1)
        for name, value in says.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("says", "size"),
    [
        ({}, (3, 224, 224)),
        ({"input_size": (4, 8, 6)}, (4, 8, 6)),
        ({"pretrained_cfg": {"input_size": (1, 9, 7)}}, (1, 9, 7)),
        ({"pretrained_cfg": {"input_size": None}}, (3, 224, 224)),
        ({"pretrained_cfg": {"input_size": (3, 9, 7)}, "img_size": (5, 4)}, (3, 5, 4)),
        ({"img_size": (5, 4), "channels": 7}, (3, 224, 224)),  # of what its stem made
        ({"img_size": 5}, (3, 224, 224)),
        ({"config": SimpleNamespace(image_size=6)}, (3, 6, 6)),
        ({"config": SimpleNamespace(image_size=[6, 5], num_channels=1)}, (1, 6, 5)),
        ({"config": SimpleNamespace(image_size=None)}, (3, 224, 224)),
    ],
)
def test_sizes_that_networks_say(says, size):
    assert example_input(Says(**says)).shape == (1, *size)
    assert example_input(Says(**says), 3).shape == (3, *size)


def test_the_made_up_input_is_the_same_each_time():
    model = Says(input_size=(2, 3, 4))
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn((2, 2, 3, 4), generator=generator)
    assert torch.equal(example_input(model, 2), expected)
    assert torch.equal(example_input(model.double(), 2), expected.double())
    whole = nn.Module()  # without numbers of its own
    whole.input_size = (2, 3, 4)
    assert torch.equal(example_input(whole, 2), expected)


@pytest.mark.parametrize(
    ("says", "tokens"),
    [
        ({"vocabulary": 7, "context": 5}, (7, 5)),
        ({"vocabulary": 7}, None),
        ({"main_input_name": "input_ids", "config": SimpleNamespace(vocab_size=9)}, (9, 16)),
        ({"main_input_name": "pixels", "config": SimpleNamespace(vocab_size=9)}, None),
        ({"main_input_name": "input_ids", "config": SimpleNamespace()}, None),
        ({"main_input_name": "input_ids"}, None),
    ],
)
def test_networks_that_take_tokens(says, tokens):
    model = Says(**says)
    assert token_input(model) == tokens
    if tokens is not None:
        made = example_input(model, 2)
        assert made.shape == (2, tokens[1])
        assert 0 <= int(made.min()) <= int(made.max()) < tokens[0]


def test_calls_by_place_and_by_name():
    x, model = torch.ones(2), nn.Identity()
    assert as_call(model, x) == ((x,), {})
    assert as_call(model, (x, 3)) == as_call(model, [x, 3]) == ((x, 3), {})
    given = {"x": x}
    arguments, keywords = as_call(model, given)
    assert (arguments, keywords) == ((), given)
    assert keywords is not given
    with pytest.raises(InputError) as raised:
        as_call(model, "photo.png")
    assert str(raised.value) == (
        "Expected the example to be a tensor, a tuple of inputs or a dictionary of them but got "
        "str."
    )
    assert input_shape((None, torch.ones(2, 3)), {"x": x}) == (2, 3)
    assert input_shape((None,), {"flag": True, "x": x}) == (2,)
    assert input_shape((), {}) == ()


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (
            torch.ones(0, 3),
            "Expected an example with at least one value but got one of shape (0, 3).",
        ),
        (
            {"x": [torch.tensor([[1.0, float("nan"), float("inf")]])]},
            "Expected an example of finite values but 2 of its 3 are NaN or infinite.",
        ),
    ],
)
def test_examples_on_which_nothing_can_be_seen(example, message):
    with pytest.raises(InputError) as raised:
        run_once(nn.Identity(), example)
    assert str(raised.value) == message


class Breaks(nn.Module):
    def __init__(self, error, dtype=torch.float32):
        super().__init__()
        self.weight, self.error = nn.Parameter(torch.ones(1, dtype=dtype)), error

    def forward(self, _):
        raise self.error


MADE_UP = "The example was made up. Pass one that fits: example=torch.randn(1, ...)."
HALF = (
    "Many CPU operations do not take float16. Insert into model.float() (or model.bfloat16()) and "
    "call .half() on the result, or move the model to a GPU first."
)


@pytest.mark.parametrize(
    ("error", "dtype", "example", "said"),
    [
        (ValueError("one\ntwo"), torch.float32, torch.ones(2), ["one"]),
        (TypeError(), torch.float32, None, ["TypeError", MADE_UP]),
        (RuntimeError("no"), torch.float16, None, ["no", HALF]),
        (RuntimeError("no"), torch.bfloat16, torch.ones(2), ["no"]),
    ],
)
def test_a_network_that_does_not_run(error, dtype, example, said):
    with pytest.raises(InputError) as raised:
        run_once(Breaks(error, dtype), example)
    shape = (1, 3, 224, 224) if example is None else (2,)
    first = f"Breaks ({dtype} on cpu) does not run on an example of shape {shape}: {said[0]}"
    assert str(raised.value) == "\n".join([first, *said[1:]])


def test_weights_that_are_not_finite():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    check_finite_weights(model, None)
    check_finite_weights(model, float("inf"))
    with torch.no_grad():
        model[1].bias[1] = float("inf")
    check_finite_weights(model, 0.5)  # the outputs could be compared
    for change in (None, float("nan"), float("inf")):
        with pytest.raises(InputError) as raised:
            check_finite_weights(model, change)
        assert str(raised.value) == (
            "The weights '1.bias' of Sequential have values that are not finite, so nothing can be "
            "said about its outputs. Did its training diverge?"
        )


@pytest.mark.parametrize("fused", [True, False])
def test_fused_layers_are_off_while_work_is_counted(fused):
    seen = []

    class Looks(nn.Module):
        def forward(self, x):
            seen.append(torch.backends.mha.get_fastpath_enabled())
            return x @ x

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fused)
    try:
        assert measure(Looks(), torch.ones(3, 3))[1] == 27
        assert torch.backends.mha.get_fastpath_enabled() is fused
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert seen == [False]


def test_work_of_products_of_lists():
    """Operations that take several tensors at once, and one that is called by names."""

    class Products(nn.Module):
        def forward(self, x):
            made = torch.linalg.multi_dot([x, x, x])
            return torch.baddbmm(input=made[None], batch1=made[None], batch2=x[None], beta=2)

    model, x = Products(), torch.randn(5, 5)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert measure(model, x)[1] == counter.get_total_flops() // 2 == 3 * 125


def test_work_by_a_formula_that_is_given_tensors(monkeypatch):
    """As other libraries may register it."""

    def formula(x, *, out_val):
        assert isinstance(x, torch.Tensor)
        return 6 * out_val.numel()

    class Sine(nn.Module):
        def forward(self, x):
            return x.sin()

    monkeypatch.setitem(flop_registry, torch.ops.aten.sin, formula)
    assert measure(Sine(), torch.ones(2, 5))[1] == 3 * 10
