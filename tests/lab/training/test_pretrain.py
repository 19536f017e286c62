"""Runs that start from a trained network: from which, in which order, and as part of the id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.study._small import HereExecutor
from tests.lab.training.small import quiet, run, small, weights

from attnlab._errors import InputError, OptionError
from attnlab.data.memory import MemoryData
from attnlab.lab.pages.alerts import alerts
from attnlab.lab.pages.verdict import study_chips
from attnlab.lab.study import Study, planned_runs, run_study
from attnlab.lab.study.show import column_notes
from attnlab.lab.training import RunConfig, load_network, loop, train
from attnlab.lab.training.identity import identify
from attnlab.results import StoredRun
from attnlab.results.record import read_record

BEFORE = {"epochs": 1, "batch_size": 16, "lr": 0.05}
STILL = {"optimizer": "sgd", "lr": 1e-30, "momentum": 0.0, "weight_decay": 0.0, "epochs": 1}
"""Steps too short to change a weight of float32."""


def test_it_starts_where_the_plain_run_of_its_seed_ended(tmp_path: Path) -> None:
    """Steps of nothing leave the trained network, under gates that start at one."""
    config = small(recipe=STILL, pretrain=BEFORE, attention="se", start="identity", seed=3)
    run(config, tmp_path / "gated")
    plain = small(recipe=BEFORE, epochs=1, seed=3)
    run(RunConfig(**{**plain.model_dump(), "recipe": BEFORE}), tmp_path / "plain")
    ended, gated = weights(tmp_path / "plain"), weights(tmp_path / "gated")
    learned = [name for name, value in ended.items() if value.is_floating_point()]
    own = [name for name in learned if "running" not in name]  # statistics of norms go on
    assert len(own) > 60
    assert all(torch.equal(ended[name], gated[name]) for name in own)
    assert any("gate" in name for name in gated.keys() - ended.keys())
    first = small(recipe=STILL, seed=3)
    run(first, tmp_path / "first")
    untrained = weights(tmp_path / "first")
    assert not any(torch.equal(ended[n], untrained[n]) for n in own if n.endswith("conv1.weight"))


def test_the_network_before_is_trained_in_one_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun and srun start one run in several processes; of one process they may."""
    config = small(1, pretrain=BEFORE)
    job = loop._Job(  # what is None here is not looked at
        config,
        None,
        tmp_path,
        None,
        1,
        None,
        None,
        (),
        "",
        None,  # type: ignore[arg-type]
    )
    trained: list[int] = []
    monkeypatch.setattr(loop, "_train_first", lambda *given: trained.append(given[2]))
    for name, value, refused in (
        ("SLURM_NTASKS", "1", False),
        ("SLURM_NTASKS", "2", True),
        ("TORCHELASTIC_RUN_ID", "a", True),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            found = loop._after_first(job, tmp_path / "below", 1)
            assert (found.start, found.placement) == (tmp_path / "below", None)
            if refused:
                with pytest.raises(InputError, match="torchrun and srun start one"):
                    loop._after_first(job, tmp_path, 2)
            else:
                loop._after_first(job, tmp_path, 2)
    assert trained == [1, 2, 1, 1]


def test_the_batches_come_in_another_order_than_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    order = MemoryData.order

    def seen(self: Any, seed: int, epoch: int) -> torch.Tensor:
        asked.append((seed, epoch))
        return order(self, seed, epoch)

    monkeypatch.setattr(MemoryData, "order", seen)
    config = small(pretrain=BEFORE, epochs=1)
    run(config, tmp_path / "run")
    assert [seed == 0 for seed, _ in asked] == [True, False]
    assert config.data_seed == asked[1][0]
    assert small(pretrain=BEFORE, attention="eca").data_seed == config.data_seed  # so rows pair


def test_the_training_before_is_part_of_the_run() -> None:
    def run_id(**settings: Any) -> str:
        return identify(small(**settings), threads=1).run_id

    assert run_id() != run_id(pretrain=BEFORE)
    assert run_id(pretrain=BEFORE) != run_id(pretrain={**BEFORE, "epochs": 2})
    named = small(pretrain="digits").pretrain
    assert named is not None
    assert run_id(pretrain="digits") == run_id(pretrain={**named.model_dump(), "name": None})
    config = small(pretrain="digits", attention="se")
    assert RunConfig.from_json(config.to_json()) == config
    first = config.pretraining
    assert first is not None
    assert first == small(recipe=named.model_dump())


def test_a_run_that_is_stopped_goes_on_from_the_same_start(tmp_path: Path) -> None:
    """Before its own training, and inside of it: to the bit."""

    class StopError(Exception):
        pass

    def stop(_: Any) -> None:
        raise StopError

    config = small(pretrain=BEFORE, attention="se")
    run(config, tmp_path / "whole")
    for _ in range(2):  # after the epoch of the first training, and after the first of its own
        with pytest.raises(StopError):
            train(config, tmp_path / "stopped", threads=1, progress=stop)
    run(config, tmp_path / "stopped")
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    shown = load_network(tmp_path / "stopped").state_dict()
    assert all(torch.equal(whole[name], shown[name]) for name in whole)


def test_the_rows_of_a_study_share_the_network_of_their_seed(tmp_path: Path) -> None:
    study = Study(
        name="retrofit",
        data={"name": "digits", "train_subset": 60, "test_subset": 30},  # type: ignore[arg-type]
        backbone="resnet20",  # type: ignore[arg-type]
        attention=["none", "se"],  # type: ignore[arg-type]
        seeds=2,  # type: ignore[arg-type]
        threads=1,
        pretrain=BEFORE,
        recipe={"steps": 4, "interval": 2, "batch_size": 16, "lr": 0.01},
        measure={"images": 0, "inference_images": 0},  # type: ignore[arg-type]
    )
    assert {outcome.status for outcome in run_study(study, tmp_path, HereExecutor())} == {"done"}
    ids = {planned.run_id for planned in planned_runs(study)}
    found = {path.parent.name for path in tmp_path.glob("*/result.json")}
    assert len(ids) == 4
    sources = [StoredRun(tmp_path / name) for name in found - ids]
    assert sorted(source.config.seed or 0 for source in sources) == [0, 1]
    assert {source.config.attention for source in sources} == {"none"}
    record = read_record(tmp_path, "retrofit")  # and what its page says, in steps
    told = [chip.text for chip in study_chips(record)]
    assert "from trained networks" in told
    assert record.table.unit == "step"
    assert "best step %" in record.columns.full().columns
    texts = " ".join([*column_notes(record.table), *(chip.text for chip in alerts(record))])
    assert "top-1 is the last step of the recipe" in texts
    assert "Results are of the last step." in texts
    assert "last epoch" not in texts


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"branch_scale": 0.5}, "Setting pretrain does not go with branch_scale."),
        ({"noise": {"kind": "batch", "n": 2}}, "Setting pretrain does not go with noise."),
        (
            {"attention": "se", "where": "stiffest:1"},
            "Setting pretrain does not go with where = 'stiffest:1'.",
        ),
        ({"pretrain": {**BEFORE, "flip": True}}, "Setting 'flip' is not the recipe's"),
        ({"pretrain": "digitts"}, "Did you mean 'digits'?"),
    ],
)
def test_what_a_trained_start_does_not_go_with(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as error:
        small(**{"pretrain": BEFORE, **settings})
    assert message in str(error.value)


def test_nothing_is_printed_by_a_quiet_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(small(pretrain=BEFORE, epochs=1), tmp_path, threads=1, progress=quiet)
    assert capsys.readouterr().out == ""
