"""Words for places in a study: what they are measured of, and what the table and page say."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
import torch
from tests.lab.study._small import HereExecutor, small_study

from attnlab._errors import AttnlabError, OptionError, SelectionError
from attnlab.instruments.place.section import (
    null_sentence,
    placed_rows,
    placement_answer,
    random_like,
)
from attnlab.lab.pages.study_page import study_page
from attnlab.lab.study import planned_runs, run_study
from attnlab.lab.study.current import refresh
from attnlab.lab.study.estimate import plan_study
from attnlab.lab.study.show import markdown
from attnlab.lab.study.store import Store
from attnlab.lab.training import RunConfig, load_network, train
from attnlab.lab.training.placement import source_config
from attnlab.results import StoredRun
from attnlab.results.record import read_record
from attnlab.surgery.insertion import attachments

RANDOM = [
    {"gate": "se", "label": f"random {seed}", "where": f"random:1@{seed}"} for seed in (0, 1, 2)
]
ROWS = [
    "none",
    {"gate": "se", "label": "all"},
    {"gate": "se", "label": "stiffest", "where": "stiffest:1"},
    {"gate": "se", "label": "spread", "where": "spread:1"},
    *RANDOM,
]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    study = small_study(
        attention=ROWS,
        seeds=2,
        recipe={"name": "digits", "epochs": 1, "batch_size": 50, "warmup_epochs": 0},
        equivalence={"to": "all", "margin": 50.0},
    )
    executor = HereExecutor()
    outcomes = run_study(study, out, executor)
    assert [outcome.status for outcome in outcomes] == ["done"] * 14
    return out, study


def runs_of(done, row: str) -> list[StoredRun]:
    out, study = done
    store = Store(out)
    entries = store.entries(planned_runs(study))
    return [store.run(entry) for entry in entries if entry.cell.row == row]


@pytest.mark.parametrize(("row", "source"), [("stiffest", "plain"), ("spread", "all")])
def test_the_choice_is_that_of_the_measured_run(done, row, source) -> None:
    """Of the run of the same seed: nothing is trained twice, and each seed has its own."""
    for own, measured in zip(runs_of(done, row), runs_of(done, source), strict=True):
        found = own.result.placement
        assert found is not None
        assert (found.source, found.images) == (measured.result.run_id, 100)
        assert own.result.sites == 3
        chosen = [a.site.label for _, a in attachments(load_network(own.directory))]
        assert found.where == f"blocks:{','.join(chosen)}"
        best = {}
        for label, score in found.scores.items():
            if score is not None and score > best.get(label[0], ("", -1.0))[1]:
                best[label[0]] = (label, score)
        assert chosen == [label for label, _ in best.values()]
    folders = {path.name for path in done[0].iterdir() if path.is_dir()}
    assert len(folders) == 14 + 1  # the runs, and `studies`


def test_the_scores_are_of_training_images(done) -> None:
    """NSI by hooks on the augmented images of the first epoch, as the source saw them."""
    from attnlab.data import load_data
    from attnlab.data.batches import training_chunks

    own, measured = runs_of(done, "stiffest")[0], runs_of(done, "plain")[0]
    config = RunConfig.from_json((own.directory / "config.json").read_text())
    data = load_data(config.data)
    chunks = training_chunks(data.order(config.seed, 0), config.recipe)
    batches = data.training(chunks, config.seed, 0, torch.device("cpu"))
    images = torch.cat([batch.inputs for batch in batches])
    network = load_network(measured.directory)
    seen = {}
    block = network.get_submodule("layer2.1")
    block.register_forward_hook(lambda _, args, out: seen.update(x=args[0], y=out))
    with torch.no_grad():
        network(images)
    change = (seen["y"] - seen["x"]).flatten(1).norm(dim=1) / seen["x"].flatten(1).norm(dim=1)
    assert own.result.placement.scores["2.1"] == pytest.approx(change.mean().item(), rel=1e-4)


def test_the_cost_is_the_same(done) -> None:
    rows = ("stiffest", "spread", "random 0", "random 1", "random 2")
    costs = {(run.result.parameters, run.result.macs) for row in rows for run in runs_of(done, row)}
    assert len(costs) == 1


def test_a_run_that_was_stopped_goes_on_with_its_choice(done, tmp_path) -> None:
    """The choice is made once: also when the source is gone, the blocks are known."""
    own = runs_of(done, "stiffest")[0]
    config = RunConfig.from_json((own.directory / "config.json").read_text())
    again = train(config, tmp_path / "run", threads=1)
    assert again.placement == own.result.placement
    assert again.values == own.result.values
    (tmp_path / "run" / "result.json").unlink()
    placed = json.loads((tmp_path / "run" / "placement.json").read_text())
    assert placed["where"] == again.placement.where
    assert train(config, tmp_path / "run", threads=1).values == again.values
    shutil.rmtree(tmp_path / "run" / "source")
    assert len(list(attachments(load_network(tmp_path / "run")))) == 3


def test_the_word_is_part_of_the_identity() -> None:
    study = small_study(attention=ROWS)
    ids = [run.run_id for run in planned_runs(study)]
    assert len(set(ids)) == len(ROWS)
    words = [run.identity.settings.get("where") for run in planned_runs(study)]
    assert words[2:4] == ["stiffest:1", "spread:1"]


def test_sources() -> None:
    settings = {"backbone": "resnet20", "recipe": "digits"}
    config = RunConfig(**settings, attention="se", where="stiffest:1", start="identity", seed=3)
    assert source_config(config) == RunConfig(**settings, seed=3)
    spread = RunConfig(**settings, attention="se", where="spread:2", shared=True)
    assert source_config(spread) == RunConfig(**settings, attention="se", shared=True)
    assert source_config(RunConfig(**settings, attention="se", where="random:1@0")) is None


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("stiffest:0", "where='stiffest:0': expected at least 1 block per stage but got 0."),
        ("softest:x", "where='softest:x': expected a number but got 'x'."),
    ],
)
def test_wrong_words_are_refused_before_anything_is_trained(where, message) -> None:
    with pytest.raises(OptionError) as caught:
        planned_runs(small_study(attention=["none", {"gate": "se", "where": where}]))
    assert message in str(caught.value)


def test_too_many_blocks(tmp_path) -> None:
    config = RunConfig(
        data={"name": "digits", "train_subset": 20, "test_subset": 10},
        backbone="resnet20",
        attention="se",
        where="stiffest:3",
        recipe={"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 20},
    )
    with pytest.raises(SelectionError) as caught:
        train(config, tmp_path / "run", threads=1)
    assert str(caught.value) == (
        "where='stiffest:3': A budget of 3 blocks in every stage, but stage 1 has 2 to choose from "
        "(the first step of a stage has no NSI that counts): 1.1, 1.2."
    )


def test_a_plan_can_be_made_before_anything_is_measured(tmp_path) -> None:
    plan = plan_study(small_study(attention=ROWS), tmp_path)
    assert all(estimate.problem == "" for estimate in plan.estimates.values())


def test_equivalence_in_table_and_csv(done) -> None:
    out, study = done
    table = refresh(Store(out), study.name)
    rows = {row.label: row for row in table.groups[0].rows}
    assert rows["all"].equivalence is None
    assert rows["plain"].equivalence.to == "all"  # a bound, like any other row
    for row in rows.values():
        if row.equivalence is not None:
            mean = sum(row.by_seed[s] - rows["all"].by_seed[s] for s in (0, 1)) / 2
            assert row.equivalence.mean == pytest.approx(mean)
            assert row.equivalence.verdict in ("equivalent", "not shown", "cannot tell")
    text = markdown(table)
    assert "| as good, within ±50 |" in text
    assert "as good as all: two one-sided paired tests that the difference lies within ±50" in text
    record = read_record(out, study.name)
    lines = list(csv.DictReader(io.StringIO(record.columns.values().to_csv())))
    stiffest = next(line for line in lines if line["module"] == "stiffest")
    assert stiffest["equivalent_to"] == "all"
    assert float(stiffest["equivalence_margin"]) == 50.0
    assert stiffest["equivalence"] == rows["stiffest"].equivalence.text
    assert len(record.columns.values().rows) == 7


def test_the_page_says_where(done) -> None:
    out, study = done
    record = read_record(out, study.name)
    (group,) = record.table.groups
    placed = placed_rows(record, group)
    assert [(each.strategy, each.sites) for each in placed] == [
        ("plain", 0),
        ("all", 9),
        ("stiffest", 3),
        ("spread", 3),
        *[("random", 3)] * 3,
    ]
    stiffest = placed[2]
    drawn = random_like(stiffest, placed)
    assert [each.row.label for each in drawn] == ["random 0", "random 1", "random 2"]
    above = sum(each.delta < stiffest.delta for each in drawn)
    at_least = sum(each.delta >= stiffest.delta for each in drawn)
    assert null_sentence(stiffest, drawn) == (
        f"above {above} of 3 random placements (p = {(1 + at_least) / 4:.2g}, one-sided)"
    )
    assert "of 5 rows with fewer gates" in placement_answer(record)
    above = sum(all(each.delta > drawn.delta for drawn in placed[4:]) for each in placed[2:4])
    verb = "are" if above > 1 else "is"
    told = f"{above or 'None'} of 2 ways to choose {verb} above all random placements"
    assert told in placement_answer(record)
    (section,) = (each for each in study_page(record).sections if each.title == "Where?")
    assert [part.kind for part in section.parts] == [
        "heading",
        "figure",
        "text",
        "table",
        "folded",
        "folded",
    ]


def test_a_row_that_is_not_there() -> None:
    with pytest.raises(AttnlabError) as caught:
        planned_runs(small_study(equivalence={"to": "see", "margin": 1.0}))
    assert str(caught.value) == (
        "Setting 'equivalence' of study: there is no row 'see'. Did you mean 'se'? It has: plain, "
        "se."
    )
