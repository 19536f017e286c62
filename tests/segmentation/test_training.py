"""Segmenters train like every other network: gates by part, resumed, folded, on a page."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tests.lab.training.small import quiet, run, weights
from tests.tools.forked import forking
from torch import nn

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.data import Batch, load_data
from attnlab.lab.measures import measure_run
from attnlab.lab.training import RunConfig, load_network, train
from attnlab.lab.training.evaluate import evaluate
from attnlab.results import StoredRun
from attnlab.results.details import DetailsResult
from attnlab.tasks import TaskConfig, build_task
from attnlab.tasks.segmentation import window_starts

FEW = {"name": "shape-masks", "size": 24, "train_subset": 16, "test_subset": 6}
SMALL = {"width": 4, "levels": 2, "blocks": 2}


def config(epochs: int = 1, **settings) -> RunConfig:
    recipe = {"name": "shape_masks", "epochs": epochs, **settings.pop("recipe", {})}
    given = {"data": FEW, "backbone": "unet", "backbone_options": SMALL, **settings}
    return RunConfig(task="segmentation", **given, recipe=recipe)


def segmentation(**options):
    data = load_data(config().data)
    return data, build_task(TaskConfig(name="segmentation", options=options), data.facts)


class StopError(Exception):
    pass


def test_resumed_to_the_bit(tmp_path):
    whole = config(2, attention="scse")
    one = run(whole, tmp_path / "one")

    def stop(record):
        if record.epoch == 1:
            raise StopError

    with pytest.raises(StopError):
        train(whole, tmp_path / "two", threads=1, progress=stop)
    other = run(whole, tmp_path / "two")
    assert one.values == other.values
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_skips_are_no_steps_and_gates_go_where_they_are_asked_for():
    network = attnlab.create("unet", 4, **SMALL).eval()
    example = torch.randn(2, 3, 24, 24)
    found = [step.name for step in attnlab.steps(network, example)]
    blocks = [
        f"{part}.{n}.{b}"
        for part, k in (("encoder", 3), ("decoder", 2))
        for n in range(k)
        for b in (0, 1)
    ]
    assert found == blocks
    for part, number in (("encoder", 6), ("decoder", 4)):
        _, receipt = attnlab.insert(network, "se", where=f"in:{part}", example=example)
        assert len(receipt.sites) == number
        assert all(site.startswith(part) for site in receipt.sites)


@pytest.mark.parametrize("size", [(24, 24), (17, 31), (5, 4)])
def test_the_answer_is_as_large_as_the_image(size):
    network = attnlab.create("unet", 4, **SMALL).eval()
    assert network(torch.zeros(1, 3, *size)).shape == (1, 4, *size)


def test_an_image_that_is_too_small():
    with pytest.raises(
        InputError, match="images of at least 4×4, because the map is halved 2 times"
    ):
        attnlab.create("unet", 4, **SMALL)(torch.zeros(1, 3, 3, 9))


@pytest.mark.parametrize(("length", "window"), [(10, 10), (7, 10), (11, 10), (37, 8), (64, 16)])
def test_windows_cover_and_overlap(length, window):
    found = window_starts(length, window)
    covered = {place for start in found for place in range(start, min(length, start + window))}
    assert covered == set(range(length))
    if length > window:
        assert found[-1] + window == length
        assert max(b - a for a, b in pairwise(found)) <= (window + 1) // 2


def test_windows_of_a_network_without_surroundings_change_nothing():
    """A 1×1 convolution sees one pixel, so its windows agree wherever they overlap."""
    _, whole = segmentation()
    _, cut = segmentation(window=7)
    network = nn.Conv2d(3, 4, 1)
    batch = Batch([torch.randn(3, 19, 26), torch.randn(3, 5, 9)], None)
    with torch.no_grad():
        for one, other in zip(
            whole.predict(network, batch), cut.predict(network, batch), strict=True
        ):
            torch.testing.assert_close(one, other)


def test_folds_to_the_plain_network(tmp_path):
    run(config(attention="asr:se"), tmp_path)
    network = load_network(tmp_path).eval()
    plain, receipt = attnlab.fold(network, example=torch.randn(2, 3, 24, 24))
    assert list(plain.state_dict()) == list(attnlab.create("unet", 4, **SMALL).state_dict())
    assert receipt.sites
    images = torch.randn(3, 3, 30, 22)
    with torch.no_grad():
        torch.testing.assert_close(plain(images), network(images), rtol=1e-4, atol=1e-5)


def test_details_take_the_result_apart(tmp_path):
    result = run(config(3), tmp_path)
    measure_run(tmp_path)
    found = StoredRun(tmp_path).measured_result(DetailsResult)
    assert found is not None
    (by_class,) = found.breakdowns
    values = [value for value in by_class.values.values() if value is not None]
    assert list(by_class.values) == ["background", "disc", "square", "triangle"]
    assert sum(values) / len(values) == pytest.approx(100 * result.values["miou"], abs=1e-9)
    assert len(found.masks) == 6
    assert attnlab.open(tmp_path).task is not None


@pytest.mark.parametrize("name", ["torchvision:lraspp_mobilenet_v3_large", "smp:unet", "smp:fpn"])
def test_networks_of_libraries(name):
    data, task = segmentation(multiple=32)
    options = {"encoder_name": "resnet18"} if name.startswith("smp") else {}
    network = task.build(name, options)
    (batch,) = data.testing([torch.arange(2)], torch.device("cpu"))
    big = Batch(
        torch.nn.functional.interpolate(batch.inputs, (32, 32)), torch.zeros(2, 32, 32).long()
    )
    task.loss(network.train(), big).mean.backward()
    with torch.no_grad():
        logits = task.predict(network.eval(), batch)
    assert [tuple(each.shape) for each in logits] == [(4, 24, 24)] * 2


SEGFORMER = {
    "depths": "1, 1, 1, 1",
    "hidden_sizes": "8, 16, 24, 32",
    "num_attention_heads": "1, 2, 3, 4",
    "sr_ratios": "4, 2, 1, 1",  # images of 24 pixels
    "decoder_hidden_size": 16,
}
UPERNET = {
    "hidden_size": 16,
    "backbone_config.embedding_size": 8,
    "backbone_config.hidden_sizes": "8, 16, 24, 32",
    "backbone_config.depths": "1, 1, 1, 1",
    "backbone_config.layer_type": "basic",
}


@pytest.mark.parametrize(
    ("family", "options", "sites"), [("segformer", SEGFORMER, 8), ("upernet", UPERNET, 4)]
)
def test_networks_of_transformers_train_fold_and_go_on(tmp_path, family, options, sites):
    pytest.importorskip("transformers")
    given = {"backbone": f"transformers:{family}", "backbone_options": options}
    whole = config(2, attention="asr:se", **given)
    result = run(whole, tmp_path / "one")
    assert result.sites == sites

    def stop(record):
        if record.epoch == 1:
            raise StopError

    with pytest.raises(StopError):
        train(whole, tmp_path / "two", threads=1, progress=stop)
    assert run(whole, tmp_path / "two").values == result.values
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.equal(first[name], second[name]) for name in first)
    network = load_network(tmp_path / "one").eval()
    data, task = segmentation()
    (batch,) = data.testing([torch.arange(2)], torch.device("cpu"))
    task.loss(network, batch).mean.backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    plain, _ = attnlab.fold(network, example=batch.inputs)
    built = attnlab.create(f"transformers:{family}", 4, **options)
    assert plain.state_dict().keys() == built.state_dict().keys()
    answers = (task.predict(each.eval(), batch) for each in (network, plain))
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "options", "said"),
    [
        ("segformer", {"depth": "1"}, r"has no setting 'depth'\. Did you mean 'depths'"),
        ("upernet", {"backbone_config.depht": "1"}, r"Did you mean 'backbone_config\.depths'"),
        ("segformer", {"depths.first": 1}, r"has no setting 'depths\.first'"),
        ("segfomer", {}, "Did you mean 'segformer'"),
    ],
)
def test_settings_of_transformers_that_do_not_exist_are_refused(family, options, said):
    pytest.importorskip("transformers")
    with pytest.raises(attnlab.AttnlabError, match=said):
        attnlab.create(f"transformers:{family}", 4, **options)


def test_a_network_for_whole_images_is_refused():
    data, task = segmentation()
    (batch,) = data.testing([torch.arange(2)], torch.device("cpu"))
    with pytest.raises(InputError, match=r"logits N×4×H×W, a map for each class, but got \(2, 4\)"):
        task.predict(task.build("resnet20", {}), batch)


def test_it_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(OptionError, match="'resnet20' answers once for an image"):
        train(config(backbone="resnet20", backbone_options={}), tmp_path, threads=1)


def test_options_of_smp_that_do_not_exist_are_refused():
    with pytest.raises(OptionError, match="has no option 'decoder_atention_type'"):
        attnlab.create("smp:unet", 4, decoder_atention_type="scse")
    with pytest.raises(attnlab.AttnlabError, match="unet"):
        attnlab.create("smp:unnet", 4)


def test_stages_of_a_unet_are_encoder_and_decoder_and_their_nsi_is_that_of_hooks():
    network = attnlab.create("unet", 4, width=4, levels=2, blocks=3).double().eval()
    images = torch.randn(3, 3, 20, 28, dtype=torch.float64)
    found = attnlab.stiffness(network, [images], progress=False)
    places = [("encoder", n) for n in range(3)] + [("decoder", n) for n in range(2)]
    expected = {
        f"{part}.{level}.{block}": stage
        for stage, (part, level) in enumerate(places, 1)
        for block in range(3)
    }
    assert {step.name: int(step.label.partition(".")[0]) for step in found.nsi} == expected
    assert [step.kept for step in found.nsi] == [False, True, True] * 5  # the first takes the skip
    ratios = {}
    hooks = []
    for name in expected:
        block = network.get_submodule(name)

        def watch(_, inputs, output, name=name):
            before = inputs[0]
            if before.shape == output.shape:
                away = (output - before).flatten(1).norm(dim=1)
                ratios[name] = (away / before.flatten(1).norm(dim=1)).mean().item()

        hooks.append(block.register_forward_hook(watch))
    with torch.no_grad():
        network(images)
    for hook in hooks:
        hook.remove()
    counted = {step.name: step.mean for step in found.nsi if step.kept}
    assert counted == pytest.approx({name: ratios[name] for name in counted}, rel=1e-6)


KILLED = """
import os, signal, sys
from tests.segmentation.test_training import config
from attnlab.lab.training import train

def ended(record):
    if record.epoch == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

train(config(3, attention="step"), sys.argv[1], threads=1, progress=ended)
"""


def test_killed_and_resumed_to_the_bit(tmp_path):
    def attempt(folder, last):
        return forking("attnlab.lab.training.loop").run(KILLED, str(folder), str(last)).code

    assert attempt(tmp_path / "whole", 99) == 0
    assert attempt(tmp_path / "killed", 2) == -9
    assert attempt(tmp_path / "killed", 99) == 0
    one, other = (weights(tmp_path / name) for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_two_processes_have_the_figures_of_one(tmp_path):
    together = train(config(2, attention="se"), tmp_path, threads=1, devices=2, progress=quiet)
    subject = attnlab.open(tmp_path)
    found = evaluate(subject.network, subject.learned(), subject.images(), 6, subject.device)
    # Over all pixels and images, not a mean of the processes' means; the border over images.
    assert found == pytest.approx(together.values, abs=1e-6)
