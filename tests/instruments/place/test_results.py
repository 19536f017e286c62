"""What a placement says, and what is said of wrong input."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab._errors import AttnlabError, InputError
from attnlab.cli import main
from attnlab.instruments.place import Margin, Placement, place_by_word
from attnlab.networks.checkpoint import Description
from attnlab.surgery.insertion import attachments


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return attnlab.create("resnet20").eval()


@pytest.fixture(scope="module")
def images():
    return [torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))]


def test_there_and_back(network, images, tmp_path) -> None:
    found = attnlab.place(network, 1, loader=images, per_stage=True)
    assert Placement.load(found.save(tmp_path / "place.json")) == found
    with pytest.raises(InputError, match="Expected a file written by to_json"):
        Placement.from_json('{"format": "attnlab stripe 1"}')


def test_what_it_says(network, images) -> None:
    found = attnlab.place(network, 1, loader=images, per_stage=True)
    first, *_ = found.reasons()
    best = found.chosen[0]
    assert first.startswith(f"{best.label} {best.name}: NSI {best.score:.3g} ± ")
    assert first.endswith("over images, largest of 2 of stage 1")
    assert str(found).startswith(f"where={found.where!r}\n  {first}\n")
    gated, _ = attnlab.insert(network, "se", where=found.where)
    assert [a.site.label for _, a in attachments(gated)] == [b.label for b in found.chosen]


def test_gates_that_are_there_already_are_told(network, images) -> None:
    gated, _ = attnlab.insert(network, "se", where="stages:1")
    found = attnlab.place(gated, 1, loader=images, per_stage=True)
    assert found.notes == (
        "the network carries 3 of our gates; what is measured is the network with them",
    )


def test_a_near_tie_is_told() -> None:
    margin = Margin(1, "1.1", "1.2", 0.524, 0.518, 0.006)
    assert str(margin) == "0.006 (1.1 %) from 1.1 to 1.2 in stage 1: nearly a tie"
    assert str(replace(margin, stage=None, margin=0.1)) == "0.1 (19.1 %) from 1.1 to 1.2"


def test_the_picture_has_every_block(network, images) -> None:
    svg = attnlab.place(network, 1, loader=images).plot()
    assert svg.count("which: not chosen") == 5
    assert svg.count("which: chosen") == 1


LABELLED = [(torch.eye(16).expand(2, 3, 16, 16), torch.tensor([0, 1]))]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"budget": 10, "strategy": "effect", "loader": LABELLED},
            "A budget of 10 blocks, but the network has 9 to choose from: 1.0, 1.1, 1.2, 2.0, 2.1, "
            "2.2, 3.0, 3.1, 3.2.",
        ),
        (
            {"budget": 7, "loader": LABELLED},
            "A budget of 7 blocks, but the network has 6 to choose from (the first step of a stage "
            "has no NSI that counts): 1.1, 1.2, 2.1, 2.2, 3.1, 3.2.",
        ),
        (
            {"budget": 3, "per_stage": True, "loader": LABELLED},
            "A budget of 3 blocks in every stage, but stage 1 has 2 to choose from (the first step "
            "of a stage has no NSI that counts): 1.1, 1.2.",
        ),
        (
            {"budget": 4, "per_stage": True, "strategy": "effect", "loader": LABELLED},
            "A budget of 4 blocks in every stage, but stage 1 has 3 to choose from: 1.0, 1.1, 1.2.",
        ),
        ({"budget": 0, "loader": LABELLED}, "Expected the budget to be at least 1 but got 0."),
        (
            {"loader": LABELLED},
            "Strategy 'stiffest' needs a budget, how many blocks get a gate: budget=3, or "
            "--budget 3.",
        ),
        (
            {"budget": 3, "strategy": "stifest", "loader": LABELLED},
            "Unknown strategy 'stifest'. Did you mean 'stiffest' or 'softest'? Expected one of: "
            "stiffest, softest, tns, nsi-spread, spread, effect.",
        ),
        (
            {"budget": 3},
            "Strategy 'stiffest' measures on images, and 'ResNet' was opened without any: pass "
            "training images, data='digits' (in a command --data digits) or loader=batches.",
        ),
        (
            {"budget": 3, "strategy": "effect"},
            "Strategy 'effect' measures on images, and 'ResNet' was opened without any: pass "
            "training images, with their classes, data='digits' (in a command --data digits) or "
            "loader=batches.",
        ),
        (
            {"budget": 3, "strategy": "effect", "loader": [torch.zeros(2, 3, 16, 16)]},
            "Strategy 'effect' needs the class of every image, a whole number: expected batches "
            "(images, classes) but got Tensor. Without classes choose 'stiffest', 'tns' or "
            "'nsi-spread'.",
        ),
        (
            {"budget": 3, "strategy": "effect", "loader": [(torch.zeros(2, 3, 16, 16),)]},
            "Strategy 'effect' needs the class of every image, a whole number: expected batches "
            "(images, classes) but got tuple. Without classes choose 'stiffest', 'tns' or "
            "'nsi-spread'.",
        ),
        (
            {
                "budget": 3,
                "strategy": "effect",
                "loader": [(torch.zeros(2, 3, 16, 16), torch.zeros(2, 10))],
            },
            "Strategy 'effect' needs the class of every image, a whole number: expected batches "
            "(images, classes) but got classes of shape (2, 10) in float32. Without classes choose "
            "'stiffest', 'tns' or 'nsi-spread'.",
        ),
        (
            {
                "budget": 3,
                "strategy": "effect",
                "loader": [(torch.zeros(2, 3, 16, 16), torch.tensor([True, False]))],
            },
            "Strategy 'effect' needs the class of every image, a whole number: expected batches "
            "(images, classes) but got classes of shape (2,) in bool. Without classes choose "
            "'stiffest', 'tns' or 'nsi-spread'.",
        ),
        (
            {
                "budget": 3,
                "strategy": "effect",
                "loader": [(torch.zeros(2, 3, 16, 16), torch.tensor([3, 12]))],
            },
            "Expected labels from 0 to 9, one for each of the network's 10 answers, but got 3 to "
            "12.",
        ),
        (
            {
                "budget": 3,
                "strategy": "spread",
                "loader": [(torch.zeros(2, 3, 16, 16), torch.tensor([3, -1]))],
            },
            "Expected labels from 0 to 9, one for each of the network's 10 answers, but got -1 to "
            "3.",
        ),
        (
            {
                "budget": 3,
                "strategy": "spread",
                "loader": [(torch.zeros(1, 3, 16, 16), torch.tensor([3]))],
            },
            "Strategy 'spread' trains on batches of at least two images.",
        ),
        (
            {"budget": 3, "spread_gate": "se", "loader": LABELLED},
            "Strategy 'stiffest' takes no spread_gate, which is for 'spread'. Leave it out.",
        ),
        (
            {"strategy": "spread", "budget": 1, "spread_gate": "asr:se", "loader": LABELLED},
            "The gates are the same for every image, so they have no spread to choose by. Take a "
            "gate that reads the features, for example 'se'.",
        ),
        (
            {"budget": 1, "loader": []},
            "Expected a loader with at least one batch but got an empty one.",
        ),
    ],
)
def test_wrong_input(network, given, message) -> None:
    with pytest.raises(AttnlabError) as caught:
        attnlab.place(network, **given)
    assert str(caught.value) == message


def test_a_network_without_a_step_that_counts() -> None:
    shallow = attnlab.create("torchvision:resnet18", num_classes=10).eval()
    found = attnlab.place(shallow, 1, loader=[torch.randn(2, 3, 64, 64)], per_stage=True)
    assert found.where == "blocks:1.1,2.1,3.1,4.1"  # one to choose from in every stage
    assert found.margins == ()
    with pytest.raises(InputError, match="TNS is 0 for all 2 images"):
        attnlab.place(shallow, 1, "tns", [torch.randn(2, 3, 64, 64)])


@pytest.mark.parametrize(
    ("word", "strategy"), [("stiffest:2", "stiffest"), ("in:layer2 softest:1", "softest")]
)
def test_words_of_studies(network, images, word, strategy) -> None:
    found = place_by_word(network, word, images)
    assert found.strategy == strategy
    if word.startswith("in:"):
        assert [block.stage for block in found.blocks] == [2, 2, 2]
        assert found.where == f"in:layer2 blocks:{found.chosen[0].label}"
    else:
        assert found.where == "blocks:1.1,1.2,2.1,2.2,3.1,3.2"
    attnlab.insert(network, "ie", where=found.where)


def test_spread_of_the_gates_that_are_there(network, images) -> None:
    gated, _ = attnlab.insert(network, "se")
    found = place_by_word(gated, "spread:1", images)
    sites = {site.label: site.image_spread for site in attnlab.stripe(gated, images).sites}
    best = [max((k for k in sites if k[0] == s), key=lambda k: sites[k]) for s in "123"]
    assert found.where == f"blocks:{','.join(best)}"
    with pytest.raises(AttnlabError, match="Expected one of stiffest, softest, spread"):
        place_by_word(network, "stages:1", images)


def test_the_command(capsys, tmp_path) -> None:
    given = ["place", "resnet20", "--budget", "2", "--data", "digits", "--limit", "16"]
    main([*given, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    found = Placement.load(tmp_path / "place.json")
    assert f"where={found.where!r}" in printed
    assert "margin " in printed
    page = (tmp_path / "place.html").read_text()
    assert found.where in page.replace("&#39;", "'")
    assert (tmp_path / "place.svg").is_file()
    main([*given, "--json"])
    assert json.loads(capsys.readouterr().out)["where"] == found.where


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--budget", "3"],
            "attnlab: Strategy 'stiffest' measures on images, and 'resnet20' was opened without "
            "any: pass training images, data='digits' (in a command --data digits) or "
            "loader=batches.\n",
        ),
        (
            ["--budget", "3", "--strategy", "effect", "--data", "fake"],
            "attnlab: Strategy 'effect' needs the labels of the images, and 'resnet20' has no "
            "images with labels of its own classes. Pass data with as many classes as it has "
            "outputs, such as digits, or batches (images, classes).\n",
        ),
        (
            ["--budget", "3", "--strategy", "effects", "--data", "fake"],
            "attnlab: Unknown strategy 'effects'. Did you mean 'effect' or 'stiffest'? Expected "
            "one of: stiffest, softest, tns, nsi-spread, spread, effect.\n",
        ),
    ],
)
def test_what_the_command_refuses(capsys, given, message) -> None:
    with pytest.raises(SystemExit):
        main(["place", "resnet20", *given])
    assert capsys.readouterr().err == message


def test_training_images_only() -> None:
    """What a choice is made on is not what judges it, unless that is asked for."""
    own = attnlab.open("resnet20", "digits", limit=8)
    asked = attnlab.open("resnet20", "digits", limit=8, part="test")
    by_part = {}
    for part in ("train", "test"):
        batches = list(own.batches(part=part))
        by_part[part] = attnlab.place(own.network, 1, "effect", batches, per_stage=True).blocks
    assert by_part["train"] != by_part["test"]
    found = attnlab.place(own, 1, "effect", per_stage=True)
    assert found.blocks == by_part["train"]
    note = "chosen by looking at test images, so a result on them is not a fair one"
    assert note not in found.notes
    found = attnlab.place(asked, 1, "effect", per_stage=True)
    assert found.blocks == by_part["test"]
    assert note in found.notes


def test_sources_of_one_network_agree(tmp_path) -> None:
    """A name, a subject, a file and a module: the same blocks by the same scores."""
    network = attnlab.open("resnet20", num_classes=10).network
    batches = list(attnlab.open("resnet20", "digits", limit=8, part="train").batches())
    file = attnlab.save(network, tmp_path / "n.safetensors", Description("resnet20", 10))
    sources = [attnlab.open("resnet20", "digits", limit=8), attnlab.open(file), network]
    found = [
        attnlab.place(source, 2, "effect", None if number == 0 else batches)
        for number, source in enumerate(sources)
    ]
    assert len({each.where for each in found}) == 1
    assert found[0].blocks == found[1].blocks == found[2].blocks
    assert found[0].provenance is not None
    assert found[0].network == "resnet20"
