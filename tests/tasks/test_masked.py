"""Hidden tokens: which, the same in validation for all, and the loss of transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import run, weights

import attnlab
from attnlab._errors import OptionError
from attnlab.data import Batch, Data, DataConfig, load_data
from attnlab.data.batches import Chunk
from attnlab.data.masked import NOT_ASKED, MaskedTokens
from attnlab.lab.training import RunConfig
from attnlab.subject import open as open_subject
from attnlab.tasks import TaskConfig, build_task

CPU = torch.device("cpu")
CONFIG = DataConfig(name="stdlib", options={"context": 40}, train_subset=64, test_subset=16)
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}


@pytest.fixture(scope="module")
def text() -> Data:
    return load_data(CONFIG)


@pytest.fixture(scope="module")
def masked(text: Data) -> Data:
    return build_task(TaskConfig(name="masked"), text.facts).prepared(text)


def training(data: Data, images: list[int], seed: int = 0, epoch: int = 0) -> Batch:
    chunk = Chunk(torch.tensor(images), 1.0)
    return next(data.training([chunk], seed, epoch, CPU))


def same(one: Batch, two: Batch) -> bool:
    return torch.equal(one.inputs, two.inputs) and torch.equal(one.targets, two.targets)


def test_what_is_hidden_of_a_window(text: Data, masked: Data) -> None:
    """Six of forty tokens: the targets are the text, all others of the inputs are as they were."""
    images = list(range(64))
    plain = training(text, images).inputs
    found = [training(masked, images, epoch=epoch) for epoch in range(40)]
    hidden = replaced = kept = 0
    for batch in found:
        asked = batch.targets != NOT_ASKED
        assert asked.sum(1).tolist() == [6] * 64
        assert torch.equal(batch.targets[asked], plain[asked])
        assert torch.equal(batch.inputs[~asked], plain[~asked])
        seen, own = batch.inputs[asked], plain[asked]
        hidden += int((seen == 256).sum())
        kept += int((seen == own).sum())
        replaced += int(((seen != own) & (seen != 256)).sum())
    total = 40 * 64 * 6
    for count, share in ((hidden, 0.8), (kept, 0.1 + 0.1 / 256), (replaced, 0.1 * 255 / 256)):
        # Four standard deviations of a share of 15,360 draws.
        assert abs(count / total - share) < 4 * (share * (1 - share) / total) ** 0.5


def test_masks_depend_on_the_seed_the_epoch_and_the_window_alone(masked: Data) -> None:
    whole = training(masked, [5, 3, 60])
    parts = [training(masked, [n]) for n in (5, 3, 60)]
    joined = Batch(*(torch.cat([getattr(p, of) for p in parts]) for of in ("inputs", "targets")))
    assert same(whole, joined)
    assert not same(whole, training(masked, [5, 3, 60], seed=1))
    assert not same(whole, training(masked, [5, 3, 60], epoch=1))
    order = masked.order(3, 1)
    assert sorted(order.tolist()) == list(range(64))


def test_validation_masks_are_the_same_for_every_run(text: Data, masked: Data) -> None:
    chunks = [torch.arange(16)]
    one, two = (next(masked.testing(chunks, CPU)) for _ in range(2))
    assert same(one, two)
    for windows in (1, 5):  # in a batch: another number of batches, the same tokens hidden
        parts = list(masked.testing(chunks[0].split(windows), CPU))
        assert torch.equal(one.inputs, torch.cat([part.inputs for part in parts]))
        assert torch.equal(one.targets, torch.cat([part.targets for part in parts]))
    other = MaskedTokens(text, 0.15, mask=256)
    assert same(one, next(other.testing(chunks, CPU)))


@pytest.mark.parametrize("family", ["bert", "modernbert", "electra"])
def test_the_loss_is_that_of_transformers(masked: Data, family: str) -> None:
    """For the same masks; so the mean over tokens is the mean over windows."""
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    task = build_task(TaskConfig(name="masked"), masked.facts)
    network = task.build(f"transformers-masked:{family}", TINY).eval()
    batch = training(masked, [1, 2, 3])
    theirs = network(input_ids=batch.inputs, labels=batch.targets).loss
    assert task.loss(network, batch).mean.item() == pytest.approx(theirs.item(), abs=1e-6)
    meters = task.meters(CPU)
    for n in range(3):
        part = Batch(batch.inputs[n : n + 1], batch.targets[n : n + 1])
        meters.update(task.predict(network, part), part.targets)
    found = meters.compute()
    assert found["loss"] == pytest.approx(theirs.item(), abs=1e-6)
    assert set(found) == {metric.name for metric in task.metrics}


def config(**settings: Any) -> RunConfig:
    given = {
        "task": "masked",
        "data": CONFIG,
        "backbone": "transformers-masked:bert",
        "backbone_options": {**TINY, "hidden_dropout_prob": 0.1},
        "recipe": {"name": "language", "steps": 6, "interval": 3, "warmup_steps": 2},
    }
    return RunConfig(**{**given, **settings})


def test_a_run_with_a_gate_that_pools_is_opened_again(tmp_path: Path) -> None:
    """An encoder may look at all tokens, so SE is no leak; twice the same, to the bit."""
    pytest.importorskip("transformers")
    result = run(config(attention="se"), tmp_path / "one")
    run(config(attention="se"), tmp_path / "two")
    one, two = (weights(tmp_path / name) for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert result.sites == 4
    assert set(result.values) == {"loss", "perplexity", "top1"}
    subject = open_subject(tmp_path / "one")
    batch = next(iter(subject.inputs(2)))
    assert batch.shape == (2, 40)
    assert (batch == 256).any()  # as it was tested: with tokens hidden
    assert attnlab.stiffness(tmp_path / "one").tns is not None


@pytest.mark.parametrize(
    ("task", "network", "options", "message"),
    [
        ("masked", "decoder", {"width": 16, "depth": 1, "context": 40}, "decoder is causal"),
        ("masked", "transformers:llama", TINY, "transformers:llama is causal"),
        ("language", "transformers-masked:bert", TINY, "transformers-masked:bert sees it"),
        ("language", "transformers:bert", TINY, "its option is_decoder = true"),
    ],
)
def test_an_objective_that_does_not_fit_the_network(
    text: Data, task: str, network: str, options: dict[str, Any], message: str
) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(1)
    built = build_task(TaskConfig(name=task), text.facts)
    with pytest.raises(OptionError) as error:
        built.build(network, options)
    assert message in str(error.value)


def test_what_fits_is_built_as_without_a_look(text: Data) -> None:
    """The look draws nothing, and leaves the modes of modules as they are."""
    pytest.importorskip("transformers")
    task = build_task(TaskConfig(name="language"), text.facts)
    torch.manual_seed(1)
    network = task.build("transformers:bert", {**TINY, "is_decoder": True})
    after = torch.rand(1)
    torch.manual_seed(1)
    attnlab.create("transformers:bert", 256, **TINY, is_decoder=True)
    assert torch.equal(after, torch.rand(1))
    assert network.training == attnlab.create("transformers:bert", 256, **TINY).training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.0}, "Expected share to be between 0 and 1 but got 1.0."),
        ({"shere": 0.1}, "Task 'masked' has no option 'shere'. Did you mean 'share'?"),
    ],
)
def test_wrong_options(text: Data, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as error:
        build_task(TaskConfig(name="masked", options=options), text.facts)
    assert str(error.value).startswith(message)


def test_a_family_that_has_none() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(attnlab.AttnlabError, match="masked network of transformers"):
        attnlab.create("transformers-masked:bart2", 20)
