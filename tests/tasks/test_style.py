"""Style transfer as a task: figures by hand, identity, what a study refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from attnlab import load
from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, DataConfig, Facts, load_data
from attnlab.data.photos import read_painting
from attnlab.lab.study import Study, planned_runs
from attnlab.lab.training import RunConfig, identify, load_network, train
from attnlab.lab.training.evaluate import evaluate
from attnlab.results import StoredRun
from attnlab.tasks import Metric, TaskConfig, build_task, task_class
from attnlab.tasks.perceptual import RandomFilters, gram

CPU = torch.device("cpu")
SMALL = {"width": 4, "blocks": 1, "norm": "batch"}


class Darker(nn.Module):
    """The photograph at half its brightness, as a network would give it."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (FACTS.mean, FACTS.std))
        return (images * std + mean) / 2


DATA = load_data(DataConfig(name="photos", size=36))
FACTS = DATA.facts


def config(**settings: object) -> RunConfig:
    given = {
        "task": {"name": "style-filters"},
        "data": {"name": "photos", "size": 36},
        "backbone": "fast_style",
        "backbone_options": SMALL,
        "recipe": {"name": "style", "epochs": 2, "warmup_epochs": 0},
    }
    return RunConfig(**{**given, **settings})


def test_figures_by_hand() -> None:
    options = {"style": "glass", "content_weight": 3.0, "style_weight": 500.0}
    task = build_task(TaskConfig(name="style-filters", options=options), FACTS)
    found = evaluate(Darker(), task, DATA, 1, CPU)
    filters, sums = RandomFilters(), torch.zeros(4, dtype=torch.float64)
    wanted = [gram(maps) for maps in filters(read_painting("glass", 192)[None])]
    for chunk in DATA.testing([torch.tensor([n]) for n in range(FACTS.test)], CPU):
        photo = chunk.inputs * torch.tensor(FACTS.std).view(3, 1, 1) + torch.tensor(
            FACTS.mean
        ).view(3, 1, 1)
        maps, shown = filters(photo / 2), filters(photo)[1]
        content = ((maps[1] - shown) ** 2).mean().double()
        style = sum(((gram(m) - w) ** 2).mean().double() for m, w in zip(maps, wanted, strict=True))
        picture = (photo / 2).double()
        variation = sum(picture.diff(dim=axis).abs().mean() for axis in (2, 3))
        sums += torch.tensor([3 * content + 500 * style, content, style, variation])
    names = ("filter_loss", "filter_content", "filter_style", "variation")
    for name, expected in zip(names, (sums / FACTS.test).tolist(), strict=True):
        assert found[name] == pytest.approx(expected, rel=1e-5), name


def test_loss_is_the_mean_over_the_batch_and_has_a_gradient() -> None:
    task = build_task(TaskConfig(name="style-filters"), FACTS)
    network = task.build("fast_style", SMALL)
    batch = next(DATA.testing([torch.arange(2)], CPU))
    loss = task.loss(network.eval(), batch)
    each = [task.predict(network, Batch(image[None], None)) for image in batch.inputs]
    mean = torch.cat([one["filter_loss"] for one in each]).mean()
    torch.testing.assert_close(loss.mean, mean)
    loss.mean.backward()
    assert all(p.grad is not None and p.grad.any() for p in network.parameters())


def test_pictures_are_what_the_network_makes() -> None:
    task = build_task(TaskConfig(name="style-filters"), FACTS)
    batch = next(DATA.testing([torch.arange(2)], CPU))
    found = task.pictures(Darker(), batch)
    assert found is not None
    torch.testing.assert_close(found.outputs, found.inputs / 2, atol=1e-6, rtol=0)
    assert found.inputs.min() >= 0
    assert found.inputs.max() <= 1


def test_training_learns_and_needs_no_file_to_load(tmp_path: Path) -> None:
    painting = tmp_path / "painting.png"
    Image.effect_noise((64, 64), 80).convert("RGB").save(painting)
    task = {"name": "style-filters", "options": {"style": str(painting)}}
    settings = config(task=task, attention="asr:se", recipe={"name": "style", "epochs": 3})
    result = train(settings, tmp_path / "run", threads=1, progress=lambda _: None)
    painting.unlink()
    network = load_network(tmp_path / "run")
    assert not network.training
    images = torch.randn(1, 3, 40, 40)
    torch.testing.assert_close(load(tmp_path / "run")(images), network(images))
    losses = [record.train_loss for record in StoredRun(tmp_path / "run").history]
    assert losses[-1] < 0.9 * losses[0]
    assert result.metric.name == "filter_loss"
    assert all(metric.better == "lower" for metric in result.metrics)


def test_identity_is_of_the_pictures_content(tmp_path: Path) -> None:
    for name in ("one.png", "two.png", "other.png"):
        Image.new("RGB", (40, 40), (name == "other.png") * 255).save(tmp_path / name)

    def run_id(name: str) -> str:
        task = {"name": "style-filters", "options": {"style": str(tmp_path / name)}}
        return identify(config(task=task)).run_id

    assert run_id("one.png") == run_id("two.png") != run_id("other.png")
    default = identify(config()).settings
    assert default["task"] == {"name": "style-filters"}
    with pytest.raises(InputError, match=r"There is no style picture '.*gone.png'"):
        run_id("gone.png")


def test_a_moved_picture_is_the_same_run(tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), 90).save(tmp_path / "one.png")
    shutil.copy(tmp_path / "one.png", tmp_path / "moved.png")

    def settings(name: str) -> RunConfig:
        task = {"name": "style-filters", "options": {"style": str(tmp_path / name)}}
        return config(task=task, recipe={"name": "style", "epochs": 1, "warmup_epochs": 0})

    first = train(settings("one.png"), tmp_path / "run", threads=1, progress=lambda _: None)
    again = train(settings("moved.png"), tmp_path / "run", threads=1)
    assert again == first


def test_identity_has_the_content_of_vgg16(tmp_path: Path) -> None:
    def identity(content: bytes, **options: object) -> dict:
        (tmp_path / "vgg.pth").write_bytes(content)
        weights = str(tmp_path / "vgg.pth")
        task = {"name": "style", "options": {"weights": weights, **options}}
        return identify(config(task=task)).settings["task"]["options"]

    one, other = identity(b"one"), identity(b"other")
    assert one.keys() == {"weights"}
    assert one != other
    assert one["weights"].startswith("sha256:")


def study(**settings: object) -> Study:
    given = {
        "name": "made",
        "task": "style-filters",
        "data": {"name": "photos", "size": 36},
        "backbone": {"name": "fast_style", "options": SMALL},
        "attention": [
            {"gate": "none", "label": "BN"},
            {"gate": "none", "label": "IN", "backbone_options": {"norm": "instance"}},
        ],
        "seeds": 2,
        "recipe": "style",
    }
    return Study(**{**given, **settings})


def test_rows_of_a_study_may_build_the_backbone_otherwise() -> None:
    runs = planned_runs(study())
    norms = [(run.cell.row, run.cell.plain, run.config.backbone_options["norm"]) for run in runs]
    assert norms == 2 * [("BN", True, "batch"), ("IN", False, "instance")]
    assert study().has_plain
    only = [{"gate": "none", "label": "IN", "backbone_options": {"norm": "instance"}}]
    assert not study(attention=only).has_plain


def test_a_study_refuses_two_yardsticks() -> None:
    data = [
        {"name": "photos", "label": "three", "task_options": {"maps": 3}},
        {"name": "photos", "label": "four"},
    ]
    with pytest.raises(OptionError) as refused:
        planned_runs(study(task="style", data=data))
    assert str(refused.value) == (
        "Option 'maps' of task 'style' decides what its figures mean, so it is the same for all "
        "data of a study, but 'three' sets it in task_options. Set it in the study's task, or make "
        "two studies."
    )
    vgg = {metric.name for metric in task_metrics("style")}
    filters = {metric.name for metric in task_metrics("style-filters")}
    assert vgg & filters == {"variation"}


def task_metrics(name: str) -> tuple[Metric, ...]:
    return task_class(TaskConfig(name=name)).metrics


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"style_weight": -1.0}, "Expected style_weight to be at least 0 but got -1.0."),
        ({"style_size": 8}, "Expected style_size to be at least 32 but got 8."),
        ({"maps": 1}, "Expected maps to be from 2 to 4 but got 1."),
    ],
)
def test_wrong_options(options: dict, text: str) -> None:
    with pytest.raises(OptionError) as refused:
        build_task(TaskConfig(name="style", options=options), FACTS)
    assert str(refused.value) == text


def test_needs_three_channels() -> None:
    grey = Facts("grey", "class", 10, (1, 32, 32), 10, 10, (0.5,), (0.5,), "")
    with pytest.raises(InputError) as refused:
        build_task(TaskConfig(name="style-filters"), grey)
    assert str(refused.value) == (
        "Style transfer takes photographs with three channels, but data 'grey' has 1."
    )
