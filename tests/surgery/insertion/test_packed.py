"""Gates that look over all tokens, where one sequence holds several images or texts, or padding
that goes by another name than `attention_mask`."""

from __future__ import annotations

import pytest
import timm
import torch
import transformers
from tests.surgery.insertion.networks import awake
from torch import Tensor, nn
from torch.nn import functional

import attnlab
from attnlab import _errors
from attnlab.residuals.steps import StepKey
from attnlab.surgery.insertion._causal import MUCH
from attnlab.surgery.insertion._packed import (
    _first_changes_others,
    _first_sequence,
    _groups,
    _rows,
    _twice,
    _with_another_first,
)

POOLING = ["se", "eca", "step", "cbam"]
IMAGES = torch.randn(2, 3, 32, 32, dtype=torch.double, generator=torch.Generator().manual_seed(2))
SIZES = torch.tensor([[32, 32], [16, 24]])
PACKED = {"pixel_values": IMAGES, "image_sizes": SIZES}


def pixtral() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.PixtralVisionConfig(
        hidden_size=24,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    return transformers.PixtralVisionModel(config).double().eval()


@pytest.mark.parametrize("gate", POOLING)
@pytest.mark.parametrize(
    "example",
    [
        PACKED,
        {"pixel_values": IMAGES[:1], "image_sizes": SIZES[:1]},
        {"pixel_values": IMAGES[:1], "image_sizes": [(32, 32)]},
        None,
    ],
    ids=["two images", "one image", "one image, its size in a list", "made up"],
)
def test_pixtral_refuses_gates_that_mix_its_images(gate, example):
    network = pixtral()
    if example is None:
        network = network.float()
    with pytest.raises(_errors.SiteError, match="PixtralVisionModel packs several images or texts"):
        attnlab.insert(network, gate, example=example)


def test_constant_gates_leave_pixtrals_images_apart():
    network = awake(attnlab.insert(pixtral(), "asr:se", example=PACKED)[0])
    with torch.no_grad():
        both = network(**PACKED).last_hidden_state
        alone = [
            network(pixel_values=IMAGES[n : n + 1], image_sizes=SIZES[n : n + 1]).last_hidden_state
            for n in range(2)
        ]
    torch.testing.assert_close(both, torch.cat(alone, dim=1), rtol=0, atol=1e-12)


class Sequences(nn.Module):
    """Two layers of attention over tokens, of which each sees those that `seen` says."""

    def __init__(self, seen: Tensor) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.projections = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.seen = seen

    def forward(self, x: Tensor) -> Tensor:
        for norm, projection in zip(self.norms, self.projections, strict=True):
            values = projection(norm(x))
            x = x + functional.scaled_dot_product_attention(values, values, values, self.seen)
        return x


def blocks(*lengths: int) -> Tensor:
    return torch.block_diag(*(torch.ones(n, n) for n in lengths)).bool()


def neighbours(tokens: int) -> Tensor:
    places = torch.arange(tokens)
    return (places[:, None] - places).abs() <= 1


def padded(tokens: int, valid: int) -> Tensor:
    return (torch.arange(tokens) < valid)[None, :] | torch.eye(tokens).bool()


TOKENS = torch.randn(1, 9, 8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    "seen",
    [
        blocks(5, 4),
        blocks(2, 3, 4),
        blocks(5, 4) & neighbours(9),
        blocks(1, 1, 3, 4),
        blocks(2, 5, 2),
        blocks(4, 5)[torch.tensor([0, 5, 1, 6, 2, 7, 3, 8, 4])][
            :, torch.tensor([0, 5, 1, 6, 2, 7, 3, 8, 4])
        ],
    ],
    ids=[
        "two",
        "three",
        "two of neighbours",
        "two after padding",
        "two of two tokens",
        "two interleaved",
    ],
)
def test_texts_that_never_change_each_other_are_found(seen):
    with pytest.raises(_errors.SiteError, match="packs several images or texts into one"):
        attnlab.insert(Sequences(seen), "se", example=TOKENS)


@pytest.mark.parametrize("first", [True, False])
def test_one_packed_row_of_two_is_enough(first):
    seen = torch.stack([blocks(5, 4), blocks(9)] if first else [blocks(9), blocks(5, 4)])
    with pytest.raises(_errors.SiteError, match="packs several images or texts into one"):
        attnlab.insert(Sequences(seen), "se", example=TOKENS.repeat(2, 1, 1))


@pytest.mark.parametrize("seen", [blocks(9), neighbours(9)], ids=["everyone", "neighbours"])
def test_one_text_is_not_taken_for_several(seen):
    _, receipt = attnlab.insert(Sequences(seen), "se", example=TOKENS)
    assert len(receipt.sites) == 3


def test_padding_of_which_nobody_tells():
    on_the_left = padded(9, 6).flip(0, 1)
    with pytest.raises(_errors.SiteError, match=r"some of those at 1\.0 are padding, which no"):
        attnlab.insert(Sequences(on_the_left), "se", example=TOKENS)
    with pytest.raises(_errors.SiteError, match="looks over all tokens"):  # as a causal network
        attnlab.insert(Sequences(padded(9, 6)), "se", example=TOKENS)
    assert attnlab.insert(Sequences(padded(9, 6)), "asr:se", example=TOKENS)[1].sites


def naflex() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 3}
    return timm.create_model("naflexvit_base_patch16_gap", **sizes).double().eval()


def patches(valid: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    coordinates = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    return {
        "patches": torch.randn(1, 9, 768, dtype=torch.double, generator=generator)[:, :valid],
        "patch_coord": coordinates[None, :valid],
        "patch_valid": torch.ones(1, valid, dtype=torch.bool),
    }


def padded_batch() -> dict[str, Tensor]:
    """An image of nine patches, and its first six with three of padding."""
    batch = {name: torch.cat([value, value]) for name, value in patches(9).items()}
    batch["patch_valid"][1, 6:] = False
    batch["patch_coord"][1, 6:] = 0  # else the image is taken for one of three rows
    batch["patches"][1, 6:] = 5.0
    return batch


@pytest.mark.parametrize("gate", POOLING)
def test_naflex_answers_a_padded_image_as_if_alone(gate):
    network = awake(attnlab.insert(naflex(), gate, example=(patches(9),))[0])
    with torch.no_grad():
        together = network(padded_batch())
        torch.testing.assert_close(network(x=padded_batch()), together, rtol=0, atol=0)
        alone = torch.cat([network(patches(9)), network(patches(6))])
        blind = network({**padded_batch(), "patch_valid": torch.ones(2, 9, dtype=torch.bool)})
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    assert (blind[1] - together[1]).abs().max() > 1e-6


def test_naflex_says_in_its_receipt_how_padding_is_known():
    _, receipt = attnlab.insert(naflex(), "se", example=(padded_batch(),))
    assert any("padding by the patch_valid of a call are left out" in n for n in receipt.notes)


def test_a_mask_of_pixels_is_refused_where_tokens_are_needed():
    network, _ = attnlab.insert(naflex(), "se", example=(patches(9),))
    batch = padded_batch()
    masks = {"patch_valid": torch.zeros(2, 3, 3, dtype=torch.bool)}
    with pytest.raises(_errors.InputError, match=r"Expected patch_valid of shape \(inputs, tokens"):
        network({**batch, **masks})


class TokensFirst(nn.Module):
    """A transformer of torch as it comes, with the tokens in front of the inputs."""

    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 8, 8)
        self.layers = nn.Sequential(layer(), layer())
        self.head = nn.Linear(24, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(self.patches(images).flatten(2).permute(2, 0, 1)).mean(0))


class Attending(nn.TransformerEncoderLayer):
    def __init__(self) -> None:
        super().__init__(24, 2, 48)


class Pointwise(nn.Module):
    """Looks at each token alone, so that no token changes another."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))

    def forward(self, state: Tensor) -> Tensor:
        return state + self.branch(state)


@pytest.mark.parametrize("gate", POOLING)
@pytest.mark.parametrize("layer", [Attending, Pointwise])
@pytest.mark.parametrize("number", [0, 1, 2], ids=["made up", "one image", "two images"])
def test_tokens_in_front_of_the_inputs_are_refused(gate, layer, number):
    torch.manual_seed(0)
    network = TokensFirst(layer).eval()
    with pytest.raises(_errors.SiteError) as error:
        attnlab.insert(network, gate, example=IMAGES[:number].float() if number else None)
    assert str(error.value) == (
        f"'{gate}' looks over all tokens of a sequence, and TokensFirst has them along the first "
        f"axis at 1.0 (layers.0), in front of the inputs. With this gate each input would change "
        f"the others. Let the network put the inputs first (batch_first=True of torch's layers). "
        f"Use a gate that is the same for every input: 'asr:se'."
    )


@pytest.mark.parametrize("gate", POOLING)
def test_an_input_with_tokens_first_is_refused(gate):
    torch.manual_seed(0)
    with pytest.raises(_errors.SiteError, match="in front of the inputs"):
        attnlab.insert(Attending().eval(), gate, example=torch.randn(6, 2, 24))


def test_a_constant_gate_with_tokens_first_is_the_same_for_an_image_alone():
    torch.manual_seed(0)
    network = awake(attnlab.insert(TokensFirst(Attending).double().eval(), "asr:se")[0])
    with torch.no_grad():
        torch.testing.assert_close(network(IMAGES[:1]), network(IMAGES)[:1])


def test_inputs_are_first_where_tokens_are_drawn_at_random():
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.ViTMAEConfig(image_size=32, patch_size=8, intermediate_size=48, **sizes)
    attnlab.insert(transformers.ViTMAEModel(config).eval(), "se", example=IMAGES[:1].float())


def test_a_call_for_twice_the_inputs() -> None:
    """What has as many rows as there are inputs comes twice, wherever it lies."""
    rows, other, number = torch.arange(6.0).view(2, 3), torch.ones(3, 2), torch.tensor(4)
    given = ((rows, other), {"number": number, "sizes": [(1, 2), (3, 4)], "deep": {"x": [rows]}})
    for lists in (True, False):
        (first, same), named = _twice(given, 2, lists)
        assert torch.equal(first, torch.cat((rows, rows)))
        assert same is other
        assert named["number"] is number
        assert named["sizes"] == [(1, 2), (3, 4)] * (2 if lists else 1)
        assert torch.equal(named["deep"]["x"][0], torch.cat((rows, rows)))
    assert _twice("text", 4, True) == "text"
    assert _twice([1, 2, 3], 2, True) == [1, 2, 3]


def test_how_many_inputs_a_call_is_of() -> None:
    rows = torch.ones(3, 2)
    assert _rows(((torch.tensor(4), rows), {"x": torch.ones(5)})) == 3
    assert _rows(((), {"x": [rows]})) == 3
    assert _rows((("text",), {})) == 0


def test_a_call_with_another_first_input() -> None:
    """Whole numbers stay whole numbers that there may be; masks and kinds of tokens stay."""
    images, text = torch.ones(2, 3, 2), torch.tensor([[5, 0, 7], [1, 2, 3]])
    kept = [
        torch.ones(2, 3).bool(),
        torch.tensor([[0, 1], [1, 1]]),
        torch.ones(3, 2),
        torch.tensor(4.0),
        torch.zeros(2, 0),
        "text",
    ]
    (found, *same), named = _with_another_first(((images, *kept), {"text": [text]}), 2)
    assert all(a is b for a, b in zip(same, kept, strict=True))
    torch.testing.assert_close(found[0], 1 + MUCH * torch.linspace(-1, 1, 6).view(3, 2))
    assert torch.equal(found[1], images[1])
    assert torch.equal(images, torch.ones(2, 3, 2))
    (other,) = named["text"]
    assert other.tolist() == [[4, 1, 6], [1, 2, 3]]
    assert text.tolist() == [[5, 0, 7], [1, 2, 3]]
    twos = torch.tensor([[2, 0], [0, 0]])
    assert _with_another_first(twos, 2).tolist() == [[1, 1], [0, 0]]
    assert _with_another_first((twos,), 2)[0].tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("row", "by", "changes"), [(1, 1e-3, True), (2, -1e-3, True), (0, 1.0, False), (1, 1e-8, False)]
)
def test_another_first_input_changes_others(row: int, by: float, changes: bool) -> None:
    state = torch.full((3, 2, 4), 0.5, dtype=torch.double)
    changed = state.clone()
    changed[row, 1, 2] += by
    assert _first_changes_others(state, changed, 3) is changes
    assert not _first_changes_others(state, changed, 6)  # inputs are not along the first axis
    assert not _first_changes_others(state, changed[:, :1], 3)


def test_sets_that_overlap_are_one_group() -> None:
    def sets(*members: tuple[int, ...]) -> list[Tensor]:
        return [torch.tensor([place in each for place in range(6)]) for each in members]

    assert _groups(sets((0, 1), (2, 3))) == 2
    assert _groups(sets((0, 1), (2, 3), (1, 2))) == 1
    assert _groups(sets((0, 1), (1, 2), (4, 5), (3, 4))) == 2
    assert _groups(sets((0,), (2, 3), (5,))) == 1  # one token alone is no text
    assert _groups(sets((0, 1), (2, 3), (4, 5))) == 3
    assert _groups(sets((0, 1), (4, 5), (0, 5))) == 1
    assert _groups([]) == 0


def test_the_first_sequence_ends_where_the_shape_changes() -> None:
    def key(number: int) -> StepKey:
        return StepKey("", number, 3, 2, 4, 0)

    shapes = [(1, 8, 4), (1, 8, 4), (1, 4, 4), (1, 8, 4)]
    states = {key(n): (torch.zeros(shape),) * 2 for n, shape in enumerate(shapes)}
    assert _first_sequence(states) == [key(0), key(1)]


@pytest.mark.parametrize(("tokens", "valid"), [(4, 2), (9, 7)])
def test_two_tokens_at_one_end_may_be_padding(tokens: int, valid: int) -> None:
    for seen in (padded(tokens, valid), padded(tokens, valid).flip(0, 1)):
        with pytest.raises(_errors.SiteError, match="looks over all tokens"):
            attnlab.insert(Sequences(seen), "se", example=TOKENS[:, :tokens])


def test_one_token_that_only_reads_the_others_is_no_padding():
    """A class token at the end."""
    seen = torch.ones(9, 9).bool()
    seen[1:, 0] = False
    _, receipt = attnlab.insert(Sequences(seen), "se", example=TOKENS)
    assert len(receipt.sites) == 3
