"""`attnlab.open`: every kind of source, and what each knows about the images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import attnlab
from attnlab._errors import InputError, OptionError, WeightsError
from attnlab.lab.training import RunConfig, train
from attnlab.networks.checkpoint import Description
from attnlab.networks.preprocessing import Preprocessing
from attnlab.results.manifest import write_manifest
from attnlab.subject.opening import _device_of, _of_imagenet, _other_tokens, subject_of
from attnlab.subject.run import stored_settings
from attnlab.surgery.insertion import attachments

RECIPE = {"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 64}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    data = {"name": "digits", "train_subset": 128}
    config = RunConfig(data=data, backbone="resnet20", attention="se", recipe=RECIPE)
    train(config, folder)
    return folder


def photographs(folder, number=6):
    for n in range(number):
        path = folder / "ab"[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((40, 50, 3), 40 * n, np.uint8)).save(path)
    return folder


def first(subject):
    return next(subject.batches()).inputs


def test_a_run_knows_its_images_as_its_file_does(run):
    """The same pixels from the run, and from its file of weights on the data by name."""
    own = attnlab.open(run, batch=16)
    file = attnlab.open(run / "model.safetensors", "digits", batch=16)
    assert torch.equal(first(own), first(file))
    assert own.task is not None
    assert own.provenance.gate == file.provenance.gate == "se"
    assert own.notes == file.notes == ()
    x = first(own)
    assert torch.equal(own.network(x), file.network(x))


def test_a_run_that_is_begun_anew_has_its_new_settings(tmp_path):
    for seed in (1, 2):
        config = RunConfig(data="digits", backbone="resnet20", recipe=RECIPE, seed=seed)
        (tmp_path / "config.json").write_text(config.to_json())
        assert stored_settings(tmp_path)["seed"] == seed


def test_one_tns_from_the_run_its_file_and_by_hand(run):
    """What used to be 0.127 in a study and 0.198 at the command line."""
    file = attnlab.open(run / "model.safetensors", "digits")
    found = [attnlab.stiffness(run).tns, attnlab.stiffness(file).tns]
    data = attnlab.open(run).images()
    (batch,) = data.testing([torch.arange(359)], torch.device("cpu"))
    found.append(attnlab.stiffness(attnlab.load(run), [batch.inputs]).tns)
    assert found == pytest.approx([found[0]] * 3, rel=1e-9)


def test_a_bare_module_does_not_know_its_preprocessing_and_says_so(run):
    """The run was trained with the statistics of a part of the digits, which nobody can guess."""
    subject = attnlab.open(attnlab.load(run), "digits")
    assert attnlab.stiffness(subject).notes[0].startswith("How images were prepared when the netw")


def test_a_file_without_preprocessing_says_what_was_assumed(tmp_path):
    network = attnlab.create("resnet20")
    attnlab.save(network, tmp_path / "n.safetensors", Description("resnet20"))
    subject = attnlab.open(tmp_path / "n.safetensors", "digits")
    assert subject.notes[0].startswith("How images were prepared when the network was trained is")
    assert "8×8 pixels" in subject.notes[0]
    told = attnlab.open(
        tmp_path / "n.safetensors", "digits", size=16, mean=(0.5,) * 3, std=(0.25,) * 3
    )
    assert told.notes == ()
    assert first(told).shape[2:] == (16, 16)
    result = attnlab.stiffness(subject)
    assert result.notes[0] == subject.notes[0]


def test_a_file_keeps_its_preprocessing(tmp_path):
    known = Preprocessing((3, 16, 16), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    network = attnlab.create("resnet20")
    described = Description("resnet20", preprocessing=known)
    attnlab.save(network, tmp_path / "n.safetensors", described)
    assert attnlab.networks.checkpoint.describe(tmp_path / "n.safetensors") == described
    subject = attnlab.open(tmp_path / "n.safetensors", photographs(tmp_path / "photos"))
    assert subject.notes == ()
    facts = subject.images().facts
    assert (facts.shape, facts.mean, facts.std) == ((3, 16, 16), known.mean, known.std)
    image = Image.open(tmp_path / "photos" / "a" / "2.png")
    expected = (np.asarray(image)[0, 0] / 255 - np.array(known.mean)) / np.array(known.std)
    assert first(subject)[1, :, 3, 3].tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_published_weights_of_timm_are_prepared_as_timm_does(tmp_path):
    """The same pixels as timm's own evaluation transform."""
    folder = photographs(tmp_path / "photos")
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (300, 400, 3), np.uint8)).save(folder / "a" / "0.png")
    network = attnlab.create("timm:resnet18")
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=network))
    expected = transform(Image.open(folder / "a" / "0.png").convert("RGB"))
    found = first(attnlab.open("timm:resnet18", folder))[0]
    assert (found - expected).abs().max() < 1e-5


def test_what_is_asked_of_images_takes_the_place_of_that_alone():
    known = attnlab.open("resnet20", "digits").images().facts
    for asked, expected in (
        ({"size": 16}, ((3, 16, 16), known.mean, known.std)),
        ({"mean": (0.1, 0.2, 0.3)}, (known.shape, (0.1, 0.2, 0.3), known.std)),
        ({"std": (0.4, 0.5, 0.6)}, (known.shape, known.mean, (0.4, 0.5, 0.6))),
    ):
        facts = attnlab.open("resnet20", "digits", **asked).images().facts
        assert (facts.shape, facts.mean, facts.std) == expected


@pytest.mark.parametrize("missing", ["size", "mean", "std"])
def test_who_says_only_a_part_is_told_what_was_assumed(missing):
    told = {"size": 16, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    network = attnlab.create("resnet20")
    assert attnlab.open(network, "digits", **told).notes == ()
    del told[missing]
    (note,) = attnlab.open(network, "digits", **told).notes
    assert note.startswith("How images were prepared when the network was trained is not known;")


@pytest.mark.parametrize(
    ("channels", "mean", "std"),
    [
        (1, (0.485,), (0.229,)),
        (3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        (4, (0.5,) * 4, (0.5,) * 4),
    ],
)
def test_photographs_are_assumed_to_be_those_of_imagenet(channels, mean, std):
    found = _of_imagenet(attnlab.create("resnet20", in_channels=channels))
    assert (found.size, found.mean, found.std) == ((channels, 32, 32), mean, std)


def test_a_text_may_have_one_token_less_than_the_network_for_a_mask():
    class Words(nn.Module):
        vocabulary, context = 10, 4

    assert _other_tokens(Words(), 10) == _other_tokens(Words(), 9) == ()
    assert _other_tokens(nn.Identity(), 5) == ()  # of images
    for tokens in (8, 11):
        assert _other_tokens(Words(), tokens) == (
            f"The text has {tokens} tokens and Words 10: unless it was trained on these, they mean "
            "something else to it, and so do the numbers. Pass batches by its own tokenizer.",
        )


def test_a_named_network_without_weights_is_the_same_each_time_and_disturbs_no_seed():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, two = attnlab.open("resnet20", "digits"), attnlab.open("resnet20", "digits")
    assert torch.equal(torch.rand(1), expected)
    states = [subject.network.state_dict() for subject in (one, two)]
    assert all(torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True))
    assert not one.trained
    assert one.images().facts.shape == (3, 8, 8)


def test_the_number_of_classes_is_that_of_the_data(tmp_path):
    arrays = {f"{part}_x": np.zeros((8, 8, 8, 3), np.uint8) for part in ("train", "test")}
    labels = {f"{part}_y": np.arange(8) % 4 for part in ("train", "test")}
    np.savez(tmp_path / "four.npz", **arrays, **labels)
    subject = attnlab.open("resnet20", tmp_path / "four.npz")
    assert subject.network(first(subject)).shape[1] == 4
    assert subject.learned().facts.outputs == 4


def test_an_undivided_folder_has_no_labels_of_its_own_classes(tmp_path):
    subject = attnlab.open("resnet20", photographs(tmp_path / "photos"))
    assert not subject.images().divided
    assert subject.task is None
    with pytest.raises(InputError, match="no images with labels of its own classes"):
        subject.learned()


def test_evenly_spread_images_and_batches():
    subject = attnlab.open("resnet20", "digits", limit=10, batch=4)
    assert [len(batch.inputs) for batch in subject.batches()] == [4, 4, 2]
    whole = next(attnlab.open("resnet20", "digits", batch=359).batches()).inputs
    places = np.linspace(0, 358, 10).round().astype(int)
    assert torch.equal(torch.cat([b.inputs for b in subject.batches()]), whole[places])


def test_gates_of_a_name_and_of_a_foreign_file(tmp_path):
    gated, _ = attnlab.insert(attnlab.create("resnet20"), "se", place="auto")
    save_file(gated.state_dict(), tmp_path / "foreign.safetensors")
    subject = attnlab.open(tmp_path / "foreign.safetensors", model="resnet20", gate="se")
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(subject.network(x), gated.eval()(x))
    assert attnlab.open("resnet20", gate="se").description.gate == "se"


@pytest.mark.parametrize(
    ("source", "options", "error", "told"),
    [
        ("nowhere.safetensors", {}, WeightsError, "There is no file 'nowhere.safetensors'."),
        (nn.Identity(), {"gate": "se"}, OptionError, "gate does not go with a network that is"),
        ("resnet20", {"model": "resnet32"}, OptionError, "model does not go with 'resnet20'"),
        ("resnet20", {"limit": 0}, OptionError, "limit"),
        ("resnet20", {"data": "digit"}, InputError, "none of them"),
        ("resnet20", {"data": "digits", "std": (0.0,) * 3}, OptionError, "std to be finite"),
        ("resnet20", {"data": "digits", "mean": (float("nan"),) * 3}, OptionError, "mean to be"),
    ],
)
def test_messages(source, options, error, told):
    with pytest.raises(error) as caught:
        attnlab.open(source, **options)
    assert told in str(caught.value)


def test_options_that_do_not_go_with_a_run(run, tmp_path):
    with pytest.raises(OptionError, match="gate does not go with the run"):
        attnlab.open(run, gate="se")
    with pytest.raises(OptionError, match="size does not go with a run's own images"):
        attnlab.open(run, size=16)
    with pytest.raises(InputError, match="is not a run's folder"):
        attnlab.open(tmp_path)


def test_a_strangers_run_imports_nothing_without_trust(run, tmp_path):
    for file in run.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((run / "config.json").read_text())
    config["attention"] = "stranger.Gate"
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_manifest(tmp_path, "a stranger's")
    with pytest.raises(WeightsError, match=r"not attnlab's \(stranger.Gate\)"):
        attnlab.open(tmp_path)


def test_other_images_for_a_run_are_prepared_as_its_own(run, tmp_path):
    subject = attnlab.open(run, photographs(tmp_path / "photos"))
    own = attnlab.open(run).images().facts
    facts = subject.images().facts
    assert (facts.shape, facts.mean, facts.std) == (own.shape, own.mean, own.std)
    assert subject.provenance.data == str(tmp_path / "photos")


def test_without_images_random_pixels_are_measured_and_said():
    found = attnlab.stiffness("resnet20")
    assert found.inputs == 256
    assert found.notes[0].startswith("No images were given: these are random pixels.")


def test_random_pixels_have_the_size_of_the_images_of_the_network():
    for opened, side in (
        (attnlab.open("resnet20", size=16), 16),
        (attnlab.open("resnet20"), 32),
        (attnlab.open(attnlab.create("resnet20")), 32),
    ):
        assert subject_of(opened).images().facts.shape == (3, side, side)


def test_a_network_is_where_its_parameters_are():
    assert _device_of(nn.Identity()) == torch.device("cpu")
    assert _device_of(nn.Linear(1, 1, device="meta")) == torch.device("meta")


def test_a_folder_of_transformers(tmp_path: Path) -> None:
    """Answers of the network that was saved; a note where the text has other tokens; nothing is
    filled at random."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    for vocabulary in (256, 300):
        config = transformers.LlamaConfig(vocab_size=vocabulary, num_attention_heads=2, **sizes)
        network = transformers.LlamaForCausalLM(config).eval()
        network.save_pretrained(tmp_path / str(vocabulary))
        subject = attnlab.open(tmp_path / str(vocabulary), "stdlib", limit=2)
        assert subject.name == str(vocabulary)
        tokens = torch.arange(12)[None]
        with torch.no_grad():
            assert torch.equal(subject.network(tokens).logits, network(tokens).logits)
        told = [note for note in subject.notes if note.startswith("The text has 256 tokens and")]
        assert len(told) == (vocabulary != 256)
        assert attnlab.stiffness(subject).tns > 0
    gated, _ = attnlab.insert(network, "token", example=tokens)
    attnlab.save(gated, tmp_path / "gated")
    assert len(list(attachments(attnlab.open(tmp_path / "gated").network))) == 4
    lacking = {k: v for k, v in network.state_dict().items() if "layers.1.mlp.up" not in k}
    network.save_pretrained(tmp_path / "lacking", state_dict=lacking)
    with pytest.raises(WeightsError, match=r"lack 1 tensors of .*'model.layers.1.mlp.up_proj"):
        attnlab.open(tmp_path / "lacking")
