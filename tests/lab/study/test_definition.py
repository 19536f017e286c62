"""Study files: what they say in short, what they expand to, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from attnlab._errors import AttnlabError, InputError, OptionError, UnknownNameError
from attnlab.lab.study.definition import Study, list_studies, load_study, new_study, study_file
from attnlab.lab.study.grid import planned_runs
from attnlab.lab.training import train

SHORT: dict[str, Any] = {
    "name": "try",
    "data": "digits",
    "backbone": "resnet20",
    "attention": ["none", "se"],
    "seeds": 2,
    "recipe": "digits",
}


def study(**changes: Any) -> Study:
    return Study(**{**SHORT, **changes})


def message(**changes: Any) -> str:
    with pytest.raises(AttnlabError) as error:
        planned_runs(study(**changes))
    return str(error.value)


def test_short_and_long_forms_are_the_same_study() -> None:
    long = study(
        data=[{"name": "digits", "label": "digits"}],
        backbone=[{"name": "resnet20"}],
        attention=[{"gate": "none", "label": "plain"}, {"gate": "se"}],
        where=["all"],
        seeds=[0, 1],
        recipe={"name": "digits"},
    )
    assert long == study()


def test_the_grid_is_the_product_and_goes_seed_by_seed() -> None:
    runs = planned_runs(
        study(data=["digits", "fake"], attention=["none", "se", "step"], seeds=[3, 1])
    )
    assert len(runs) == 2 * 3 * 2
    assert len({run.run_id for run in runs}) == len(runs)
    assert [run.seed for run in runs] == [3] * 6 + [1] * 6
    assert str(runs[1]) == "digits resnet20 se seed 3"


def test_where_crosses_gates_but_not_the_plain_backbone() -> None:
    runs = planned_runs(study(where=["all", "stages:3", "every:2"], seeds=1))
    assert [(run.cell.row, run.config.where) for run in runs] == [
        ("plain", None),
        ("se", None),
        ("se @ stages:3", "stages:3"),
        ("se @ every:2", "every:2"),
    ]


def test_a_gate_with_its_own_where_and_options_keeps_them() -> None:
    gate = {"gate": "se", "label": "SE r8", "where": "stages:1", "options": {"reduction": 8}}
    (run,) = planned_runs(study(attention=[gate], where=["all", "every:2"], seeds=1))
    assert (run.cell.row, run.config.where) == ("SE r8", "stages:1")
    assert run.config.gate_options == {"reduction": 8}


def test_a_data_set_can_change_the_recipe() -> None:
    data = ["digits", {"name": "fake", "recipe": {"batch_size": 16}}]
    first, second = planned_runs(study(data=data, attention="none", seeds=1))
    assert (first.config.recipe.batch_size, second.config.recipe.batch_size) == (64, 16)
    assert second.config.recipe.epochs == first.config.recipe.epochs


def test_a_network_and_a_row_can_have_a_recipe_of_their_own() -> None:
    backbones = ["resnet20", {"name": "resnet32", "recipe": {"epochs": 7, "lr": 0.01}}]
    rows = [
        "none",
        "se",
        {"gate": "se", "label": "se, longer", "recipe": {"epochs": 9}},
        {"gate": "none", "label": "plain, longer", "recipe": {"epochs": 9}},
    ]
    runs = planned_runs(study(backbone=backbones, attention=rows, seeds=1))
    by_name = {(run.config.backbone, run.cell.row): run for run in runs}
    chosen = {name: run.config.recipe for name, run in by_name.items()}
    usual = chosen["resnet20", "plain"]
    assert {name: (recipe.epochs, recipe.lr) for name, recipe in chosen.items()} == {
        ("resnet20", "plain"): (usual.epochs, usual.lr),
        ("resnet20", "se"): (usual.epochs, usual.lr),
        ("resnet20", "se, longer"): (9, usual.lr),
        ("resnet20", "plain, longer"): (9, usual.lr),
        ("resnet32", "plain"): (7, 0.01),
        ("resnet32", "se"): (7, 0.01),
        ("resnet32", "se, longer"): (9, 0.01),
        ("resnet32", "plain, longer"): (9, 0.01),
    }
    assert [row for (_, row), run in by_name.items() if run.cell.plain] == ["plain", "plain"]
    named = study(attention=["none", {"gate": "se", "recipe": "resnet_cifar"}], seeds=1)
    assert [run.config.recipe.name for run in planned_runs(named)] == ["digits", "resnet_cifar"]


def test_the_seed_is_all_that_differs_within_a_cell() -> None:
    runs = planned_runs(study(attention="se"))
    first, second = (run.config.model_dump(exclude={"seed"}) for run in runs)
    assert first == second


def test_the_small_form_is_another_study() -> None:
    full = study(seeds=5, small={"seeds": 1, "recipe": {"name": "digits", "epochs": 2}}, title="T")
    small = full.smaller()
    assert (small.name, small.title) == ("try-small", "T (small form)")
    assert [run.config.recipe.epochs for run in planned_runs(small)] == [2, 2]
    assert {run.run_id for run in planned_runs(small)}.isdisjoint(
        run.run_id for run in planned_runs(full)
    )


def test_the_papers_figures_are_read_as_they_are_printed() -> None:
    paper = {
        "source": "Table 1",
        "top1": {"digits resnet20": {"plain": "93.35 ± 0.18", "se": "94.3"}},
    }
    figures = study(paper=paper).paper
    assert figures is not None
    plain, se = figures.figures["top1"]["digits resnet20"].values()
    assert ((plain.mean, plain.std), (se.mean, se.std)) == ((93.35, 0.18), (94.3, None))
    assert str(plain) == "93.35 ± 0.18"


def test_messages() -> None:
    assert message(atention=[]) == (
        "Unknown setting 'atention' of study. Did you mean 'attention' or 'pretrain'? Expected "
        "one of: task, data, backbone, attention, where, seeds, recipe, pretrain, measure, track, "
        "threads, devices, equivalence, name, title, paper, small."
    )
    assert message(attention=[{"gate": "se", "wher": "stages:1"}]) == (
        "Unknown setting 'wher' of module. Did you mean 'where'? Expected one of: gate, label, "
        "options, where, start, place, shared, backbone_options, branch_scale, recipe."
    )
    assert message(small={"seed": 1}) == (
        "[small] has no setting 'seed'. Did you mean 'seeds'? It has: task, data, "
        "backbone, attention, where, seeds, recipe, pretrain, measure, track, threads, "
        "devices, equivalence."
    )
    assert message(seeds=0) == "Setting 'seeds' of study: expected at least 1 but got 0."
    assert message(seeds=True) == (
        "Setting 'seeds' of study: expected a whole number or a list of them but got True."
    )
    assert message(seeds=[0, True]) == (
        "Setting 'seeds.1' of study: expected a whole number but got True."
    )
    assert message(recipe={"name": "digits", "lr": True}) == (
        "Setting 'lr' of recipe: expected a number but got True."
    )
    assert message(equivalence={"to": "se", "margin": True}) == (
        "Setting 'margin' of equivalence: expected a number but got True."
    )
    paper = {"source": "x", "top1": {"digits resnet20": {"se": True}}}
    assert message(paper=paper) == (
        "The paper's figure of 'se': expected a number or text like '94.26 ± 0.14' but got True."
    )
    assert message(seeds=[1, 1]) == ("Setting 'seeds' of study: expected each once but got [1, 1].")
    assert message(attention=["se", {"gate": "se", "label": "SE"}]) == (
        "Two rows of the study are the same run: digits resnet20 se seed 0 and digits resnet20 SE "
        "seed 0. Remove one, or change its settings."
    )
    assert message(attention=["se", {"gate": "eca", "label": "se"}]) == (
        "Two rows of the study are called 'se'; give each its own label."
    )
    assert message(data=["digits", "digits"]) == (
        "Setting 'data' of study: digits is given more than once; give each a label of its own."
    )
    paper = {"source": "x", "top1": {"digits resnet20": {"sem": 1.0}}}
    assert message(paper=paper) == (
        "[paper.top1] names the row 'sem', which the study does not have. Did you mean 'se'? "
        "It has: plain, se."
    )
    paper = {"source": "x", "top2": {"digits resnet20": {"se": 1.0}}}
    assert message(paper=paper) == (
        "[paper] names the metric 'top2', which the task 'classification' does not have. Did you "
        "mean 'top5' or 'top1'? It has: top1, top5, loss."
    )
    paper = {"source": "x", "top1": 93.0}
    assert message(paper=paper) == (
        "[paper.top1]: expected a table of groups with a figure per row, as in "
        '[paper.top1."cifar10 resnet164"], but got 93.0.'
    )
    paper = {"source": "x", "top1": {"digits resnet20": {"se": "about 90"}}}
    assert message(paper=paper) == (
        "The paper's figure of 'se': expected a number or text like '94.26 ± 0.14' but got "
        "'about 90'."
    )


def test_no_place_is_not_the_plain_network() -> None:
    """A row without gates would be the plain network under the gate's name."""
    expected = (
        "where={} selects no site. Expected None or 'all' for every site, a selection such as "
        "'stages:1,2', or names of modules."
    )
    assert message(attention=["none", {"gate": "se", "where": []}]) == expected.format("()")
    assert message(where=[]) == expected.format("()")


def test_places_by_name() -> None:
    gate = {"gate": "se", "where": ["layer1.0.bn1", "layer1.0.bn2"]}
    (run,) = planned_runs(study(attention=[gate], seeds=1))
    assert run.config.where == ("layer1.0.bn1", "layer1.0.bn2")
    (run,) = planned_runs(study(attention=[{"gate": "se", "where": "all"}], seeds=1))
    assert run.config.where is None


def test_a_study_without_small_form_says_so() -> None:
    with pytest.raises(OptionError) as error:
        study().smaller()
    assert str(error.value) == "The study 'try' has no [small] table, so no small form."


def test_files_are_found_by_path_and_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'data = "digits"\nbackbone = "resnet20"\nattention = "se"\nseeds = 1\nrecipe = "digits"'
    )
    assert load_study(file).name == "mine"
    assert study_file("demo") == list_studies()["demo"]
    with pytest.raises(UnknownNameError, match=r"Unknown study 'dem'. Did you mean 'demo'"):
        load_study("dem")
    with pytest.raises(InputError) as error:
        load_study("no/such.toml")
    assert str(error.value) == (
        "There is no file 'no/such.toml'. Expected the TOML file of a study."
    )


def test_errors_in_a_file_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("data = [")
    with pytest.raises(InputError, match=r"mine\.toml is not a TOML file: "):
        load_study(file)
    file.write_text('dat = "digits"')
    with pytest.raises(OptionError, match=r"mine\.toml: Unknown setting 'dat' of study\."):
        load_study(file)


def test_the_study_to_start_from_learns_regression_too(tmp_path: Path) -> None:
    """With the two lines changed that its comment names. A guess of no turn is off by 0.5 on
    average; without a bound on the gradient, the loss of this seed is NaN in the first epoch."""
    file = new_study(tmp_path / "mine")
    text = file.read_text(encoding="utf-8")
    text = text.replace('task = "classification"', 'task = "regression"', 1)
    file.write_text(text.replace('data = "digits"', 'data = "digit-angles"', 1), encoding="utf-8")
    study = load_study(file)
    run = next(run for run in planned_runs(study) if run.cell.plain and run.seed == 0)
    assert (run.config.task.name, run.config.data.name) == ("regression", "digit-angles")
    result = train(run.config, tmp_path / "run", threads=1, progress=lambda _: None)
    assert result.metric.name == "mae"
    assert result.value < 0.3


def test_a_study_to_start_from_may_be_a_copy(tmp_path: Path) -> None:
    file = new_study(tmp_path / "mine", like="mask-gates")
    assert file.read_bytes() == study_file("mask-gates").read_bytes()
    assert load_study(file).name == "mine"  # so its results are not stored as the original's
    with pytest.raises(
        UnknownNameError, match=r"Unknown study 'mask-gate'\. Did you mean 'mask-gates'"
    ):
        new_study(tmp_path / "other", like="mask-gate")
    assert not (tmp_path / "other.toml").exists()


def test_each_study_that_the_one_to_start_from_names_is_there(tmp_path: Path) -> None:
    text = new_study(tmp_path / "mine").read_text(encoding="utf-8")
    named = [name for name in list_studies() if re.search(rf"(?<![\w-]){name}`? \(", text)]
    assert {load_study(name).task.name for name in named} == {
        "segmentation",
        "detection",
        "ultralytics",
        "language",
    }


def test_a_row_with_its_own_place_is_called_by_its_label_alone() -> None:
    """A row for every place has the place in its name, one that says where it is has not."""
    own = {"gate": "eca", "label": "se @ stages:3", "where": "stages:1"}
    with pytest.raises(OptionError) as error:
        study(attention=["none", "se", own], where=["all", "stages:3"])
    assert str(error.value) == (
        "Two rows of the study are called 'se @ stages:3'; give each its own label."
    )
    other = {**own, "where": None}
    rows = planned_runs(study(attention=["se", other], where=["all", "stages:2"], seeds=1))
    assert [run.cell.row for run in rows] == [
        "se",
        "se @ stages:2",
        "se @ stages:3",
        "se @ stages:3 @ stages:2",
    ]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["none", {"gate": "se", "label": "plain"}], "'plain'"),
        (["none", {"gate": "none", "backbone_options": {"width": 8}}], "'plain'"),
        (["none", {"gate": "none", "recipe": {"epochs": 9}}], "'plain'"),
        ([{"gate": "se", "label": "plain"}], "gate 'se' is called 'plain', which is the backbone"),
        (["none", "se", {"gate": "eca", "label": "se"}], "Two rows of the study are called 'se'"),
        (["none", "se", {"gate": "none", "label": "se"}], "Two rows of the study are called 'se'"),
    ],
)
def test_a_label_that_another_row_has_is_refused_when_the_study_is_read(
    rows: list[Any], told: str
) -> None:
    with pytest.raises(OptionError) as error:
        study(attention=rows)
    assert told in str(error.value)
    assert str(error.value).endswith("give each its own label.") or "give it its own" in str(
        error.value
    )
