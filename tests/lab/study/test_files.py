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
    "asr-networks": 3 * 4 * 5,
    "asr-acnet": 3 * 5,
    "asr-vgg": 3 * 5,
    "asr-vit": 2 * 2 * 5,
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
    "asr-networks",
    "asr-acnet",
    "asr-vgg",
)


@pytest.mark.parametrize("name", RUNS)
def test_the_grid_is_the_papers(name: str) -> None:
    assert len(planned_runs(load_study(name))) == RUNS[name]


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


def test_starts_of_gates_pair_with_the_table_of_all_gates() -> None:
    """By settings, because the data are not here: plain is that plain network, and without its
    start and its options every other row is a row of that table, or a constant."""

    def common(name: str) -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = {}
        for run in planned_runs(load_study(name)):
            settings = run.config.model_dump(exclude={"start", "gate_options"})
            found.setdefault(str(settings.pop("attention")), []).append(settings)
        return found

    ours, table = common("gate-starts-cifar10"), common("all-gates-cifar10")
    assert ours["none"] == table["none"]
    assert ours.keys() - table.keys() == {"scale"}
    for gate in ours.keys() - {"scale"}:
        assert all(settings in table[gate] for settings in ours[gate]), gate


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
