"""Stiffness of transformers against hooks written by hand, in float64."""

from __future__ import annotations

import pytest
import timm
import torch
import transformers
from torch import Tensor, nn

import attnlab
from attnlab import _errors
from attnlab.instruments.stiffness import nsi
from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stiffness.result import StiffnessResult

from .transformer_models import (
    WIDTH,
    Update,
    bert,
    bert_updates,
    tns_by_area,
    vit,
    vit_updates,
)

IDS = torch.randint(1, 50, (6, 9), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([9, 4, 6, 2, 9, 5])
MASK = (torch.arange(9) < LENGTHS[:, None]).long()
IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(2)).double()


def lengths(features: Tensor, mask: Tensor | None = None) -> Tensor:
    """The 2-norm of each input, token by token."""
    squares = features.square().sum(2)
    return (squares if mask is None else squares * mask).sum(1).sqrt()


def expected(updates: list[Update], convention: str, mask: Tensor | None = None) -> Tensor:
    rows = []
    for before, branch, after in updates:
        moved = after - before if convention == "normed" else branch
        rows.append(lengths(moved, mask) / lengths(before, mask))
    return torch.stack(rows, 1)


@pytest.mark.parametrize("convention", ["state", "normed"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all tokens", "padded"])
def test_post_norm_encoder_against_hooks(convention, mask):
    model = bert()
    batch = {"input_ids": IDS} | ({} if mask is None else {"attention_mask": mask})
    reference = expected(bert_updates(model, **batch), convention, mask)
    with capture(model, batch) as steps, torch.no_grad():
        model(**batch)
        torch.testing.assert_close(nsi(steps.norms, convention), reference, rtol=1e-12, atol=0)
    result = stiffness(model, [batch], convention=convention)
    assert result.tns == pytest.approx(tns_by_area(reference), rel=1e-12)
    assert [step.mean for step in result.nsi] == pytest.approx(reference.mean(0).tolist())


def test_a_positional_mask_is_seen():
    model = bert()
    with capture(model, {"input_ids": IDS}) as steps, torch.no_grad():
        model(IDS, MASK)
        found = nsi(steps.norms)
    reference = expected(bert_updates(model, input_ids=IDS, attention_mask=MASK), "state", MASK)
    torch.testing.assert_close(found, reference, rtol=1e-12, atol=0)


@pytest.mark.parametrize("convention", ["state", "normed"])
@pytest.mark.parametrize("granularity", ["step", "block"])
def test_tns_does_not_depend_on_padding(convention, granularity):
    model = bert()
    padded = {"input_ids": IDS * MASK, "attention_mask": MASK}
    more = {name: nn.functional.pad(value, (0, 7)) for name, value in padded.items()}
    alone = [
        {"input_ids": ids[None, :n], "attention_mask": torch.ones(1, n)}
        for ids, n in zip(IDS, LENGTHS.tolist(), strict=True)
    ]
    found = [
        stiffness(model, batches, convention=convention, granularity=granularity)
        for batches in ([padded], [more], alone)
    ]
    assert found[1].tns == pytest.approx(found[0].tns, rel=1e-9)
    assert found[2].tns == pytest.approx(found[0].tns, rel=1e-9)
    unmasked = stiffness(
        model, [{"input_ids": IDS * MASK}], convention=convention, granularity=granularity
    )
    assert unmasked.tns != pytest.approx(found[0].tns, rel=1e-2)
    assert found[0].notes[-1] == (
        "Padding, 35 % of the tokens of padded batches, is left out of all norms."
    )


class PostNorm(nn.Module):
    """The first Transformer's block, with functional norms, which writes its states down."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, WIDTH))
        self.diary: list[Update] = []

    def forward(self, x: Tensor) -> Tensor:
        for part in (self.mix, self.feed):
            f = part(x)
            y = nn.functional.layer_norm(x + f, (WIDTH,))
            self.diary.append(Update(x, f, y))
            x = y
        return x


def test_functional_norms_are_found():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, WIDTH), *(PostNorm() for _ in range(3))).double()
    inputs = torch.randn(4, 7, 5, dtype=torch.float64)
    with capture(model, inputs) as steps, torch.no_grad():
        for block in model[1:]:
            block.diary.clear()
        model(inputs)
        found = nsi(steps.norms, "normed")
    updates = [update for block in model[1:] for update in block.diary]
    torch.testing.assert_close(found, expected(updates, "normed"), rtol=1e-12, atol=0)


def test_the_last_norm_of_a_pre_norm_network_is_no_part_of_its_last_step():
    model = vit(global_pool="avg", class_token=False, fc_norm=False)  # the norm reads the last sum
    state, normed = (stiffness(model, [IMAGES], convention=c) for c in ("state", "normed"))
    reference = expected(vit_updates(model, IMAGES), "state")
    assert normed.tns == state.tns == pytest.approx(tns_by_area(reference), rel=1e-12)
    assert normed.notes == (
        "No norm lies between a sum and the next state: 'normed' is 'state' here.",
    )
    assert state.notes == ()


def test_norms_in_front_of_a_downsampling_are_no_part_of_a_step():
    torch.manual_seed(0)
    model = timm.create_model("convnext_atto", depths=(3, 2, 2, 2), dims=(8, 8, 8, 8))
    images = torch.randn(2, 3, 32, 32)
    found = [stiffness(model, [images], convention=c) for c in ("state", "normed")]
    assert [step.mean for step in found[0].nsi] == [step.mean for step in found[1].nsi]


def test_post_norm_is_said_where_it_is_left_out():
    found = stiffness(bert(), [{"input_ids": IDS}])
    assert found.notes == (
        "After 8 of 8 steps a norm makes the next state of the sum (post-norm), which 'state' "
        "leaves out; 'normed' includes it.",
    )


def test_blocks_of_a_post_norm_encoder_against_hooks():
    model = bert()
    batch = {"input_ids": IDS, "attention_mask": MASK}
    updates = bert_updates(model, **batch)
    pairs = list(zip(updates[::2], updates[1::2], strict=True))
    moved = {
        "state": [b.before + b.branch - a.before for a, b in pairs],
        "normed": [b.after - a.before for a, b in pairs],
        "branch": [a.branch + b.branch for a, b in pairs],
    }
    starts = torch.stack([lengths(a.before, MASK) for a, _ in pairs], 1)
    for convention, features in moved.items():
        rates = torch.stack([lengths(f, MASK) for f in features], 1)
        found = stiffness(model, [batch], convention=convention, granularity="block")
        assert found.plan == "1 stage of 4 blocks"
        assert found.tns == pytest.approx(tns_by_area(rates / starts), rel=1e-12)
        assert [step.label for step in found.nsi] == ["1.0", "1.1", "1.2", "1.3"]


def test_blocks_with_gates():
    """Of a pre-norm block: what it adds is the difference of its ends; `paper` is before gates."""
    torch.manual_seed(3)
    gated, _ = attnlab.insert(vit(), "se", example=IMAGES)
    for name, parameter in gated.named_parameters():
        if ".gate." in name:
            nn.init.normal_(parameter, std=1.0)
    ends: list[tuple[Tensor, Tensor]] = []
    branches: list[Tensor] = []
    handles = [
        block.register_forward_hook(lambda _, given, output: ends.append((given[0], output)))
        for block in gated.blocks
    ]
    # What the gate multiplies: the output of the last linear layers, before the gate's hook.
    for block in gated.blocks:
        for layer in (block.attn.proj, block.mlp.fc2):
            handles.append(
                layer.register_forward_hook(
                    lambda m, given, _: branches.append(
                        nn.functional.linear(*given, m.weight, m.bias)
                    )
                )
            )
    with capture(gated, IMAGES, granularity="block") as steps, torch.no_grad():
        ends.clear()
        branches.clear()
        gated(IMAGES)
        norms = steps.norms
        assert all(step.gate is None for step in steps)
    for handle in handles:
        handle.remove()
    change = torch.stack([lengths(after - before) for before, after in ends], 1)
    paper = torch.stack(
        [lengths(a + b) for a, b in zip(branches[::2], branches[1::2], strict=True)], 1
    )
    torch.testing.assert_close(norms.change, change, rtol=1e-10, atol=0)
    torch.testing.assert_close(norms.update, change, rtol=1e-10, atol=0)
    torch.testing.assert_close(norms.branch, paper, rtol=1e-10, atol=0)
    assert not torch.allclose(paper, change, rtol=0.1)


def test_blocks_of_maps_that_turn_into_rows():
    torch.manual_seed(0)
    model = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=56, embed_dim=12, depths=(2, 2), num_heads=(2, 2)
    )
    model = model.double().eval()
    ends: list[tuple[Tensor, Tensor]] = []
    blocks = [block for stage in model.layers for block in stage.blocks]
    images = torch.randn(2, 3, 56, 56).double()
    handles = [
        b.register_forward_hook(lambda _, given, output: ends.append((given[0], output)))
        for b in blocks
    ]
    with capture(model, images, granularity="block") as steps, torch.no_grad():
        ends.clear()
        model(images)
        found = nsi(steps.norms)
    for handle in handles:
        handle.remove()
    flat = [(before.flatten(1), after.flatten(1)) for before, after in ends]
    reference = torch.stack([(b - a).norm(dim=1) / a.norm(dim=1) for a, b in flat], 1)
    torch.testing.assert_close(found, reference, rtol=1e-10, atol=0)


def test_a_block_of_one_addition_is_its_step():
    torch.manual_seed(0)
    model, images = attnlab.create("resnet20"), torch.randn(3, 3, 32, 32)
    step, block = (stiffness(model, [images], granularity=g) for g in ("step", "block"))
    assert [s.mean for s in step.nsi] == [s.mean for s in block.nsi]
    assert block.plan == "3 stages of 3+3+3 blocks"


@pytest.mark.parametrize(("tokens", "part"), [("class", slice(0, 1)), ("patch", slice(1, None))])
def test_class_and_patch_tokens_apart(tokens, part):
    model = vit()
    updates = [
        Update(*(features[:, part] for features in update)) for update in vit_updates(model, IMAGES)
    ]
    found = stiffness(model, [IMAGES], tokens=tokens)
    assert found.tns == pytest.approx(tns_by_area(expected(updates, "state")), rel=1e-12)
    assert found.tokens == tokens
    counted = {"class": 1, "patch": 16}[tokens]
    assert found.notes == (f"Counted are {counted} of 17 tokens ({tokens}).",)
    assert StiffnessResult.from_json(found.to_json()) == found


@pytest.mark.parametrize("kind", ["ViT", "Dinov2WithRegisters"])
def test_class_tokens_of_hugging_face(kind):
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = getattr(transformers, f"{kind}Config")(image_size=32, patch_size=8, **sizes)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # they begin at zero
            if "token" in name or "position" in name:
                nn.init.normal_(parameter)
    registers = 0 if kind == "ViT" else config.num_register_tokens
    found = stiffness(model, [IMAGES.float()], tokens="class")
    own = 1 + registers
    assert found.notes[-1] == f"Counted are {own} of {16 + own} tokens (class)."


def test_the_tokens_of_a_text_are_all_of_one_kind():
    with pytest.raises(_errors.OptionError) as error:
        stiffness(bert(), [{"input_ids": IDS}], tokens="patch")
    assert str(error.value) == (
        "tokens='patch': BertModel puts no token of its own beside those of its input: every token "
        "of its first state changes with the input. Leave tokens out."
    )


def test_no_class_token():
    model = vit(class_token=False, global_pool="avg")
    with pytest.raises(_errors.OptionError) as error:
        stiffness(model, [IMAGES], tokens="class")
    assert str(error.value) == (
        "tokens='class': VisionTransformer puts no token of its own beside those of its input: "
        "every token of its first state changes with the input. Leave tokens out."
    )
    everything = stiffness(model, [IMAGES])
    assert stiffness(model, [IMAGES], tokens="patch").tns == pytest.approx(everything.tns)


def test_class_tokens_of_a_convolutional_network():
    with pytest.raises(_errors.OptionError) as error:
        stiffness(attnlab.create("resnet20"), [torch.randn(2, 3, 32, 32)], tokens="class")
    assert str(error.value) == (
        "tokens='class' is for states of shape (inputs, tokens, channels), as of a vision "
        "transformer, but step 1.0 (layer1.0) has states of shape (1, 16, 32, 32). Leave tokens "
        "out."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"granularity": "blocks"},
            "Unknown granularity 'blocks'. Did you mean 'block'? Expected one of: step, block.",
        ),
        (
            {"tokens": "cls"},
            "Unknown choice of tokens 'cls'. Did you mean 'class'? Expected one of: all, class, "
            "patch.",
        ),
        (
            {"convention": "norm"},
            "Unknown NSI convention 'norm'. Did you mean 'normed'? Expected one of: state, normed, "
            "branch, paper.",
        ),
    ],
)
def test_unknown_choices(options, message):
    with pytest.raises(_errors.UnknownNameError) as error:
        stiffness(vit(), [IMAGES], **options)
    assert str(error.value) == message


def test_si_is_of_single_steps():
    with pytest.raises(_errors.OptionError) as error:
        stiffness(vit(), [IMAGES], si=1, granularity="block")
    assert str(error.value) == (
        "SI is that of a single step's branch, with all tokens, but granularity is 'block' and "
        "tokens 'all'. Leave si out, or leave these."
    )


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            torch.ones(6, 1, 9, 9),
            "Expected attention_mask of shape (inputs, tokens), 1 for a token and 0 for padding, "
            "but got shape (1, 1, 9, 9).",
        ),
        (
            torch.ones(6, 8),
            "Expected attention_mask of shape (1, 9), one value per token of input_ids, but got "
            "shape (1, 8).",
        ),
        (
            torch.full((6, 9), -2.0),
            "Expected attention_mask of ones (tokens) and zeros (padding) but got values from -2 "
            "to -2.",
        ),
    ],
)
def test_masks_of_the_wrong_form(mask, message):
    with pytest.raises(_errors.InputError) as error:
        stiffness(bert(), [{"input_ids": IDS, "attention_mask": mask}])
    assert str(error.value) == message


class Pooled(nn.Module):
    """Takes a mask of its input's tokens; its states have half of them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(PostNorm(), PostNorm())

    def forward(self, values: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        del attention_mask
        return self.blocks(values[:, ::2])


def test_states_of_other_tokens_than_the_mask():
    inputs = {"values": torch.randn(2, 8, WIDTH), "attention_mask": torch.eye(8)[:2]}
    with pytest.raises(_errors.InputError) as error:
        stiffness(Pooled(), [inputs])
    assert str(error.value) == (
        "Expected the state of step 1.0 (blocks.0) to have the shape (inputs, tokens, channels) "
        "with 2 inputs and 8 tokens, of which some are not counted, but got shape (2, 4, 24)."
    )


def naflex() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"embed_dim": WIDTH, "depth": 3, "num_heads": 2, "num_classes": 3}
    network = timm.create_model("naflexvit_base_patch16_gap", **sizes).double().eval()
    with torch.no_grad():  # timm's branches begin so small that nothing moves
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return network


def naflex_images() -> dict[str, Tensor]:
    """Three by three patches, and the first two rows of others with padding."""
    where = torch.cartesian_prod(torch.arange(3), torch.arange(3)).repeat(2, 1, 1)
    where[1, 6:] = 0
    patches = torch.randn(2, 9, 768, generator=torch.Generator().manual_seed(2)).double()
    valid = torch.ones(2, 9, dtype=torch.bool)
    valid[1, 6:] = False
    return {"patches": patches, "patch_coord": where, "patch_valid": valid}


def siglip2(kind: str) -> nn.Module:
    torch.manual_seed(0)
    layers = {"hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 2}
    images = {**layers, "intermediate_size": 32, "num_patches": 9, "patch_size": 16}
    if kind == "images":
        config = transformers.Siglip2VisionConfig(**images)
        return transformers.Siglip2VisionModel(config).double().eval()
    texts = {**layers, "intermediate_size": 32, "vocab_size": 50, "projection_size": WIDTH}
    texts = {**texts, "max_position_embeddings": 9, "bos_token_id": 0, "eos_token_id": 1}
    config = transformers.Siglip2Config(text_config=texts, vision_config=images)
    return transformers.Siglip2Model(config).double().eval()


def siglip2_images() -> dict[str, Tensor]:
    images = naflex_images()
    mask, sizes = images["patch_valid"].long(), torch.tensor([[3, 3], [2, 3]])
    pixels = {"pixel_values": images["patches"], "pixel_attention_mask": mask}
    return {**pixels, "spatial_shapes": sizes}


def siglip2_texts(padded: Tensor) -> dict[str, Tensor]:
    return {"input_ids": IDS[:2] * padded, "attention_mask": padded}


def torch_encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).double().eval()


def without_padding(name: str, value: Tensor, row: int) -> Tensor:
    """A tensor of the second of two inputs without its padding: three of nine patches, four of
    nine tokens of a text."""
    tokens = {"input_ids": 5, "attention_mask": 5}.get(name, 6) if row else 9
    return value[row : row + 1, :tokens] if value.shape[1] == 9 else value[row : row + 1]


IMAGES_AND_TEXTS = {
    **siglip2_images(),
    **siglip2_texts((torch.arange(9) < torch.tensor([[9], [5]])).long()),
}


@pytest.mark.parametrize(
    ("network", "batch"),
    [
        (naflex(), naflex_images()),
        (siglip2("images"), siglip2_images()),
        (siglip2("images and texts"), IMAGES_AND_TEXTS),
        (
            torch_encoder(),
            {
                "src": torch.randn(2, 9, WIDTH).double(),
                "src_key_padding_mask": ~naflex_images()["patch_valid"],
            },
        ),
    ],
    ids=["naflex", "siglip2 images", "siglip2 images and texts", "torch"],
)
@pytest.mark.parametrize("granularity", ["step", "block"])
def test_padding_that_other_masks_tell_of_is_left_out(network, batch, granularity):
    def given(values: dict[str, Tensor]) -> dict[str, object]:
        return {"x": values} if "patches" in values else values

    rows = [
        given({name: without_padding(name, value, row) for name, value in batch.items()})
        for row in (0, 1)
    ]
    together = stiffness(network, [given(batch)], granularity=granularity)
    apart = stiffness(network, rows, granularity=granularity)
    assert together.tns == pytest.approx(apart.tns, rel=1e-9)
    means = [[step.mean for step in each.nsi] for each in (together, apart)]
    assert means[0] == pytest.approx(means[1], rel=1e-9)


def test_encoder_and_decoder():
    sizes = {"d_model": WIDTH, "num_layers": 2, "num_heads": 2, "d_ff": 32, "d_kv": 12}
    model = transformers.T5Model(transformers.T5Config(vocab_size=50, **sizes)).eval()
    batch = {"input_ids": IDS, "attention_mask": MASK, "decoder_input_ids": IDS}
    with pytest.raises(_errors.InputError) as error:
        stiffness(model, [{name: value[1:] for name, value in batch.items()}])
    assert str(error.value) == (
        "The call has decoder_input_ids: the network has an encoder and a decoder, with masks of "
        "their own, and whose tokens a state holds cannot be told. Measure the encoder alone: "
        "model.get_encoder()."
    )
    del batch["decoder_input_ids"]
    assert stiffness(model.get_encoder(), [batch]).inputs == 6


class Rescaled(nn.Module):
    """What it passes on is neither the sum nor a norm of it that is known."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.mix(x)
        return y * torch.rsqrt(y.square().mean(2, keepdim=True))


@pytest.mark.parametrize("gate", [None, "se"])
def test_normed_is_state_in_a_residual_network_without_norms_behind_its_sums(gate):
    torch.manual_seed(0)
    network, images = attnlab.create("resnet20").eval(), torch.randn(4, 3, 16, 16)
    if gate is not None:
        network, _ = attnlab.insert(network, gate, example=images)
    state, normed = (stiffness(network, [images], convention=c) for c in ("state", "normed"))
    assert state.tns > 0
    assert (normed.tns, normed.rows()) == (state.tns, state.rows())
    said = "No norm lies between a sum and the next state: 'normed' is 'state' here."
    assert said in normed.notes
    assert said not in state.notes


def test_normed_where_something_else_makes_the_next_state():
    model = nn.Sequential(nn.Linear(5, WIDTH), *(Rescaled() for _ in range(3)))
    with pytest.raises(_errors.OptionError) as error:
        stiffness(model, [torch.randn(2, 4, 5)], convention="normed")
    assert str(error.value) == (
        "convention='normed' takes the states that the network passes on, and between step 1.0 (1) "
        "and step 1.1 the sum goes through 'square', which is neither an activation nor a norm. "
        "Use convention='state'."
    )


class Halved(nn.Module):
    """A block whose second update is of every other token."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x)
        part = x.flip(1).reshape(len(x), -1, 2, WIDTH)
        return (part + self.second(part)).reshape(x.shape)


def test_a_block_whose_second_state_is_another():
    model = nn.Sequential(nn.Linear(5, WIDTH), *(Halved() for _ in range(3)))
    with pytest.raises(_errors.InputError) as error:
        stiffness(model, [torch.randn(2, 4, 5)], granularity="block")
    assert str(error.value) == (
        "Block 1.0 (1) begins with a state of shape (2, 4, 24) and step 1.0:1 has another, of "
        "shape (2, 2, 2, 24), so the block is not a single step. Measure the steps one by one: "
        "granularity='step'."
    )
