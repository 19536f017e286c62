# ruff: noqa: ARG005  (hooks are given more than they use)
"""NSI and TNS of language models against hooks on their layers, in float64: eight families, four of
them mixtures of experts, three with several streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from tests.residuals import streams
from torch import Tensor, nn

import attnlab
from attnlab._errors import OptionError
from attnlab.instruments.removal.images import trials_of
from attnlab.instruments.removal.rankings import RANKINGS

_EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}


class Family(NamedTuple):
    """A network, and where its states can be seen by hooks: what its layers are given, what this
    module in them is given (the state between the two steps), and what they return."""

    make: Callable[[], nn.Module]
    layers: str
    between: str
    hyper: tuple[str, str] | None = None
    """The hyper-connections that return (post, comb, ...), of streams that a matrix mixes."""
    streams: int = 1


FAMILIES = {
    "llama": Family(partial(streams.tiny, "llama"), "model.layers", "post_attention_layernorm"),
    "gpt2": Family(
        partial(streams.tiny, "gpt2", n_embd=32, n_layer=2, n_head=4), "transformer.h", "ln_2"
    ),
    "granite": Family(
        partial(streams.tiny, "granite", residual_multiplier=0.22),
        "model.layers",
        "post_attention_layernorm",
    ),
    "gemma2": Family(partial(streams.tiny, "gemma2"), "model.layers", "pre_feedforward_layernorm"),
    "qwen3_moe": Family(
        partial(streams.tiny, "qwen3_moe"), "model.layers", "post_attention_layernorm"
    ),
    "mixtral": Family(partial(streams.tiny, "mixtral"), "model.layers", "post_attention_layernorm"),
    "qwen4_exp": Family(streams.qwen4_exp, "model.layers", "mlp_hyper_connection", streams=2),
    "glm5_next": Family(
        streams.glm5_next, "layers", "ffn_hc", hyper=("attn_hc", "ffn_hc"), streams=4
    ),
    "deepseek_v4": Family(
        streams.deepseek_v4, "model.layers", "ffn_hc", hyper=("attn_hc", "ffn_hc"), streams=4
    ),
}


class Seen(NamedTuple):
    """By hand, of every step: what carries the state on, and what is added."""

    carried: list[Tensor]
    added: list[Tensor]


def first_tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else values[0]


def by_hand(family: Family, model: nn.Module, example: dict[str, Tensor]) -> Seen:
    states: list[list[Tensor]] = []
    matrices: list[Tensor] = []
    handles = []
    layers = list(model.get_submodule(family.layers).children())
    for layer in layers:
        handles += [
            layer.register_forward_pre_hook(
                lambda module, given, named: states.append(
                    [first_tensor(given or named["hidden_states"])]
                ),
                with_kwargs=True,
            ),
            layer.get_submodule(family.between).register_forward_pre_hook(
                lambda module, given: states[-1].append(given[0])
            ),
            layer.register_forward_hook(
                lambda module, given, output: states[-1].append(first_tensor(output))
            ),
        ]
        for name in family.hyper or ():
            handles.append(
                layer.get_submodule(name).register_forward_hook(
                    lambda module, given, output: matrices.append(output[1])
                )
            )
    with torch.no_grad():
        model(**example)
    for handle in handles:
        handle.remove()
    befores = [state for layer in states for state in layer[:2]]
    afters = [state for layer in states for state in layer[1:]]
    carried = befores
    if family.hyper:
        pairs = zip(matrices, befores, strict=True)
        carried = [torch.einsum("bsij,bsid->bsjd", m.to(x), x) for m, x in pairs]
    return Seen(carried, [after - c for after, c in zip(afters, carried, strict=True)])


def ratios(seen: Seen) -> Tensor:
    """NSI, (inputs, steps)."""
    pairs = zip(seen.carried, seen.added, strict=True)
    return torch.stack([u.flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1) for x, u in pairs], 1)


def tns_by_hand(nsi: Tensor) -> float:
    """Of one stage, whose first step does not count: the area of [0, z/μ - 1] × [0, z] with the
    largest NSI z and the mean μ, as Definition 2 has it for one rectangle."""
    kept = nsi[:, 1:]
    largest = kept.amax(1)
    return float(((largest / kept.mean(1) - 1) * largest).mean())


def split(seen: Seen, number: int) -> list[Seen]:
    """Stream by stream."""

    def one(state: Tensor, stream: int) -> Tensor:
        if state.ndim == 4:
            return state[:, :, stream]
        return state.unflatten(-1, (number, -1))[:, :, stream]

    return [
        Seen([one(x, i) for x in seen.carried], [one(u, i) for u in seen.added])
        for i in range(number)
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_nsi_and_tns_by_hand(name: str) -> None:
    family = FAMILIES[name]
    model, example = family.make().double(), streams.tokens(5, 8)
    seen = by_hand(family, model, example)
    expected = ratios(seen)
    found = attnlab.stiffness(model, [example])
    got = torch.tensor([step.mean for step in found.nsi], dtype=torch.float64)
    assert torch.allclose(got, expected.double().mean(0), rtol=1e-12, atol=0)
    assert found.tns == pytest.approx(tns_by_hand(expected.double()), rel=1e-11)
    if family.streams == 1:
        assert found.stream_tns == ()
        return
    parts = [ratios(each).double() for each in split(seen, family.streams)]
    for number, step in enumerate(found.nsi):
        own = [float(part[:, number].mean()) for part in parts]
        assert step.streams == pytest.approx(own, rel=1e-12)
    assert found.stream_tns == pytest.approx([tns_by_hand(each) for each in parts], rel=1e-11)


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen4_exp", "hy_v4"])
def test_block_influence_by_hand(name: str) -> None:
    """1 - cosine of what a step carries and what comes out, token by token, all streams of one."""
    hyper = Family(streams.hy_v4, "model.layers", "ffn_hc")
    family = hyper if name == "hy_v4" else FAMILIES[name]
    model, example = family.make().double(), streams.tokens(3, 8)
    seen = by_hand(family, model, example)
    trials = trials_of(attnlab.open(model), [example], None, example)
    assert trials is not None
    found = RANKINGS["influence"].scores(trials.ranked, ())
    assert found
    for number, step in enumerate(attnlab.steps(model, example)):
        if step.key not in found:
            continue
        before = seen.carried[number].double().flatten(0, 1).flatten(1)
        after = before + seen.added[number].double().flatten(0, 1).flatten(1)
        cosine = torch.nn.functional.cosine_similarity(before, after)
        # HY-V4 computes its steps in float32, whatever its weights are.
        exact = 1e-4 if name == "hy_v4" else 1e-9
        assert found[step.key] == pytest.approx(float((1 - cosine).mean()), rel=exact)


def test_padding_of_streams_is_left_out() -> None:
    model, example = streams.qwen4_exp().double(), streams.tokens(2, 8)
    hyper = streams.hy_v4().double()
    for each in (model, hyper):
        short = {"input_ids": example["input_ids"][:, :5]}
        padded = {
            "input_ids": example["input_ids"],
            "attention_mask": torch.tensor([[1] * 5 + [0] * 3] * 2),
        }
        with torch.no_grad(), attnlab.capture(each, padded) as seen:
            each(**padded)
            one = seen.norms.shortcut
        with torch.no_grad(), attnlab.capture(each, short) as seen:
            each(**short)
        assert torch.allclose(one[:, 0], seen.norms.shortcut[:, 0], rtol=1e-6)


def test_blocks_of_carried_streams_are_refused() -> None:
    with pytest.raises(OptionError, match=r"carries its state on changed \(C X \+ w f\(r X\)\)"):
        attnlab.stiffness(streams.deepseek_v4(), [streams.tokens()], granularity="block")
