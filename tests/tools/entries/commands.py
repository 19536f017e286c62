"""The commands, as a user gives them; what they write as JSON, or the numbers that they print."""

from __future__ import annotations

import json
from pathlib import Path

from tests.lab.comparison import logs as made_logs
from tests.tools.entries import noise as noises
from tests.tools.entries import shorten as shortened
from tests.tools.entries import stiffness as stiff
from tests.tools.entries import stripe as stripes
from tests.tools.entries import study as studies
from tests.tools.entries.command import numbers, printed, words, written
from tests.tools.entries.shared import picked, receipt

import attnlab


def modules() -> object:
    found = json.loads(printed("modules", "--json"))
    names = "form ranks parameters macs initial_gate initial_gate_deviation folds"
    gates = {gate["name"]: picked(gate, names) for gate in found["gates"]}
    return {"sizes": found["sizes"], "gates": gates}  # by name: a new gate is no difference


def networks() -> object:
    return {
        "own": [line[0] for line in words(printed("networks"))],
        "matching": [
            line[0]
            for line in words(printed("networks", "--match", "resnet2?", "--library", "attnlab"))
        ],
    }


def operators() -> object:
    return words(printed("operators", "--no-time", "--channels", "16", "--kernel-size", "3"))


def tried() -> object:
    return {
        gate: numbers(printed("try", gate, "--threads", "1", *more))
        for gate, *more in (
            ("se",),
            ("step", "--start", "identity"),
            ("eca", "--where", "stages:2,3", "--set", "kernel_size=3"),
        )
    }


def insert() -> object:
    text = printed("insert", "resnet20", "--gate", "asr:se", "-o", "gated.safetensors")
    return {"numbers": numbers(text), "keys": len(attnlab.load("gated.safetensors").state_dict())}


def fold() -> object:
    printed("insert", "resnet20", "--gate", "asr:se", "-o", "gated.safetensors")
    made = written("plain.fold.json", "fold", "gated.safetensors", "-o", "plain.safetensors")
    plain = attnlab.load("plain.safetensors")
    return {"receipt": receipt(made, "removed"), "keys": len(plain.state_dict())}


def fold_constants() -> object:
    printed("insert", "resnet20", "--gate", "se", "-o", "gated.safetensors")
    more = ("--constants", "--data", "fake", "--limit", "32", "--budget", "all")
    made = written("plain.fold.json", "fold", "gated.safetensors", "-o", "plain.safetensors", *more)
    return {**receipt(made), **picked(made, "predicted measured")}


def fold_run() -> object:
    run = str(studies._run("se"))
    more = ("--constants", "--limit", "32", "--budget", "all")
    made = written("plain.fold.json", "fold", run, "-o", "plain.safetensors", *more)
    return {**receipt(made), **picked(made, "predicted measured accuracy_before accuracy_after")}


def fold_plan() -> object:
    run = str(studies._run("se"))
    return numbers(printed("fold", run, "--constants", "--limit", "32", "--plan"))


def stiffness() -> object:
    more = ("--limit", "8", "--size", "32", "--out", "out")
    found = written("out/stiffness.json", "stiffness", "resnet20", "--gate", "se", *more)
    return stiff.shown(found)


def stripe() -> object:
    more = ("--limit", "8", "--size", "32", "--out", "out")
    return stripes.shown(written("out/stripe.json", "stripe", "resnet20", "--gate", "se", *more))


def stripe_run() -> object:
    run = str(studies._run("se"))
    return stripes.shown(written("out/stripe.json", "stripe", run, "--limit", "16", "--out", "out"))


def maps() -> object:
    more = ("--limit", "4", "--out", "out")
    return stripes.shown_maps(written("out/maps.json", "maps", "timm:test_vit", *more))


def shorten() -> object:
    run = str(studies._run("none"))
    more = ("--remove", "1", "--plan", "--limit", "16", "--out", "out")
    return shortened.shown_curves(written("out/shorten.json", "shorten", run, *more))


def noise() -> object:
    found = {}
    for kind, strengths in (("random", "0.1"), ("constant", "0.8:0.5"), ("batch", "4")):
        more = ("--kind", kind, "--strengths", strengths, "--draws", "2", "--limit", "16")
        run = str(studies._run("se"))
        found[kind] = noises.shown(written("out/noise.json", "noise", run, *more, "--out", "out"))
    return found


def speed() -> object:
    more = ("--sizes", "16", "--classes", "5", "--batches", "1", "--seconds", "0.01")
    given = ("se", "asr:se", "--network", "resnet20", *more, "--out", "out")
    found = written("out/speed.json", "speed", *given)
    rows = found["rows"]
    assert isinstance(rows, list)
    return [picked(row, "images gate form parameters") for row in rows]


def compare() -> object:
    files = [str(file) for file in made_logs.study(Path("runs"))]
    more = ("--by", "model", "--baseline", "plain.yaml")
    return numbers(printed("compare", *files, *more))


def dynamics() -> object:
    return numbers(printed("dynamics", "three-body", "--trajectories", "4"))


def study_show() -> object:
    file = Path("small.toml")
    file.write_text(
        'name = "small"\n'
        'data = { name = "digits", train_subset = 100, test_subset = 50 }\n'
        'backbone = "resnet20"\n'
        'attention = ["none", "se", "asr:se"]\n'
        "seeds = 2\n"
        'recipe = { name = "digits", epochs = 2, batch_size = 50 }\n'
        "measure = { images = 32, inference_images = 0, corruptions = 10, every_epoch = true }\n"
    )
    more = ("--out", str(studies._runs()), "--markdown", "table.md")
    printed("study", "show", str(file), *more)
    lines = Path("table.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return studies._columns(cells)
