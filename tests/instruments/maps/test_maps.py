"""Attention maps against forwards written out in the test, in float64."""

from __future__ import annotations

import pytest
import timm
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab import _errors
from attnlab.cli import main
from attnlab.instruments.maps import MapsResult, mean_maps
from attnlab.instruments.maps._attention import MeanMap, distance, handling_maps
from attnlab.instruments.maps.measure import maps as measured_maps

WIDTH, HEADS = 24, 2
IMAGES = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(2)).double()
EIGHT = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(3)).double()
IDS = torch.randint(2, 50, (4, 7), generator=torch.Generator().manual_seed(1))
LENGTHS = (7, 3, 5, 3)
MASK = torch.stack([(torch.arange(7) < length).long() for length in LENGTHS])


def vit(fused: bool = True) -> nn.Module:
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        embed_dim=WIDTH,
        depth=2,
        num_heads=HEADS,
        num_classes=5,
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for block in model.blocks:
        block.attn.fused_attn = fused
    return model.double().eval()


def vit_forward(
    model: nn.Module, images: Tensor, maps: dict[tuple[int, int], Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """timm's ViT by hand, with some heads' maps replaced; the output, and the maps it made."""
    x = model.patch_embed(images)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x], 1) + model.pos_embed
    seen = []
    for number, block in enumerate(model.blocks):
        y = block.norm1(x)
        qkv = block.attn.qkv(y).view(len(x), -1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv
        weights = torch.softmax(torch.einsum("bhqc,bhkc->bhqk", q, k) / (WIDTH // HEADS) ** 0.5, 3)
        seen.append(weights)
        weights = weights.clone()
        for head in range(HEADS):
            if (number, head) in maps:
                weights[:, head] = maps[number, head]
        out = torch.einsum("bhqk,bhkc->bqhc", weights, v).flatten(2)
        x = x + block.attn.proj(out)
        x = x + block.mlp(block.norm2(x))
    return model.head(model.norm(x)[:, 0]), seen


def moved(one: Tensor, other: Tensor) -> float:
    return ((other - one).norm(dim=1) / one.norm(dim=1)).mean().item()


@torch.no_grad()
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("batch", [5, 2])
def test_vision_transformer_by_hand(fused, batch):
    model = vit(fused)
    found = measured_maps(model, IMAGES.split(batch))
    plain, maps = vit_forward(model, IMAGES, {})
    torch.testing.assert_close(plain, model(IMAGES))
    means = {(n, h): maps[n][:, h].mean(0) for n in range(2) for h in range(HEADS)}
    assert [layer.name for layer in found.layers] == ["blocks.0.attn", "blocks.1.attn"]
    for number, layer in enumerate(found.layers):
        assert (layer.queries, layer.keys) == (17, 17)
        for place, head in enumerate(layer.heads):
            mean = means[number, place]
            spread = (maps[number][:, place] - mean).abs().sum(2).mean() / 2
            assert head.spread == pytest.approx(spread.item(), rel=1e-10)
            structure = (mean - 1 / 17).abs().sum(1).mean() / 2
            assert head.structure == pytest.approx(structure.item(), rel=1e-10)
            changed, _ = vit_forward(model, IMAGES, {(number, place): mean})
            assert head.change == pytest.approx(moved(plain, changed), rel=1e-8)
            assert head.picture[3][5] == pytest.approx(mean[3, 5].item(), rel=1e-3)
    everything, _ = vit_forward(model, IMAGES, means)
    assert found.change == pytest.approx(moved(plain, everything), rel=1e-8)
    same = (plain.argmax(1) == everything.argmax(1)).double().mean().item()
    assert found.agreement == same
    torch.testing.assert_close(
        mean_maps(model, [IMAGES])["blocks.1.attn"],
        torch.stack([means[1, head] for head in range(HEADS)]),
    )
    assert torch.equal(model(IMAGES), vit(fused)(IMAGES))  # as before


def bert(kind: str) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=48,
        initializer_range=0.3,
        attn_implementation=kind,
    )
    return transformers.BertModel(config, add_pooling_layer=False).double().eval()


def bert_forward(model: nn.Module, ids: Tensor, maps: dict[int, Tensor]) -> Tensor:
    """BERT by hand on one text without padding; head 1 of some layers attends by given maps."""
    x = model.embeddings(ids)
    for number, layer in enumerate(model.encoder.layer):
        self_attention = layer.attention.self
        parts = (self_attention.query, self_attention.key, self_attention.value)
        q, k, v = (p(x).view(1, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for p in parts)
        weights = torch.softmax(q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5, 3)
        if number in maps:
            weights[:, 1] = maps[number]
        out = (weights @ v).transpose(1, 2).flatten(2)
        x = layer.attention.output(out, x)
        x = layer.output(layer.intermediate(x), x)
    return x


@torch.no_grad()
@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_padded_texts_by_hand(kind):
    """Each text alone and without padding is the reference."""
    model = bert(kind)
    batch = {"input_ids": IDS * MASK, "attention_mask": MASK}
    found = measured_maps(model, [batch])
    eager = bert("eager")
    texts = [IDS[n : n + 1, :length] for n, length in enumerate(LENGTHS)]
    maps = [eager(input_ids=text, output_attentions=True).attentions[1][0] for text in texts]
    total, count = torch.zeros(HEADS, 7, 7).double(), torch.zeros(7, 7)
    for each in maps:
        total[:, : each.shape[1], : each.shape[1]] += each
        count[: each.shape[1], : each.shape[1]] += 1
    mean = total / count.clamp(min=1)
    torch.testing.assert_close(mean_maps(model, [batch])["encoder.layer.1.attention.self"], mean)
    distances, changes = [], []
    for text, each in zip(texts, maps, strict=True):
        length = text.shape[1]
        own = mean[1, :length, :length]
        own = own / own.sum(1, keepdim=True)
        distances.append((each[1] - own).abs().sum(1).mean().item() / 2)
        before, after = bert_forward(eager, text, {}), bert_forward(eager, text, {1: own})
        changes.append(((after - before).norm() / before.norm()).item())
    head = found.layers[1].heads[1]
    assert head.spread == pytest.approx(sum(distances) / 4, rel=1e-8)
    assert head.change == pytest.approx(sum(changes) / 4, rel=1e-8)
    assert found.agreement is None
    assert found.notes == ("Padding, 36 % of the tokens of padded batches, counts nowhere.",)


def test_padding_does_not_matter():
    model = bert("sdpa")
    padded = {"input_ids": IDS * MASK, "attention_mask": MASK}
    more = {name: nn.functional.pad(value, (0, 4)) for name, value in padded.items()}
    alone = [{"input_ids": IDS[n : n + 1, :length]} for n, length in enumerate(LENGTHS)]
    heads = [measured_maps(model, batches).heads for batches in ([padded], [more], alone)]
    for one, two, three in zip(*heads, strict=True):
        for name in ("spread", "structure", "change"):
            assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-9)
            assert getattr(one, name) == pytest.approx(getattr(three, name), rel=1e-9)


def test_a_map_that_does_not_depend_on_the_input():
    model = vit()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight[:WIDTH] = 0  # queries are their bias,
            block.attn.qkv.weight[WIDTH : 2 * WIDTH] = 0  # keys too
    found = measured_maps(model, [EIGHT])
    assert all(head.spread < 1e-12 and head.change < 1e-12 for head in found.heads)
    assert found.change < 1e-12
    assert found.verdict == (
        "4 of 4 heads attend nearly alike whatever the input (distance from their mean map below "
        f"0.1; median {sorted(head.spread for head in found.heads)[2]:.2g}). With its mean map, a "
        f"single head changes the output by at most "
        f"{100 * max(head.change for head in found.heads):.2g} %, all heads together by "
        f"{100 * found.change:.2g} %, and 100 % of the answers stay."
    )


def test_causal_attention_and_grouped_keys():
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        **special,
    )
    torch.manual_seed(0)
    model = transformers.LlamaModel(config).double().eval()
    maps = mean_maps(model, [{"input_ids": IDS}])
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    eager = transformers.LlamaModel(config).double().eval()
    with torch.no_grad():
        expected = eager(input_ids=IDS, output_attentions=True).attentions
    for found, reference in zip(maps.values(), expected, strict=True):
        torch.testing.assert_close(found, reference.mean(0))
        assert not found.triu(1).any()


def test_json_and_figures(tmp_path):
    found = measured_maps(vit(), [IMAGES], name="small")
    assert MapsResult.load(found.save(tmp_path / "maps.json")) == found
    assert list(found.figures()) == ["spread", "change", "maps blocks.0.attn", "maps blocks.1.attn"]
    assert found._repr_svg_().startswith("<svg")
    with pytest.raises(_errors.InputError) as error:
        MapsResult.from_json("{}")
    assert str(error.value) == (
        "Expected a file written by to_json ('attnlab maps 1') but got another."
    )


NONE = (
    "{} has no attention map to see: no softmax over keys that multiplies values. (A convolutional "
    "network has none; torch's MultiheadAttention and torchvision's ViT compute it inside one "
    "operation; linear attention and attention that mixes its heads make no such map.)"
)


def test_networks_without_maps():
    import torchvision

    small = torchvision.models.VisionTransformer(32, 8, 1, 2, 16, 24, num_classes=7)
    for model in (attnlab.create("resnet20"), small):
        with pytest.raises(_errors.StepsNotFoundError) as error:
            measured_maps(model, [torch.randn(2, 3, 32, 32)])
        assert str(error.value) == NONE.format(type(model).__name__)


class Reshaped(nn.Module):
    """Attention that gives its weights another precision, and maybe another shape, before use."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.flat = flat

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(2, (2, -1)).transpose(1, 2)
        weights = (heads @ heads.mT).softmax(-1).double()
        if self.flat:
            return weights.flatten(0, 1) @ heads.double().flatten(0, 1)
        return weights @ heads.double()


@pytest.mark.parametrize("flat", [False, True])
def test_weights_of_another_shape_are_no_map(flat):
    seen = []
    with handling_maps(network := Reshaped(flat), lambda key, map_: seen.append(key) or map_):
        network(torch.randn(3, 5, 4))
    assert seen == ([] if flat else [("", 0)])


class Fused(nn.Module):
    """Attention in one operation of torch."""

    def __init__(self, options: dict[str, object]) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **self.options)


MASKED = torch.tensor(
    [[True, False, True, True], [True, True, False, True], [False, True, True, True]]
)
FUSED: dict[str, dict[str, object]] = {
    "as it is": {},
    "of another scale": {"scale": 0.7},
    "causal": {"is_causal": True},
    "masked": {"attn_mask": MASKED},
    "with numbers added": {"attn_mask": torch.arange(12.0).reshape(3, 4).double() / 5},
    "of grouped keys": {"enable_gqa": True},
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_attention_is_computed_step_by_step(name):
    """The answer is torch's, and the map is what makes it of the values."""
    random = torch.Generator().manual_seed(4)
    heads = 2 if name == "of grouped keys" else 4
    query = torch.randn(2, 4, 3, 8, generator=random).double()
    key, value = (torch.randn(2, heads, 4, 8, generator=random).double() for _ in range(2))
    network, seen = Fused(FUSED[name]), []
    with handling_maps(network, lambda key, map_: seen.append((str(key), map_)) or map_):
        found = network(query, key, value)
    expected = F.scaled_dot_product_attention(query, key, value, **FUSED[name])
    torch.testing.assert_close(found, expected)
    ((where, weights),) = seen
    assert (where, weights.shape) == ("", (2, 4, 3, 4))
    torch.testing.assert_close(weights.sum(3), torch.ones(2, 4, 3).double())
    torch.testing.assert_close(weights @ value.repeat_interleave(4 // heads, 1), expected)


def test_fused_attention_that_is_no_map():
    query = torch.randn(2, 3, 8).double()
    network, seen = Fused({}), []
    with handling_maps(network, lambda key, map_: seen.append(key) or map_):
        torch.testing.assert_close(
            network(query, query, query), F.scaled_dot_product_attention(query, query, query)
        )
        with pytest.raises(_errors.InputError, match=r"^Expected attention without dropout, in ev"):
            Fused({"dropout_p": 0.1})(query, query, query)
    assert seen == []


def test_a_map_is_a_softmax_over_keys_and_maps_are_counted_by_module():
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Fused({})

        def forward(self, x: Tensor) -> Tensor:
            scores = x @ x.mT
            first = scores.softmax(3) @ x
            second = torch.softmax(scores, dim=-1) @ x
            no_map = torch.softmax(scores, 2) @ x + scores.softmax(dim=1) @ x
            return first + second + no_map + self.inner(x, x, x) + self.inner(x, x, x)

    network, seen = Several(), []
    with handling_maps(network, lambda key, map_: seen.append(str(key)) or map_):
        network(torch.randn(2, 3, 4, 5))
    assert seen == ["", " (2)", "inner", "inner (2)"]


def test_the_distance_of_two_maps_by_hand():
    """Two queries of three keys: no key in common, half of the weight, the same."""
    one = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    other = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5]])
    given, found = torch.stack([one, one])[None], torch.stack([other, one])[None]
    torch.testing.assert_close(distance(given, found, None), torch.tensor([[0.75, 0.0]]).double())
    nan = given.masked_fill(given == 0, torch.nan)
    assert distance(nan, nan, None).tolist() == [[0, 0]]


def test_the_distance_of_padded_maps_is_over_what_there_is():
    """The last of three tokens is padding, as a query and as a key."""
    one = torch.tensor([[1.0, 0.0, 9.0], [0.0, 1.0, 9.0], [7.0, 7.0, 7.0]])
    other = torch.tensor([[0.0, 1.0, 5.0], [0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    valid = torch.tensor([[True, True, False], [False, False, False]])
    pair = (torch.stack([each, each])[:, None] for each in (one, other))
    assert distance(*pair, valid).tolist() == [[0.5], [0]]


def test_a_mean_map_is_over_the_inputs_that_have_both_tokens():
    """Of two texts of which one has two tokens and one three; and what stands in for each."""
    longer = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    shorter = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [torch.nan] * 3])
    valid = torch.tensor([[True, True, True], [True, True, False]])
    both = torch.stack([longer, shorter])[:, None]
    mean = MeanMap()
    mean.see(both, valid)
    wanted = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]).double()
    torch.testing.assert_close(mean.mean[0], wanted)
    apart = MeanMap()
    apart.see(both[1:, :, :2, :2], valid[1:, :2])  # the shorter one first, without its padding
    apart.see(both[:1], None)
    torch.testing.assert_close(apart.mean, mean.mean)
    torch.testing.assert_close(apart.sum, mean.sum)
    padded = MeanMap()
    padded.see(F.pad(both, (0, 1, 0, 1)), F.pad(valid, (0, 1)))
    assert padded.without_padding().mean.shape == (1, 3, 3)
    torch.testing.assert_close(padded.without_padding().mean, mean.mean)
    own = both.clone()
    found = mean.for_inputs(own, valid)
    torch.testing.assert_close(found[0, 0].double(), wanted)
    assert found[1, 0, :2].tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0]]
    assert found[1, 0, 2].isnan().all()  # it has no mean: its own
    cut = torch.tensor([[False, True, True]])  # each row adds up to 1 over the keys that are there
    assert mean.for_inputs(own[:1], cut)[0, 0, 0].tolist() == [0, 1, 0]


def test_windows_are_refused():
    model = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=56, embed_dim=12, depths=(1,), num_heads=(2,)
    )
    with pytest.raises(_errors.InputError) as error:
        measured_maps(model, [torch.randn(2, 3, 56, 56)])
    assert str(error.value) == (
        "Expected the maps of 'layers.0.blocks.0.attn' to be of 2 inputs but got 8: windows lie "
        "along the batch, as in Swin, and each would need a mean of its own."
    )


def test_an_empty_loader():
    with pytest.raises(_errors.InputError) as error:
        measured_maps(vit(), [])
    assert str(error.value) == "Expected a loader with at least one batch but got an empty one."


def test_one_input_proves_nothing():
    found = measured_maps(vit(), [IMAGES[:1].expand(4, -1, -1, -1)])
    assert (found.inputs, found.different_inputs) == (4, 1)
    assert found.verdict == (
        "Only one input, or copies of one, was seen, so nothing can be said about whether it "
        "depends on the input: give at least 8 different ones."
    )
    few = measured_maps(vit(), [IMAGES]).verdict
    assert few.endswith(
        "Only 5 different inputs were seen, and below 8 nothing is called constant."
    )


def test_a_long_measurement_tells_how_far_it_is(capsys):
    measured_maps(vit(), [IMAGES], progress=True)
    assert "passes over the images" in capsys.readouterr().err
    measured_maps(vit(), [IMAGES])  # not a terminal
    assert capsys.readouterr().err == ""


def test_the_command_and_its_page(capsys, tmp_path):
    """It looks at fewer images than gates take, since each head is a pass over all of them."""
    main(f"maps timm:test_vit --size 64 --data fake --out {tmp_path}".split())
    printed = capsys.readouterr().out
    found = MapsResult.load(tmp_path / "maps.json")
    assert found.inputs == 32
    assert found.verdict in printed
    assert "result = attnlab.maps(attnlab.open('timm:test_vit'," in printed
    assert found.provenance is not None
    page = (tmp_path / "maps.html").read_text(encoding="utf-8")
    for text in (
        "Does the map depend on the input?",
        "Mean attention maps of 2 heads of blocks.5.attn",
    ):
        assert text in page
    assert (tmp_path / "maps-blocks.0.attn.svg").is_file()
    again = tmp_path / "again.html"
    main(["report", str(tmp_path / "maps.json"), "-o", str(again)])
    assert again.read_text(encoding="utf-8") == page
