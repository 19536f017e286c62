"""Results at an address: counted once, whole, whatever the store or a machine does meanwhile."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.lab.study._machines import ADDRESS, Machines, PlainStore, losing, objects
from tests.lab.study._machines import machines as machines
from tests.lab.study._results import TOP1
from tests.lab.study._small import HereExecutor, small_study

import attnlab
from attnlab._address import file_system, is_address, local_path
from attnlab._errors import InputError, OptionError
from attnlab.cli import main
from attnlab.lab.study import (
    LocalExecutor,
    Store,
    measure_study,
    planned_runs,
    run_study,
    show_study,
    study_status,
    submit_rows,
)
from attnlab.lab.study import lease as leases
from attnlab.lab.study.lock import claim, is_claimed, owner
from attnlab.lab.study.plan import write_plan
from attnlab.lab.study.run import study_jobs
from attnlab.lab.study.worker import Job, work
from attnlab.lab.training import train
from attnlab.results import RunResult, StoredRun
from attnlab.results import mirror as mirrors
from attnlab.results.bundle import Heavy, pack, unpack
from attnlab.results.identity import FILE as IDENTITY
from attnlab.results.manifest import write_manifest
from attnlab.results.objects import Objects, StoreError
from attnlab.results.study import read_plans

pytestmark = pytest.mark.usefixtures("machines")


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs are not trained but written, with what each is; the list says which were."""
    made: list[str] = []

    def write(job: Job, directory: Path) -> None:
        if (directory / "manifest.json").is_file():
            return
        made.append(job.run_id)
        config = json.loads(job.config)
        result = RunResult(
            run_id=job.run_id, label=job.label, epochs=1, metrics=(TOP1,),
            values={"top1": 0.5 + 0.01 * config.get("seed", 0)}, best_value=1.0, best_epoch=1,
            train_loss=1.0, parameters=1, macs=1, train_images_per_second=1.0, data_share=0.0,
            seconds=float(len(made)),
        )  # fmt: skip
        entries = {run.run_id: run.identity for run in planned_runs(study())}
        identity = entries[job.run_id].model_dump(mode="json")
        (directory / "result.json").write_text(result.model_dump_json())
        (directory / IDENTITY).write_text(json.dumps(identity))
        (directory / "config.json").write_text(job.config)
        (directory / "checkpoints").mkdir(exist_ok=True)
        write_manifest(directory, job.run_id)

    monkeypatch.setattr("attnlab.lab.study.worker._train_and_measure", write)
    return made


def study(seeds: int = 2) -> attnlab.lab.study.Study:
    return small_study(seeds=seeds, threads=1)


def jobs(address: str = ADDRESS) -> list[Job]:
    store = Store.at(address)
    return study_jobs(store, study(), write_plan(store, study()).runs)


@pytest.mark.slow
def test_a_study_at_an_address_is_the_study_in_a_folder(machines: Machines, tmp_path: Path) -> None:
    asked = small_study(
        seeds=2, threads=1, measure={"images": 16, "inference_images": 16}, name="small"
    )
    here, there = tmp_path / "runs", HereExecutor()
    run_study(asked, here, HereExecutor())
    assert [o.status for o in run_study(asked, ADDRESS, there)] == ["done"] * 4
    machines.on("b")
    again = HereExecutor()
    assert run_study(asked, ADDRESS, again) == []
    assert again.given == []
    local, found = show_study(asked, here), show_study(asked, ADDRESS)
    for group, other in zip(local.groups, found.groups, strict=True):
        for row, same in zip(group.rows, other.rows, strict=True):
            assert row.values == same.values
            assert row.comparison == same.comparison
    assert str(study_status(asked, ADDRESS)) == "4 done"
    assert attnlab.report(ADDRESS, tmp_path / "page.html").is_file()
    store = Store.at(ADDRESS)
    for entry in write_plan(store, asked).runs:
        weights = store.out / entry.folder / "model.safetensors"
        assert not weights.exists()  # nobody asked for them but for one of each row, to be timed
        opened = attnlab.open(f"{ADDRESS}/{entry.folder}")
        assert opened.provenance is not None
        assert checksum(weights) == checksum(here / entry.folder / "model.safetensors")
    assert measure_study("small", ADDRESS, only=["stiffness"]) == 4
    machines.on("c")
    assert "4 done" in str(study_status(asked, ADDRESS))
    table = submit_rows("small", tmp_path / "table.json", ADDRESS, add=True)
    assert table.fitting == ("plain", "se")


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_from_its_last_checkpoint_to_the_bit(
    machines: Machines, tmp_path: Path
) -> None:
    asked = small_study(
        attention="se", recipe={"name": "digits", "epochs": 3, "batch_size": 50}, threads=1
    )
    store = Store.at(ADDRESS)
    (job,) = study_jobs(store, asked, write_plan(store, asked).runs)
    (run,) = planned_runs(asked)
    train(run.config, tmp_path / "straight", threads=1)

    def stop(record: object) -> None:
        if getattr(record, "epoch", 0) == 2:
            raise SystemExit(143)

    with pytest.raises(SystemExit), claim(Path(job.directory)):
        train(run.config, job.directory, threads=1, progress=stop)
    begun = Path(job.directory, "metrics.jsonl").read_text()
    machines.lose("a")
    machines.on("b")
    assert study_status(asked, ADDRESS).runs[0].state == "stopped"
    assert work(job).status == "done"
    directory = Store.at(ADDRESS).out / run.run_id
    # The times of the first two epochs are those of the other machine: they were not made again.
    assert directory.joinpath("metrics.jsonl").read_text().startswith(begun)
    assert len(begun.splitlines()) == 2
    found = checksum(directory / "model.safetensors")
    assert found == checksum(tmp_path / "straight/model.safetensors")
    names = objects()
    assert f"finished/{run.run_id}.tar.gz" in names
    assert [name for name in names if "epoch" in name or name.startswith("unfinished")] == []


def test_a_write_that_is_lost_is_made_again(
    machines: Machines, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose = losing(MemoryFileSystem, lambda path: "/finished/" in path, 2)
    first, *_ = jobs()
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lose)
    assert work(first).status == "done"
    machines.on("b")
    assert Store.at(ADDRESS).state(write_plan(Store.at(ADDRESS), study()).runs[0]) == "done"
    assert trained == [first.run_id]


@pytest.mark.usefixtures("trained")
def test_a_store_that_loses_every_write_is_told_of_and_nothing_counts(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = jobs()
    with monkeypatch.context() as patch:
        lose = losing(MemoryFileSystem, lambda path: "/finished/" in path, 1000)
        patch.setattr(MemoryFileSystem, "pipe_file", lose)
        outcome = work(first)
    assert outcome.status == "failed"
    assert "confirmed 3 times that 'finished/" in outcome.message
    assert study_status(study(), ADDRESS).runs[0].state == "failed"
    machines.on("b")
    seen = study_status(study(), ADDRESS).runs[0]
    assert (seen.state, seen.detail) == ("failed", outcome.message)
    machines.on("a")  # when the store works again
    assert work(first).status == "done"
    machines.on("b")
    assert study_status(study(), ADDRESS).runs[0].state == "done"


@pytest.mark.parametrize("times", [2, 3])
def test_an_overwrite_that_is_lost_is_seen_where_the_size_is_the_same(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Objects(ADDRESS)
    there.put("claims/a.json", b"old")
    lose = losing(MemoryFileSystem, lambda path: path.endswith("claims/a.json"), times)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lose)
    if times == 2:
        there.put("claims/a.json", b"new")
        assert there.get("claims/a.json") == b"new"
        return
    with pytest.raises(StoreError, match=r"confirmed 3 times that 'claims/a\.json' is written"):
        there.put("claims/a.json", b"new")
    assert there.get("claims/a.json") == b"old"


class NoCredentialsError(Exception):
    """As a library of a store has it."""


NoCredentialsError.__module__ = "botocore.exceptions"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError("access denied.\nRequest 17"), "access denied"),
        (OSError(), "OSError"),
        (NoCredentialsError("Unable to locate credentials"), "Unable to locate credentials"),
        (ZeroDivisionError("ours"), None),
    ],
)
def test_a_request_that_fails_says_which_and_why(
    error: Exception, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    there = Objects(ADDRESS)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", fail)
    if reason is None:  # a mistake in the program is not one of the store
        with pytest.raises(ZeroDivisionError):
            there.put("claims/a.json", b"new")
        return
    with pytest.raises(StoreError) as told:
        there.put("claims/a.json", b"new")
    assert str(told.value).startswith("Could not ")
    assert str(told.value).endswith(
        f" at {ADDRESS}: {reason}. Check that the address is right, that this machine reaches it, "
        f"and that its credentials may do this."
    )


def test_of_a_large_object_the_size_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    there, large = Objects(ADDRESS), bytes(2**20 + 1)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *_, **__: pytest.fail("it was read"))
    there.put("finished/a.tar.gz", large)
    assert there.size("finished/a.tar.gz") == len(large)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda *_, **__: None)
    with pytest.raises(StoreError, match="confirmed 3 times"):
        there.put("finished/a.tar.gz", bytes(2**20 + 2))


def test_a_list_that_is_late_lets_nobody_work_twice(
    machines: Machines, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = jobs()
    late = {}
    listing = Objects.listing

    def old(self: Objects, folder: str) -> dict[str, str]:
        return late.setdefault(folder, listing(self, folder))

    for folder in ("claims", "finished", "unfinished", "studies"):
        late[folder] = Objects(ADDRESS).listing(folder)
    monkeypatch.setattr(Objects, "listing", old)
    assert work(first).status == "done"
    machines.on("b")
    with claim(Path(second.directory)) as claimed:
        assert claimed
        machines.on("c")
        assert work(first).status == "done"  # the object itself is asked for
        assert work(second).status == "busy"  # the number of the claim is taken
    assert trained == [first.run_id]


def test_the_second_writer_of_a_run_is_dropped(
    machines: Machines, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = jobs()
    with claim(Path(first.directory)) as slow:
        assert slow is not None
        from attnlab.lab.study.worker import _train_and_measure

        _train_and_measure(first, Path(first.directory))
        with monkeypatch.context() as patch:
            patch.setattr(leases, "VOID", 0.0)  # the machine slept
            machines.on("b")
            assert work(first).status == "done"
        whole = MemoryFileSystem().cat_file(f"/bucket/runs/finished/{first.run_id}.tar.gz")
        machines.on("a")
        slow.publish()
    assert trained == [first.run_id] * 2
    assert MemoryFileSystem().cat_file(f"/bucket/runs/finished/{first.run_id}.tar.gz") == whole
    assert StoredRun(Path(first.directory)).result.seconds == 2.0  # that of b, here as well
    assert not [name for name in objects() if name.startswith("claims")]


def test_a_kill_between_the_objects_leaves_a_run_that_goes_on(
    machines: Machines, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = jobs()
    Path(first.directory).mkdir(parents=True)
    Path(first.directory, "model.safetensors").write_bytes(b"weights")
    create = Objects.create

    def killed(self: Objects, name: str, content: bytes) -> bool:
        if name.startswith("finished"):
            raise KeyboardInterrupt
        return create(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Objects, "create", killed)
        patch.setattr(leases.Lease, "end", lambda _: None)  # as SIGKILL does
        with pytest.raises(KeyboardInterrupt):
            work(first)
    assert [name for name in objects() if name.startswith("heavy")]
    assert [name for name in objects() if name.startswith("claims")]
    assert StoredRun(Path(first.directory)).has_result  # on the disk of a
    monkeypatch.setattr(leases, "process_lives", lambda _: False)
    machines.on("b")
    assert study_status(study(), ADDRESS).runs[0].state == "waiting"
    machines.on("a")
    assert study_status(study(), ADDRESS).runs[0].state != "done"
    assert work(first).status == "done"
    assert trained == [first.run_id] * 2  # it was finished again: nobody had seen it
    assert not [name for name in objects() if name.startswith("claims")]


def test_claims_without_a_conditional_put_are_decided_by_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "SETTLE", 0.3)
    claims = leases.Claims(Objects("plain://bucket/runs"))
    assert not claims.objects.conditional
    assert leases.Claims(Objects(ADDRESS)).objects.conditional
    found: list[leases.Taken | None] = []
    threads = [threading.Thread(target=lambda: found.append(claims.take("run"))) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [taken is not None for taken in found].count(True) == 1
    (taken,) = [each for each in found if each is not None]
    assert claims.take("run") is None
    claims.drop(taken)
    assert PlainStore().find("/bucket/runs/claims") == []
    assert claims.take("run") is not None


def test_of_many_who_want_a_run_one_has_it() -> None:
    for _ in range(20):
        claims = leases.Claims(Objects(ADDRESS))
        found: list[leases.Taken | None] = []
        threads = [
            threading.Thread(target=lambda c=claims, f=found: f.append(c.take("run")))
            for _ in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        (taken,) = [each for each in found if each is not None]
        claims.drop(taken)


def test_a_claim_is_renewed_and_told_of_and_one_that_is_not_is_void(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEW", 0.1)
    monkeypatch.setattr(leases, "_LOOK", 0.05)
    monkeypatch.setattr(leases, "VOID", 1.0)
    monkeypatch.setattr(leases, "_FRESH", 0.0)
    directory = Store.at(ADDRESS).out / "run"
    with claim(directory) as claimed:
        assert claimed
        time.sleep(1.5)
        machines.on("b")
        other = Store.at(ADDRESS).out / "run"
        assert is_claimed(other)
        assert ", process " in owner(other)
        with claim(other) as second:
            assert second is None
    assert not is_claimed(other)
    claims = leases.claims_of(mirrors.mirror_at(ADDRESS))
    dead = claims.take("run")
    assert dead is not None
    time.sleep(1.1)
    taken = claims.take("run")
    assert taken is not None
    assert not claims.renew(dead)
    claims.drop(dead)  # it is not its own any more
    assert claims.renew(taken)
    claims.drop(taken)
    third = claims.take("run")
    assert third is not None
    assert third.name == dead.name  # numbers begin again
    assert not claims.renew(dead)
    claims.drop(dead)
    assert claims.renew(third)


@pytest.mark.usefixtures("trained")
def test_a_plan_of_another_machine_is_not_lost(machines: Machines) -> None:
    run_study(study(1), ADDRESS, HereExecutor())
    a = Store.at(ADDRESS)
    machines.on("b")
    run_study(study(2), ADDRESS, HereExecutor())
    machines.on("a")
    write_plan(a, study(1))
    machines.on("c")
    plans = read_plans(Store.at(ADDRESS).study_directory("small"))
    assert plans.damage == ""
    assert [len(plan.runs) for plan in plans.plans] == [2, 4, 2]
    assert [len(plan.seen) for plan in plans.plans] == [0, 2, 4]


@pytest.mark.usefixtures("trained")
def test_what_was_removed_at_the_address_is_gone_here() -> None:
    run_study(study(1), ADDRESS, HereExecutor())
    first, *_ = jobs()
    MemoryFileSystem().rm_file(f"/bucket/runs/finished/{first.run_id}.tar.gz")
    mirrors.mirror_at(ADDRESS).refresh()
    assert study_status(study(1), ADDRESS).runs[0].state == "waiting"


@pytest.mark.usefixtures("trained")
def test_weights_that_are_lost_are_told_of(machines: Machines) -> None:
    first, *_ = jobs()
    Path(first.directory).mkdir(parents=True)
    Path(first.directory, "model.safetensors").write_bytes(b"weights")
    assert work(first).status == "done"
    (heavy,) = [name for name in objects() if name.startswith("heavy")]
    MemoryFileSystem().pipe_file(f"/bucket/runs/{heavy}", b"others")
    machines.on("b")
    directory = Store.at(ADDRESS).out / first.run_id
    with pytest.raises(StoreError, match=r"is lost\. Remove 'finished/"):
        mirrors.fetch_weights(directory)
    assert not (directory / "model.safetensors").exists()


def test_a_bundle_of_someone_else_is_refused() -> None:
    heavy = Heavy(object="heavy/run/1-model", sha256="1", size=3)
    files = {"config.json": b"{}", "measured/fold.json": b"1"}
    packed = pack(files, {"model.safetensors": heavy})
    assert packed == pack(dict(reversed(files.items())), {"model.safetensors": heavy})
    assert {name: unpack(packed)[name] for name in files} == files
    for name in ("../up.json", "/root.json", ".hidden"):
        with pytest.raises(ValueError, match="it has the member"):
            unpack(pack({name: b""}, {}))
    MemoryFileSystem().pipe_file("/bucket/runs/finished/abc.tar.gz", packed[:-20])
    with pytest.raises(StoreError, match=r"'finished/abc.tar.gz' at memory://bucket/runs is dam"):
        Store.at(ADDRESS)


def test_addresses_are_told_from_folders(tmp_path: Path) -> None:
    assert is_address("s3://bucket/runs")
    assert not is_address(f"file://{tmp_path}")
    assert Store.at(f"file://{tmp_path}").out == tmp_path
    with pytest.raises(InputError, match=r"Write 's3://bucket/runs' without Path"):
        Store.at(Path("s3://bucket/runs"))
    with pytest.raises(InputError, match=r"'nowhere://x' cannot be opened: Protocol not known"):
        Store.at("nowhere://x")
    with pytest.raises(InputError, match=r"There are no results at 'memory://bucket/other'"):
        attnlab.report("memory://bucket/other", tmp_path / "page.html")


def test_a_folder_is_that_of_where_one_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        _, path = file_system("runs")
        assert path == str(tmp_path / name / "runs")


def test_results_in_the_memory_of_a_process_are_for_that_process() -> None:
    with pytest.raises(OptionError, match=r"'memory://bucket/runs' is the memory of this process"):
        run_study(study(), ADDRESS, LocalExecutor(slots=1, threads=1))


@pytest.mark.parametrize(
    ("variable", "value"), [("TORCHELASTIC_RUN_ID", "none"), ("SLURM_NTASKS", "2")]
)
def test_a_run_at_an_address_is_not_begun_by_a_launcher(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    (run,) = planned_runs(small_study(attention="none"))
    with pytest.raises(InputError) as error:
        train(run.config, "memory://runs/mine", devices=2)
    assert str(error.value) == (
        "A run at an address is claimed by one process, and torchrun or srun started several for "
        "'memory://runs/mine'. Give a folder that they share, or leave the launcher out."
    )


@pytest.mark.slow
def test_a_run_of_its_own_is_trained_at_an_address(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = planned_runs(small_study(attention="none", seeds=1, threads=1))
    result = train(run.config, f"{ADDRESS}/mine", threads=1, progress=lambda _: None)
    here = train(run.config, tmp_path / "mine", threads=1, progress=lambda _: None)
    assert result.values == here.values
    machines.lose("a")
    machines.on("b")
    assert train(run.config, f"{ADDRESS}/mine", threads=1).seconds == result.seconds
    capsys.readouterr()
    main(["stiffness", f"{ADDRESS}/mine", "--limit", "16"])
    at_address = capsys.readouterr().out.splitlines()
    main(["stiffness", str(tmp_path / "mine"), "--limit", "16"])
    on_disk = capsys.readouterr().out.splitlines()
    number = next(n for n, line in enumerate(on_disk) if line.endswith(" s"))  # how long it took
    assert on_disk[:number] == at_address[:number]
    assert any("TNS" in line for line in on_disk[:number])
    with claim(Store.at(ADDRESS).out / "mine"):
        machines.on("c")
        with pytest.raises(InputError, match=r"memory://bucket/runs/mine is worked on by .*, proc"):
            train(run.config, f"{ADDRESS}/mine", threads=1)


def test_of_a_run_that_goes_on_only_the_last_checkpoint_is_at_the_address() -> None:
    first, *_ = jobs()
    directory = Path(first.directory)
    mirror = mirrors.mirror_of(directory.parent)
    assert mirror is not None
    checkpoints = directory / "checkpoints"
    checkpoints.mkdir(parents=True)
    (directory / "config.json").write_text(first.config)
    carried = []
    for epoch in (1, 2):
        (checkpoints / f"epoch-{epoch:04d}.pt").write_bytes(b"weights" * epoch)
        mirror.carry(directory)
        carried.append([name for name in objects() if "epoch" in name])
    assert [len(each) for each in carried] == [1, 1]
    assert carried[0] != carried[1]
    written = MemoryFileSystem().cat_file(f"/bucket/runs/{carried[1][0]}")
    assert written == b"weights" * 2
    (checkpoints / "epoch-0002.pt").write_bytes(b"others")
    mirror.carry(directory)
    carried.append([name for name in objects() if "epoch" in name])
    assert MemoryFileSystem().cat_file(f"/bucket/runs/{carried[2][0]}") == b"others"
    mirror.carry(directory)  # nothing is new, so nothing changes
    assert [name for name in objects() if "epoch" in name] == carried[2]


def test_objects_that_are_there_and_that_are_not(tmp_path: Path) -> None:
    there = Objects("memory://some-objects/")
    assert (there.address, there.protocol) == ("memory://some-objects", "memory")
    there.put("a/one", b"12345")
    there.put("a/b/two", b"")
    (tmp_path / "given").write_bytes(b"abc")
    there.put_file("a/three", tmp_path / "given")
    assert set(there.listing("a")) == {"one", "three"}  # what lies in a folder of it is not
    assert there.listing("nothing") == {}
    assert [there.size(name) for name in ("a/one", "a/b/two", "a/b", "gone")] == [5, 0, None, None]
    assert there.get_file("a/one", tmp_path / "read") is True
    assert (tmp_path / "read").read_bytes() == b"12345"
    assert there.get_file("gone", tmp_path / "nothing") is False
    assert there.get("gone") is None
    before = there.listing("a")["one"]
    there.put("a/one", b"123456")
    assert there.listing("a")["one"] != before
    assert there.create("a/new", b"x") is True
    assert there.create("a/new", b"y") is False
    assert there.create("a/new", b"x") is True  # the same request, made twice
    assert there.get("a/new") == b"x"
    assert there.conditional
    there.remove(["a/one", "gone", "a/three", "a/new", "a/b/two"])
    assert there.listing("a") == there.listing("claims") == {}


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("s3://bucket/runs", True),
        ("memory://x", True),
        ("runs", False),
        ("file:///runs", False),
        ("C:/runs", False),
        (Path("runs"), False),
    ],
)
def test_what_is_an_address(given: str | Path, address: bool) -> None:
    assert is_address(given) is address


def test_an_address_as_a_path_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        is_address(Path("s3://bucket/runs"))
    assert str(caught.value) == (
        "Expected an address as text but got the path 's3:/bucket/runs': a path drops one of its "
        "two slashes. Write 's3://bucket/runs' without Path."
    )
    assert local_path("file:///some/runs") == Path("/some/runs")
    assert local_path("some/runs") == Path("some/runs")
