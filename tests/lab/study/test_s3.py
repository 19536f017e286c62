"""Results in a store that speaks S3 (moto's server), with real processes that share no disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.study._small import HereExecutor, small_study

from attnlab.lab.study import Study, planned_runs, run_study, show_study, study_status
from attnlab.lab.study import lease as leases
from attnlab.results import mirror
from attnlab.results.bundle import unpack
from attnlab.results.objects import Objects, StoreError

moto = pytest.importorskip(
    "moto.server", reason="moto is not installed: pip install s3fs 'moto[server]'"
)
pytest.importorskip("s3fs", reason="s3fs is not installed: pip install s3fs 'moto[server]'")
pytestmark = [
    pytest.mark.slow,  # real processes, each of which imports torch
    pytest.mark.filterwarnings("default"),  # those of a server that is not ours
]
ADDRESS = "s3://bucket/runs"
RUN = """
import sys
from attnlab.lab.study import LocalExecutor, Study, run_study
study = Study.model_validate_json(sys.argv[1])
outcomes = run_study(study, sys.argv[2], LocalExecutor(slots=1, threads=1))
print(sum(outcome.status == "done" for outcome in outcomes))
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
        ("AWS_ACCESS_KEY_ID", "none"),
        ("AWS_SECRET_ACCESS_KEY", "none"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("XDG_CACHE_HOME", str(tmp_path / "here")),
    ):
        monkeypatch.setenv(name, value)
    mirror.mirror_at.cache_clear()
    leases._CLAIMS.clear()
    found = Objects(ADDRESS)
    found._system.clear_instance_cache()
    # The server keeps its buckets for as long as this process lives.
    reset = urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset).close()
    found._system.mkdir("bucket")
    yield found
    server.stop()
    mirror.mirror_at.cache_clear()
    leases._CLAIMS.clear()


def machine(folder: Path, study: Study) -> subprocess.Popen[str]:
    """A process with a disk of its own that works on a study at the address."""
    text = study.model_dump_json(exclude_defaults=True)
    return subprocess.Popen(
        [sys.executable, "-c", RUN, text, ADDRESS],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder)},
        start_new_session=True,
    )


def of_run(bucket: Objects, kind: str, run_id: str) -> dict[str, bytes]:
    content = bucket.get(f"{kind}/{run_id}.tar.gz")
    return {} if content is None else unpack(content)


def test_two_machines_share_a_study_and_train_nothing_twice(
    bucket: Objects, tmp_path: Path
) -> None:
    study = small_study(seeds=2, threads=1)
    both = [machine(tmp_path / name, study) for name in ("a", "b")]
    try:
        counts = [int(process.communicate(timeout=550)[0]) for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0]
    assert sum(counts) >= 4
    for run in planned_runs(study):
        log = of_run(bucket, "finished", run.run_id)["log.txt"].decode()
        assert log.count("epoch 1/2") == log.count("epoch 2/2") == 1
    assert bucket.listing("claims") == bucket.listing("unfinished") == {}
    assert str(study_status(study, ADDRESS)) == "4 done"
    run_study(study, tmp_path / "local", HereExecutor())
    found, local = show_study(study, ADDRESS), show_study(study, tmp_path / "local")
    assert [row.values for row in found.groups[0].rows] == [
        row.values for row in local.groups[0].rows
    ]


def test_what_a_killed_machine_has_saved_another_goes_on_from(
    bucket: Objects, tmp_path: Path
) -> None:
    study = small_study(
        attention="se", recipe={"name": "digits", "epochs": 100, "batch_size": 10}, threads=1
    )
    (run,) = planned_runs(study)
    killed = machine(tmp_path / "a", study)
    began = time.monotonic()
    while not (before := of_run(bucket, "unfinished", run.run_id)):
        assert killed.poll() is None
        assert time.monotonic() - began < 300
        time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert bucket.get(f"finished/{run.run_id}.tar.gz") is None
    other = machine(tmp_path / "b", study)
    assert other.communicate(timeout=300)[0] == "1\n"
    after = of_run(bucket, "finished", run.run_id)
    # Epochs with the seconds that they took on the machine that was killed: not made again.
    assert after["metrics.jsonl"].startswith(before["metrics.jsonl"])
    assert 1 <= len(before["metrics.jsonl"].splitlines()) < 100
    run_study(study, tmp_path / "local", HereExecutor())
    there, here = (json.loads(files["manifest.json"])["files"]["model.safetensors"] for files in (
        after, {"manifest.json": (tmp_path / "local" / run.run_id / "manifest.json").read_bytes()}
    ))  # fmt: skip
    assert there == here


def test_a_store_says_whether_it_decides_who_was_first(bucket: Objects) -> None:
    assert bucket.conditional
    assert bucket.create("claims/run~1.json", b"a")
    assert not bucket.create("claims/run~1.json", b"b")
    assert bucket.get("claims/run~1.json") == b"a"
    with pytest.raises(StoreError, match=r"Could not .* at s3://nobodys/runs: .* Check that the"):
        Objects("s3://nobodys/runs").put("finished/x", b"")


def test_listing_takes_a_request_for_a_thousand_runs(
    bucket: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        bucket.put(f"studies/{number}.tar.gz", b"")
    from aiobotocore.httpsession import AIOHTTPSession

    sent, send = [], AIOHTTPSession.send

    async def counted(self: AIOHTTPSession, request: object) -> object:
        sent.append(request)
        return await send(self, request)

    monkeypatch.setattr(AIOHTTPSession, "send", counted)
    assert len(bucket.listing("studies")) == 30
    assert len(sent) == 1
