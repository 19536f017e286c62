"""Choosing sites, and the messages when a choice does not exist."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import SelectionError, SiteError, UnknownNameError
from attnlab.residuals.choose import find_sites, trunk
from attnlab.residuals.example import run_once
from attnlab.residuals.where import lies_in, measured_word, parse_where, select, split_inside
from attnlab.surgery.insertion import attachments


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
        ("blocks:8", [(3, 2)]),
        ("stages:2,", [(2, 0), (2, 1), (2, 2)]),
        ("every:4", [(1, 0), (2, 1), (3, 2)]),
        ("every:1", [(s, b) for s in (1, 2, 3) for b in (0, 1, 2)]),
        ("code: 100010001 ", [(1, 0), (2, 1), (3, 2)]),
        ("any:1@0", [(3, 1)]),
        ("in:layer1", [(1, 0), (1, 1), (1, 2)]),
        ("in:layer2 blocks:1", [(2, 1)]),
        ("in:layer3 stages:3", [(3, 0), (3, 1), (3, 2)]),
        ("in:layer3.1 all", [(3, 1)]),
        ("code:100010001", [(1, 0), (2, 1), (3, 2)]),
        ("random:1@0", [(1, 2), (2, 1), (3, 1)]),  # pinned: the same on every machine
        ("random:2@0", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]),
        ("any:9@0", [(s, b) for s in (1, 2, 3) for b in (0, 1, 2)]),
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
        (
            "blocks:-1",
            SelectionError,
            f"where='blocks:-1': -1 does not exist in this network. {EXISTS}",
        ),
        (
            "blocks:0.0",
            SelectionError,
            f"where='blocks:0.0': 0.0 does not exist in this network. {EXISTS}",
        ),
        (
            "stages:4,2,11",
            SelectionError,
            f"where='stages:4,2,11': 11, 4 does not exist in this network. {EXISTS}",
        ),
        (
            "blocks:2,1,2,1,0",
            SelectionError,
            "where='blocks:2,1,2,1,0' names 1, 2 more than once.",
        ),
        ("every:2,3", SelectionError, "where='every:2,3': expected one number of at least 1."),
        (
            "random:1@ ",
            SelectionError,
            "where='random:1@ ': a random choice needs its seed, so that it can be made again: "
            "random:1@0.",
        ),
        (
            "stages: ,",
            UnknownNameError,
            "Unknown selection where = 'stages: ,'. Did you mean 'stages:1,2'? Expected one of: "
            "stages:1,2, blocks:0,3, blocks:1.0,2.3, every:2, code:1001, random:1@0, any:3@0, "
            "norms, in:module.",
        ),
        (
            "in:layer4",
            SelectionError,
            "where='in:layer4': there is no module 'layer4' in ResNet. Did you mean 'layer3' or "
            "'layer2' or 'layer1'?",
        ),
        ("in:", SelectionError, "where='in:': there is no module '' in ResNet."),
        ("blocks:1,1", SelectionError, "where='blocks:1,1' names 1 more than once."),
        ("blocks:0,1.0", SelectionError, "where='blocks:0,1.0' names one block in two ways."),
        ("every:0", SelectionError, "where='every:0': expected one number of at least 1."),
        (
            "code:1001",
            SelectionError,
            f"where='code:1001': the code has 4 bits, and the network 9 blocks. {EXISTS}",
        ),
        (
            "code:10010120",
            SelectionError,
            "where='code:10010120': expected a 0 or a 1 per block but got '10010120'.",
        ),
        ("code:000000000", SelectionError, f"where='code:000000000' selects no site. {EXISTS}"),
        (
            "random:4@0",
            SelectionError,
            "where='random:4@0': 4 blocks of every stage, but stage 1 has 3 to choose from. "
            f"{EXISTS}",
        ),
        (
            "random:0@0",
            SelectionError,
            "where='random:0@0': expected at least 1 block per stage but got 0.",
        ),
        (
            "random:2",
            SelectionError,
            "where='random:2': a random choice needs its seed, so that it can be made again: "
            "random:2@0.",
        ),
        (
            "any:10@0",
            SelectionError,
            "where='any:10@0': expected 1 to 9 blocks but got 10.",
        ),
        ("any:0@0", SelectionError, "where='any:0@0': expected 1 to 9 blocks but got 0."),
        (
            "any:2",
            SelectionError,
            "where='any:2': a random choice needs its seed, so that it can be made again: any:2@0.",
        ),
        ("random:2@x", SelectionError, "where='random:2@x': expected a number but got 'x'."),
        (
            "stiffest:2",
            SelectionError,
            "where='stiffest:2' is chosen by a measurement, and insert measures nothing. `attnlab "
            "place` does: it prints the where= that belongs here. In a study the word stands as it "
            "is.",
        ),
        (
            "spread:0",
            SelectionError,
            "where='spread:0': expected at least 1 block per stage but got 0.",
        ),
        ("stages:one", SelectionError, "where='stages:one': expected a number but got 'one'."),
        (
            "stage:1",
            UnknownNameError,
            "Unknown selection where = 'stage:1'. Did you mean 'stages:1,2'? Expected one of: "
            "stages:1,2, blocks:0,3, blocks:1.0,2.3, every:2, code:1001, random:1@0, any:3@0, "
            "norms, in:module.",
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


def has_five_channels(site):
    return site.channels == 5


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (has_five_channels, "where, the function 'has_five_channels', selects no site."),
        (lambda site: site.channels == 5, "where, a function, selects no site."),
        (partial(has_five_channels), "where, a function, selects no site."),
    ],
)
def test_a_predicate_that_selects_nothing(network, where, named):
    with pytest.raises(SelectionError) as caught:
        chosen(network, where)
    assert str(caught.value) == f"{named} {EXISTS}"


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
        "  layer1.0.attnlab: it is a gate that attnlab inserted; name the module after which it "
        "acts.\n"
        "Choose the others with where=lambda site: not site.refusal."
    )


def test_a_norm_named_as_a_text(network):
    assert chosen(network, "layer1.0.bn1", "iebn") == ("layer1.0.bn1",)


def drawn(network, where, gate="ie"):
    """The blocks, as (stage, block)."""
    gated, _ = attnlab.insert(network, gate, where=where)
    return [(a.site.stage, a.site.block) for _, a in attachments(gated)]


def test_random_choices_are_fair_and_cost_the_same(network):
    """Two of three blocks in every stage, whatever the seed; each block two times of three."""
    counts = Counter()
    for seed in range(60):
        found = drawn(network, f"random:2@{seed}")
        assert Counter(stage for stage, _ in found) == {1: 2, 2: 2, 3: 2}
        counts.update(found)
    assert len(counts) == 9
    # Standard deviation of a count: sqrt(60 * 2/3 * 1/3) = 3.65.
    assert all(abs(count - 40) < 4 * 3.65 for count in counts.values())


def test_a_random_step_gate_is_drawn_where_it_can_act(network):
    for seed in range(10):
        found = drawn(network, f"random:2@{seed}", "step")
        assert Counter(stage for stage, _ in found) == {1: 2, 2: 2, 3: 2}
        assert not {(2, 0), (3, 0)} & set(found)  # projection shortcuts


def test_a_step_gate_does_not_leave_out_what_a_code_asks_for(network):
    assert drawn(network, "code:100010001", "step") == [(1, 0), (2, 1), (3, 2)]
    with pytest.raises(SiteError) as caught:
        attnlab.insert(network, "step", where="code:100100001")
    assert str(caught.value) == (
        "where='code:100100001': a step gate acts where the shortcut is x_t itself, but the code "
        "asks for one at 2.0, which has a projection shortcut. Write a 0 there, or pass "
        "include_first=True to use the projected x_t."
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("stiffest:2", ("stiffest", 2)),
        ("in:layer1 softest:1", ("softest", 1)),
        ("stages:1", None),
        ("stiffest", None),
        ("softest: 3 ", ("softest", 3)),
        ("in:layer1", None),
        ("in:layer1 norms", None),
        ("stages:2", None),
        (None, None),
        (["stiffest:2"], None),
    ],
)
def test_words_that_need_a_measurement(where, expected):
    assert measured_word(where) == expected


def test_a_module_without_steps_is_told_where_the_first_is(network):
    with pytest.raises(SelectionError) as error:
        attnlab.insert(network, "se", where="in:conv1")
    assert str(error.value) == (
        "There is no residual step in 'conv1'. The network has 9, the first of them in 'layer1.0'."
    )


@pytest.mark.parametrize("names", ["layer1.0", "layer1.0 layer1.1"])
def test_modules_are_not_named_after_a_module(network, names):
    with pytest.raises(SelectionError) as error:
        attnlab.insert(network, "se", where=f"in:layer1 {names}")
    assert str(error.value) == (
        f"where='in:layer1 {names}': expected stages:, blocks:, every:, code:, random:, any: or "
        f"norms after in:layer1 but got {names!r}. Modules are named whole, without in:"
    )


class _ReadTwice(nn.Module):
    """The output of `both` goes into an activation and also past it."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.conv, self.alone = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x):
        normed = self.both(x)
        return torch.relu(self.alone(self.conv(torch.relu(normed) * normed)))


def test_a_norm_that_others_read_too_is_not_one_before_an_activation():
    images = torch.randn(2, 3, 8, 8)
    _, receipt = attnlab.insert(_ReadTwice(), "se", where="norms", example=images)
    assert receipt.sites == ("alone",)


def test_sites_are_at_the_ends_of_branches_and_drawn_among_all_unless_told():
    model = attnlab.create("resnet20").eval()
    run = run_once(model, torch.randn(1, 3, 32, 32))
    found = find_sites(model, run, "random:3@0", both_ends=False)
    assert [site.label for site in found] == [f"{s}.{b}" for s in (1, 2, 3) for b in (0, 1, 2)]
    assert {site.position for site in found} == {"end"}
    drawn = find_sites(model, run, "any:7@0", both_ends=False, identity_only=True)
    assert [site.kind for site in drawn] == ["identity"] * 7


@pytest.mark.parametrize("given", [5, 1.5])
def test_what_is_no_selection(given):
    with pytest.raises(SelectionError) as caught:
        parse_where(given)
    assert str(caught.value) == (
        "Expected where to be None, a selection such as 'stages:1,2', a list of module names or a "
        f"function of a site but got {given}."
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("in:a", ("a", None)),
        ("in:a.b all", ("a.b", None)),
        ("in:a  stages:1, 2 ", ("a", "stages:1, 2")),
        ("in:a norms", ("a", "norms")),
        ("norms", (None, "norms")),
        (["in:a"], (None, ["in:a"])),
        (None, (None, None)),
    ],
)
def test_a_selection_in_a_module(where, expected):
    assert split_inside(where) == expected


@pytest.mark.parametrize(
    ("name", "module", "lies"),
    [
        ("a", "a", True),
        ("a.b", "a", True),
        ("ab", "a", False),
        ("a", "a.b", False),
        ("a", "", True),
    ],
)
def test_what_lies_in_a_module(name, module, lies):
    assert lies_in(name, module) is lies


def test_sites_that_no_gate_can_act_at(network):
    """It is said of those that were to choose from."""
    sites = find_sites(network, run_once(network), None, both_ends=False)
    refused = [replace(site, refusal=f"reason {n}") for n, site in enumerate(sites)]
    with pytest.raises(SelectionError) as caught:
        select(refused, lambda _: False)
    assert str(caught.value) == (
        f"where, a function, selects no site. {EXISTS} No gate can act at any of them; of the "
        "first, reason 0."
    )
    with pytest.raises(SelectionError) as caught:
        select([*refused[:-1], sites[-1]], lambda _: False)
    assert str(caught.value) == f"where, a function, selects no site. {EXISTS}"
    assert select(sites, None) == sites


@pytest.mark.parametrize(
    ("kind", "parts", "expected"),
    [
        (
            "torchvision.models.detection.faster_rcnn",
            ("backbone", "backbone.body"),
            "backbone.body",
        ),
        ("torchvision.models.detection.faster_rcnn", ("backbone",), "backbone"),
        ("torchvision.models.detection.faster_rcnn", ("body",), ""),
        ("torchvision.models.resnet", ("backbone", "backbone.body"), ""),
    ],
)
def test_the_trunk_of_a_detector(kind, parts, expected):
    made = type("Detector", (type("Generalized", (nn.Module,), {"__module__": kind}),), {})()
    for name in parts:
        made.set_submodule(name, nn.Module())
    assert trunk(made) == expected
