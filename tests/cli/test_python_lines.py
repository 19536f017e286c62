"""The lines that every command prints under "In Python" run as they stand, and do the same."""

from __future__ import annotations

import inspect
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.lab.study._small import HereExecutor
from tests.surgery.folding.networks import stir, stir_gates
from tests.tools.forked import forking

from attnlab.cli import COMMANDS, command_named, main
from attnlab.lab.study import load_study, planned_runs
from attnlab.lab.training import RunConfig, train
from attnlab.networks.checkpoint import Description, save

STUDY = """
title = "Small"
data = { name = "digits", train_subset = 40, test_subset = 20 }
backbone = "resnet20"
attention = ["none", "asr:se"]
seeds = 1
recipe = { name = "digits", epochs = 1, warmup_epochs = 0, batch_size = 20 }
measure = { images = 8, inference_images = 0 }
"""
THEIRS = """
import torch
from torch import nn
from attnlab.gates import VectorGate

class Scaled(VectorGate):
    def __init__(self, channels):
        super().__init__(channels)
        self.weight = nn.Parameter(torch.ones(channels))
    def forward(self, branch):
        return self.of_vector(branch.mean((2, 3)), torch.sigmoid)[:, :, None, None]
    def of_vector(self, vector, activation):
        return activation(self.weight * vector)
    def start_constant(self):
        nn.init.zeros_(self.weight)
        return 0.5
"""
OWN = "asr:gates_of_these_lines.Scaled"
LOGS = "model,seed,top1\nplain,0,70\nplain,1,71\nse,0,72\nse,1,71.5\n"
ELSEWHERE = {"yolo"}
"""Commands of other packages, whose lines are run where these are tested."""


@dataclass(frozen=True)
class Entry:
    """A command, and what to compare after its lines were run."""

    command: str
    check: str = ""
    """Python that runs after the lines, in their namespace."""
    same: tuple[str, ...] = ()
    """Files that the lines write as the command did, byte for byte."""


def read(attribute: str, file: str) -> str:
    """A check: `result.attribute` is what the command wrote to `file`."""
    return f"import json; assert result.{attribute} == json.load(open({file!r}))[{attribute!r}]"


STRIPE = (
    "import json; assert [site.mean for site in result.sites] == "
    "[site['mean'] for site in json.load(open('{}/stripe.json'))['sites']]"
)
NOISE = (
    "import json; assert [point.mean for point in result.networks[0].points] == "
    "[point['mean'] for point in json.load(open('{}/noise.json'))['networks'][0]['points']]"
)
SMALL = "--channels 16 --size 6 --kernel-size 3 --batch 1"
NAMED = "--model resnet20 --gate asr:se --num-classes 5"
STYLE = "--losses filters --norm batch --attention asr:se --size 24 --width 4 --blocks 1 --epochs 1"
TABLE = [
    Entry("doctor"),
    Entry("modules"),
    Entry("networks --match resnet2*"),
    Entry("insert resnet20 --gate asr:se -o r.safetensors", "assert network is not None"),
    Entry(f"operators {SMALL}"),
    Entry(f"operators {SMALL} --no-time"),
    Entry(f"operators {SMALL} --device cpu --no-time"),
    Entry("try se", "assert len(receipt.sites) == 9"),
    Entry(
        "try step --where stages:2,3 --start identity --set inputs=shortcut",
        "assert receipt.relative_change <= 1e-6",
    ),
    Entry("try eca --where 'layer1.0.bn2 layer3.2.bn2'", "assert len(receipt.sites) == 2"),
    Entry("stiffness resnet20 --data digits --limit 8 --out a", read("tns", "a/stiffness.json")),
    Entry(
        "stiffness resnet20 --weights w.pt --gate se --size 16 --batch 3 --limit 7 --si 1 "
        "--convention paper --out b",
        read("tns", "b/stiffness.json") + "; assert result.nsi[1].si is not None",
    ),
    Entry(
        "stiffness resnet20 resnet32 --weights none none --limit 4 --shortcut zero_pad --out c",
        "import json; assert [each.tns for each in results] == [json.load(open(f"
        "'c/{name}/stiffness.json'))['tns'] for name in ('resnet20', 'resnet32')]",
    ),
    Entry(
        "stiffness resnet20 resnet32 resnet44 --limit 4 --accuracy 91.7 92.6 93.1",
        "assert [row.accuracy for row in comparison.rows] == [91.7, 92.6, 93.1]",
    ),
    Entry("stripe resnet20 --gate se --data digits --limit 6 --out d", STRIPE.format("d")),
    Entry("stripe timm:seresnext26ts --size 64 --limit 3 --out e", STRIPE.format("e")),
    Entry("stripe RUN --limit 6 --out f", STRIPE.format("f")),
    Entry(
        "maps timm:test_vit --size 160 --limit 2 --out maps",
        "import json; assert result.change == json.load(open('maps/maps.json'))['change']",
    ),
    Entry("stripe OWN --trust --limit 6 --out g", STRIPE.format("g")),
    Entry(
        "place resnet20 --budget 2 --data digits --limit 8 --out t",
        "import json; assert result.where == json.load(open('t/place.json'))['where']",
    ),
    Entry(
        "place RUN --budget 1 --per-stage --strategy effect --limit 8",
        "assert len(result.chosen) == 3",
    ),
    Entry(
        "steps resnet20 --gate se --data digits --limit 9 --out st",
        "import json; assert [step.gain for step in result.steps][0] == "
        "json.load(open('st/steps.json'))['steps'][0]['gain'] == 1",
    ),
    Entry(
        "trajectory resnet20 --data digits --limit 12 --out tr",
        "import json; assert [step.nsi for step in result.steps] == [step['nsi'] for step in "
        "json.load(open('tr/trajectory.json'))['steps']]",
    ),
    Entry("noise RUN --strengths 0.2 0.5 --draws 2 --out q", NOISE.format("q")),
    Entry(
        "noise resnet20 --data digits --kind constant --strengths 0.8:0.5 --limit 20 --out r",
        NOISE.format("r"),
    ),
    pytest.param(Entry("dynamics theorem2"), marks=pytest.mark.slow, id="dynamics theorem2"),
    Entry("dynamics three-body --trajectories 5"),
    Entry("fold RUN -o f.safetensors", same=("f.safetensors",)),
    Entry("fold OWN --trust -o g.safetensors", same=("g.safetensors",)),
    Entry("fold OWN/model.safetensors --trust -o h.safetensors", same=("h.safetensors",)),
    Entry("fold asr.safetensors -o i.safetensors --onnx i.onnx", same=("i.safetensors",)),
    Entry("fold asr.safetensors --size 16 -o j.safetensors", same=("j.safetensors",)),
    Entry(f"fold asr.pt {NAMED} -o k.safetensors --partial", same=("k.safetensors",)),
    Entry("fold repvgg_a0 --num-classes 7 --fuse -o l.safetensors", same=("l.safetensors",)),
    Entry("fuse resnet56_acnet --num-classes 7 -o fu.safetensors", same=("fu.safetensors",)),
    Entry("fuse resnet20 --out fused", "assert receipt.norms_after == 0"),
    Entry(
        "fold timm:mobilenetv3_small_050 --constants --data fake --limit 4 --tolerance 1 --size 64 "
        "--add-affine -o m.safetensors",
        same=("m.safetensors",),
    ),
    Entry(
        "fold GATED --constants --limit 32 --budget all --repair distil --epochs 1 "
        "-o n.safetensors",
        same=("n.safetensors",),
    ),
    Entry(
        "fold GATED --constants --data digits --limit 32 --cost loss --plan",
        "assert len(curve.points) == 9 and curve.cost == 'loss' and curve.accuracy is not None",
    ),
    Entry(
        "shorten RUN --remove 2 --limit 8 --repair -o t.safetensors",
        "assert receipt.repaired == 17",
        same=("t.safetensors",),
    ),
    Entry(
        "shorten resnet20 --data fake --limit 4 --remove 1.1 3.2 --most 2 --out u -o v.safetensors",
        "import json; assert [[p.output_change for p in c.points] for c in result.curves] == "
        "[[p['output_change'] for p in c['points']] "
        "for c in json.load(open('u/shorten.json'))['curves']]",
        same=("v.safetensors",),
    ),
    Entry("shorten asr.safetensors --data fake --remove 2 --limit 4 --by nsi --plan"),
    Entry(
        "speed se --network resnet20 --sizes 16 --classes 5 --batches 1 --seconds 0.01 --out s",
        "assert [row.gate for row in result.rows] == ['none', 'none', 'se']",
    ),
    Entry(f"style train glass {STYLE} -o style", read("values", "style/result.json")),
    Entry(
        "style apply style style/pictures/0-input.png -o styled",
        same=("styled/0-input.png", "styled/0-input-folded.png"),
    ),
    Entry("report runs -o n.html", same=("n.html", "n.csv", "n.tex")),
    Entry("report runs --study small -o o.html", same=("o.html",)),
    Entry("report measured/stiffness.json -o p.html", same=("p.html",)),
    Entry(
        "compare logs.csv --metric top1 --by model --looked -o q.html",
        "assert found.judged.sequential",
    ),
    Entry("study plan small.toml"),
    Entry("study run small.toml"),
    Entry("study status small.toml"),
    Entry("study measure small --only speed"),
    Entry("study submit small --table shared.json --add", same=("shared.json",)),
    Entry("study show small.toml"),
]


def example(name: str) -> str:
    """The first example in the help of a command, without the name of the program."""
    text = inspect.getdoc(command_named(name)) or ""
    found = re.search(rf"^ +attnlab ({name}\b.*)$", text, flags=re.MULTILINE)
    assert found is not None, f"add an example to the help of {name}"
    return found[1].partition("  ")[0]


# Whoever adds a command need not come here: it is run by its own example.
_HERE = {(each if isinstance(each, Entry) else each.values[0]).command.split()[0] for each in TABLE}
TABLE += [Entry(example(name)) for name in COMMANDS if name not in _HERE | ELSEWHERE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the commands run: a finished study, a run with a gate of one's own, weights."""
    made = tmp_path_factory.mktemp("session")
    (made / "small.toml").write_text(STUDY)
    (made / "gates_of_these_lines.py").write_text(THEIRS)
    (made / "logs.csv").write_text(LOGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.syspath_prepend(made)
        patch.setattr("attnlab.lab.study.LocalExecutor", lambda *_, **__: HereExecutor())
        main(["study", "run", "small.toml"])
        main(["stiffness", "resnet20", "--limit", "2", "--out", "measured"])
        main(["style", "train", "glass", *STYLE.split(), "-o", "style"])
        config = RunConfig.model_validate(
            {
                "data": {"name": "digits", "train_subset": 40, "test_subset": 20},
                "backbone": "resnet20",
                "attention": OWN,
                "recipe": {"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 20},
            }
        )
        train(config, made / "own", threads=1, progress=lambda _: None)
        data = {"name": "digits", "train_subset": 40, "test_subset": 40}
        config = RunConfig.model_validate({**config.model_dump(), "data": data, "attention": "se"})
        train(config, made / "gated", threads=1, progress=lambda _: None)
        torch.manual_seed(0)
        description = Description("resnet20", num_classes=5, gate="asr:se")
        network = stir_gates(stir(description.build())).eval()
        save(network, made / "asr.safetensors", description)
        torch.save(network.state_dict(), made / "asr.pt")
        torch.save(stir(Description("resnet20").build()).state_dict(), made / "w.pt")
        yield made


def printed_lines(text: str) -> str:
    """What stands under "In Python:", to the first line that is not indented."""
    _, heading, below = text.partition("In Python:\n")
    assert heading, f"no line of Python in\n{text}"
    block = re.match(r"(?:  .*\n)+", below)
    assert block is not None
    return textwrap.dedent(block[0])


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.command)
def test_printed_lines_do_the_same(
    entry: Entry, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = [
        run.run_id
        for run in planned_runs(load_study(folder / "small.toml"))
        if run.config.attention == "asr:se"
    ]
    command = (
        entry.command.replace("RUN", f"runs/{run}").replace("OWN", "own").replace("GATED", "gated")
    )
    main(shlex.split(command))
    lines = printed_lines(capsys.readouterr().out)
    before = {name: (folder / name).read_bytes() for name in entry.same}
    for name in entry.same:
        (folder / name).unlink()
    # With torch but without attnlab, as a new session of Python has none yet.
    ended = forking("torch", "torchvision", "timm").run(f"{lines}\n{entry.check}", folder=folder)
    assert ended.code == 0, f"{lines}\n{ended.printed}"
    assert {name: (folder / name).read_bytes() for name in entry.same} == before


def test_every_command_of_a_study_is_in_the_table() -> None:
    entries = [each if isinstance(each, Entry) else each.values[0] for each in TABLE]
    used = {tuple(entry.command.split()[:2]) for entry in entries}
    studies = {each[1] for each in used if each[0] == "study"}
    assert studies == {
        "plan",
        "run",
        "status",
        "show",
        "submit",
        "measure",
    }  # new makes a file and computes nothing
