"""Networks under noise in test, against the same done by hand."""

from __future__ import annotations

import html
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from tests.lab.training.small import run, small
from torch import Tensor, nn

import attnlab
from attnlab._errors import AttnlabError, InputError, OptionError, UnknownNameError
from attnlab._seeds import derive
from attnlab.cli import main
from attnlab.data import load_data
from attnlab.instruments.noise import NoiseResult, compare_noise, noise_response
from attnlab.instruments.noise.measure import _chunks, mean_interval
from attnlab.lab.training import load_network
from attnlab.surgery import noise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("noise") / "run"
    run(small(3, attention="asr:se"), made)
    return made


def images() -> tuple[Tensor, Tensor]:
    batch = next(load_data(small(1).data).testing([torch.arange(30)], torch.device("cpu")))
    return batch.inputs, batch.targets


def accuracy(network: nn.Module, order: Tensor | None = None) -> float:
    x, y = images()
    order = torch.arange(30) if order is None else order
    with torch.no_grad():
        return 100 * float((network(x[order]).argmax(1) == y[order]).double().mean())


def test_constant_noise_is_another_affine(folder: Path) -> None:
    result = noise_response(folder, kind="constant", strengths=("0.7:0.3",), draws=5)
    network = load_network(folder)
    curve = result.networks[0]
    assert (curve.clean, curve.norms, result.draws) == (accuracy(network), 21, 1)
    with torch.no_grad():
        for norm in network.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.bias += 0.3 * norm.weight
                norm.weight *= 0.7
    (point,) = curve.points
    assert point.values == (accuracy(network),)
    assert (point.low, point.high, point.strength) == (None, None, (0.7, 0.3))


def test_random_noise_by_draw_with_the_interval_of_the_mean(folder: Path) -> None:
    subject = attnlab.open(folder)
    result = noise_response(subject, strengths=(0.6,), draws=4, seed=5)
    network, values = load_network(folder), []
    noise.attach(network, noise.random(0.6), "test")
    for draw in range(4):
        torch.manual_seed(derive(5, "noise", draw))
        values.append(accuracy(network))
    (point,) = result.networks[0].points
    assert point.values == pytest.approx(values)
    assert len(set(values)) > 1
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (point.low, point.high) == pytest.approx((low, high))
    assert noise.carried(subject.network) == {}


def test_batch_noise_shuffles_and_leaves_no_image_out(folder: Path) -> None:
    result = noise_response(folder, kind="batch", strengths=(30,), draws=2)
    network = load_network(folder).train()  # the statistics of all 30 images
    (point,) = result.networks[0].points
    assert point.values == pytest.approx((accuracy(network),) * 2)
    result = noise_response(folder, kind="batch", strengths=(7,), draws=2)
    assert len(result.networks[0].points[0].values) == 2


@pytest.mark.parametrize(
    ("n", "batch_size", "sizes"),
    [(7, 16, [14, 16]), (7, 30, [30]), (10, 10, [10, 10, 10]), (20, 8, [30]), (30, 64, [30])],
)
def test_batch_noise_takes_whole_groups(n: int, batch_size: int, sizes: list[int]) -> None:
    """As many whole groups as a batch holds, one at least; what is left over is in the last."""
    chosen = torch.arange(100, 130)
    chunks = _chunks(noise.batch(n), chosen, batch_size)
    assert [len(each) for each in chunks] == sizes
    assert sorted(torch.cat(list(chunks)).tolist()) == chosen.tolist()


def test_the_interval_of_a_mean_in_closed_form() -> None:
    """Student's t with one degree of freedom is Cauchy: tan(0.475 π) = 12.7 half differences."""
    around = math.tan(0.475 * math.pi) * 1
    assert mean_interval([3.0, 5.0]) == pytest.approx((4 - around, 4 + around))
    assert mean_interval([3.0, 3.0, 3.0]) == (3, 3)
    assert mean_interval([3.0]) == (None, None)


def test_the_command_its_page_and_its_figure(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    main(["noise", str(folder), "--strengths", "0.1", "0.5", "--draws", "3", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "random noise in test, 30 images, 3 draws" in printed
    found = json.loads((out / "noise.json").read_text())
    assert found["format"] == "attnlab noise 1"
    assert [point["strength"] for point in found["networks"][0]["points"]] == [[0.1], [0.5]]
    page = html.unescape((out / "noise.html").read_text())
    assert "Noise in the norms" in page
    last = found["networks"][0]["points"][-1]
    assert f"{found['networks'][0]['clean']:.2f} → {last['mean']:.2f}" in page
    assert (out / "noise.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strengths", "0.1", "-0.2"], "Expected sigma to be at least 0 but got -0.2."),
        (
            ["--strengths", "a"],
            "Expected strengths of random noise as in 0.05 0.1 0.2 0.3 but got 'a'.",
        ),
        (
            ["--kind", "constant", "--strengths", "0.8"],
            "Expected strengths of constant noise as in 0.8:0.8 0.8:0.5 0.5:0.5 0.5:0.2 but got "
            "0.8.",
        ),
        (
            ["--kind", "batch", "--strengths", "64"],
            "Batch noise takes the statistics of 64 images, but there are 30 test images. Use a "
            "smaller n.",
        ),
        (["--draws", "0"], "Expected draws to be at least 1 but got 0."),
        (
            ["--kind", "batch", "--strengths", "2.5"],
            "Expected strengths of batch noise as in 2 4 8 16 64 but got 2.5.",
        ),
    ],
)
def test_wrong_inputs(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["noise", str(folder), *arguments])
    said = capsys.readouterr().err
    assert said == f"attnlab: {message.replace('RUN', repr(str(folder)))}\n"


def test_networks_that_cannot_be_measured() -> None:
    def said(*arguments: Any, **options: Any) -> str:
        with pytest.raises(AttnlabError) as caught:
            noise_response(attnlab.open(*arguments, **options), strengths=(0.1,))
        return str(caught.value)

    assert said("resnet20") == (
        "'resnet20' has no images with labels of its own classes, so it has no result: pass data "
        "with as many classes as it has outputs, such as digits or an .npz."
    )
    assert said("torchvision:vgg11", "digits", size=32).startswith(
        "VGG has no BatchNorm, LayerNorm or GroupNorm, so there is no place for noise"
    )


def test_ten_draws_of_random_noise_per_channel_unless_told(folder: Path) -> None:
    subject = attnlab.open(folder, limit=8)
    found = noise_response(subject, strengths=(0.1,))
    assert (found.kind, found.draws, found.seed) == ("random", 10, 0)
    (point,) = found.networks[0].points
    assert point.label == "random σ = 0.1 per channel"
    assert point.values == (
        *noise_response(subject, strengths=(0.1,), draws=10, seed=0).networks[0].points[0].values,
    )


def test_an_unknown_kind_or_number_of_draws(folder: Path) -> None:
    with pytest.raises(UnknownNameError) as unknown:
        noise_response(folder, kind="randon")  # type: ignore[arg-type]
    assert str(unknown.value) == (
        "Unknown kind of noise 'randon'. Did you mean 'random'? "
        "Expected one of: random, constant, batch."
    )
    with pytest.raises(OptionError) as wrong:
        noise_response(folder, draws=True)
    assert str(wrong.value) == "Expected draws to be a whole number but got True."


def test_all_kinds_of_sources_are_the_same_network(folder: Path) -> None:
    """The run, its file of weights and the module, on the images of the run."""
    run = attnlab.open(folder)
    other = replace(run, network=attnlab.load(folder))
    found = [noise_response(each, strengths=(0.3,), draws=2) for each in (run, other, folder)]
    values = {(each.networks[0].clean, each.networks[0].points[0].values) for each in found}
    assert len(values) == 1
    assert found[0].provenance is not None
    assert found[0].provenance.network == "resnet20"
    few = noise_response(attnlab.open(folder, limit=8), strengths=(0.3,), draws=1)
    assert few.images == 8


def test_a_module_keeps_its_mode(folder: Path) -> None:
    network = load_network(folder).train()
    noise_response(attnlab.open(network, "digits", limit=8), strengths=(0.1,), draws=1)
    assert all(module.training for module in network.modules())


def test_several_networks_in_one_figure(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    few = ["--strengths", "0.1", "--draws", "2", "--limit", "10"]
    main(["noise", str(folder), "resnet20", *few, "--data", "digits", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "The weights are random" in printed
    assert "attnlab.instruments.noise.compare_noise(subjects, results)" in printed
    found = NoiseResult.load(out / "noise.json")
    assert [curve.network for curve in found.networks] == ["run", "resnet20"]
    for curve in found.networks:
        alone = NoiseResult.load(out / curve.network / "noise.json")
        assert alone.networks[0].points == curve.points
        assert curve.origin is not None
    page = html.unescape((out / "noise.html").read_text())
    assert "Where does resnet20 come from?" in page


def test_networks_that_cannot_be_compared(folder: Path) -> None:
    run = attnlab.open(folder, limit=8)
    one, other = (noise_response(run, strengths=(s,), draws=1) for s in (0.1, 0.2))
    with pytest.raises(InputError, match="Expected networks under the same noises"):
        compare_noise([run, run], [one, other])
    twice = compare_noise([run, run], [one, one])
    assert [curve.network for curve in twice.networks] == ["run (1)", "run (2)"]
    assert twice.from_json(twice.to_json()) == twice
    assert twice.seconds == 2 * one.seconds
    assert twice.notes == one.notes
    fewer = replace(one, images=7, notes=("fewer",))
    assert compare_noise([run, run], [one, fewer]).notes == (
        *one.notes,
        "fewer",
        "The networks were measured on different numbers of images.",
    )
    metric = one.metric.model_copy(update={"label": "AP"})
    named = replace(one, networks=(replace(one.networks[0], network="b"),), metric=metric)
    with pytest.raises(InputError, match="Expected networks with one kind of result"):
        compare_noise([run, run], [one, named])
