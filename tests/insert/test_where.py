"""Choosing sites, and the messages when a choice does not exist."""

import pytest
import torch

import attnlab
from attnlab._errors import SelectionError, SiteError, UnknownNameError


@pytest.fixture(scope="module")
def network():
    with torch.device("meta"):
        return attnlab.create("resnet20")  # three stages of three blocks


def chosen(network, where, gate="ie"):
    return attnlab.insert(network, gate, where=where)[1].sites


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, [(s, b) for s in (1, 2, 3) for b in (0, 1, 2)]),
        ("stages:1", [(1, 0), (1, 1), (1, 2)]),
        ("stages:1,3", [(1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (3, 2)]),
        ("blocks:0,5", [(1, 0), (2, 2)]),
        ("blocks:1.1, 3.2", [(1, 1), (3, 2)]),
        ("every:4", [(1, 0), (2, 1), (3, 2)]),
        (lambda site: site.kind == "projection", [(2, 0), (3, 0)]),
        (lambda site: site.channels == 16 and site.block, [(1, 1), (1, 2)]),
    ],
)
def test_selections(network, where, expected):
    assert chosen(network, where) == tuple(f"layer{s}.{b}.bn2" for s, b in expected)


def test_a_transformer_block_is_chosen_with_both_its_parts():
    with torch.device("meta"):
        vit = attnlab.create("timm:vit_tiny_patch16_224")
    assert len(chosen(vit, "blocks:3")) == 2
    assert len(chosen(vit, lambda site: site.part == 1)) == 12


EXISTS = (
    "There are 9 sites in 9 blocks (numbers 0 to 8): stage 1: blocks 1.0 to 1.2; "
    "stage 2: blocks 2.0 to 2.2; stage 3: blocks 3.0 to 3.2."
)


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        (
            "stages:4",
            SelectionError,
            f"where='stages:4': 4 does not exist in this network. {EXISTS}",
        ),
        (
            "blocks:9",
            SelectionError,
            f"where='blocks:9': 9 does not exist in this network. {EXISTS}",
        ),
        (
            "blocks:1.7",
            SelectionError,
            f"where='blocks:1.7': 1.7 does not exist in this network. {EXISTS}",
        ),
        ("blocks:1,1", SelectionError, "where='blocks:1,1' names 1 more than once."),
        ("blocks:0,1.0", SelectionError, "where='blocks:0,1.0' names one block in two ways."),
        ("every:0", SelectionError, "where='every:0': expected one number of at least 1."),
        ("stages:one", SelectionError, "where='stages:one': expected a number but got 'one'."),
        (
            "stage:1",
            UnknownNameError,
            "Unknown selection where = 'stage:1'. Did you mean 'stages:1,2'? Expected one of: "
            "stages:1,2, blocks:0,3, blocks:1.0,2.3, every:2, norms.",
        ),
        (
            ["layer1.0.bn3"],
            SelectionError,
            "The network has no module named 'layer1.0.bn3'. Did you mean 'layer1.0.bn2' or "
            "'layer1.0.bn1' or 'layer3.0.bn2'? Names are those of model.named_modules().",
        ),
    ],
)
def test_messages(network, where, error, message):
    with pytest.raises(error) as caught:
        chosen(network, where)
    assert str(caught.value) == message


def test_a_predicate_that_selects_nothing(network):
    with pytest.raises(SelectionError, match=r"selects no site\. There are 9 sites in 9 blocks"):
        chosen(network, lambda site: site.channels == 5)


def test_a_step_gate_on_projections_only(network):
    with pytest.raises(SiteError) as caught:
        chosen(network, "blocks:2.0", gate="step")
    assert str(caught.value) == (
        "A step gate acts where the shortcut is x_t itself, but all 1 chosen steps have a "
        "projection shortcut. Pass include_first=True to use the projected x_t there."
    )


def test_a_step_gate_behind_a_module(network):
    with pytest.raises(SiteError, match="acts at residual additions only"):
        chosen(network, ["layer1.0.bn2"], gate="step")


def test_a_wrong_start(network):
    with pytest.raises(UnknownNameError) as caught:
        attnlab.insert(network, "se", start="zero")
    assert str(caught.value) == ("Unknown start 'zero'. Expected one of: paper, identity.")


def test_a_wrong_gate(network):
    with pytest.raises(UnknownNameError, match=r"Unknown gate 'sse'\. Did you mean 'scse' or 'se'"):
        attnlab.insert(network, "sse")
