"""The messages for the mistakes that people make, word for word."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import (
    AttnlabError,
    InputError,
    OptionError,
    SelectionError,
    StepsNotFoundError,
    UnknownNameError,
)
from attnlab.gates import GATES

ON_VECTOR = ", ".join(name for name, info in GATES.items() if info.on_vector)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return attnlab.create("resnet20").eval()


def test_all_can_be_caught_by_their_public_base() -> None:
    with pytest.raises(attnlab.AttnlabError, match="Unknown network"):
        attnlab.create("resnet21")


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (
            "ECAA",
            "Unknown gate 'ECAA'. Did you mean 'eca' or 'fca' or 'ema'? Expected one of: "
            f"{', '.join(GATES)}.",
        ),
        (
            "transformer",
            f"Unknown gate 'transformer'. Expected one of: {', '.join(GATES)}.",
        ),
        (
            "asr",
            f"'asr' needs the attention module to learn, as in 'asr:se'. It takes: {ON_VECTOR}.",
        ),
        (
            "ars:se",
            "Unknown prefix 'ars' in the gate specification 'ars:se'. The only prefix is 'asr', as "
            "in 'asr:se'.",
        ),
    ],
)
def test_wrong_gate_name(net: nn.Module, gate: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as raised:
        attnlab.insert(net, gate)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("gate", "options", "message"),
    [
        (
            "se",
            {"reductoin": 8},
            "Gate 'se' has no option 'reductoin'. Did you mean 'reduction'? It takes: reduction, "
            "bias, nonlinearity, squash, trainable.",
        ),
        ("ie", {"reduction": 8}, "Gate 'ie' has no option 'reduction'. It takes: trainable."),
        (
            "asr:cbam",
            {},
            "'asr:cbam' does not exist: its gate differs from pixel to pixel, so it cannot be one "
            f"constant per channel. ASR takes: {ON_VECTOR}.",
        ),
        (
            "asr:se*0",
            {},
            "Expected a number from 1 to 64 after '*' but got '0' in 'asr:se*0'.",
        ),
    ],
)
def test_wrong_option(net: nn.Module, gate: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        attnlab.insert(net, gate, **options)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        (
            "stage:1",
            UnknownNameError,
            "Unknown selection where = 'stage:1'. Did you mean 'stages:1,2'? Expected one of: "
            "stages:1,2, blocks:0,3, blocks:1.0,2.3, every:2, code:1001, random:1@0, any:3@0, "
            "norms, in:module.",
        ),
        (
            "stages:4",
            SelectionError,
            "where='stages:4': 4 does not exist in this network. There are 9 sites in 9 blocks "
            "(numbers 0 to 8): stage 1: blocks 1.0 to 1.2; stage 2: blocks 2.0 to 2.2; stage 3: "
            "blocks 3.0 to 3.2.",
        ),
        (
            "blocks:0,1.0",
            SelectionError,
            "where='blocks:0,1.0' names one block in two ways.",
        ),
        (
            "blocks:x",
            SelectionError,
            "where='blocks:x': expected a number but got 'x'.",
        ),
        (
            ["layer1.0.bn3"],
            SelectionError,
            "The network has no module named 'layer1.0.bn3'. Did you mean 'layer1.0.bn2' or "
            "'layer1.0.bn1' or 'layer3.0.bn2'? Names are those of model.named_modules().",
        ),
    ],
)
def test_wrong_where(
    net: nn.Module, where: str | list[str], error: type[AttnlabError], message: str
) -> None:
    with pytest.raises(error) as raised:
        attnlab.insert(net, "se", where=where)
    assert str(raised.value) == message


def test_wrong_start(net: nn.Module) -> None:
    with pytest.raises(UnknownNameError) as raised:
        attnlab.insert(net, "se", start="identiti")  # type: ignore[arg-type]
    assert str(raised.value) == (
        "Unknown start 'identiti'. Did you mean 'identity'? Expected one of: paper, identity."
    )


def test_network_without_residual_steps() -> None:
    vgg = attnlab.create("torchvision:vgg11_bn").eval()
    with pytest.raises(StepsNotFoundError) as raised:
        attnlab.insert(vgg, "se", example=torch.zeros(1, 3, 32, 32))
    assert str(raised.value) == (
        "VGG has no residual step. Looked for additions of two feature maps of one shape where one "
        "was computed from the other, in one run on an input of shape (1, 3, 32, 32): 0 such "
        "additions, none of them a step.\n"
        "To put a gate after each of its 8 norms that feed an activation (the papers' placement "
        "for VGG): insert(model, gate, where='norms').\n"
        "To name sites by hand, pass the modules after whose output a gate is to act: "
        "insert(model, gate, where=['features.1', 'features.5'])."
    )


def test_the_ways_out_of_that_message_work() -> None:
    vgg = attnlab.create("torchvision:vgg11_bn").eval()
    small = torch.zeros(1, 3, 32, 32)
    _, norms = attnlab.insert(vgg, "se", where="norms", example=small)
    assert len(norms.sites) == 8
    _, named = attnlab.insert(vgg, "se", where=["features.1", "features.5"], example=small)
    assert named.sites == ("features.1", "features.5")


@pytest.mark.parametrize("gate", [*GATES, "asr:se"])
@pytest.mark.parametrize("start", ["paper", "identity"])
def test_half_precision_on_a_cpu_works(gate: str, start: Literal["paper", "identity"]) -> None:
    torch.manual_seed(0)
    half = attnlab.create("resnet20").half().eval()
    network, receipt = attnlab.insert(half, gate, start=start)
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float16}
    output = network(torch.randn(2, 3, 32, 32, dtype=torch.float16))
    assert output.dtype == torch.float16
    assert output.isfinite().all()
    if start == "identity":  # nine rounded products, each within half of float16's ε
        assert receipt.relative_change is not None
        assert receipt.relative_change < 16 * torch.finfo(torch.float16).eps


class Spectral(nn.Module):
    """A residual step in the frequency domain, which torch has no float16 transform for on CPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 1)

    def forward(self, images: Tensor) -> Tensor:
        frequencies = torch.fft.rfft2(self.convolution(images))
        return images + torch.fft.irfft2(frequencies, s=images.shape[-2:])


def test_half_precision_that_a_cpu_cannot_run() -> None:
    _, receipt = attnlab.insert(Spectral(), "ie", example=torch.ones(1, 3, 8, 8))
    assert len(receipt.sites) == 1
    with pytest.raises(InputError) as raised:
        attnlab.insert(Spectral().half(), "ie", example=torch.ones(1, 3, 8, 8).half())
    assert str(raised.value) == (
        "Spectral (torch.float16 on cpu) does not run on an example of shape (1, 3, 8, 8): "
        "Unsupported dtype Half\n"
        "Many CPU operations do not take float16. Insert into model.float() (or model.bfloat16()) "
        "and call .half() on the result, or move the model to a GPU first."
    )


def test_example_of_another_precision() -> None:
    """The network is float16 and the example is not: the message is the runtime's own."""
    half = attnlab.create("resnet20").half()
    with pytest.raises(InputError, match=r"^ResNet \(torch.float16 on cpu\) does not run on an ex"):
        attnlab.insert(half, "se", example=torch.ones(1, 3, 32, 32))
