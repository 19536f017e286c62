"""Choosing sites, and the messages when a choice does not exist."""

import pytest
import torch

import attnlab
from attnlab._errors import SelectionError, SiteError, UnknownNameError
from attnlab.insert import attachments
from attnlab.insert.where import parse_where


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
            "stages:1,2, blocks:0,3, blocks:1.0,2.3, every:2, norms, in:module.",
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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("all", None),
        ("stages:1,3", "stages:1,3"),
        ("blocks:1.1, 3.2", "blocks:1.1, 3.2"),
        ("norms", "norms"),
        ("features.1", "features.1"),
        ("features.1 features.5", ["features.1", "features.5"]),
        (["features.1"], ["features.1"]),
        (("features.1", "features.5"), ["features.1", "features.5"]),
    ],
)
def test_as_typed_and_as_in_files(given, expected):
    assert parse_where(given) == expected
    assert parse_where(parse_where(given)) == expected


@pytest.mark.parametrize("given", [[], (), "", " "])
def test_nothing_is_not_everything(network, given):
    message = (
        f"where={given!r} selects no site. Expected None or 'all' for every site, a selection such "
        f"as 'stages:1,2', or names of modules."
    )
    for gate in ("se", "iebn"):
        with pytest.raises(SelectionError) as caught:
            chosen(network, given, gate)
        assert str(caught.value) == message


def placed(network, where):
    net, _ = attnlab.insert(network, "ie", where=where)
    return sorted(
        (name, a.site.label, a.site.position, a.site.step.name if a.site.step else "")
        for name, a in attachments(net)
    )


def test_a_named_site_knows_its_step(network):
    names = ["bn1", "layer2.1.bn1", "layer2.1.bn2", "layer1.0", "layer2.0.shortcut.1"]
    assert placed(network, names) == [
        ("attnlab_bn1", "bn1", "elsewhere", ""),
        ("attnlab_layer1_0", "layer1.0", "elsewhere", ""),
        ("layer2.0.attnlab_shortcut_1", "layer2.0.shortcut.1", "elsewhere", ""),
        ("layer2.1.attnlab_bn1", "2.1", "inside", "layer2.1"),
        ("layer2.1.attnlab_bn2", "2.1", "end", "layer2.1"),
    ]


def test_norms_know_their_steps(network):
    labels = [("attnlab_bn1", "bn1", "elsewhere", "")]
    labels += [
        (f"layer{s}.{b}.attnlab_bn1", f"{s}.{b}", "inside", f"layer{s}.{b}")
        for s in (1, 2, 3)
        for b in (0, 1, 2)
    ]
    assert placed(network, "norms") == labels


def test_sites_of_a_network_without_steps_are_numbered():
    with torch.device("meta"):
        vgg = attnlab.create("vgg19_bn")
    found = placed(vgg, "stages:1,2")
    assert {(label.partition(".")[0], position) for _, label, position, _ in found} == {
        ("1", "elsewhere"),
        ("2", "elsewhere"),
    }


def test_a_gate_is_no_module_to_name(network):
    net, _ = attnlab.insert(network, "ie")
    with pytest.raises(SiteError) as caught:
        chosen(net, ["layer1.0.attnlab"])
    assert str(caught.value) == (
        "No gate can act at 1 of 1 sites:\n"
        "  layer1.0.attnlab: it is a gate that attnlab inserted; name the module behind which it "
        "acts.\n"
        "Choose the others with where=lambda site: not site.refusal."
    )


def test_a_norm_named_as_a_text(network):
    assert chosen(network, "layer1.0.bn1", "iebn") == ("layer1.0.bn1",)
