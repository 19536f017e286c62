"""Networks of Hugging Face with gates: training, saving, resuming and reading back."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import transformers
from tests.residuals.streams import HEADS, LATENT, tiny
from tests.surgery.insertion.networks import awake
from torch import Tensor, nn

import attnlab
from attnlab._errors import PretrainedWarning, SiteError, WeightsError
from attnlab.bridges.huggingface import from_pretrained
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
IDS = {"input_ids": torch.arange(2, 11)[None]}


def vit() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=16, patch_size=8, num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config).eval()


def bert() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=50, intermediate_size=32, **sizes)
    return transformers.BertForSequenceClassification(config).eval()


def resnet() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic", num_labels=3
    )
    return transformers.ResNetForImageClassification(config).eval()


def answer(network: nn.Module, given) -> Tensor:
    """The logits, computed from weights that all begin where torch lets its own tensors begin.

    A tensor that is read from a file begins at any fourth byte, and with AVX-512 a product of two
    matrices rounds by where they begin: the same weights then give logits 2e-9 apart.
    """
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.data = tensor.data.clone()
        return (network(**given) if isinstance(given, dict) else network(given)).logits


def saved(network: nn.Module, folder: Path) -> Path:
    with pytest.warns(PretrainedWarning):
        network.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("build", "gate", "settings", "given"),
    [
        (vit, "se", {}, IMAGES),
        (vit, "asr:se", {"start": "identity", "activation": "sigmoid"}, IMAGES),
        (vit, "dia", {}, IMAGES),
        (vit, "se", {"where": "blocks:1", "reduction": 4}, IMAGES),
        (vit, "se", {"where": lambda site: site.part == 1}, IMAGES),
        (bert, "se", {"example": IDS}, IDS),
        (bert, "step", {"example": (IDS["input_ids"],), "start": "identity"}, IDS),
        (resnet, "se", {"shared": True}, IMAGES),
        (resnet, "iebn", {}, IMAGES),
    ],
)
def test_a_folder_is_read_back_to_the_bit(tmp_path, build, gate, settings, given):
    network = awake(attnlab.insert(build(), gate, **settings)[0])
    folder = saved(network, tmp_path / "folder")
    for loaded in (attnlab.load(folder), from_pretrained(folder, type(build()))):
        assert loaded.state_dict().keys() == network.state_dict().keys()
        for name, tensor in network.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], tensor), name
        assert torch.equal(answer(loaded, given), answer(network, given))
    # And once more, from what was read.
    again = attnlab.load(saved(loaded, tmp_path / "again"))
    assert torch.equal(answer(again, given), answer(network, given))


def test_two_gates_of_which_one_was_taken_off(tmp_path):
    network, _ = attnlab.insert(vit(), "se", where="blocks:0")
    network, _ = attnlab.insert(awake(network), "asr:se", inplace=True)
    names = [name for name, _ in attachments(network)]
    attnlab.surgery.insertion.remove_attachments(network, keep=names[1:])
    loaded = attnlab.load(saved(network, tmp_path))
    assert [name for name, _ in attachments(loaded)] == names[1:]
    assert torch.equal(answer(loaded, IMAGES), answer(network, IMAGES))


def test_half_precision_stays(tmp_path):
    network = awake(attnlab.insert(vit(), "se")[0]).bfloat16()
    loaded = attnlab.load(saved(network, tmp_path))
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    assert torch.equal(answer(loaded, IMAGES.bfloat16()), answer(network, IMAGES.bfloat16()))


def test_what_plain_from_pretrained_does_is_said(tmp_path):
    network = awake(attnlab.insert(vit(), "se")[0])
    with pytest.warns(PretrainedWarning) as said:
        network.save_pretrained(tmp_path)
    assert str(said[0].message) == (
        "ViTForImageClassification was saved with its gates. attnlab.load(folder) reads it back; "
        "ViTForImageClassification.from_pretrained(folder) builds the network without its gates "
        "and reports their weights as unexpected."
    )
    network.save_pretrained(tmp_path)  # said once
    plain = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    assert not list(attachments(plain))
    assert torch.equal(answer(plain, IMAGES), answer(vit(), IMAGES))


@pytest.mark.parametrize("gate", ["se", "iebn"])
def test_weights_given_by_hand_have_the_gates(tmp_path, gate):
    network = awake(attnlab.insert(resnet(), gate)[0])
    weights = network.state_dict()
    with pytest.warns(PretrainedWarning):
        network.save_pretrained(tmp_path / "whole", state_dict=dict(weights))
    assert torch.equal(answer(attnlab.load(tmp_path / "whole"), IMAGES), answer(network, IMAGES))
    added = [key for key in weights if key not in resnet().state_dict()]
    plain = {key: value for key, value in weights.items() if key not in added}
    for place in ({"state_dict": plain}, (True, plain)):
        named, placed = (place, ()) if isinstance(place, dict) else ({}, place)
        with pytest.raises(SiteError) as error:
            network.save_pretrained(tmp_path / "plain", *placed, **named)
        assert str(error.value) == (
            f"save_pretrained of ResNetForImageClassification was given a state_dict= that lacks "
            f"{len(added)} tensors of its gates, the first {added[0]!r}, so the folder could not "
            f"be read back. Leave state_dict= out, or give that of the network with its gates, "
            f"network.state_dict(); to save it without them, take them off first: attnlab.remove."
        )
        assert not (tmp_path / "plain").exists()
    # Other processes of one run hold no weights, and write none.
    network.save_pretrained(tmp_path / "other", is_main_process=False, state_dict=plain)
    assert not (tmp_path / "other" / "attnlab.json").exists()


def test_gates_of_a_part_are_not_written_without_a_word(tmp_path):
    network = vit()
    attnlab.insert(network.vit, "se", inplace=True)
    with pytest.raises(SiteError) as error:
        network.save_pretrained(tmp_path / "whole")
    assert str(error.value) == (
        "save_pretrained of ViTForImageClassification would write the weights of 4 gates that were "
        "inserted into its part 'vit', and not how they came in, so the folder would be read back "
        "without them. Insert into ViTForImageClassification itself, attnlab.insert(model, ...), "
        "or save its weights alone, torch.save(model.state_dict(), file)."
    )
    assert not list((tmp_path / "whole").glob("*.safetensors"))
    assert any("attnlab" in name for name in network.state_dict())  # asked by others, it answers
    saved(network.vit, tmp_path / "part")
    attnlab.remove(network.vit)
    network.save_pretrained(tmp_path / "plain")


@pytest.mark.parametrize("gate", ["se", "asr:se", "step"])
def test_gates_are_not_written_by_a_part_of_their_network_without_a_word(tmp_path, gate):
    network, _ = attnlab.insert(vit(), gate)
    for number, each in enumerate((network, copy.deepcopy(network))):
        with pytest.raises(SiteError) as error:
            each.vit.save_pretrained(tmp_path / f"part{number}")
        assert str(error.value) == (
            f"save_pretrained of ViTModel would write the weights of {len(list(attachments(each)))}"
            f" gates that were inserted into another network, and not how they came in, so the "
            f"folder would be read back without them. Insert into ViTModel itself, "
            f"attnlab.insert(model, ...), or save its weights alone, "
            f"torch.save(model.state_dict(), file)."
        )
        assert not list((tmp_path / f"part{number}").glob("*.safetensors"))
        each.vit.state_dict()
        saved(each, tmp_path / f"whole{number}")
    attnlab.remove(network)
    network.vit.save_pretrained(tmp_path / "plain")


def test_norms_with_gates_are_not_written_by_a_part_of_their_network(tmp_path):
    network, _ = attnlab.insert(resnet(), "iebn")
    with pytest.raises(SiteError, match="the weights of 9 gates that were inserted into another"):
        network.resnet.save_pretrained(tmp_path)
    attnlab.remove(network)
    network.resnet.save_pretrained(tmp_path)


def test_a_folded_network_writes_a_plain_folder(tmp_path):
    network = awake(attnlab.insert(vit(), "asr:se")[0])
    folded, _ = attnlab.fold(network)
    folded.save_pretrained(tmp_path)
    assert not (tmp_path / "attnlab.json").exists()
    plain = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(answer(plain, IMAGES), answer(network, IMAGES))


def test_another_network_saved_over_it_is_noticed(tmp_path):
    saved(attnlab.insert(vit(), "se")[0], tmp_path)
    vit().save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match="was saved to it since"):
        attnlab.load(tmp_path)


def test_gates_that_no_file_can_name(tmp_path):
    class Local(attnlab.gates.BranchGate):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.level = nn.Parameter(torch.ones(1, channels, 1, 1))

        def forward(self, branch: Tensor) -> Tensor:
            return self.level.expand(len(branch), -1, -1, -1)

        def start_constant(self) -> float:
            return 1.0

    network, _ = attnlab.insert(vit(), Local)
    with pytest.raises(SiteError, match="cannot write down how the gates"):
        network.save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=4, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_a_shortened_network_is_a_plain_one_of_fewer_layers(tmp_path):
    short, _ = attnlab.shorten(gpt2(), ["transformer.h.1"], example=IDS)
    for number, each in enumerate((short, copy.deepcopy(short))):
        each.save_pretrained(tmp_path / str(number))
        plain = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / str(number)).eval()
        assert plain.config.n_layer == 3
        torch.testing.assert_close(answer(plain, IDS), answer(short, IDS))
    # By hand: the layers 0, 2 and 3 of the whole network.
    whole = gpt2()
    whole.transformer.h = nn.ModuleList([whole.transformer.h[i] for i in (0, 2, 3)])
    torch.testing.assert_close(answer(plain, IDS), answer(whole, IDS))


def test_parts_of_shortened_networks_and_networks_around_them(tmp_path):
    """Each would be read back with fresh weights where steps are gone."""
    short, _ = attnlab.shorten(gpt2(), ["transformer.h.1"], example=IDS)
    with pytest.raises(SiteError) as error:
        short.transformer.save_pretrained(tmp_path / "part")
    assert str(error.value) == (
        "save_pretrained of GPT2Model would write it with all its layers, and steps were removed "
        "from another network: read back, it would have fresh weights in their place. Save what "
        "they were removed from, or remove them from GPT2Model itself, attnlab.shorten(model, ...)."
    )
    whole = gpt2()
    whole.transformer, _ = attnlab.shorten(whole.transformer, ["h.1"], example=IDS)
    with pytest.raises(SiteError, match="steps were removed from its part 'transformer': read"):
        whole.save_pretrained(tmp_path / "around")
    # transformers reads the folder of the whole into its part.
    for number, each in enumerate((short, whole.transformer)):
        each.save_pretrained(tmp_path / str(number))
        part = transformers.GPT2Model.from_pretrained(tmp_path / str(number)).eval()
        expected = short.transformer(**IDS).last_hidden_state
        torch.testing.assert_close(part(**IDS).last_hidden_state, expected)


def test_a_shortened_network_writes_its_own_weights_or_says_so(tmp_path):
    short, _ = attnlab.shorten(gpt2(), ["transformer.h.1"], example=IDS)
    weights = short.state_dict()
    short.save_pretrained(tmp_path / "own", True, weights)
    plain = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "own").eval()
    torch.testing.assert_close(answer(plain, IDS), answer(short, IDS))
    averaged = {name: 0.5 * tensor for name, tensor in weights.items()}
    with pytest.raises(SiteError) as error:
        short.save_pretrained(tmp_path / "other", state_dict=averaged)
    assert str(error.value) == (
        "save_pretrained of GPT2LMHeadModel, from which steps were removed, writes the network's "
        "own weights, and was given others as state_dict=. Load them first, "
        "network.load_state_dict(...), and leave state_dict= out."
    )
    assert not (tmp_path / "other").exists()


LANGUAGE = {
    "vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip


def llama() -> nn.Module:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LANGUAGE)).eval()


def qwen2() -> nn.Module:
    """With a window in its last two layers, of which one goes."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        **LANGUAGE, use_sliding_window=True, sliding_window=4, max_window_layers=2
    )
    return transformers.Qwen2ForCausalLM(config).eval()


def qwen3_moe() -> nn.Module:
    """With two layers that have no experts, named by their numbers."""
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        **LANGUAGE, head_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        mlp_only_layers=[0, 3],
    )  # fmt: skip
    return transformers.Qwen3MoeForCausalLM(config).eval()


@pytest.mark.parametrize(
    ("build", "layer"),
    [
        (gpt2, "transformer.h.2"),
        (llama, "model.layers.0"),
        (qwen2, "model.layers.2"),
        (qwen3_moe, "model.layers.1"),
    ],
)
def test_a_shorter_language_model_is_read_without_attnlab(build, layer, tmp_path):
    short, _ = attnlab.shorten(build(), [layer], example=IDS)
    short.save_pretrained(tmp_path)
    plain = type(build()).from_pretrained(tmp_path).eval()
    assert not type(plain).__module__.startswith("attnlab")
    assert plain.config.num_hidden_layers == 3
    assert len(getattr(plain.config, "layer_types", None) or [0] * 3) == 3
    tokens = torch.arange(12)[None] % 7 + 2  # longer than the window
    assert torch.equal(answer(plain, {"input_ids": tokens}), answer(short, {"input_ids": tokens}))
    # By hand: the whole network with that layer skipped.
    whole = build()
    skipped = whole.get_submodule(layer)
    skipped.forward = lambda hidden_states, *_, **__: hidden_states
    by_hand = answer(whole, {"input_ids": tokens, "use_cache": False})
    assert torch.equal(answer(plain, {"input_ids": tokens}), by_hand)
    how = {"max_new_tokens": 8, "do_sample": False}
    told = [
        network.generate(tokens, use_cache=cache, **how)
        for network in (plain, short)
        for cache in (True, False)
    ]
    assert all(torch.equal(told[0], other) for other in told[1:])


def test_how_texts_are_continued_and_ended_is_saved_with_a_shorter_network(tmp_path):
    """`generation_config.json` is a file of its own; as many tokens end a text as there are layers,
    and they are not the layers' settings."""
    network = llama()
    network.config.eos_token_id = [3, 4, 5, 6]
    network.generation_config = transformers.GenerationConfig(
        eos_token_id=[3, 4, 5, 6], pad_token_id=0, repetition_penalty=1.7, max_new_tokens=5
    )
    short, _ = attnlab.shorten(network, ["model.layers.1"], example=IDS)
    short.save_pretrained(tmp_path)
    plain = transformers.LlamaForCausalLM.from_pretrained(tmp_path).eval()
    assert plain.config.eos_token_id == [3, 4, 5, 6]
    assert plain.generation_config.to_diff_dict() == network.generation_config.to_diff_dict()
    tokens = torch.arange(12)[None] % 7 + 7
    assert torch.equal(plain.generate(tokens), short.generate(tokens))


def qwen3_next() -> nn.Module:
    """Of which transformers keeps some parameters in float32 whatever the others are."""
    torch.manual_seed(0)
    config = transformers.Qwen3NextConfig(
        **LANGUAGE, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        shared_expert_intermediate_size=8, linear_key_head_dim=8, linear_value_head_dim=8,
        linear_num_key_heads=2, linear_num_value_heads=4,
        layer_types=["linear_attention", "full_attention"] * 2,
    )  # fmt: skip
    return transformers.Qwen3NextForCausalLM(config)


@pytest.mark.parametrize("build", [llama, qwen3_next])
def test_a_shorter_network_in_half_precision(build, tmp_path):
    """As it is read: rotary frequencies stay in float32, which `.to(bfloat16)` would round."""
    build().to(torch.bfloat16).save_pretrained(tmp_path / "whole")
    whole = type(build()).from_pretrained(tmp_path / "whole", dtype=torch.bfloat16).eval()
    types = {name: tensor.dtype for name, tensor in whole.named_buffers()}
    assert torch.float32 in types.values()
    short, _ = attnlab.shorten(whole, ["model.layers.1"], example=IDS)
    short.save_pretrained(tmp_path / "short")
    plain = type(whole).from_pretrained(tmp_path / "short", dtype="auto").eval()
    assert plain.dtype == torch.bfloat16
    assert torch.equal(answer(plain, IDS), answer(short, IDS))


def test_a_layer_that_hands_on_more_than_its_state(tmp_path):
    """HY-V4's: four streams, added in float32, and what its attention chose, which the next layer
    may read. The third layer reads it of the second, and nobody reads that of the third."""
    network = tiny("hy_v4", **LATENT, **HEADS, n_group=1, topk_group=1, num_hidden_layers=3)
    short, _ = attnlab.shorten(network, ["model.layers.2"], example=IDS)
    assert list(short.model.layers[2].parameters()) == []
    short.save_pretrained(tmp_path / "short")
    plain = transformers.HYV4ForCausalLM.from_pretrained(tmp_path / "short").eval()
    assert plain.config.num_hidden_layers == 2
    assert torch.equal(answer(plain, IDS), answer(short, IDS))
    second, _ = attnlab.shorten(network, ["model.layers.1"], example=IDS)
    with pytest.raises(SiteError, match=r"read more of 'model.layers.1' than its state"):
        second.save_pretrained(tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_layer_with_other_settings_is_not_written(tmp_path):
    """GPT-2 can divide a layer's scores by the layer's number, which changes with its place."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=4, n_head=2, scale_attn_by_inverse_layer_idx=True
    )
    short, _ = attnlab.shorten(
        transformers.GPT2LMHeadModel(config).eval(), ["transformer.h.1"], example=IDS
    )
    with pytest.raises(SiteError, match="network of fewer layers"):
        short.save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_half_a_layer_has_no_words(tmp_path):
    short, _ = attnlab.shorten(gpt2(), ["1.1:1"], example=IDS)
    told = r"only a part of a layer.*remove=\['transformer.h.1'\]"
    with pytest.raises(SiteError, match=rf"builds another network.*{told}"):
        short.save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


class Pictures(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": IMAGES[index], "labels": torch.tensor(index % 3)}


def trainer(network: nn.Module, folder: Path, steps: int) -> transformers.Trainer:
    # Default arguments but for the length, the checkpoints and what this machine lacks.
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=steps, save_steps=2, use_cpu=True, report_to="none",
        disable_tqdm=True, per_device_train_batch_size=3,
    )  # fmt: skip
    return transformers.Trainer(network, arguments, train_dataset=Pictures())


def train(network: nn.Module, folder: Path, steps: int, **how) -> nn.Module:
    trainer(network, folder, steps).train(**how)
    return network.eval()


@pytest.mark.filterwarnings("ignore::attnlab._errors.PretrainedWarning")
@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
def test_the_trainer_trains_saves_resumes_and_ends_with_its_gates(tmp_path):
    network, _ = attnlab.insert(vit(), "se")
    start = copy.deepcopy(network)
    whole = train(copy.deepcopy(network), tmp_path / "whole", 4)
    assert len(list(attachments(whole))) == 4
    for name, parameter in start.named_parameters():
        if name.endswith("fc2.bias"):
            assert not torch.equal(parameter, whole.get_parameter(name)), name
    resumed = train(
        copy.deepcopy(start),
        tmp_path / "resumed",
        4,
        resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"),
    )
    for checkpoint in (resumed, attnlab.load(tmp_path / "whole" / "checkpoint-4")):
        torch.testing.assert_close(answer(checkpoint, IMAGES), answer(whole, IMAGES))
