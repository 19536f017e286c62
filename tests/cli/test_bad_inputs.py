"""The command line given by mistake: exit code 2, a message, no traceback, nothing written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import attnlab
from attnlab.cli import main
from attnlab.networks.checkpoint import to_bytes

STUDY = """
data = { name = "digits", train_subset = 100, test_subset = 50 }
backbone = "resnet20"
attention = ["none", "se"]
seeds = 2
recipe = { name = "digits", epochs = 2, batch_size = 50 }
measure = { images = 0, inference_images = 0 }
"""
FOLDER = STUDY.replace(
    '"digits", train_subset = 100, test_subset = 50', '"folder", root = "/nowhere", size = 8'
)
FILES: dict[str, bytes] = {
    "text.txt": b"hello",
    "empty.safetensors": b"",
    "garbage.safetensors": b"\x99" * 100,
    "json.json": b'{"a": 1}',
    "format9.json": b'{"format": "attnlab fold 9"}',
    "list.json": b"[1]",
    "number.json": b"3",
    "latin.toml": b'title = "Gr\xf6\xdfe"\n',
    "broken.toml": b"title = = 3",
    "study.toml": STUDY.encode(),
    "unknown_gate.toml": STUDY.replace('"se"', '"see"').encode(),
    "missing_folder.toml": FOLDER.encode(),
    "toml_where.toml": f"{STUDY}where = []\n".encode(),
    "toml_seeds.toml": STUDY.replace("seeds = 2", "seeds = 0").encode(),
    "toml_list.toml": b"[[attention]]\ngate = 3\n",
    "run/model.safetensors": b"x",
    "run/config.json": b"{}",
    "runs/studies/a/study.json": b"{}",
}

# (what is typed, how the message begins); {name} is a file or folder of that name
CASES = [
    ("docter", "attnlab: Unknown command 'docter'. Did you mean 'doctor'? Expected one of: doc"),
    ("--modle", "attnlab: Unknown command '--modle'."),
    ("try", "Required options Missing from attnlab try: GATE A name of `attnlab modules`, '"),
    (
        "try se resnet20 extra",
        "attnlab: Expected one network but got 'resnet20' and 'extra'. Weights are given",
    ),
    ("try see", "attnlab: Unknown gate 'see'. Did you mean 'se' or 'sge' or 'sem'? Expected one"),
    (
        "try se --model resnet32",
        "attnlab: --model says which network a file of weights belongs to. The network to",
    ),
    (
        "try se resnet21",
        "attnlab: Unknown network 'resnet21'. Did you mean 'resnet32' or 'resnet20' or",
    ),
    (
        "try se timm:nothing",
        "attnlab: timm has no network 'nothing'. Did you mean 'timm:nest_tiny' or 'timm",
    ),
    (
        "try se nowhere.Net",
        "attnlab: There is no module 'nowhere' for the network 'nowhere.Net'. Install i",
    ),
    ("try se --batch 0", "attnlab: Expected batch to be at least 1 but got 0."),
    ("try se --batch -1", "attnlab: Expected batch to be at least 1 but got -1."),
    (
        "try se --batch x",
        "Value error Error parsing --batch: no type matching {None}|INT could be instanti",
    ),
    (
        "try se --where stages:9",
        "attnlab: where='stages:9': 9 does not exist in this network. There are 9 sites",
    ),
    (
        "try se --where layer9",
        "attnlab: Unknown selection where = 'layer9'. Expected one of: stages:1,2, bloc",
    ),
    (
        "try se --where stages:",
        "attnlab: Unknown selection where = 'stages:'. Did you mean 'stages:1,2'? Expec",
    ),
    (
        "try se --start zero",
        "Invalid choice invalid choice 'zero' for argument '--start'. Expected one of (",
    ),
    (
        "try se --set reduction",
        "attnlab: Expected --set KEY=VALUE, as in --set reduction=8, but got 'reduction",
    ),
    (
        "try se --set reduction=x",
        "attnlab: Gate 'se': expected reduction to be a number but got 'x'.",
    ),
    ("try se --set reduction=0", "attnlab: Expected reduction to be at least 1 but got 0."),
    ("try se --set reduction=-4", "attnlab: Expected reduction to be at least 1 but got -4."),
    (
        "try se --set =4",
        "attnlab: Expected --set KEY=VALUE, as in --set reduction=8, but got '=4'.",
    ),
    (
        "try se --set reductoin=4",
        "attnlab: Gate 'se' has no option 'reductoin'. Did you mean 'reduction'? It tak",
    ),
    ("try se --set bias=3", "attnlab: Gate 'se': expected bias to be true or false but got 3."),
    (
        "try asr:cbam",
        "attnlab: 'asr:cbam' does not exist: its gate differs from pixel to pixel, so i",
    ),
    (
        "try asr:se*0",
        "attnlab: Expected a number from 1 to 64 after '*' but got '0' in 'asr:se*0'.",
    ),
    (
        "try asr:se*99999",
        "attnlab: Expected a number from 1 to 64 after '*' but got '99999' in 'asr:se*9",
    ),
    ("try se+", "attnlab: Cannot read '' in the gate specification 'se+'. Expected a gate such"),
    ('try ""', "attnlab: Cannot read '' in the gate specification ''. Expected a gate such as"),
    (
        "modules --matc x",
        "Unrecognized options Unrecognized options: --matc, x Perhaps you meant: --matc",
    ),
    ("operators --channels -4", "attnlab: Expected --channels to be at least 1 but got -4."),
    ("operators --channels 0", "attnlab: Expected --channels to be at least 1 but got 0."),
    (
        "operators --channels x",
        "Value error Error parsing --channels: invalid literal for int() with base 10:",
    ),
    ("operators --size -1", "attnlab: Expected --size to be at least 1 but got -1."),
    ("operators --size 0", "attnlab: Expected --size to be at least 1 but got 0."),
    (
        "operators --kernel-size 4",
        "attnlab: Expected --kernel-size to be odd but got 4: a window has a middle pix",
    ),
    ("operators --kernel-size 0", "attnlab: Expected --kernel-size to be at least 1 but got 0."),
    ("operators --kernel-size -3", "attnlab: Expected --kernel-size to be at least 1 but got -3."),
    ("operators --batch 0", "attnlab: Expected --batch to be at least 1 but got 0."),
    ("operators --batch -2", "attnlab: Expected --batch to be at least 1 but got -2."),
    ("dynamics", "Required options Missing from attnlab dynamics: {theorem2,three-body} theorem2"),
    (
        "dynamics theorem3",
        "Invalid choice invalid choice 'theorem3' for argument 'experiment'. Expected o",
    ),
    (
        "dynamics three-body --trajectories -5",
        "attnlab: Expected --trajectories to be at least 1 but got -5.",
    ),
    (
        "dynamics three-body --trajectories 0",
        "attnlab: Expected --trajectories to be at least 1 but got 0.",
    ),
    (
        "dynamics three-body --trajectories x",
        "Value error Error parsing --trajectories: invalid literal for int() with base",
    ),
    (
        "dynamics three-body --trajectories 2 --seed -1",
        "attnlab: Expected --seed to be at least 0 but got -1.",
    ),
    ("dynamics theorem2 --seed -1", "attnlab: Expected --seed to be at least 0 but got -1."),
    ("stiffness", "attnlab: Expected at least one network, for example: attnlab stiffness resnet2"),
    (
        "stiffness resnet21",
        "attnlab: Unknown network 'resnet21'. Did you mean 'resnet32' or 'resnet20' or",
    ),
    ("stiffness resnet20 --limit -4", "attnlab: Expected limit to be at least 1 but got -4."),
    ("stiffness resnet20 --limit 0", "attnlab: Expected limit to be at least 1 but got 0."),
    (
        "stiffness resnet20 --limit x",
        "Value error Error parsing --limit: no type matching {None}|INT could be instan",
    ),
    ("stiffness resnet20 --batch 0", "attnlab: Expected batch to be at least 1 but got 0."),
    ("stiffness resnet20 --batch -3", "attnlab: Expected batch to be at least 1 but got -3."),
    ("stiffness resnet20 --size -8", "attnlab: Expected size to be at least 1 but got -8."),
    ("stiffness resnet20 --size 0", "attnlab: Expected size to be at least 1 but got 0."),
    ("stiffness resnet20 --si -2 --limit 2", "attnlab: Expected si to be at least 0 but got -2."),
    (
        "stiffness resnet20 --si x",
        "Value error Error parsing --si: invalid literal for int() with base 10: 'x' Ar",
    ),
    (
        "stiffness resnet20 --data nothing",
        "attnlab: Expected the data to be a folder of images, an .npz archive or one of",
    ),
    (
        "stiffness resnet20 --data {none}",
        "attnlab: There is no image in '{none}'. Expected files that end in .jpg, .jpeg,",
    ),
    (
        "stiffness resnet20 --data cifar10 --root {none}",
        "attnlab: There is no whole CIFAR10 in '{none}' (Dataset not found or corrupted)",
    ),
    (
        "stiffness resnet20 --weights {garbage}",
        "attnlab: Could not read '{garbage}' as a safetensors file (100 bytes): it is t",
    ),
    (
        "stiffness resnet20 --weights /nowhere.pt",
        "attnlab: There is no file of weights at '/nowhere.pt'. Expected the path of a",
    ),
    (
        "stiffness resnet20 --weights {text} {text}",
        "attnlab: Expected one of --weights per network but got 2 for 1 networks; write",
    ),
    (
        "stiffness resnet20 --gate see",
        "attnlab: Unknown gate 'see'. Did you mean 'se' or 'sge' or 'sem'? Expected one",
    ),
    (
        "stiffness resnet20 --shortcut none",
        "Invalid choice invalid choice 'none' for argument '--shortcut'. Expected one o",
    ),
    (
        "stiffness resnet20 --convention states",
        "Invalid choice invalid choice 'states' for argument '--convention'. Expected o",
    ),
    (
        "stiffness resnet20 --granularity blocks",
        "Invalid choice invalid choice 'blocks' for argument '--granularity'. Expected o",
    ),
    (
        "stiffness resnet20 --tokens class --limit 2",
        "attnlab: tokens='class' is for states of shape (inputs, tokens, channels), as o",
    ),
    (
        "stiffness resnet20 --granularity block --si 1 --limit 2",
        "attnlab: SI is that of a single step's branch, with all tokens, but granularity",
    ),
    (
        "stiffness resnet20 --accuracy 1,2 --limit 2",
        "Value error Error parsing --accuracy: Could not find valid parse for arguments: ['1",
    ),
    (
        "stiffness resnet20 --accuracy x --limit 2",
        "Value error Error parsing --accuracy: Could not find valid parse for arguments: ['x",
    ),
    (
        "stiffness resnet20 --accuracy nan --limit 2",
        "attnlab: --accuracy compares networks, and there is one: give several.",
    ),
    (
        "stiffness resnet20 resnet20 --accuracy 1 --limit 2",
        "attnlab: Expected one accuracy per network but got 1 for 2 of them.",
    ),
    ("stiffness resnet20 --limit 2 --out {text}", "attnlab: {text}: not a folder."),
    (
        "stiffness resnet20 --limit 2 --out /proc/nowhere",
        "attnlab: /proc/nowhere: no such file or directory.",
    ),
    (
        "stiffness vgg19_bn --limit 2",
        "attnlab: VGG19 has no residual step x + f(x), so it has no trajectory of state",
    ),
    (
        "stiffness {none}",
        "attnlab: There is no '{none}/config.json', so '{none}' is not a run's folder.",
    ),
    ("stripe", "attnlab: Expected at least one network, for example: attnlab stripe resnet20 "),
    ("maps", "attnlab: Expected at least one network, for example: attnlab maps timm:test_v"),
    (
        "stripe resnet20 --limit 2",
        "attnlab: ResNet has no gate to watch: no gate that attnlab inserted, no sque",
    ),
    (
        "maps resnet20 --limit 2",
        "attnlab: ResNet has no attention map to see: no softmax over keys that multipli",
    ),
    (
        "stripe resnet21",
        "attnlab: Unknown network 'resnet21'. Did you mean 'resnet32' or 'resnet20' or",
    ),
    (
        "stripe resnet20 --gate see",
        "attnlab: Unknown gate 'see'. Did you mean 'se' or 'sge' or 'sem'? Expected one",
    ),
    (
        "stripe resnet20 --gate se --limit -4",
        "attnlab: Expected limit to be at least 1 but got -4.",
    ),
    (
        "stripe resnet20 --gate se --limit 0",
        "attnlab: Expected limit to be at least 1 but got 0.",
    ),
    (
        "stripe resnet20 --gate se --batch 0",
        "attnlab: Expected batch to be at least 1 but got 0.",
    ),
    (
        "stripe resnet20 --gate se --size -8",
        "attnlab: Expected size to be at least 1 but got -8.",
    ),
    (
        "stripe resnet20 --gate se --data nothing",
        "attnlab: Expected the data to be a folder of images, an .npz archive or one of",
    ),
    (
        "stripe resnet20 --gate se --weights /nowhere",
        "attnlab: There is no file of weights at '/nowhere'. Expected the path of a .sa",
    ),
    ("stripe resnet20 --gate se --limit 2 --out {text}", "attnlab: {text}: not a folder."),
    (
        "stripe {none}",
        "attnlab: There is no '{none}/config.json', so '{none}' is not a run's folder.",
    ),
    (
        "stripe {run} --gate se",
        "attnlab: gate does not go with the run '{run}', whose network is known. Leave it",
    ),
    ("fold", "Required options Missing from attnlab fold: NETWORK a name, a file of weights, "),
    (
        "fold resnet20",
        "attnlab: Expected where to write: -o NAME.safetensors; or --plan, to look only.",
    ),
    (
        "fold resnet20 -o {none}/a.pt",
        "attnlab: Expected -o to end in .safetensors but got '{none}/a.pt'.",
    ),
    (
        "fold resnet20 -o /nowhere/a.safetensors",
        "attnlab: There is no folder '/nowhere' to write to.",
    ),
    (
        "fold resnet20 -o a.safetensors",
        "attnlab: ResNet carries no gate that could be folded, and no constant of its own",
    ),
    (
        "fold {w} --model resnet21 --gate asr:se -o a.safetensors",
        "attnlab: Unknown network 'resnet21'. Did you mean 'resnet32' or 'resnet20' or",
    ),
    (
        "fold {w} --model resnet20 --gate se -o a.safetensors",
        "attnlab: The weights in '{w}' do not fit ResNet: 36 missing (layer1.0.at",
    ),
    (
        "fold {w} --model resnet20 --gate see -o a.safetensors",
        "attnlab: Unknown gate 'see'. Did you mean 'se' or 'sge' or 'sem'? Expected one",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --where stages:9 -o a.safetensors",
        "attnlab: where='stages:9': 9 does not exist in this network. There are 9 sites",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --num-classes 0 -o a.safetensors",
        "attnlab: Expected num_classes to be at least 1 but got 0.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --num-classes -1 -o a.safetensors",
        "attnlab: Expected num_classes to be at least 1 but got -1.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --size -8 -o a.safetensors",
        "attnlab: Expected size to be at least 1 but got -8.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --size 0 -o a.safetensors",
        "attnlab: Expected size to be at least 1 but got 0.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se "
        "--constants --data fake --limit -4 -o a.safetensors",
        "attnlab: Expected limit to be at least 1 but got -4.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se "
        "--constants --data fake --limit 0 -o a.safetensors",
        "attnlab: Expected limit to be at least 1 but got 0.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --constants --data nothing -o a.safetensors",
        "attnlab: Expected the data to be a folder of images, an .npz archive or one of",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se "
        "--constants --data fake --tolerance -1 -o a.safetensors",
        "attnlab: Expected tolerance to be a number of at least 0 but got -1.0.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se "
        "--constants --data fake --tolerance nan -o a.safetensors",
        "attnlab: fold_constants: expected tolerance to be a finite number but got nan.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --start zero -o a.safetensors",
        "Invalid choice invalid choice 'zero' for argument '--start'. Expected one of (",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --place end -o a.safetensors",
        "Invalid choice invalid choice 'end' for argument '--place'. Expected one of ('",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --weights /nowhere -o a.safetensors",
        "attnlab: weights does not go with '{w}', which is a file of weights itself.",
    ),
    (
        "fold {w} --model resnet20 --gate asr:se --onnx /nowhere/a.onnx -o a.safetensors",
        "attnlab: There is no folder '/nowhere' to write to.",
    ),
    (
        "fold {garbage} -o a.safetensors",
        "attnlab: Could not read '{garbage}' as a safetensors file (100 bytes): it is t",
    ),
    (
        "fold {empty} -o a.safetensors",
        "attnlab: Could not read '{empty}' as a safetensors file (0 bytes): it is trunc",
    ),
    (
        "fold {text} -o a.safetensors",
        "attnlab: Could not read '{text}' as a torch file",
    ),
    (
        "fold {none} -o a.safetensors",
        "attnlab: There is no '{none}/model.safetensors': the run is not finished, or '{",
    ),
    (
        "fold {text} --model resnet20 --gate asr:se -o a.safetensors",
        "attnlab: Could not read '{text}' as a torch file (5 bytes): it is truncated, d",
    ),
    ("report", "attnlab: Expected something to make a page of: "),
    (
        "report /nowhere",
        "attnlab: There is no '/nowhere'. Expected the folder of the runs of a study (a",
    ),
    (
        "report {none}",
        "attnlab: There is no study in '{none}': it has no studies/NAME/study.json. Expe",
    ),
    (
        "report {text}",
        "attnlab: '{text}' is not JSON. Expected the folder of the runs of a study (att",
    ),
    (
        "report {json}",
        "attnlab: '{json}' is not a result that has a page. Expected the folder of the run",
    ),
    (
        "report {format9}",
        "attnlab: '{format9}' has the format 'attnlab fold 9', expected 'attnlab fold 1",
    ),
    (
        "report {list}",
        "attnlab: '{list}' is not a result that has a page. Expected the folder of the run",
    ),
    (
        "report {number}",
        "attnlab: '{number}' is not a result that has a page. Expected the folder of the r",
    ),
    (
        "report {text} --study x",
        "attnlab: --study chooses in a folder of runs, and '{text}' is a file.",
    ),
    ("report {runs} --study x", "attnlab: Unknown study 'x'. Expected one of: a."),
    (
        "report {json} -o /nowhere/page.html",
        "attnlab: '{json}' is not a result that has a page. Expected the folder of the run",
    ),
    ("study", "Missing subcommand Expected one of {new, plan, run, status, show, measure, submi"),
    ("study lst", "Unrecognized options Unrecognized options: lst Available subcommands: new, pla"),
    ("study new", "Required options Missing from attnlab study new: PATH Where to; an existing fi"),
    (
        "study plan nothing",
        "attnlab: Unknown study 'nothing'. Expected one of: ",
    ),
    (
        "study plan /nowhere.toml",
        "attnlab: There is no file '/nowhere.toml'. Expected the TOML file of a study.",
    ),
    (
        "study plan {latin}",
        "attnlab: {latin} is not UTF-8 text, which TOML is: byte 11 cannot be read. Sav",
    ),
    (
        "study plan {broken}",
        "attnlab: {broken} is not a TOML file: Invalid value (at line 1, column 9).",
    ),
    (
        "study plan {study} --small",
        "attnlab: The study 'study' has no [small] table, so no small form.",
    ),
    (
        "study plan {study} --effect 0",
        "attnlab: Expected --effect to be a number above 0 but got 0.",
    ),
    (
        "study plan {study} --effect -1",
        "attnlab: Expected --effect to be a number above 0 but got -1.",
    ),
    (
        "study plan {study} --effect nan",
        "attnlab: Expected --effect to be a number above 0 but got nan.",
    ),
    (
        "study plan {unknown_gate}",
        "attnlab: The study cannot be run as it is. Unknown gate 'see'. Did you mean 's",
    ),
    (
        "study plan {missing_folder}",
        "attnlab: The study cannot be run as it is. There is no folder '/nowhere'.",
    ),
    ("study run {study} --slots 0", "attnlab: Expected slots to be at least 1 but got 0."),
    ("study run {study} --slots -2", "attnlab: Expected slots to be at least 1 but got -2."),
    (
        "study run {study} --slots x",
        "Value error Error parsing --slots: no type matching {None}|INT could be instan",
    ),
    ("study run {study} --max-seeds 3", "attnlab: --max-seeds is for --until-decided."),
    (
        "study run {study} --until-decided --max-seeds 0",
        "attnlab: Expected --max-seeds to be at least 1 but got 0.",
    ),
    (
        "study run {study} --until-decided --max-seeds -3",
        "attnlab: Expected --max-seeds to be at least 1 but got -3.",
    ),
    (
        "study run {study} --on nowhere",
        "Invalid choice invalid choice 'nowhere' for argument '--on'. Expected one of (",
    ),
    (
        "study run {study} --on ray --slots 2",
        "attnlab: --slots is for --on local, but this is --on ray.",
    ),
    ("study run {study} --on ray --cpus 0", "attnlab: Expected --cpus to be at least 1 but got 0."),
    (
        "study run {study} --on ray --cpus -1",
        "attnlab: Expected --cpus to be at least 1 but got -1.",
    ),
    (
        "study run {study} --on ray --gpus -1",
        "attnlab: Expected --gpus to be at least 0 but got -1.",
    ),
    (
        "study run {study} --address auto",
        "attnlab: --address is for --on ray, but this is --on local.",
    ),
    ("study run {study} --set a=b", "attnlab: --set is for --on slurm, but this is --on local."),
    (
        "study run {study} --on slurm --set a",
        "attnlab: Expected --set KEY=VALUE, as in --set reduction=8, but got 'a'.",
    ),
    (
        "study run {study} --on slurm --cpus 0",
        "attnlab: Expected --cpus to be at least 1 but got 0.",
    ),
    (
        "study run {study} --out {text}",
        "attnlab: Expected --out to be a folder but '{text}' is a file.",
    ),
    ("study run {missing_folder} --out {none}/r", "attnlab: There is no folder '/nowhere'."),
    (
        "study run {toml_where}",
        "attnlab: where=() selects no site. Expected None or 'all' for every site, a se",
    ),
    (
        "study run {toml_seeds}",
        "attnlab: {toml_seeds}: Setting 'seeds' of study: expected at least 1 but got 0",
    ),
    (
        "study run {toml_list}",
        "attnlab: {toml_list}: Setting 'gate' of module: expected a valid string but go",
    ),
    (
        "study status nothing",
        "attnlab: Unknown study 'nothing'. Expected one of: ",
    ),
    (
        "study status {latin}",
        "attnlab: {latin} is not UTF-8 text, which TOML is: byte 11 cannot be read. Sav",
    ),
    (
        "study status {study} --out {text}",
        "attnlab: Expected --out to be a folder but '{text}' is a file.",
    ),
    (
        "study show nothing",
        "attnlab: Unknown study 'nothing'. Expected one of: ",
    ),
    (
        "study show {study} --out {text}",
        "attnlab: Expected --out to be a folder but '{text}' is a file.",
    ),
    (
        "study measure nothing",
        "attnlab: There is no {runs}/studies/nothing/study.json. Expected the name of a",
    ),
    (
        "study measure nothing --out {text}",
        "attnlab: There is no {text}/studies/nothing/study.json. Expected the name of a",
    ),
    (
        "study submit nothing --table {none}",
        "attnlab: There is no {runs}/studies/nothing/study.json. Expected the name of a",
    ),
    (
        "study measure small --out {none} --only stifness",
        "attnlab: There is no {none}/studies/small/study.json. Expected the name of a st",
    ),
    (
        "study measure small --out {none} --images -4",
        "attnlab: There is no {none}/studies/small/study.json. Expected the name of a st",
    ),
    (
        "doctor --all",
        "Unrecognized options Unrecognized options: --all For full helptext, run attnla",
    ),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    here = tmp_path_factory.mktemp("bad")
    for name, content in FILES.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)
    network, _ = attnlab.insert(attnlab.create("resnet20"), "asr:se")
    (here / "w.safetensors").write_bytes(to_bytes(network, None))
    (here / "none").mkdir()
    return {file.stem: str(file) for file in here.iterdir()}


@pytest.mark.parametrize(("typed", "message"), CASES, ids=[typed for typed, _ in CASES])
def test_a_bad_command_is_answered(
    files: dict[str, str],
    typed: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Path(files["text"]).parent
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "80")
    before = sorted(here.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main([part.format(**files) for part in shlex.split(typed)])
    assert ended.value.code == 2
    said = re.sub(r"[│╭╮╰╯─]|--{3,}", " ", capsys.readouterr().err)
    for name, path in sorted(files.items(), key=lambda item: -len(item[1])):
        said = said.replace(path, f"{{{name}}}")
    assert " ".join(said.replace(f"{here}/", "").split()).startswith(message)
    assert sorted(here.rglob("*")) == before
