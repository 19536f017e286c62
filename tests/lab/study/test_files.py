"""The study files that come with attnlab: every table, its figures, and its small form."""

from __future__ import annotations

import tomllib

import pytest
import torch

import attnlab
from attnlab.data import Facts
from attnlab.gates import GATES
from attnlab.lab.statistics import seeds_needed
from attnlab.lab.study import list_studies, load_study, planned_runs
from attnlab.lab.study.grid import check_names
from attnlab.lab.training.placement import stand_in_config
from attnlab.subject.building import build_network
from attnlab.tasks import build_task

RUNS = {
    "demo": 4 * 12,
    "all-gates": 26 * 5,
    "all-gates-frozen": 23 * 5,
    "all-gates-wider": 6 * 5,
    "all-gates-cifar10": 25 * 5,
    "gate-starts-cifar10": 14 * 5,
    "gate-starts-branches": 3 * 5,
    "all-gates-cifar10-wider": 4 * 5,
    "all-gates-cifar10-frozen": 15 * 5,
    "asr-networks": 3 * 4 * 5,
    "asr-acnet": 3 * 5,
    "asr-vgg": 3 * 5,
    "asr-vit": 2 * 2 * 5,
    "asr-cnns": 2 * 5 * 3 * 5,
    "asr-settling": 6 * 2 * 2 * 5,
    "shapes-demo": 2 * 2,
    "shapes-seeds": 4 * 5,
    "stepnet-table1": 9 * 3 * 5,
    "stepnet-table2": 8 * 2 * 5,
    "stepnet-table3": 5 * 2 * 5,
    "stepnet-table4": 9 * 3 * 5,
    "asr-table5": 13 * 5,
    "asr-table6": 17 * 5,
    "lottery-ticket": 28 * 5,
    "lottery-ticket-cifar10": 15 * 3,
    "asr-style": 4 * 2 * 5,
}
TABLES = sorted(name for name in RUNS if "small" in load_study(name).model_fields_set)
PLANNED = (
    "all-gates",
    "all-gates-frozen",
    "all-gates-wider",
    "all-gates-cifar10",
    "gate-starts-cifar10",
    "gate-starts-branches",
    "all-gates-cifar10-wider",
    "all-gates-cifar10-frozen",
    "asr-networks",
    "asr-acnet",
    "asr-vgg",
)


@pytest.mark.parametrize("name", RUNS)
def test_the_grid_is_the_papers(name: str) -> None:
    runs = planned_runs(load_study(name))
    assert len(runs) == RUNS[name]
    check_names(runs)  # all networks, gates and options exist


@pytest.mark.parametrize("name", TABLES)
def test_every_table_states_its_time_deviations_and_figures(name: str) -> None:
    text = list_studies()[name].read_text(encoding="utf-8")
    header = text.partition("title =")[0]
    for word in ("Expected", "Time", "estimate", "Deviations"):
        assert word in header
    assert "small" in tomllib.loads(text)


def test_tables_share_the_runs_that_they_share() -> None:
    first, fourth, lottery = (
        {run.run_id for run in planned_runs(load_study(name))}
        for name in ("stepnet-table1", "stepnet-table4", "lottery-ticket")
    )
    assert len(first & fourth) == 2 * 3 * 5  # plain and StepNet
    assert len(first & lottery) == 2 * 5  # plain and SE on CIFAR-100


def test_networks_of_asr_have_the_recipes_of_their_columns() -> None:
    """Supplement, Table 2: drops of the rate, its weight decay, and a cosine for ACNet."""
    found = {}
    for run in planned_runs(load_study("asr-cnns")):
        made = run.config.recipe
        own = (made.schedule, made.milestones, made.weight_decay)
        assert found.setdefault(run.config.backbone, own) == own
        assert (made.epochs, made.batch_size, made.lr) == (164, 128, 0.1)
    drops = ("multistep", (60, 120, 160), 5e-4)
    assert found == {
        "vgg19_bn": drops,
        "shufflenet_v2": drops,
        "mobilenet_v1": drops,
        "repvgg_a0": ("multistep", (130,), 1e-4),
        "resnet56_acnet": ("cosine", (), 1e-4),
    }
    small, *done = (
        {run.run_id for run in planned_runs(study)}
        for study in (
            load_study("asr-cnns").smaller(),
            load_study("asr-networks"),
            load_study("asr-acnet"),
        )
    )
    assert small <= set.union(*done)  # runs that are made once


def test_table_6_has_both_columns_of_the_paper() -> None:
    paper = load_study("asr-table6").paper
    assert paper is not None
    top1, top5 = (paper.figures[name]["cifar100 resnet164"] for name in ("top1", "top5"))
    assert len(top1) == 16
    assert top1.keys() == top5.keys()
    assert all(top5[row].mean > each.mean for row, each in top1.items())


def test_the_papers_gains_follow_from_its_figures() -> None:
    """Table 1 prints the gains as well: 1.79, 2.74 and 3.42 for StepNet."""
    paper = load_study("stepnet-table1").paper
    assert paper is not None
    gains = [rows["StepNet"].mean - rows["plain"].mean for rows in paper.figures["top1"].values()]
    assert gains == pytest.approx([1.79, 2.74, 3.42])


def test_detection_figures_are_the_papers() -> None:
    """Table 3 says of itself that StepNet is best but for AP75, and AP50 of ResNet101."""
    paper = load_study("stepnet-table3").paper
    assert paper is not None
    best = {
        (metric, group): max(rows, key=lambda row: rows[row].mean)
        for metric, groups in paper.figures.items()
        for group, rows in groups.items()
    }
    others = {key for key, row in best.items() if row != "StepNet"}
    assert others == {
        ("ap75", "coco resnet50"),
        ("ap75", "coco resnet101"),
        ("ap50", "coco resnet101"),
    }
    gain = paper.figures["ap"]["coco resnet50"]
    assert gain["StepNet"].mean - gain["plain"].mean == pytest.approx(2.9)


def test_recipes_of_the_tables_are_the_papers() -> None:
    runs = planned_runs(load_study("stepnet-table1"))
    batch = {run.cell.data: run.config.recipe.batch_size for run in runs}
    assert batch == {"cifar10": 128, "cifar100": 128, "stl10": 16}
    assert {run.config.recipe.epochs for run in runs} == {164}
    psi = [
        run.config.gate_options for run in planned_runs(load_study("asr-table5")) if run.seed == 0
    ]
    assert [options.get("initial") for options in psi[1:7]] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


@pytest.mark.parametrize("name", TABLES)
def test_every_network_of_a_small_form_can_be_built(name: str) -> None:
    for run in planned_runs(load_study(name).smaller()):
        if run.seed == 0:
            boxes = run.config.task.name == "detection"
            side = run.config.data.size or (96 if boxes else 8)
            kind, shape = "boxes" if boxes else "class", (3, side, side)
            facts = Facts("made", kind, 3, shape, 9, 9, (0.0,) * 3, (1.0,) * 3, "")
            # Blocks that a measurement chooses cost what any others do.
            build_network(stand_in_config(run.config), build_task(run.config.task, facts))


def test_the_demos_seeds_follow_from_power() -> None:
    """As its header says, and none of them was in the study that its spread is from."""
    study = load_study("demo")
    modules = len(study.attention) - 1
    assert len(study.seeds) == seeds_needed(1.0, 0.9, level=1 - 0.05 / modules)
    assert not set(study.seeds) & set(range(5))


def test_every_gate_is_in_the_study_of_all_gates() -> None:
    study = load_study("all-gates")
    # Registered after its plan was fixed.
    later = {"token", "head", "element", "scale", "rezero", "lambda"}
    assert {entry.gate for entry in study.attention} == {"none", *GATES} - later


@pytest.mark.parametrize("name", PLANNED)
def test_a_study_of_ours_states_its_plan(name: str) -> None:
    text = list_studies()[name].read_text(encoding="utf-8").partition("title =")[0]
    assert "fixed before the first run" in text
    assert "Time" in text


def test_controls_of_all_gates_share_its_plain_network_and_its_seeds() -> None:
    def plain(name: str) -> set[str]:
        return {run.run_id for run in planned_runs(load_study(name)) if run.cell.plain}

    assert plain("all-gates") == plain("all-gates-frozen") == plain("all-gates-wider")


def _by_gate(name: str, *but: str) -> dict[str, list[dict[str, object]]]:
    """The settings of every run of a study but for these, by its gate."""
    found: dict[str, list[dict[str, object]]] = {}
    for run in planned_runs(load_study(name)):
        settings = run.config.model_dump(exclude=set(but))
        found.setdefault(str(settings.pop("attention")), []).append(settings)
    return found


def test_starts_of_gates_pair_with_the_table_of_all_gates() -> None:
    """By settings, because the data are not here: plain is that plain network, and without its
    start and its options every other row is a row of that table, or a constant."""
    studies = ("gate-starts-cifar10", "all-gates-cifar10")
    ours, table = (_by_gate(name, "start", "gate_options") for name in studies)
    assert ours["none"] == table["none"]
    assert ours.keys() - table.keys() == {"scale"}
    for gate in ours.keys() - {"scale"}:
        assert all(settings in table[gate] for settings in ours[gate]), gate


def test_controls_on_cifar10_pair_with_its_table_of_all_gates() -> None:
    """Never trained, a row is that table's but for `trainable`; a wider network is its plain one
    but for the widths; and with branches at 1 all is as in the starts but for that."""
    frozen, table, wider = (
        _by_gate(f"all-gates-cifar10{which}", "gate_options", "backbone_options")
        for which in ("-frozen", "", "-wider")
    )
    assert all(frozen[gate] == table[gate] for gate in frozen)
    assert wider.keys() == {"none"}
    assert all(settings in table["none"] for settings in wider["none"])
    others = {run.config.attention for run in planned_runs(load_study("gate-starts-cifar10"))}
    alike = {"srm", "gc", "gct", "simam", "ge"}
    """Their networks are there without training: constants, and gates without parameters."""
    assert frozen.keys() | others | alike == table.keys() | {"scale"}
    branches, starts = (
        _by_gate(name, "backbone_options", "start", "gate_options")
        for name in ("gate-starts-branches", "gate-starts-cifar10")
    )
    assert all(each in starts[gate] for gate, runs in branches.items() for each in runs)


def test_branches_of_a_regnet_begin_at_0_or_at_1() -> None:
    """What gate-starts-branches changes, and all that it changes."""
    weights = []
    for name in ("gate-starts-cifar10", "gate-starts-branches"):
        config = planned_runs(load_study(name))[0].config
        torch.manual_seed(0)
        network = attnlab.create(config.backbone, num_classes=10, **config.backbone_options)
        weights.append(network.state_dict())
    zero, one = weights
    last = {name for name in zero if name.endswith("conv3.bn.weight")}
    assert len(last) == 13
    assert all(not zero[name].any() and bool((one[name] == 1).all()) for name in last)
    assert all(bool((zero[name] == one[name]).all()) for name in zero.keys() - last)


def test_wider_networks_are_as_large_as_the_gates_that_they_name() -> None:
    """Counted here: the gated network is built and its parameters are added up."""
    sizes = {}
    for entry in load_study("all-gates-wider").attention[1:]:
        wanted = entry.backbone_options["parameters"]
        for gate in entry.label.removeprefix("as many as ").split(", "):
            network = attnlab.create("resnet20")
            gated, _ = attnlab.insert(network, gate, example=torch.zeros(1, 3, 8, 8))
            sizes[gate] = (sum(each.numel() for each in gated.parameters()), wanted)
    assert all(own == wanted for own, wanted in sizes.values()), sizes


def test_wider_regnets_have_the_sizes_of_their_header() -> None:
    """And these are nearly those of the gates; counted here, by adding up parameters."""
    header = list_studies()["all-gates-cifar10-wider"].read_text(encoding="utf-8")
    gates = {"sem": 2_470_573, "bam": 2_592_774, "scse, ese": 3_371_751}
    for entry in load_study("all-gates-cifar10-wider").attention[1:]:
        network = attnlab.create("timm:regnetx_002", num_classes=10, **entry.backbone_options)
        size = sum(each.numel() for each in network.parameters())
        named = entry.label.removeprefix("as many as ")
        assert f"{size:,}   {named.split(',')[0]}" in header
        assert size == pytest.approx(gates[named], rel=0.005)
        gated, _ = attnlab.insert(
            attnlab.create("timm:regnetx_002", num_classes=10),
            named.split(", ")[0],
            example=torch.zeros(1, 3, 32, 32),
        )
        assert sum(each.numel() for each in gated.parameters()) == gates[named]
