"""Gates that look over all tokens: on padded batches, and in networks that may not look ahead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import timm
import torch
import transformers
from tests.surgery.insertion.networks import awake
from torch import Tensor, nn

import attnlab
from attnlab import _errors
from attnlab._errors import SiteError
from attnlab.gates.registry import GATES
from attnlab.surgery.insertion import attachments, remove

WIDTH = 24
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}
IDS = torch.randint(2, 50, (6, 9), generator=torch.Generator().manual_seed(1))
LENGTHS = (9, 4, 6, 1, 4, 2)
MASK = torch.stack([(torch.arange(9) < length).long() for length in LENGTHS])
EXAMPLE = {"input_ids": IDS[:1]}


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, intermediate_size=48, **SIZES)
    return transformers.BertModel(config, add_pooling_layer=False).double().eval()


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    special = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(vocab_size=50, n_embd=WIDTH, n_layer=2, n_head=2, **special)
    return transformers.GPT2Model(config).double().eval()


def texts(network: nn.Module, **inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return network(**inputs).last_hidden_state


def test_a_shared_gate_leaves_padding_out():
    network = awake(attnlab.insert(bert(), "se", shared=True, example=EXAMPLE)[0])
    together = texts(network, input_ids=IDS * MASK, attention_mask=MASK)
    for number, length in enumerate(LENGTHS):
        alone = texts(network, input_ids=IDS[number : number + 1, :length])
        torch.testing.assert_close(together[number, :length], alone[0], rtol=0, atol=1e-12)


def checkpointed(gate: str, reentrant: bool) -> nn.Module:
    network = awake(attnlab.insert(bert(), gate, example=EXAMPLE)[0])
    network.gradient_checkpointing_enable({"use_reentrant": reentrant})
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network.train()


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("reentrant", [True, False])
def test_padding_is_not_known_when_a_block_runs_again(reentrant):
    network = checkpointed("se", reentrant)
    padded = {"input_ids": IDS * MASK, "attention_mask": MASK}
    with pytest.raises(SiteError) as error:
        network(**padded)
    assert str(error.value) == (
        "The gate 'encoder.layer.0.attention.output.attnlab' leaves out the tokens that are "
        "padding by attention_mask, which is not known any more when the backward pass runs its "
        "block once more (activation checkpointing). Switch checkpointing off (for Hugging Face, "
        "model.gradient_checkpointing_disable()), train on batches without padding, or choose a "
        "gate that looks at each token alone, such as 'token' or 'asr:se'."
    )
    answer = texts(network, **padded)  # no backward pass follows
    torch.testing.assert_close(answer, texts(network.eval(), **padded))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(("gate", "mask"), [("se", MASK * 0 + 1), ("asr:se", MASK)])
def test_checkpointed_blocks_without_padding_or_pooling(gate, mask, reentrant):
    network = checkpointed(gate, reentrant)
    found = []
    for _ in range(2):
        network.zero_grad()
        network(input_ids=IDS, attention_mask=mask).last_hidden_state.square().sum().backward()
        found.append([parameter.grad for parameter in network.parameters()])
        network.gradient_checkpointing_disable()
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("gate", ["se", "eca", "srm", "simam", "scse", "cbam", "step"])
@pytest.mark.parametrize("start", ["paper", "identity"])
def test_a_padded_text_is_answered_as_if_alone(gate, start):
    network = awake(attnlab.insert(bert(), gate, start=start, example=EXAMPLE)[0])
    together = texts(network, input_ids=IDS * MASK, attention_mask=MASK)
    for number, length in enumerate(LENGTHS):
        alone = texts(network, input_ids=IDS[number : number + 1, :length])
        torch.testing.assert_close(together[number, :length], alone[0], rtol=0, atol=1e-12)
    unaware = texts(network, input_ids=IDS * MASK)
    assert (unaware[1, :4] - together[1, :4]).abs().max() > 1e-3


def test_padding_on_the_left_and_in_the_middle():
    network = awake(attnlab.insert(bert(), "se", example=EXAMPLE)[0])
    mask = torch.tensor([[0, 0, 1, 1, 0, 1, 1, 1, 1]])
    positions = torch.arange(9)[None]
    kept = mask[0].bool()
    padded = texts(network, input_ids=IDS[:1], attention_mask=mask, position_ids=positions)
    alone = texts(network, input_ids=IDS[:1, kept], position_ids=positions[:, kept])
    torch.testing.assert_close(padded[:, kept], alone, rtol=0, atol=1e-12)


def test_the_mask_by_position_in_copies_and_in_files():
    network = awake(attnlab.insert(bert(), "se", example=EXAMPLE)[0])
    expected = texts(network, input_ids=IDS, attention_mask=MASK)
    for each in (network, copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        with torch.no_grad():
            assert torch.equal(each(IDS, MASK).last_hidden_state, expected)


def test_gradients_of_a_padded_batch_are_those_of_its_texts():
    network = awake(attnlab.insert(bert(), "se", example=EXAMPLE)[0])
    gate = next(iter(attachments(network)))[1]

    def gradient(batches: list[dict[str, Tensor]], weights: list[Tensor]) -> Tensor:
        network.zero_grad()
        for batch, weight in zip(batches, weights, strict=True):
            (network(**batch).last_hidden_state * weight[..., None]).sum().backward()
        return torch.cat([p.grad.flatten() for p in gate.parameters()])

    together = gradient([{"input_ids": IDS, "attention_mask": MASK}], [MASK])
    rows = zip(IDS, LENGTHS, strict=True)
    alone = gradient(
        [{"input_ids": ids[None, :length]} for ids, length in rows],
        [torch.ones(1, length) for length in LENGTHS],
    )
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)


def test_a_network_that_lost_its_gates_is_as_before():
    model = bert()
    network, receipt = attnlab.insert(model, "se", example=EXAMPLE)
    assert receipt.notes == (
        "se looks over all tokens; those that are padding by the attention_mask of a call are "
        "left out",
    )
    remove(network)
    assert type(network) is type(model)
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    assert torch.equal(texts(network, **inputs), texts(model, **inputs))


def test_the_gate_that_stripe_sees_is_that_of_the_text_alone():
    network = awake(attnlab.insert(bert(), "simam", example=EXAMPLE)[0])
    padded = attnlab.stripe(network, [{"input_ids": IDS[1:2], "attention_mask": MASK[1:2]}])
    alone = attnlab.stripe(network, [{"input_ids": IDS[1:2, :4]}])
    for one, two in zip(padded.sites, alone.sites, strict=True):
        assert one.mean == pytest.approx(two.mean, rel=1e-6)


def test_constant_gates_do_not_care():
    network = awake(attnlab.insert(bert(), "asr:se", example=EXAMPLE)[0])
    assert not any(attachment.over_tokens for _, attachment in attachments(network))


# --- what cannot leave padding out says so


def test_a_memory_from_block_to_block():
    network = attnlab.insert(bert(), "dia", example=EXAMPLE)[0]
    texts(network, input_ids=IDS, attention_mask=torch.ones_like(MASK))
    with pytest.raises(_errors.SiteError) as error:
        texts(network, input_ids=IDS, attention_mask=MASK)
    assert str(error.value) == (
        "The gate 'encoder.layer.0.attention.output.attnlab' (DenseImplicitAttention) hands a "
        "memory from block to block and looks over all tokens, so it cannot leave padding out. Use "
        "batches without padding, or another gate, such as 'se'."
    )


def test_batch_norm_in_training():
    network = attnlab.insert(bert(), "srm", example=EXAMPLE)[0].train()
    with pytest.raises(_errors.SiteError) as error:
        texts(network, input_ids=IDS, attention_mask=MASK)
    assert str(error.value) == (
        "The gate 'encoder.layer.0.attention.output.attnlab' (StyleRecalibration) normalises "
        "over the batch, and inputs that are padded differently are not computed in one. Train on "
        "batches without padding, or choose a gate without a batch norm, such as 'se'."
    )


class Wrapped(nn.Module):
    """Takes a dictionary, as sentence encoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = bert()

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        return self.encoder(**features).last_hidden_state


@pytest.mark.parametrize("example", [{"input_ids": IDS, "attention_mask": MASK}, EXAMPLE])
@pytest.mark.parametrize("part", [False, True])
def test_a_mask_that_only_a_part_of_the_network_knows(example, part):
    wrapped = Wrapped()
    if part:
        attnlab.insert(wrapped.encoder, "se", example=example, inplace=True)
    else:
        wrapped, _ = attnlab.insert(wrapped, "se", example=(example,))
    assert_texts_alone(
        awake(wrapped),
        lambda tokens, mask: wrapped({"inputs_embeds": tokens, "attention_mask": mask}),
    )


class Hiding(nn.Module):
    """A layer whose attention alone is told of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        return tokens + self.attention(tokens, tokens, tokens, key_padding_mask=padding)[0]


def test_a_mask_that_only_a_module_of_the_block_knows():
    with pytest.raises(SiteError) as error:
        attnlab.insert(Hiding().double().eval(), "se", example=(TOKENS, PADDING))
    assert str(error.value) == (
        "'se' looks over all tokens and must not see padding, but the key_padding_mask is only "
        "known inside 'attention', not to 'Hiding'. Use a gate that is the same for every input, "
        "such as 'asr:se'."
    )


class Halved(nn.Module):
    """Has a mask of its input's tokens; gates act on half of them."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.layer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        del attention_mask
        x = tokens[:, ::2]
        return x + self.layer(self.mix(x).mean(1, keepdim=True) + x)


def test_other_tokens_than_those_of_the_mask():
    network = attnlab.insert(Halved(), "se", example=torch.randn(1, 8, WIDTH))[0]
    with pytest.raises(_errors.InputError) as error:
        network(torch.randn(2, 8, WIDTH), torch.eye(8)[:2])
    assert str(error.value) == (
        "The gate 'attnlab' looks over all tokens, and which are padding is not known where it "
        "acts: attention_mask has shape (2, 8) and its branch (2, 4, 24). Use a gate that is the "
        "same for every input, such as 'asr:se', or batches without padding."
    )


class Masked(Halved):
    """The same with all of them."""

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(tokens.repeat_interleave(2, 1), attention_mask)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:FutureWarning")
def test_tracing_a_padded_batch():
    network = attnlab.insert(Masked(), "se", example=torch.randn(1, 8, WIDTH))[0].eval()
    with pytest.raises(_errors.SiteError) as error:
        torch.jit.trace(network, (torch.randn(2, 8, WIDTH), torch.eye(8)[:2]), check_trace=False)
    assert str(error.value) == (
        "Gates that look over all tokens leave out those that are padding by attention_mask, which "
        "differs from call to call and cannot be traced. Trace without attention_mask, or use a "
        "gate that is the same for every input, such as 'asr:se'."
    )


class Around(nn.Module):
    """A network whose part alone is told, by a name that it does not have itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Masked()

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.inner(tokens, attention_mask=padding)


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
@pytest.mark.parametrize("build", [Masked, Around])
@pytest.mark.parametrize("how", ["fx", "export", "export strict"])
def test_a_graph_that_would_not_know_of_padding_is_refused(build, how):
    tokens, mask = torch.randn(2, 8, WIDTH), torch.ones(2, 8)
    network = attnlab.insert(build(), "se", example=(tokens, mask))[0].eval()
    name = "padding" if build is Around else "attention_mask"

    def graph_of(*given: Tensor) -> Callable[[Tensor], Tensor]:
        if how == "fx":
            fixed = None if len(given) > 1 else {name: None}
            return torch.fx.symbolic_trace(network, concrete_args=fixed)
        return torch.export.export(network, given, strict=how.endswith("strict")).module()

    with pytest.raises(Exception, match="leave out those that are padding by attention_mask"):
        graph_of(tokens, mask)
    expected = network(tokens)
    torch.testing.assert_close(graph_of(tokens)(tokens), expected)


# --- causal networks

REFUSED = (
    "{gate!r} looks over all tokens of a sequence, and {network} is causal: when the last token "
    "changes, no earlier position of the state at {site} does. With this gate the future would "
    "leak into every earlier position. Use a gate that is the same for every input: 'asr:se'."
)


@pytest.mark.parametrize("start", ["paper", "identity"])
@pytest.mark.parametrize("gate", ["se", "step", "eca", "simam"])
def test_gpt2_takes_no_gate_that_looks_ahead(gate, start):
    with pytest.raises(_errors.SiteError) as error:
        attnlab.insert(gpt2(), gate, start=start, example=EXAMPLE)
    assert str(error.value) == REFUSED.format(gate=gate, network="GPT2Model", site="1.0 (h.0)")


PADDED = {"input_ids": IDS[1:2], "attention_mask": MASK[1:2]}


@pytest.mark.parametrize("example", [PADDED, tuple(PADDED.values())], ids=["named", "by place"])
def test_examples_with_padding_tell_the_same(example):
    """The last token is padding, which changes nothing, causal or not."""
    assert len(attnlab.insert(bert(), "se", example=example)[1].sites) == 4
    with pytest.raises(_errors.SiteError, match="GPT2Model is causal"):
        attnlab.insert(gpt2(), "se", example=PADDED)


def test_a_refusal_in_place_leaves_the_network_alone():
    model = gpt2()
    keys, kind = list(model.state_dict()), type(model)
    with pytest.raises(_errors.SiteError):
        attnlab.insert(model, "se", example=EXAMPLE, inplace=True)
    assert list(model.state_dict()) == keys
    assert type(model) is kind


def test_constant_gates_keep_gpt2_causal():
    network = awake(attnlab.insert(gpt2(), "asr:se", example=EXAMPLE)[0])
    other = IDS.clone()
    other[:, -1] = 1
    one, two = texts(network, input_ids=IDS), texts(network, input_ids=other)
    assert torch.equal(one[:, :-1], two[:, :-1])
    assert not torch.equal(one[:, -1], two[:, -1])


class Mixer(nn.Module):
    """Tokens of image patches, mixed in the way that is asked for, without any attention."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        for layer in self.layers:
            if self.way == "earlier":
                mixed = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).to(x)[:, None]
            elif self.way == "all":
                mixed = x.mean(1, keepdim=True).expand_as(x)
            else:
                mixed = x
            x = x + layer(mixed)
        return x.mean(1)


def test_causality_is_seen_by_what_a_network_does():
    """Pixels in, one vector out: no token of the input or output is to be seen."""
    example = torch.randn(1, 3, 16, 16)
    torch.manual_seed(0)
    with pytest.raises(_errors.SiteError) as error:
        attnlab.insert(Mixer("earlier"), "se", example=example)
    assert str(error.value) == REFUSED.format(gate="se", network="Mixer", site="1.0")
    for way in ("all", "none"):
        assert len(attnlab.insert(Mixer(way), "se", example=example)[1].sites) == 3


def test_the_decoder_of_a_network_with_both():
    sizes = {"d_model": WIDTH, "num_layers": 2, "num_heads": 2, "d_ff": 32, "d_kv": 12}
    model = transformers.T5Model(transformers.T5Config(vocab_size=50, **sizes)).eval()
    example = {"input_ids": IDS[:1], "decoder_input_ids": IDS[1:2]}
    with pytest.raises(_errors.SiteError) as error:
        attnlab.insert(model, "se", example=example)
    assert str(error.value) == REFUSED.format(
        gate="se", network="T5Model", site="1.4 (decoder.block.0.layer.0)"
    )
    _, receipt = attnlab.insert(model, "se", where="in:encoder", example=example)
    assert len(receipt.sites) == 4


def test_an_example_of_one_token():
    with pytest.raises(_errors.InputError) as error:
        attnlab.insert(gpt2(), "se", example={"input_ids": IDS[:1, :1]})
    assert str(error.value) == (
        "'se' looks over all tokens of a sequence, and whether GPT2Model may look ahead cannot be "
        "seen on an example of one token. Pass a longer one: example=..."
    )


def test_a_compiled_vision_transformer():
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=WIDTH, depth=2, num_heads=2
    )
    network, images = attnlab.insert(model, "se")[0].eval(), torch.randn(2, 3, 32, 32)
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(images), network(images))


@pytest.mark.parametrize("layer_scale", [None, 1e-5])
def test_vision_transformers_take_every_gate(layer_scale):
    model = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        embed_dim=WIDTH,
        depth=2,
        num_heads=2,
        init_values=layer_scale,
    )
    for gate in ("se", "eca", "step"):
        assert len(attnlab.insert(model, gate)[1].sites) == 4


def test_every_gate_that_looks_over_tokens_is_known_for_it():
    """By the gate itself, in a network of one block, trained or not: only constants may pass, and
    what looks at one token alone."""
    alone = ("token", "head", "element", "scale", "rezero", "lambda")
    for name in alone:
        attnlab.insert(gpt2(), name, example=EXAMPLE)
    for name, info in GATES.items():
        if info.form != "norm" and name not in alone:
            with pytest.raises(_errors.SiteError, match="is causal"):
                attnlab.insert(gpt2(), name, example=EXAMPLE)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_rows_of_different_lengths_in_one_tensor_are_refused():
    """torch.nn.TransformerEncoder packs padded rows so, in eval mode without gradients."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    inputs, padding = torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    network, _ = attnlab.insert(encoder, "asr:se", example=inputs)
    with torch.no_grad(), pytest.raises(_errors.SiteError) as error:
        network(inputs, src_key_padding_mask=padding)
    assert str(error.value) == (
        "A gate was given a nested tensor, rows of different lengths in one, which it cannot read. "
        "torch.nn.TransformerEncoder makes one of padded inputs in eval mode: build it with "
        "enable_nested_tensor=False, or set its use_nested_tensor = False."
    )
    expected = network(inputs.clone().requires_grad_(), src_key_padding_mask=padding)[~padding]
    network.use_nested_tensor = False
    with torch.no_grad():
        outputs = network(inputs, src_key_padding_mask=padding)[~padding]
    torch.testing.assert_close(outputs, expected.detach())


def encoder(**options: object) -> nn.Module:
    """Torch's own, which is told of padding by `src_key_padding_mask`."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 48, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()


class Encoding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = encoder()

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.inner(tokens, src_key_padding_mask=padding)


TOKENS = torch.randn(6, 9, WIDTH, generator=torch.Generator().manual_seed(3)).double()
PADDING = MASK == 0


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("gate", ["se", "eca", "simam", "cbam", "step"])
def test_torch_says_which_tokens_are_padding_by_another_name(gate, norm_first):
    network = awake(attnlab.insert(encoder(norm_first=norm_first), gate, example=TOKENS[:1])[0])
    added = torch.zeros(PADDING.shape, dtype=torch.double).masked_fill(PADDING, -torch.inf)
    for mask in (PADDING, added):
        together = network(TOKENS, src_key_padding_mask=mask)
        for number, length in enumerate(LENGTHS):
            alone = network(TOKENS[number : number + 1, :length])
            torch.testing.assert_close(together[number, :length], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("example", [(TOKENS, PADDING), (TOKENS,)])
def test_padding_that_only_a_part_is_told_of(example):
    gated, receipt = attnlab.insert(Encoding().eval(), "se", example=example)
    assert receipt.notes == (
        "se looks over all tokens; those are left out that 'inner' is told are padding",
    )
    assert_texts_alone(awake(gated), lambda tokens, mask: gated(tokens, mask == 0))


def assert_texts_alone(network: nn.Module, answer: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Of `answer(tokens, mask)`: each row of a padded batch is as if it were alone, whose mask is
    all ones, and would not be if `network` were not told."""
    with torch.no_grad():
        together, unaware = answer(TOKENS, MASK), answer(TOKENS, torch.ones_like(MASK))
        for number, length in enumerate(LENGTHS):
            row = TOKENS[number : number + 1, :length]
            alone = answer(row, MASK[number : number + 1, :length])
            torch.testing.assert_close(together[number, :length], alone[0], rtol=0, atol=1e-12)
    assert (unaware - together)[1, :4].abs().max() > 1e-3
    assert list(attachments(network))


def classifier() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, intermediate_size=48, **SIZES)
    network = transformers.BertForSequenceClassification(config).double().eval()
    return awake(attnlab.insert(network, "se", example=EXAMPLE)[0])


@pytest.mark.parametrize("how", ["itself", "a copy", "from a file", "with another gate"])
def test_a_part_called_alone_is_told_of_padding(how):
    network = classifier()
    if how == "a copy":
        network = copy.deepcopy(network)
    if how == "from a file":
        network = pickle.loads(pickle.dumps(network))
    if how == "with another gate":
        attnlab.insert(network, "step", example=EXAMPLE, inplace=True)
        awake(network)

    def answer(tokens: Tensor, mask: Tensor) -> Tensor:
        return network.bert(inputs_embeds=tokens, attention_mask=mask).last_hidden_state

    assert_texts_alone(network, answer)
    network(inputs_embeds=TOKENS, attention_mask=MASK)
    assert_texts_alone(network, answer)


@pytest.mark.parametrize("part", [False, True])
def test_a_compiled_network_leaves_padding_out(part):
    """Its graph breaks in every gate; that all gates acted is still seen."""
    network = classifier()
    plain = network.bert if part else network
    compiled = torch.compile(plain, backend="eager")
    with torch.no_grad():
        for mask in (MASK, torch.ones_like(MASK), None):
            answer = compiled(inputs_embeds=TOKENS, attention_mask=mask)[0]
            torch.testing.assert_close(answer, plain(inputs_embeds=TOKENS, attention_mask=mask)[0])


@pytest.mark.parametrize("gate", ["se", "eca", "cbam", "step"])
def test_tokens_on_the_last_axis(gate):
    """SqueezeBERT's convolutions go over tokens."""
    torch.manual_seed(0)
    config = transformers.SqueezeBertConfig(
        vocab_size=50, embedding_size=WIDTH, intermediate_size=48, **SIZES
    )
    network = transformers.SqueezeBertModel(config).double().eval()
    awake(network := attnlab.insert(network, gate, example=EXAMPLE)[0])
    together = texts(network, input_ids=IDS * MASK, attention_mask=MASK)
    for number, length in enumerate(LENGTHS):
        alone = texts(network, input_ids=IDS[number : number + 1, :length])
        torch.testing.assert_close(together[number, :length], alone[0], rtol=0, atol=1e-12)
    assert (texts(network, input_ids=IDS * MASK) - together)[1, :4].abs().max() > 1e-6


class TwoTexts(nn.Module):
    """Documents and queries, each text with a mask of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.documents, self.queries = bert(), bert()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, query_ids: Tensor, query_mask: object
    ) -> list[Tensor]:
        documents = self.documents(input_ids=input_ids, attention_mask=attention_mask)
        queries = self.queries(input_ids=query_ids, attention_mask=query_mask)
        return [each.last_hidden_state for each in (documents, queries)]


@pytest.mark.parametrize("query_mask", [MASK.flip(0), None])
def test_each_of_two_texts_is_padded_by_its_own_mask(query_mask):
    """Both are of one shape, so that the mask of the one would fit the other."""
    queries, ones = IDS.flip(1), torch.ones_like(MASK)
    example = (IDS[:1], ones[:1], queries[:1], ones[:1])
    network = awake(attnlab.insert(TwoTexts().eval(), "se", example=example)[0])
    with torch.no_grad():
        found = network(IDS, MASK, queries, query_mask)
        masks = (MASK, ones if query_mask is None else query_mask)
        for got, ids, mask, place in zip(found, (IDS, queries), masks, (0, 1), strict=True):
            for number, length in enumerate(mask.sum(1).tolist()):
                row = ids[number : number + 1, :length]
                alone = network(row, torch.ones_like(row), row, torch.ones_like(row))[place]
                torch.testing.assert_close(got[number, :length], alone[0], rtol=0, atol=1e-12)


class Told(nn.Module):
    """Layers that look at each token alone; a method is told of padding, and the forward is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.first(tokens)
        return tokens + self.second(tokens)

    def encode(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        del attention_mask
        return Told.forward(self, tokens)


def test_a_method_that_is_told_of_padding():
    torch.manual_seed(0)
    network, _ = attnlab.insert(Told().double().eval(), "se", example=TOKENS[:1])
    awake(network)
    assert_texts_alone(network, network.encode)
    assert_texts_alone(network, lambda tokens, mask: network.encode(tokens, attention_mask=mask))


def test_a_part_that_was_given_something_else_than_a_mask_of_tokens():
    network = classifier()
    extended = torch.zeros(6, 1, 1, 9).double().masked_fill(MASK[:, None, None] == 0, -1e9)
    with pytest.raises(_errors.InputError, match=r"Expected attention_mask of shape \(inputs, tok"):
        network.bert.encoder(TOKENS, attention_mask=extended)
    network.bert.encoder(TOKENS)


@pytest.mark.parametrize("alone", [True, False])
def test_the_encoder_of_a_network_with_both(alone):
    torch.manual_seed(0)
    sizes = {"d_model": WIDTH, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(vocab_size=50, decoder_start_token_id=0, **sizes)
    network = transformers.T5ForConditionalGeneration(config).double().eval()
    example = {"input_ids": IDS[:1], "decoder_input_ids": IDS[:1, :3]}
    network, _ = attnlab.insert(
        network, "se", where=lambda site: site.module.startswith("encoder."), example=example
    )
    awake(network)

    def answer(tokens: Tensor, mask: Tensor) -> Tensor:
        given = {"inputs_embeds": tokens, "attention_mask": mask}
        if alone:
            return network.get_encoder()(**given).last_hidden_state
        first = IDS[:1, :3].expand(len(tokens), -1)
        return network(**given, decoder_input_ids=first).encoder_last_hidden_state

    assert_texts_alone(network, answer)


def test_a_part_without_gates_is_its_own_class_again():
    network, own = classifier(), transformers.BertModel
    assert type(network.bert) is not own
    remove(network)
    assert type(network.bert) is own
    assert type(network.bert.encoder) is type(bert().encoder)
    assert "_attnlab" not in network.bert.__dict__


def test_a_part_whose_blocks_run_again():
    network = classifier()
    network.bert.gradient_checkpointing_enable({"use_reentrant": False})
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    network.train()
    found = []
    for _ in range(2):
        network.zero_grad()
        given = {"inputs_embeds": TOKENS, "attention_mask": torch.ones_like(MASK)}
        network.bert(**given).last_hidden_state.square().sum().backward()
        found.append([p.grad for p in network.bert.encoder.parameters()])
        network.bert.gradient_checkpointing_disable()
    torch.testing.assert_close(*found)
