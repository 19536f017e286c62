"""Stiffness and gates while other people's loops train."""

from __future__ import annotations

import copy
import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import attnlab
from attnlab import AttnlabError
from attnlab.bridges.probe import StiffnessProbe, StripeProbe

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8) % 10


def network() -> nn.Module:
    torch.manual_seed(0)
    gated, _ = attnlab.insert(attnlab.create("resnet20"), "se", example=IMAGES[:1])
    return gated


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="needs Lightning")
    from attnlab.bridges.lightning import LightningStiffness, LightningStripe

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = network()
            self.seen: list[nn.Module] = []

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            assert self.model.training
            x, y = batch
            return nn.functional.cross_entropy(self.model(x), y)

        def on_train_batch_start(self, *_: Any) -> None:
            self.seen.append(copy.deepcopy(self.model))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.model.parameters(), 0.1)

    data = torch.utils.data.TensorDataset(IMAGES, LABELS)
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    stiff, gates = LightningStiffness(IMAGES, 2, "model"), LightningStripe(IMAGES, 2, "model")
    module = Module()
    logger = lightning.loggers.CSVLogger(tmp_path, name="log", version=0)
    trainer = lightning.Trainer(
        max_steps=4,
        accelerator="cpu",
        logger=logger,
        callbacks=[stiff, gates],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
    )
    trainer.fit(module, loader)
    assert [record["step"] for record in stiff.history] == [0, 2, 4]
    for record, then in zip(
        stiff.history, [module.seen[0], module.seen[2], module.model], strict=True
    ):
        assert record["tns"] == attnlab.stiffness(then, [IMAGES], progress=False).tns
    sites = attnlab.stripe(module.model, [IMAGES]).sites
    assert gates.history[-1][f"gate/{sites[0].label}/mean"] == sites[0].mean
    with (tmp_path / "log" / "version_0" / "metrics.csv").open() as file:
        logged = [float(row["tns"]) for row in csv.DictReader(file) if row.get("tns")]
    assert logged == pytest.approx([record["tns"] for record in stiff.history])


def test_hugging_face(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("accelerate", reason="needs accelerate, which its Trainer needs")
    from attnlab.bridges.huggingface import HuggingFaceStiffness

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=8,
        num_labels=10,
    )
    model = transformers.ViTForImageClassification(config)
    probe = {"pixel_values": IMAGES}
    callback = HuggingFaceStiffness(probe, every=2)
    data = [{"pixel_values": x, "labels": y} for x, y in zip(IMAGES, LABELS, strict=True)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=2,
        report_to=[],
        logging_steps=1,
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    before = attnlab.stiffness(model, [probe], progress=False).tns
    trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback])
    trainer.train()
    after = attnlab.stiffness(model.eval(), [probe], progress=False).tns
    assert [record["step"] for record in callback.history] == [0, 2, 4]
    assert callback.history[0]["tns"] == before
    assert callback.history[-1]["tns"] == after
    assert before != after
    logged = [record["tns"] for record in trainer.state.log_history if "tns" in record]
    assert logged[:3] == [record["tns"] for record in callback.history]


@pytest.mark.parametrize("probe", [StiffnessProbe, StripeProbe])
def test_training_does_not_notice(probe: type[StiffnessProbe] | type[StripeProbe]) -> None:
    """Same weights to the bit, dropout included."""

    def trained(watch: bool) -> dict[str, torch.Tensor]:
        model = nn.Sequential(network(), nn.Dropout(0.5))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        watcher = probe(IMAGES, 1, of="0")
        torch.manual_seed(1)
        for step in range(3):
            if watch:
                assert watcher.at(model, step)
                assert not watcher.at(model, step)  # once is enough
            loss = model.train()(IMAGES).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model.state_dict()

    plain, watched = trained(False), trained(True)
    assert all(torch.equal(plain[key], watched[key]) for key in plain)


def test_compiled_and_distributed_networks_are_unwrapped() -> None:
    model = network()
    expected = attnlab.stiffness(model, [IMAGES], progress=False).tns
    compiled = torch.compile(model)
    wrapped = torch.nn.DataParallel(model)
    for each in (compiled, wrapped):
        assert StiffnessProbe(IMAGES, 1).at(each, 0)["tns"] == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: StiffnessProbe(IMAGES, 0),
            "Expected every to be a number of steps, at least 1, but got 0.",
        ),
        (
            lambda: StiffnessProbe([IMAGES]),  # type: ignore[arg-type]
            "Expected inputs to be a tensor or a dictionary of inputs but got list. A batch of a "
            "loader is next(iter(loader))[0].",
        ),
        (
            lambda: StiffnessProbe(IMAGES, 1, "modle").at(nn.Sequential(nn.ReLU()), 0),
            "Sequential has no part 'modle'. It has: 0.",
        ),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(AttnlabError) as caught:
        make()
    assert str(caught.value) == message
