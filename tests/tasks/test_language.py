"""The next token: metrics against sums written out, and a run from its start to its page."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, DataConfig, Facts, load_data
from attnlab.lab.training import RunConfig, train
from attnlab.tasks import TaskConfig, build_task

FACTS = Facts("made", "tokens", 5, (3,), 9, 9, (), (), "", bytes_per_token=4.0)


class Fixed(nn.Module):
    """Answers with the same logits, whatever the tokens are."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*tokens.shape, 5)


def small(folder: Path, **settings: object) -> RunConfig:
    (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 60)
    given: dict[str, object] = {
        "task": "language",
        "data": {"name": "text", "root": str(folder / "text.txt"), "options": {"context": 16}},
        "backbone": "decoder",
        "backbone_options": {"width": 16, "depth": 2, "heads": 2, "context": 16},
        "recipe": {"name": "language", "steps": 6, "interval": 3, "warmup_steps": 2},
    }
    return RunConfig(**{**given, **settings})  # type: ignore[arg-type]


def test_the_metrics_are_the_sums_written_out() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5], dtype=torch.float64)
    targets = [[0, 1, 0], [4, 0, 2]]
    task = build_task(TaskConfig(name="language"), FACTS)
    batch = Batch(torch.zeros(2, 3, dtype=torch.long), torch.tensor(targets))
    total = sum(math.exp(v) for v in logits.tolist())
    nats = [math.log(total) - logits[t].item() for row in targets for t in row]
    mean = sum(nats) / 6
    network = Fixed(logits)
    loss = task.loss(network, batch)
    assert loss.mean.item() == pytest.approx(mean, rel=1e-12)
    meters = task.meters(torch.device("cpu"))
    for row in range(2):  # in two batches
        part = Batch(batch.inputs[row : row + 1], batch.targets[row : row + 1])
        meters.update(task.predict(network, part), part.targets)
    assert meters.compute() == {
        "loss": pytest.approx(mean, rel=1e-12),
        "bits_per_byte": pytest.approx(mean / math.log(2) / 4, rel=1e-12),
        "perplexity": pytest.approx(math.exp(mean), rel=1e-12),
        "top1": 0.5,
    }


def test_bits_per_byte_are_not_made_up() -> None:
    """Where nobody said how many bytes a token has, there are none."""
    unknown = Facts("made", "tokens", 5, (3,), 9, 9, (), (), "")
    meters = build_task(TaskConfig(name="language"), unknown).meters(torch.device("cpu"))
    meters.update(torch.zeros(1, 3, 5), torch.zeros(1, 3, dtype=torch.long))
    assert meters.compute()["bits_per_byte"] is None


@pytest.mark.parametrize("attention", ["none", "token", "scale", "rezero"])
def test_a_run_and_its_network(tmp_path: Path, attention: str) -> None:
    config = small(tmp_path, attention=attention)
    result = train(config, tmp_path / "run", threads=1)
    assert result.sites == (0 if attention == "none" else 4)
    subject = attnlab.open(tmp_path / "run")
    batch = next(iter(subject.batches(4)))
    with torch.no_grad():
        logits = subject.network(batch.inputs)
    assert logits.shape == (4, 16, 256)
    # The file describes itself: anybody builds the same network of it.
    again = attnlab.open(tmp_path / "run" / "model.safetensors").network
    with torch.no_grad():
        assert torch.equal(again(batch.inputs), logits)
    found = attnlab.stiffness(tmp_path / "run")
    assert len(found.nsi) == 4


def test_a_network_of_transformers_is_trained(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    options = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    config = small(
        tmp_path, backbone="transformers:llama", backbone_options=options, attention="token"
    )
    result = train(config, tmp_path / "run", threads=1)
    assert result.sites == 4
    assert result.parameters == sum(
        p.numel() for p in attnlab.open(tmp_path / "run").network.parameters()
    )


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    config = small(tmp_path, backbone_options={"context": 8, "width": 16, "depth": 1, "heads": 2})
    with pytest.raises(OptionError, match="have 16 tokens, but decoder takes at most 8"):
        train(config, tmp_path / "run")
    with pytest.raises(
        InputError, match="learns classes, but data 'text' has the tokens of a text"
    ):
        train(config.model_copy(update={"task": TaskConfig()}), tmp_path / "run")
    task = build_task(TaskConfig(name="language"), load_data(config.data).facts)
    tokens = torch.zeros(2, 16, dtype=torch.long)
    with pytest.raises(InputError, match=r"logits \(2, 16, 256\) but got \(2, 16, 5\)"):
        task.loss(Fixed(torch.zeros(5)), Batch(tokens, tokens))
    with pytest.raises(InputError, match="takes tokens, but 'digits' has images"):
        attnlab.open("decoder", "digits")
    with pytest.raises(InputError, match="takes tokens, and random ones would say nothing"):
        attnlab.stiffness("decoder")
    assert attnlab.open("decoder", "stdlib").learned().metrics[0].name == "loss"
    assert DataConfig(name="text", root="books/war.txt").title == "war"
