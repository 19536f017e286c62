"""What each tracker has of a run that was stopped and taken up again, read with its own library."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.lab.training import RunConfig, train

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

Curves = dict[str, list[tuple[int, float]]]
"""By name: epochs and values, in the order in which they are stored."""


class Stopped(BaseException):
    """As if the process had been killed."""


def stop_after(epoch: int) -> Callable[[Any], None]:
    def progress(record: Any) -> None:
        if record.epoch == epoch:
            raise Stopped

    return progress


def quiet(record: Any) -> None:
    del record


def config(epochs: int = 3) -> RunConfig:
    return RunConfig(
        data={"name": "digits", "train_subset": 64, "test_subset": 32},
        backbone="resnet20",
        recipe={"name": "digits", "epochs": epochs, "batch_size": 32},
    )


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "untracked"
    train(config(), folder, progress=quiet)
    return folder


def stopped_and_taken_up(folder: Path, *names: str) -> None:
    with pytest.raises(Stopped):
        train(config(), folder, progress=stop_after(2), track=names, group="demo")
    train(config(), folder, progress=quiet, track=names, group="demo")


def expected(folder: Path) -> Curves:
    """Of metrics.jsonl, by hand."""
    curves: Curves = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        epoch = record.pop("epoch")
        for part in ("train", "test"):
            record |= {f"{part}/{name}": value for name, value in record.pop(part).items()}
        for name, value in record.items():
            curves.setdefault(name, []).append((epoch, value))
    assert {len(points) for points in curves.values()} == {3}
    return curves


def check(found: Curves, folder: Path, untracked: Path, rounded: float = 0.0) -> None:
    """Every point once, and the run is what it is without a tracker, to the bit."""
    wanted = expected(folder)
    assert found.keys() == wanted.keys()
    for name, points in wanted.items():
        assert [epoch for epoch, _ in found[name]] == [1, 2, 3], name
        values = [value for _, value in found[name]]
        assert values == pytest.approx([value for _, value in points], rel=rounded, abs=0), name
    same = [(each / "model.safetensors").read_bytes() for each in (folder, untracked)]
    assert same[0] == same[1]


def test_csv(tmp_path: Path, untracked: Path) -> None:
    stopped_and_taken_up(tmp_path / "run", "csv")
    rows = list(csv.DictReader((tmp_path / "run" / "curves.csv").open()))
    names = [name for name in rows[0] if name != "epoch"]
    found = {name: [(int(row["epoch"]), float(row[name])) for row in rows] for name in names}
    check(found, tmp_path / "run", untracked)


def test_tensorboard(tmp_path: Path, untracked: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    stopped_and_taken_up(tmp_path / "run", "tensorboard")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2  # two processes
    events: Any = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    tags = events.Tags()
    found = {name: [(e.step, e.value) for e in events.Scalars(name)] for name in tags["scalars"]}
    check(found, tmp_path / "run", untracked, rounded=1e-6)  # it stores float32
    assert tags["tensors"] == ["settings/text_summary"]


def logged(content: bytes) -> Iterator[bytes]:
    """The records of a file of theirs: LevelDB's log format, after seven bytes of their own."""
    assert content[:4] == b":W&B"
    at, parts = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:  # too few for another header: zeros up to the next block
            at += left
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last of its parts
            yield parts
            parts = b""


def test_wandb_offline(tmp_path: Path, untracked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs wandb: pip install 'attnlab[wandb]'")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody answers
    stopped_and_taken_up(tmp_path / "run", "wandb")
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2  # two processes, one id
    assert len({file.name for file in files}) == 1
    found: Curves = {}
    for data in (data for file in files for data in logged(file.read_bytes())):
        record: Any = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            assert (record.run.project, record.run.run_group) == ("attnlab", "demo")
        items = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for name, value in items.items():
            if not name.startswith("_"):
                found.setdefault(name, []).append((items["_step"], value))
    check(found, tmp_path / "run", untracked)


@pytest.mark.parametrize("store", ["data base", "files"])
def test_mlflow_without_a_server(
    store: str, tmp_path: Path, untracked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow: pip install 'attnlab[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    if store == "files":
        uri = f"file://{tmp_path}/mlruns"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    else:
        pytest.importorskip("sqlalchemy", reason="needs sqlalchemy, which mlflow installs")
    stopped_and_taken_up(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("demo")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["recipe.batch_size"] == "32"
    found = {
        name: [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    check(found, tmp_path / "run", untracked, rounded=1e-12)


def test_a_tracker_that_comes_later_gets_the_whole_curve(tmp_path: Path, untracked: Path) -> None:
    with pytest.raises(Stopped):
        train(config(), tmp_path, progress=stop_after(2))
    train(config(), tmp_path, progress=quiet, track=["csv"])
    assert (tmp_path / "curves.csv").read_text().count("\n") == 4
    assert not (untracked / "curves.csv").exists()
