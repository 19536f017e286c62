"""Names, options and what is said about wrong ones."""

from __future__ import annotations

import pytest
import torch

from attnlab._errors import AttnlabError, InputError
from attnlab.gates import GATES, REFERENCES, GateSpec, build_gate, gate_info, parse_gate


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("se", (GateSpec("se"),)),
        ("asr:se", (GateSpec("se", asr=True),)),
        ("asr:se*2", (GateSpec("se", asr=True, delta=2),)),
        ("asr:se+se", (GateSpec("se", asr=True), GateSpec("se"))),
        (" asr:ie*3 + eca ", (GateSpec("ie", asr=True, delta=3), GateSpec("eca"))),
    ],
)
def test_parse_gate(text: str, specs: tuple[GateSpec, ...]) -> None:
    assert parse_gate(text) == specs
    assert "+".join(map(str, specs)) == text.replace(" ", "")


@pytest.mark.parametrize("name", ["ASR(SE)", "asr_se", "ASR-SE", "asrse"])
def test_asr_as_the_paper_writes_it_is_led_to_our_name(name: str) -> None:
    with pytest.raises(AttnlabError) as error:
        parse_gate(name)
    assert str(error.value) == f"Unknown gate {name!r}. Did you mean 'asr:se'?"


def test_what_is_asked_of_a_specification() -> None:
    """A constant gate is the same for every input: those of ASR, and those that are numbers."""
    constant = {name: parse_gate(name)[0].constant for name in ("se", "asr:se", "scale", "ie")}
    assert constant == {"se": False, "asr:se": True, "scale": True, "ie": False}
    forms = {name: parse_gate(name)[0].form for name in ("se", "asr:se", "step", "dia", "scale")}
    assert forms == {
        "se": "branch",
        "asr:se": "branch",
        "step": "step",
        "dia": "stage",
        "scale": "branch",
    }
    assert parse_gate("se")[0].options == ("reduction", "bias", "nonlinearity", "squash")


def test_numbers_of_factors_that_a_gate_may_have() -> None:
    assert parse_gate("asr:se*1") == parse_gate("asr:se")
    assert parse_gate("asr:se*64") == (GateSpec("se", asr=True, delta=64),)


ON_VECTOR = ", ".join(name for name, info in GATES.items() if info.on_vector)
VECTOR = f"ASR takes: {ON_VECTOR}."
ALL = f"Expected one of: {', '.join(GATES)}."
EXAMPLES = "Expected a gate such as 'se', 'asr:se' or 'asr:se*2', or several joined by '+'."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sse", f"Unknown gate 'sse'. Did you mean 'scse' or 'se' or 'sge'? {ALL}"),
        ("SE", f"Unknown gate 'SE'. Did you mean 'se' or 'sge' or 'sem'? {ALL}"),
        ("asr:cbm", f"Unknown gate 'cbm'. Did you mean 'cbam' or 'bam'? {ALL}"),
        (
            "asr:cbam",
            "'asr:cbam' does not exist: its gate differs from pixel to pixel, so it cannot be one "
            f"constant per channel. {VECTOR}",
        ),
        (
            "asr:sge",
            "'asr:sge' does not exist: its gate differs from pixel to pixel, so it cannot be one "
            f"constant per channel. {VECTOR}",
        ),
        (
            "asr:dia",
            "'asr:dia' does not exist: the papers leave it undefined, since the gate of a block "
            f"depends on what the blocks before it hand on. {VECTOR}",
        ),
        (
            "asr:fca",
            "'asr:fca' does not exist: a constant map has no frequency above zero, so 15 of its 16 "
            f"channel groups would not see the vector. {VECTOR}",
        ),
        (
            "asr:iebn",
            f"'asr:iebn' does not exist: it is a norm, not a gate; 'asr:ie' is its gate. {VECTOR}",
        ),
        (
            "asr:step",
            "'asr:step' does not exist: it compares the two ends of a step, and a learned vector "
            f"has no ends. {VECTOR}",
        ),
        (
            "asr",
            f"'asr' needs the attention module to learn, as in 'asr:se'. It takes: {ON_VECTOR}.",
        ),
        ("se*2", "Only ASR gates take a number: write 'asr:se*2' instead of 'se*2'."),
        ("asr:se*0", "Expected a number from 1 to 64 after '*' but got '0' in 'asr:se*0'."),
        ("asr:se*65", "Expected a number from 1 to 64 after '*' but got '65' in 'asr:se*65'."),
        ("asr:se*x", "Expected a number from 1 to 64 after '*' but got 'x' in 'asr:se*x'."),
        (
            "rsa:se",
            "Unknown prefix 'rsa' in the gate specification 'rsa:se'. The only prefix is 'asr', as "
            "in 'asr:se'.",
        ),
        ("", f"Cannot read '' in the gate specification ''. {EXAMPLES}"),
        ("se+", f"Cannot read '' in the gate specification 'se+'. {EXAMPLES}"),
    ],
)
def test_wrong_specification(text: str, message: str) -> None:
    with pytest.raises(AttnlabError) as error:
        parse_gate(text)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "se",
            {"reductoin": 8},
            "Gate 'se' has no option 'reductoin'. Did you mean 'reduction'? It takes: reduction, "
            "bias, nonlinearity, squash.",
        ),
        ("ie", {"bias": True}, "Gate 'ie' has no option 'bias'. It takes no options."),
        (
            "asr:se",
            {"activaton": "tanh"},
            "Gate 'asr:se' has no option 'activaton'. Did you mean 'activation' or 'reduction'? It "
            "takes: reduction, bias, nonlinearity, squash, activation, initial, layer_initial, "
            "layer_spread, smallest.",
        ),
        ("se", {"reduction": 0}, "Expected reduction to be at least 1 but got 0."),
        ("se", {"reduction": 0.9}, "Expected reduction to be at least 1 but got 0.9."),
        (
            "eca",
            {"kernel_size": -1},
            "Expected an odd kernel_size, so that the number of channels is kept, but got -1. For "
            "64 channels the paper's rule gives 3.",
        ),
        (
            "cbam",
            {"kernel_size": -1},
            "Expected an odd kernel_size, so that the size of the map is kept, but got -1.",
        ),
        (
            "eca",
            {"kernel_size": 4},
            "Expected an odd kernel_size, so that the number of channels is kept, but got 4. For "
            "64 channels the paper's rule gives 3.",
        ),
        (
            "cbam",
            {"kernel_size": 4},
            "Expected an odd kernel_size, so that the size of the map is kept, but got 4.",
        ),
        (
            "fca",
            {"dct_size": 4},
            "Expected dct_size to be at least 7, the size of the paper's grid of frequencies, but "
            "got 4.",
        ),
        ("sge", {"groups": 0}, "Expected groups to be at least 1 but got 0."),
        ("ema", {"groups": 0}, "Expected groups to be at least 1 but got 0."),
        ("bam", {"reduction": 0}, "Expected reduction to be at least 1 but got 0."),
        ("bam", {"dilation": 0}, "Expected dilation to be at least 1 but got 0."),
        (
            "se",
            {"squash": "hardsigmoid"},
            "Unknown squash 'hardsigmoid'. Did you mean 'hard_sigmoid' or 'sigmoid'? Expected one "
            "of: sigmoid, hard_sigmoid.",
        ),
        (
            "se",
            {"nonlinearity": "selu"},
            "Unknown nonlinearity 'selu'. Did you mean 'silu' or 'relu'? Expected one of: relu, "
            "silu.",
        ),
        (
            "ge",
            {"extent": 6},
            "Expected extent to be 0, for the whole map, or a power of two such as 2, 4 or 8, but "
            "got 6.",
        ),
        (
            "gep",
            {"extent": 0},
            "Expected map_size, the height and width of the map, together with extent=0 and only "
            "with it, but got extent=0 and map_size=None.",
        ),
        (
            "gep",
            {"map_size": 7},
            "Expected map_size, the height and width of the map, together with extent=0 and only "
            "with it, but got extent=8 and map_size=7.",
        ),
        (
            "gc",
            {"pooling": "avg"},
            "Unknown pooling 'avg'. Expected one of: attention, mean.",
        ),
        (
            "ela",
            {"version": "XL"},
            "Unknown version of ELA 'XL'. Expected one of: T, B, S, L.",
        ),
        (
            "simam",
            {"regularization": 0.0},
            "Expected regularization, the paper's λ, to be above 0 but got 0.0.",
        ),
        (
            "triplet",
            {"kernel_size": 4},
            "Expected an odd kernel_size, so that the size of the map is kept, but got 4.",
        ),
        (
            "step",
            {"inputs": "nxt"},
            "Unknown inputs of the step gate 'nxt'. Did you mean 'next'? Expected one of: both, "
            "shortcut, next, difference.",
        ),
        (
            "step",
            {"structure": "conv-bm"},
            "Unknown structure of the step gate 'conv-bm'. Did you mean 'conv-bn' or 'conv-iebn' "
            "or 'conv-ie'? Expected one of: conv-bn-ie, conv-bn, conv-ie, conv-iebn, mlp.",
        ),
        (
            "se+ie",
            {},
            "'se+ie' names 2 gates and build_gate builds one. Build each of parse_gate('se+ie').",
        ),
    ],
)
def test_wrong_option(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(AttnlabError) as error:
        build_gate(name, 64, **options)
    assert str(error.value) == message


def test_wrong_number_of_channels() -> None:
    with pytest.raises(AttnlabError) as error:
        build_gate("se", 0)
    assert str(error.value) == "Expected channels to be at least 1 but got 0."


NO_VARIANCE = (
    "normalises with the statistics of the batch in training mode, and this input has one value "
    "per channel, which has no variance."
)


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        (
            "srm",
            {},
            (1, 8, 4, 4),
            f"StyleRecalibration {NO_VARIANCE} Use a batch of at least 2, or call .eval() on it.",
        ),
        (
            "step",
            {},
            (1, 8, 4, 4),
            f"StepAdaptor {NO_VARIANCE} Use a batch of at least 2, or call .eval() on it.",
        ),
        (
            "cbam",
            {"official": True},
            (1, 8, 1, 1),
            f"ConvolutionalBlockAttention {NO_VARIANCE} Use a larger batch, a larger map or "
            "official=False, or call .eval() on it.",
        ),
        (
            "iebn",
            {},
            (1, 8, 1, 1),
            f"InstanceEnhancementBatchNorm {NO_VARIANCE} Use a larger batch or a larger map, or "
            "call .eval() on it.",
        ),
        (
            "bam",
            {},
            (1, 8, 4, 4),
            f"BottleneckAttention {NO_VARIANCE} Use a batch of at least 2, or call .eval() on it.",
        ),
        (
            "gam",
            {},
            (1, 8, 1, 1),
            f"GlobalAttention {NO_VARIANCE} Use a larger batch or a larger map, or call .eval() on "
            "it.",
        ),
        (
            "gep",
            {},
            (1, 8, 8, 8),
            f"ParametricGatherExcite {NO_VARIANCE} Use a larger batch or a larger map, or call "
            ".eval() on it.",
        ),
        (
            "ie",
            {},
            (2, 6, 4, 4),
            "InstanceEnhancement was built for maps of shape (batch, 8, height, width) but got "
            "(2, 6, 4, 4). Build it with the number of channels of the branch, and move channels "
            "to the second axis.",
        ),
    ],
)
def test_wrong_input(
    name: str, options: dict[str, object], shape: tuple[int, ...], message: str
) -> None:
    gate = build_gate(name, 8, **options).train()
    branch = torch.randn(shape)
    with pytest.raises(InputError) as error:
        gate(branch, branch) if name == "step" else gate(branch)
    assert str(error.value) == message


def test_step_needs_both_ends_in_one_shape() -> None:
    with pytest.raises(InputError) as error:
        build_gate("step", 8)(torch.randn(2, 4, 8, 8), torch.randn(2, 8, 4, 4))
    assert str(error.value) == (
        "StepAdaptor compares both ends of a step, but the shortcut is (2, 4, 8, 8) and the branch "
        "(2, 8, 4, 4). Put it on blocks with an identity shortcut, or give it the projected "
        "shortcut."
    )


def test_every_gate_says_why_asr_cannot_take_it() -> None:
    for info in GATES.values():
        assert bool(info.not_on_vector) is not info.on_vector
        assert gate_info(info.name) is info


def test_every_gate_has_its_paper_for_a_bibliography() -> None:
    for info in GATES.values():
        assert info.reference is not None, info.name
        year = info.paper.rpartition(" ")[2]
        assert info.reference.year == int(year), info.name
        first = info.paper.split()[0]
        assert info.reference.authors.startswith(f"{first}, "), info.name
    assert REFERENCES["iebn"] is REFERENCES["ie"]
    assert REFERENCES["gep"] is REFERENCES["ge"]
    assert REFERENCES["head"] is REFERENCES["element"] is REFERENCES["token"]
    again = ("iebn", "gep", "head", "element")
    keys = [reference.key for name, reference in REFERENCES.items() if name not in again]
    assert sorted(set(keys)) == sorted(keys)
    assert REFERENCES.keys() == {*GATES, "asr"}


def test_entry_of_a_paper() -> None:
    assert REFERENCES["gct"].bibtex() == (
        "@inproceedings{yang2020gated,\n"
        "  author = {Yang, Zongxin and Zhu, Linchao and Wu, Yu and Yang, Yi},\n"
        "  title = {{Gated Channel Transformation for Visual Recognition}},\n"
        "  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition}, "
        "year = {2020}\n}"
    )
    assert "  journal = {arXiv preprint arXiv:2112.05561}, year = {2021}" in (
        REFERENCES["gam"].bibtex()
    )


RANK_2 = "takes maps of shape (batch, 8, height, width) but got"
OTHER = "Choose a gate of this rank, for example 'se'; `attnlab modules` shows the ranks."


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("coord", {}, (2, 8, 5), f"CoordinateAttention {RANK_2} (2, 8, 5). {OTHER}"),
        ("ge", {"extent": 4}, (2, 8, 5), f"GatherExcite {RANK_2} (2, 8, 5). {OTHER}"),
        (
            "cbam",
            {},
            (2, 8, 2, 3, 4),
            f"ConvolutionalBlockAttention {RANK_2} (2, 8, 2, 3, 4). {OTHER}",
        ),
        (
            "se",
            {},
            (2, 8),
            "SqueezeExcitation takes maps of shape (batch, 8, length) or (batch, 8, height, width) "
            "or (batch, 8, depth, height, width) but got (2, 8). Give it a map with a batch, "
            "channels, and at least one spatial axis.",
        ),
        (
            "se",
            {},
            (2, 5, 8),
            "SqueezeExcitation was built for maps of shape (batch, 8, length) but got (2, 5, 8). "
            "Build it with the number of channels of the branch, and move channels to the second "
            "axis.",
        ),
        (
            "gep",
            {"extent": 0, "map_size": 7},
            (2, 8, 6, 7),
            "ParametricGatherExcite was built for maps of 7 x 7 pixels but got 6 x 7. Build it "
            "with another map_size, or with an extent above 0, which takes maps of any size.",
        ),
    ],
)
def test_rank_or_size_that_is_not_taken(
    name: str, options: dict[str, object], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError) as error:
        build_gate(name, 8, **options)(torch.randn(shape))
    assert str(error.value) == message


def test_ranks() -> None:
    of_any = (
        "se",
        "eca",
        "sem",
        "srm",
        "ie",
        "sge",
        "dia",
        "step",
        "ese",
        "ge",
        "gc",
        "simam",
        "gct",
        "token",
        "head",
        "element",
        "scale",
        "rezero",
        "lambda",
    )
    of_images = (
        "cbam",
        "fca",
        "spa",
        "bam",
        "scse",
        "gep",
        "coord",
        "ela",
        "triplet",
        "ema",
        "gam",
    )
    assert {build_gate(name, 8).ranks for name in of_any} == {(1, 2, 3)}
    assert {build_gate(name, 8).ranks for name in of_images} == {(2,)}
