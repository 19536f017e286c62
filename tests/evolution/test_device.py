"""`attnlab operators --device` on the CPU; in `interpreted` Triton stands in for a GPU."""

from __future__ import annotations

import functools
import json
import sys
import types
from importlib.machinery import ModuleSpec

import pytest
import torch

from attnlab._errors import OptionError
from attnlab.cli import main
from attnlab.evolution import Window, device, local_attention, native_status
from attnlab.evolution.device import contest, machine, peers
from attnlab.evolution.native.implementation import Native

CPU = torch.device("cpu")
SMALL = {
    "strided": device.EDGES["strided"]._replace(dtypes=(torch.float32, torch.float64)),
    "sequence": device.EDGES["sequence"],
}
ARGUMENTS = "operators --device cpu --batch 1 --channels 8 --size 5 --kernel-size 3"


@pytest.fixture
def quick(monkeypatch):
    """Two edges, and nothing through the compiler, which takes a minute."""
    monkeypatch.setattr(device, "check", functools.partial(device.check, edges=SMALL, runs=2))
    monkeypatch.setattr(device, "race", functools.partial(device.race, blocks=1))
    monkeypatch.setattr(peers, "interpreting", lambda: True)


def test_every_operator_on_every_edge():
    checked = list(device.check(CPU, SMALL, runs=2))
    assert len(checked) == 7 * 3
    assert all(one.right for one in checked)
    assert {one.operator for one in checked} == {
        *("av", "qk", "sc", "spanned_av"),
        *("attention", "attention, positions", "attention, zero border"),
    }


needs_native = pytest.mark.skipif(not native_status().available, reason="no native kernels")


@needs_native
@pytest.mark.parametrize(
    ("wrong", "error", "repeats"),
    [
        (lambda out: out + 1e-3, True, True),
        (lambda out: out * float("nan"), True, False),
        (lambda out: out + 1e-7 * torch.rand_like(out), False, False),
    ],
    ids=["off", "not a number", "other bits every time"],
)
def test_a_wrong_kernel_is_found(monkeypatch, wrong, error, repeats):
    av = Native.av
    monkeypatch.setattr(Native, "av", lambda *arguments: wrong(av(*arguments)))
    edges = {"strided": SMALL["strided"]._replace(dtypes=(torch.float32,))}
    by_name = {one.operator: one for one in device.check(CPU, edges, runs=2)}
    assert not by_name["av"].right
    assert (by_name["av"].error > by_name["av"].tolerance) is error
    assert by_name["av"].repeats is repeats
    assert not by_name["qk"].right  # its gradient is av
    assert by_name["attention"].right


def test_the_least_time_is_that_of_the_slower_limit():
    most = device.Limits(bytes_per_second=100, flops_per_second=10)
    assert most.floor(200, 10) == 2
    assert most.floor(100, 50) == 5


def test_limits_are_those_of_the_clock(monkeypatch):
    monkeypatch.setattr("attnlab.evolution.device.machine.median_seconds", lambda *_: seconds)
    seconds = {"copy": 0.5, "product": 0.25}
    found = device.limits(CPU, torch.float32, megabytes=1, side=8)
    assert found == device.Limits(2 * 2**20 / 0.5, 2 * 8**3 / 0.25)


def test_the_median_of_blocks_that_take_turns(monkeypatch):
    now, order = [0.0], []
    monkeypatch.setattr(machine, "clock", lambda _: now[0])

    def run(name, seconds):
        def call():
            order.append(name)
            now[0] += seconds

        return call

    found = machine.median_seconds({"a": run("a", 0.5), "b": run("b", 0.01)}, CPU, 2)
    assert found == pytest.approx({"a": 0.5, "b": 0.01})
    assert order == ["a"] * 2 + ["b"] * 2 + (["a"] + ["b"] * 2) * 2


def near_windows(query, key, value, kernel_size):
    """What NATTEN computes, pixel by pixel: its layout, and windows moved inside at the border."""
    out = torch.empty_like(value)
    height, width = query.shape[1:3]
    for row in range(height):
        for column in range(width):
            top, left = (
                min(max(at - size // 2, 0), length - size)
                for at, size, length in zip(
                    (row, column), kernel_size, (height, width), strict=True
                )
            )
            window = (slice(None), slice(top, top + kernel_size[0]))
            window = (*window, slice(left, left + kernel_size[1]))
            scores = torch.einsum("bnd,bhwnd->bnhw", query[:, row, column], key[window])
            weights = (scores * query.shape[-1] ** -0.5).flatten(2).softmax(2).view_as(scores)
            out[:, row, column] = torch.einsum("bnhw,bhwnd->bnd", weights, value[window])
    return out


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_what_the_peers_compute(monkeypatch):
    """flex_attention the same; unfold and NATTEN the same but at the border."""
    natten = types.ModuleType("natten")
    natten.__spec__, natten.na2d = ModuleSpec("natten", None), near_windows
    monkeypatch.setitem(sys.modules, "natten", natten)
    monkeypatch.setattr(peers, "_compiled", lambda function, **_: function)
    found = contest.attention_peers(2, 3)
    query, key, value = torch.randn(3, 2, 8, 6, 5, dtype=torch.float64)
    expected = local_attention(query, key, value, 2, Window.centred(3))
    for name, border in (
        ("attnlab", True),
        ("unfold", False),
        ("attnlab's torch form, compiled", True),
        ("flex_attention", True),
        ("NATTEN", False),
    ):
        peer = found[name]()
        with torch.no_grad():
            out = peer.restore(peer.run(*peer.prepare(query, key, value)))
        inside, outside = contest._differences(out, expected, 1)
        assert inside < 1e-12, name
        assert (outside < 1e-12) is border, name


def test_what_the_involution_peers_compute(monkeypatch):
    monkeypatch.setattr(peers, "_compiled", lambda function, **_: function)
    maps, x = torch.randn(2, 2, 9, 5, 4), torch.randn(2, 6, 5, 4)
    expected, *others = (peer().run(maps, x) for peer in contest.involution_peers(3).values())
    for other in others:
        torch.testing.assert_close(other, expected)


@pytest.mark.slow
def test_through_the_compiler():
    """What it makes of the forms is the same as ours."""
    rows = {
        (row.operator, row.name): row
        for row in device.race(device.Case(1, 8, 6, 3), CPU, torch.float32, blocks=1)
    }
    for key, border in (
        (("involution", "attnlab's torch form, compiled"), True),
        (("involution", "unfold, compiled"), True),
        (("attention", "attnlab's torch form, compiled"), True),
        (("attention", "unfold, compiled"), False),
        (("attention", "flex_attention"), True),
    ):
        assert rows[key].inside < 1e-5, rows[key]
        assert (rows[key].border < 1e-5) is border
    assert rows["attention", "flex_attention"].both is None
    assert rows["attention", "flex_attention"].remark.startswith("no backward pass: ")


@pytest.mark.usefixtures("quick")
def test_the_command(capsys, tmp_path):
    main([*ARGUMENTS.split(), "--out", str(tmp_path / "found.json")])
    out = capsys.readouterr().out
    assert "1×8×5×5, window 3, float32" in out
    assert "1×16×2×2, window 3, float32" in out
    assert "another border" in out
    assert "ANOTHER RESULT" not in out
    assert "WRONG" not in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"]["device"] == "cpu"
    assert found["machine"]["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert all(one["right"] for one in found["checks"])
    assert [stage["case"]["channels"] for stage in found["times"]] == [8, 16]
    rows = {(row["operator"], row["name"]): row for row in found["times"][0]["rows"]}
    assert rows["involution", "attnlab"]["forward"] > 0
    assert rows["attention", "unfold"]["both"] > 0
    assert rows["attention", "NATTEN"]["remark"] == "not installed"
    assert rows["attention", "unfold, compiled"]["remark"] == (
        "Triton interprets, and the compiler needs it to compile"
    )
    assert len(rows["attention", "attnlab"]["floor"]) == 2


@needs_native
@pytest.mark.usefixtures("quick")
def test_a_wrong_kernel_ends_the_command(monkeypatch, capsys, tmp_path):
    sc = Native.sc
    monkeypatch.setattr(Native, "sc", lambda *arguments: 1.001 * sc(*arguments))
    with pytest.raises(SystemExit) as caught:
        main([*ARGUMENTS.split(), "--out", str(tmp_path / "found.json")])
    assert caught.value.code == 1
    out = capsys.readouterr().out
    assert "WRONG: sc, strided, float32 on native kernels: error " in out
    assert (
        "Nothing is timed. Until this is fixed, compute with plain torch: ATTNLAB_NATIVE=off, or "
        "`with attnlab.evolution.use_native(False):`."
    ) in out
    assert "times" not in json.loads((tmp_path / "found.json").read_text())


@pytest.mark.usefixtures("quick")
def test_without_time(capsys):
    main([*ARGUMENTS.split(), "--no-time"])
    out = capsys.readouterr().out
    assert "repeats to the bit" in out
    assert "forward ms" not in out


def test_a_device_that_is_not_there():
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    for name in ("cuda", "gpu", "cpu:1"):
        with pytest.raises(OptionError) as caught:
            device.device_named(name)
        assert str(caught.value) == (
            f"Expected a device of this machine but got {name!r}. It has: cpu. `attnlab doctor` "
            f"shows what torch {torch.__version__} sees."
        )


def test_a_card(monkeypatch):
    """What is asked of one, with torch's answers made up: there is none here."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    where = device.device_named("cuda:1")
    with pytest.raises(OptionError, match=r"but got 'cuda:2'. It has: cpu, cuda."):
        device.device_named("cuda:2")
    properties = types.SimpleNamespace(
        name="A100", major=8, minor=0, total_memory=40 * 2**30, multi_processor_count=108
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    found = device.machine_facts(where)
    assert (found["name"], found["architecture"], found["memory_gib"]) == ("A100", "sm_80", 40)
    properties.gcnArchName = "gfx942"
    assert device.machine_facts(where)["architecture"] == "gfx942"
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    machine.clock(where)
    assert waited == [where]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--out a.json", "--out goes with --device: `attnlab operators --device cuda`."),
        ("--dtype float16", "--dtype goes with --device: `attnlab operators --device cuda`."),
        ("--device cpu --kernel-size 4", "Expected --kernel-size to be odd but got 4"),
    ],
)
def test_options_of_the_command(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["operators", *arguments.split()])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"attnlab: {message}")
