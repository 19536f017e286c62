"""What people and programs give by mistake: each is answered with a message, none is taken for
something else, and none ends in an error that speaks of attnlab's inside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import attnlab
from attnlab.instruments.dynamics import three_body
from attnlab.lab.study import planned_runs as planned
from attnlab.networks.checkpoint import Description


def run(**changes: Any) -> attnlab.lab.training.RunConfig:
    settings: dict[str, Any] = {
        "backbone": "resnet20",
        "recipe": {"name": "digits", "epochs": 2},
        "data": {"name": "digits", "train_subset": 100, "test_subset": 50},
    }
    return attnlab.lab.training.RunConfig(**{**settings, **changes})


def study(**changes: Any) -> attnlab.lab.study.Study:
    settings: dict[str, Any] = {
        "name": "small",
        "data": {"name": "digits"},
        "backbone": "resnet20",
        "attention": ["none", "se"],
        "seeds": 1,
        "recipe": {"name": "digits", "epochs": 2},
    }
    return attnlab.lab.study.Study(**{**settings, **changes})


def build_task(config: attnlab.lab.training.RunConfig) -> object:
    return attnlab.tasks.build_task(config.task, attnlab.data.load_data(config.data).facts)


@pytest.fixture(scope="module")
def x(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    tmp = tmp_path_factory.mktemp("bad")
    net = attnlab.create("resnet20").eval()
    gated, seen = (attnlab.insert(net, gate)[0] for gate in ("asr:se", "se"))
    return SimpleNamespace(
        tmp=tmp,
        text=written(tmp / "a.txt", b"hello"),
        empty=written(tmp / "e.safetensors", b""),
        garbage=written(tmp / "g.safetensors", b"\x99" * 100),
        latin=written(tmp / "latin.toml", b'title = "Gr\xf6\xdfe"\n'),
        text_toml=written(tmp / "t.toml", b"title = = 3"),
        net=net,
        gated=gated,
        seen=seen,
        nanned=without_numbers(net),
        nan_gated=without_numbers(gated),
        images=[torch.randn(2, 3, 32, 32)],
    )


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def without_numbers(network: nn.Module) -> nn.Module:
    broken = copy.deepcopy(network)
    nn.init.constant_(next(broken.parameters()), float("nan"))
    return broken


# (name, what is done, how the message begins)
CASES: list[tuple[str, Callable[[Any], object], str]] = [
    (
        "create-none",
        lambda _: attnlab.create(None),
        "Expected the name of a network, such as 'resnet20' or 'timm:resnet50', b",
    ),
    (
        "create-int",
        lambda _: attnlab.create(20),
        "Expected the name of a network, such as 'resnet20' or 'timm:resnet50', b",
    ),
    (
        "create-empty",
        lambda _: attnlab.create(""),
        "Unknown network ''. Expected one of: resnet20, resnet32, resnet44, resne",
    ),
    (
        "create-typo",
        lambda _: attnlab.create("resnet21"),
        "Unknown network 'resnet21'. Did you mean 'resnet32' or 'resnet20' or 're",
    ),
    (
        "create-library",
        lambda _: attnlab.create("tim:resnet18"),
        "Unknown library 'tim'. Did you mean 'timm'? Expected one of: timm, torch",
    ),
    (
        "create-timm-typo",
        lambda _: attnlab.create("timm:resnet18x"),
        "timm has no network 'resnet18x'. Did you mean 'timm:resnet18' or 'timm:r",
    ),
    (
        "create-timm-empty",
        lambda _: attnlab.create("timm:"),
        "timm has no network ''. All of its names: `timm.list_models()`.",
    ),
    (
        "create-tv-typo",
        lambda _: attnlab.create("torchvision:resnet19"),
        "torchvision has no network 'resnet19'. Did you mean 'torchvision:resnet1",
    ),
    (
        "create-classes-0",
        lambda _: attnlab.create("resnet20", 0),
        "Expected num_classes to be at least 1 but got 0.",
    ),
    (
        "create-classes-neg",
        lambda _: attnlab.create("resnet20", -3),
        "Expected num_classes to be at least 1 but got -3.",
    ),
    (
        "create-classes-str",
        lambda _: attnlab.create("resnet20", "10"),
        "Expected num_classes to be a whole number but got '10'.",
    ),
    (
        "create-classes-float",
        lambda _: attnlab.create("resnet20", 10.5),
        "Expected num_classes to be a whole number but got 10.5.",
    ),
    (
        "create-classes-bool",
        lambda _: attnlab.create("resnet20", True),
        "Expected num_classes to be a whole number but got True.",
    ),
    (
        "create-timm-classes-neg",
        lambda _: attnlab.create("timm:resnet18", -3),
        "Expected num_classes to be at least 0 but got -3.",
    ),
    (
        "create-tv-classes-neg",
        lambda _: attnlab.create("torchvision:resnet18", -3),
        "Expected num_classes to be at least 1 but got -3.",
    ),
    (
        "create-tv-classes-0",
        lambda _: attnlab.create("torchvision:resnet18", 0),
        "Expected num_classes to be at least 1 but got 0.",
    ),
    (
        "create-tv-classes-str",
        lambda _: attnlab.create("torchvision:resnet18", "ten"),
        "Expected num_classes to be a whole number but got 'ten'.",
    ),
    (
        "create-weights-missing",
        lambda _: attnlab.create("resnet20", weights="/nowhere/w.pt"),
        "There is no file of weights at '/nowhere/w.pt'. Expected the path of a .",
    ),
    (
        "create-weights-name",
        lambda _: attnlab.create("resnet20", weights="DEFAULT"),
        "There is no file of weights at 'DEFAULT'. Expected the path of a .safete",
    ),
    (
        "create-weights-int",
        lambda _: attnlab.create("resnet20", weights=3),
        "Expected weights to be a path but got 3.",
    ),
    (
        "create-weights-dir",
        lambda x: attnlab.create("resnet20", weights=str(x.tmp)),
        "There is no file of weights at '{tmp}'. Expected the path of a .safetens",
    ),
    (
        "create-weights-text",
        lambda x: attnlab.create("resnet20", weights=str(x.text)),
        "Could not read '{tmp}/a.txt' as a torch file (5 bytes): it is truncated,",
    ),
    (
        "create-weights-empty",
        lambda x: attnlab.create("resnet20", weights=str(x.empty)),
        "Could not read '{tmp}/e.safetensors' as a safetensors file (0 bytes): it",
    ),
    (
        "create-weights-safetensors",
        lambda x: attnlab.create("resnet20", weights=str(x.garbage)),
        "Could not read '{tmp}/g.safetensors' as a safetensors file (100 bytes):",
    ),
    (
        "create-option",
        lambda _: attnlab.create("resnet20", wdith=3),
        "Network 'resnet20' has no option 'wdith'. It takes: in_channels, shortcu",
    ),
    (
        "create-width-str",
        lambda _: attnlab.create("resnet20", width="16"),
        "Network 'resnet20' has no option 'width'. It takes: in_channels, shortcu",
    ),
    (
        "create-newhead",
        lambda _: attnlab.create("resnet20", new_head=True),
        "new_head=True needs num_classes and weights.",
    ),
    (
        "create-path-module",
        lambda _: attnlab.create("no_such_module.Net"),
        "There is no module 'no_such_module' for the network 'no_such_module.Net'",
    ),
    (
        "create-path-attr",
        lambda _: attnlab.create("math.Net"),
        "Module 'math' is a part of Python itself and holds no network, so ",
    ),
    (
        "create-path-nonmodule",
        lambda _: attnlab.create("collections.OrderedDict"),
        "Module 'collections' is a part of Python itself and holds no network, so ",
    ),
    (
        "create-path-stdlib",
        lambda _: attnlab.create("antigravity.Net"),
        "Module 'antigravity' is a part of Python itself and holds no network, so ",
    ),
    (
        "insert-none",
        lambda _: attnlab.insert(None, "se"),
        "Expected the model to be a torch.nn.Module but got None.",
    ),
    (
        "insert-str",
        lambda _: attnlab.insert("resnet20", "se"),
        "Expected the model to be a torch.nn.Module but got the text 'resnet20'.",
    ),
    (
        "insert-class",
        lambda _: attnlab.insert(torch.nn.Linear, "se"),
        "Expected the model to be a torch.nn.Module but got the class Linear. Mak",
    ),
    (
        "insert-function",
        lambda _: attnlab.insert(lambda x: x, "se"),
        "Expected the model to be a torch.nn.Module but got a function.",
    ),
    (
        "insert-tensor",
        lambda _: attnlab.insert(torch.randn(3), "se"),
        "Expected the model to be a torch.nn.Module but got a Tensor.",
    ),
    (
        "insert-dict",
        lambda x: attnlab.insert(x.net.state_dict(), "se"),
        "Expected the model to be a torch.nn.Module but got a OrderedDict. Weight",
    ),
    (
        "insert-gate-none",
        lambda x: attnlab.insert(x.net, None),
        "Expected a gate by name, such as 'se', or as a class but got None.",
    ),
    (
        "insert-gate-int",
        lambda x: attnlab.insert(x.net, 3),
        "Expected a gate by name, such as 'se', or as a class but got 3.",
    ),
    (
        "insert-gate-empty",
        lambda x: attnlab.insert(x.net, ""),
        "Cannot read '' in the gate specification ''. Expected a gate such as 'se",
    ),
    (
        "insert-gate-instance",
        lambda x: attnlab.insert(x.net, torch.nn.Sigmoid()),
        "Expected a gate by name or as a class, which is built anew at each site,",
    ),
    (
        "insert-gate-class",
        lambda x: attnlab.insert(x.net, torch.nn.Linear),
        "Gate Linear cannot be built from channels alone: missing a required argu",
    ),
    (
        "insert-gate-case",
        lambda x: attnlab.insert(x.net, "SE "),
        "Unknown gate 'SE'. Did you mean 'se' or 'sge' or 'sem'? Expected one of:",
    ),
    (
        "insert-gate-list",
        lambda x: attnlab.insert(x.net, ["se"]),
        "Expected a gate by name, such as 'se', or as a class but got ['se'].",
    ),
    (
        "insert-asr0",
        lambda x: attnlab.insert(x.net, "asr:se*0"),
        "Expected a number from 1 to 64 after '*' but got '0' in 'asr:se*0'.",
    ),
    (
        "insert-asr-neg",
        lambda x: attnlab.insert(x.net, "asr:se*-1"),
        "Expected a number from 1 to 64 after '*' but got '-1' in 'asr:se*-1'.",
    ),
    (
        "insert-asr-x",
        lambda x: attnlab.insert(x.net, "asr:se*x"),
        "Expected a number from 1 to 64 after '*' but got 'x' in 'asr:se*x'.",
    ),
    (
        "insert-asr-plus",
        lambda x: attnlab.insert(x.net, "asr:se+"),
        "Cannot read '' in the gate specification 'asr:se+'. Expected a gate such",
    ),
    (
        "insert-asr-asr",
        lambda x: attnlab.insert(x.net, "asr:asr:se"),
        "Cannot read 'asr:asr:se' in the gate specification 'asr:asr:se'. Expecte",
    ),
    (
        "insert-plus",
        lambda x: attnlab.insert(x.net, "se++se"),
        "Cannot read '' in the gate specification 'se++se'. Expected a gate such",
    ),
    (
        "insert-asr-huge",
        lambda x: attnlab.insert(x.net, "asr:se*99999"),
        "Expected a number from 1 to 64 after '*' but got '99999' in 'asr:se*9999",
    ),
    (
        "insert-where-int",
        lambda x: attnlab.insert(x.net, "se", where=1),
        "Expected where to be None, a selection such as 'stages:1,2', a list of m",
    ),
    (
        "insert-where-list-empty",
        lambda x: attnlab.insert(x.net, "se", where=[]),
        "where=[] selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "insert-where-text-empty",
        lambda x: attnlab.insert(x.net, "se", where=""),
        "where='' selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "insert-where-ints",
        lambda x: attnlab.insert(x.net, "se", where=[1, 2]),
        "The network has no module named 1. Did you mean 'bn1'? Names are those o",
    ),
    (
        "insert-where-none-in-list",
        lambda x: attnlab.insert(x.net, "se", where=[None]),
        "The network has no module named None. Names are those of model.named_mod",
    ),
    (
        "insert-where-stage",
        lambda x: attnlab.insert(x.net, "se", where="stages:9"),
        "where='stages:9': 9 does not exist in this network. There are 9 sites in",
    ),
    (
        "insert-where-stage-neg",
        lambda x: attnlab.insert(x.net, "se", where="stages:-1"),
        "where='stages:-1': -1 does not exist in this network. There are 9 sites",
    ),
    (
        "insert-where-stage-x",
        lambda x: attnlab.insert(x.net, "se", where="stages:x"),
        "where='stages:x': expected a number but got 'x'.",
    ),
    (
        "insert-where-stage-float",
        lambda x: attnlab.insert(x.net, "se", where="stages:1.5"),
        "where='stages:1.5': expected a number but got '1.5'.",
    ),
    (
        "insert-where-every0",
        lambda x: attnlab.insert(x.net, "se", where="every:0"),
        "where='every:0': expected one number of at least 1.",
    ),
    (
        "insert-where-every-neg",
        lambda x: attnlab.insert(x.net, "se", where="every:-2"),
        "where='every:-2': expected one number of at least 1.",
    ),
    (
        "insert-where-blocks",
        lambda x: attnlab.insert(x.net, "se", where="blocks:1.99"),
        "where='blocks:1.99': 1.99 does not exist in this network. There are 9 si",
    ),
    (
        "insert-where-colon",
        lambda x: attnlab.insert(x.net, "se", where="stages:"),
        "Unknown selection where = 'stages:'. Did you mean 'stages:1,2'? Expected",
    ),
    (
        "insert-where-form",
        lambda x: attnlab.insert(x.net, "se", where="stage:1"),
        "Unknown selection where = 'stage:1'. Did you mean 'stages:1,2'? Expected",
    ),
    (
        "insert-where-name",
        lambda x: attnlab.insert(x.net, "se", where=["layer9"]),
        "The network has no module named 'layer9'. Did you mean 'layer3' or 'laye",
    ),
    (
        "insert-where-false",
        lambda x: attnlab.insert(x.net, "se", where=lambda _: False),
        "where, a function, selects no site. There are ",
    ),
    (
        "insert-where-dict",
        lambda x: attnlab.insert(x.net, "se", where={"stages": 1}),
        "The network has no module named 'stages'. Names are those of model.named",
    ),
    (
        "insert-where-true",
        lambda x: attnlab.insert(x.net, "se", where=True),
        "Expected where to be None, a selection such as 'stages:1,2', a list of m",
    ),
    (
        "insert-start",
        lambda x: attnlab.insert(x.net, "se", start="zero"),
        "Unknown start 'zero'. Expected one of: paper, identity.",
    ),
    (
        "insert-start-none",
        lambda x: attnlab.insert(x.net, "se", start=None),
        "Unknown start None. Expected one of: paper, identity.",
    ),
    (
        "insert-place",
        lambda x: attnlab.insert(x.net, "se", place="end"),
        "Unknown place 'end'. Did you mean 'heads'? Expected one of: auto, branch, norm, heads.",
    ),
    (
        "insert-place-list",
        lambda x: attnlab.insert(x.net, "se", place=["branch"]),
        "Unknown place ['branch']. Did you mean 'branch'? Expected one of: auto,",
    ),
    (
        "insert-option",
        lambda x: attnlab.insert(x.net, "se", reductoin=4),
        "Gate 'se' has no option 'reductoin'. Did you mean 'reduction'? It takes:",
    ),
    (
        "insert-red-str",
        lambda x: attnlab.insert(x.net, "se", reduction="4"),
        "Gate 'se': expected reduction to be a number but got '4'.",
    ),
    (
        "insert-red-half",
        lambda x: attnlab.insert(x.net, "se", reduction=0.5),
        "Expected reduction to be at least 1 but got 0.5.",
    ),
    (
        "insert-red-0",
        lambda x: attnlab.insert(x.net, "se", reduction=0),
        "Expected reduction to be at least 1 but got 0.",
    ),
    (
        "insert-red-neg",
        lambda x: attnlab.insert(x.net, "se", reduction=-4),
        "Expected reduction to be at least 1 but got -4.",
    ),
    (
        "insert-red-none",
        lambda x: attnlab.insert(x.net, "se", reduction=None),
        "Gate 'se': expected reduction to be a number but got None.",
    ),
    (
        "insert-red-bool",
        lambda x: attnlab.insert(x.net, "se", reduction=True),
        "Gate 'se': expected reduction to be a number but got True.",
    ),
    (
        "insert-red-list",
        lambda x: attnlab.insert(x.net, "se", reduction=[4]),
        "Gate 'se': expected reduction to be a number but got [4].",
    ),
    (
        "insert-bias-str",
        lambda x: attnlab.insert(x.net, "se", bias="no"),
        "Gate 'se': expected bias to be true or false but got 'no'.",
    ),
    (
        "insert-bias-int",
        lambda x: attnlab.insert(x.net, "se", bias=2),
        "Gate 'se': expected bias to be true or false but got 2.",
    ),
    (
        "insert-squash",
        lambda x: attnlab.insert(x.net, "se", squash="tanhh"),
        "Unknown squash 'tanhh'. Expected one of: sigmoid, hard_sigmoid.",
    ),
    (
        "insert-squash-int",
        lambda x: attnlab.insert(x.net, "se", squash=1),
        "Unknown squash 1. Expected one of: sigmoid, hard_sigmoid.",
    ),
    (
        "insert-eca-kernel-even",
        lambda x: attnlab.insert(x.net, "eca", kernel_size=4),
        "Expected an odd kernel_size, so that the number of channels is kept, but",
    ),
    (
        "insert-eca-kernel-neg",
        lambda x: attnlab.insert(x.net, "eca", kernel_size=-3),
        "Expected an odd kernel_size, so that the number of channels is kept, but",
    ),
    (
        "insert-eca-kernel-str",
        lambda x: attnlab.insert(x.net, "eca", kernel_size="3"),
        "Gate 'eca': expected kernel_size to be a whole number or None but got '3",
    ),
    (
        "insert-cbam-kernel-0",
        lambda x: attnlab.insert(x.net, "cbam", kernel_size=0),
        "Expected an odd kernel_size, so that the size of the map is kept, but go",
    ),
    (
        "insert-sge-groups0",
        lambda x: attnlab.insert(x.net, "sge", groups=0),
        "Expected groups to be at least 1 but got 0.",
    ),
    (
        "insert-sge-groups-str",
        lambda x: attnlab.insert(x.net, "sge", groups="4"),
        "Gate 'sge': expected groups to be a whole number but got '4'.",
    ),
    (
        "insert-asr-initial-str",
        lambda x: attnlab.insert(x.net, "asr:se", initial="0.5"),
        "Gate 'asr:se': expected initial to be a number but got '0.5'.",
    ),
    (
        "insert-asr-initial-nan",
        lambda x: attnlab.insert(x.net, "asr:se", initial=float("nan")),
        "Gate 'asr:se': expected initial to be a finite number but got nan.",
    ),
    (
        "insert-asr-initial-inf",
        lambda x: attnlab.insert(x.net, "asr:se", initial=float("inf")),
        "Gate 'asr:se': expected initial to be a finite number but got inf.",
    ),
    (
        "insert-simam-neg",
        lambda x: attnlab.insert(x.net, "simam", lambda_=-1),
        "Gate 'simam' has no option 'lambda_'. It takes: regularization, unbiased",
    ),
    (
        "insert-example-none-tuple",
        lambda x: attnlab.insert(x.net, "se", example=()),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (): Re",
    ),
    (
        "insert-example-str",
        lambda x: attnlab.insert(x.net, "se", example="image"),
        "Expected the example to be a tensor, a tuple of inputs or a dictionary o",
    ),
    (
        "insert-example-int",
        lambda x: attnlab.insert(x.net, "se", example=3),
        "Expected the example to be a tensor, a tuple of inputs or a dictionary o",
    ),
    (
        "insert-example-array",
        lambda x: attnlab.insert(x.net, "se", example=numpy.zeros((1, 3, 32, 32), "float32")),
        "Expected the example to be a tensor, a tuple of inputs or a dictionary o",
    ),
    (
        "insert-example-shape",
        lambda x: attnlab.insert(x.net, "se", example=torch.randn(3)),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (3,):",
    ),
    (
        "insert-example-channels",
        lambda x: attnlab.insert(x.net, "se", example=torch.randn(1, 4, 32, 32)),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (1, 4,",
    ),
    (
        "insert-example-empty",
        lambda x: attnlab.insert(x.net, "se", example=torch.randn(0, 3, 32, 32)),
        "Expected an example with at least one value but got one of shape (0, 3,",
    ),
    (
        "insert-example-nan",
        lambda x: attnlab.insert(x.net, "se", example=torch.full((1, 3, 32, 32), float("nan"))),
        "Expected an example of finite values but 3072 of its 3072 are NaN or inf",
    ),
    (
        "insert-example-inf",
        lambda x: attnlab.insert(x.net, "se", example=torch.full((1, 3, 32, 32), float("inf"))),
        "Expected an example of finite values but 3072 of its 3072 are NaN or inf",
    ),
    (
        "insert-example-int-dtype",
        lambda x: attnlab.insert(
            x.net, "se", example=torch.zeros((1, 3, 32, 32), dtype=torch.long)
        ),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (1, 3,",
    ),
    (
        "insert-example-double",
        lambda x: attnlab.insert(
            x.net, "se", example=torch.zeros((1, 3, 32, 32), dtype=torch.float64)
        ),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (1, 3,",
    ),
    (
        "insert-example-keyword",
        lambda x: attnlab.insert(x.net, "se", example={"y": torch.randn(1, 3, 32, 32)}),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (1, 3,",
    ),
    (
        "insert-inplace-str",
        lambda x: attnlab.insert(copy.deepcopy(x.net), "se", inplace="yes"),
        "insert: expected inplace to be true or false but got 'yes'.",
    ),
    (
        "insert-linear",
        lambda _: attnlab.insert(torch.nn.Linear(3, 3), "se", example=torch.randn(1, 3)),
        "Linear has no residual step. Looked for additions of two feature maps of",
    ),
    (
        "insert-empty-sequential",
        lambda _: attnlab.insert(torch.nn.Sequential(), "se"),
        "Sequential has no residual step. Looked for additions of two feature map",
    ),
    (
        "insert-identity",
        lambda _: attnlab.insert(torch.nn.Identity(), "se"),
        "Identity has no residual step. Looked for additions of two feature maps",
    ),
    (
        "insert-nan-weights",
        lambda x: attnlab.insert(x.nanned, "se"),
        "The weights 'conv1.weight' of ResNet have values that are not finite, so",
    ),
    (
        "insert-norm-step",
        lambda x: attnlab.insert(x.net, "step", place="norm"),
        "'step' acts at the addition, where it sees both ends of the step, so pla",
    ),
    (
        "steps-none",
        lambda _: attnlab.steps(None),
        "Expected the model to be a torch.nn.Module but got None.",
    ),
    (
        "steps-str",
        lambda _: attnlab.steps("resnet20"),
        "Expected the model to be a torch.nn.Module but got the text 'resnet20'.",
    ),
    (
        "steps-example-nan",
        lambda x: attnlab.steps(x.net, torch.full((1, 3, 32, 32), float("nan"))),
        "Expected an example of finite values but 3072 of its 3072 are NaN or inf",
    ),
    (
        "steps-example-str",
        lambda x: attnlab.steps(x.net, "x"),
        "Expected the example to be a tensor, a tuple of inputs or a dictionary o",
    ),
    (
        "fold-none",
        lambda _: attnlab.fold(None),
        "Expected the model to be a torch.nn.Module but got None.",
    ),
    (
        "fold-str",
        lambda _: attnlab.fold("resnet20"),
        "Expected the model to be a torch.nn.Module but got the text 'resnet20'.",
    ),
    (
        "fold-plain",
        lambda x: attnlab.fold(x.net),
        "ResNet carries no gate that could be folded, and no constant of its own su",
    ),
    (
        "fold-state",
        lambda x: attnlab.fold(x.net.state_dict()),
        "Expected the model to be a torch.nn.Module but got a OrderedDict. Weight",
    ),
    (
        "fold-tolerance-str",
        lambda x: attnlab.fold_constants(x.seen, x.images, tolerance="0.1"),
        "fold_constants: expected tolerance to be a number but got '0.1'.",
    ),
    (
        "fold-tolerance-neg",
        lambda x: attnlab.fold_constants(x.seen, x.images, tolerance=-1),
        "Expected tolerance to be a number of at least 0 but got -1.",
    ),
    (
        "fold-tolerance-nan",
        lambda x: attnlab.fold_constants(x.seen, x.images, tolerance=float("nan")),
        "fold_constants: expected tolerance to be a finite number but got nan.",
    ),
    (
        "fold-constants-str",
        lambda x: attnlab.fold_constants(x.seen, "images"),
        "Expected the images to be an iterable of batches, such as a DataLoader o",
    ),
    (
        "fold-constants-tensor",
        lambda x: attnlab.fold_constants(x.seen, torch.zeros(2, 3, 32, 32)),
        "Expected the images to be an iterable of batches but got one tensor of s",
    ),
    (
        "fold-constants-int",
        lambda x: attnlab.fold_constants(x.seen, 3),
        "Expected the images to be an iterable of batches, such as a DataLoader o",
    ),
    (
        "fold-constants-empty",
        lambda x: attnlab.fold_constants(x.seen, []),
        "The images gave no batch. Expected an iterable of input batches.",
    ),
    (
        "fold-constants-nan",
        lambda x: attnlab.fold_constants(x.seen, [torch.full((2, 3, 32, 32), float("nan"))]),
        "Expected an example of finite values but 6144 of its 6144 are NaN or inf",
    ),
    (
        "fold-constants-shape",
        lambda x: attnlab.fold_constants(x.seen, [torch.randn(2, 5)]),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (2, 5)",
    ),
    (
        "fold-input",
        lambda x: attnlab.fold(x.seen),
        "The gates of 9 of 9 sites cannot be folded: layer1.0.bn2: its gate dep",
    ),
    (
        "fold-example-nan",
        lambda x: attnlab.fold(x.gated, example=torch.full((1, 3, 32, 32), float("nan"))),
        "Expected an example of finite values but 3072 of its 3072 are NaN or inf",
    ),
    (
        "fold-example-str",
        lambda x: attnlab.fold(x.gated, example="x"),
        "Expected the example to be a tensor, a tuple of inputs or a dictionary o",
    ),
    (
        "fold-fuse-str",
        lambda x: attnlab.fold(x.gated, fuse="yes"),
        "fold: expected fuse to be true or false but got 'yes'.",
    ),
    (
        "fold-nan-weights",
        lambda x: attnlab.fold(x.nan_gated),
        "The folded network cannot be compared with the original in float64, so i",
    ),
    (
        "stiffness-none",
        lambda x: attnlab.stiffness(None, x.images),
        "Expected a network: a name, a file of weights, the folder of a run, or a ",
    ),
    (
        "stiffness-str",
        lambda x: attnlab.stiffness("resnet2", x.images),
        "Unknown network 'resnet2'. Did you mean '",
    ),
    (
        "stiffness-loader-none",
        lambda x: attnlab.stiffness(x.net, None),
        "Expected the loader to be an iterable of batches, such as a DataLoader o",
    ),
    (
        "stiffness-loader-int",
        lambda x: attnlab.stiffness(x.net, 3),
        "Expected the loader to be an iterable of batches, such as a DataLoader o",
    ),
    (
        "stiffness-loader-tensor",
        lambda x: attnlab.stiffness(x.net, torch.zeros(2, 3, 32, 32)),
        "Expected the loader to be an iterable of batches but got one tensor of shape (2, 3, 32, "
        "32). Give a list: [batch], or list(batches) if it is a stack of them.",
    ),
    (
        "stiffness-loader-str",
        lambda x: attnlab.stiffness(x.net, "digits"),
        "Expected the loader to be an iterable of batches, such as a DataLoader o",
    ),
    (
        "stiffness-loader-empty",
        lambda x: attnlab.stiffness(x.net, []),
        "Expected a loader with at least one batch but got an empty one.",
    ),
    (
        "stiffness-loader-strings",
        lambda x: attnlab.stiffness(x.net, ["a", "b"]),
        "Expected batches that are ",
    ),
    (
        "stiffness-loader-arrays",
        lambda x: attnlab.stiffness(x.net, [numpy.zeros((2, 3, 32, 32), "float32")]),
        "Expected batches that are ",
    ),
    (
        "stiffness-loader-shape",
        lambda x: attnlab.stiffness(x.net, [torch.randn(2, 5)]),
        "ResNet (torch.float32 on cpu) does not run on an example of shape (1, 5)",
    ),
    (
        "stiffness-loader-empty-batch",
        lambda x: attnlab.stiffness(x.net, [torch.randn(0, 3, 32, 32)]),
        "Expected an example with at least one value but got one of shape (0, 3,",
    ),
    (
        "stiffness-loader-nan",
        lambda x: attnlab.stiffness(x.net, [torch.full((2, 3, 32, 32), float("nan"))]),
        "Expected an example of finite values but 3072 of its 3072 are NaN or inf",
    ),
    (
        "stiffness-tensor",
        lambda x: attnlab.stiffness(x.net, torch.randn(3, 32, 32)),
        "Expected the loader to be an iterable of batches but got one tensor of shape (3, 32, 32)",
    ),
    (
        "stiffness-convention",
        lambda x: attnlab.stiffness(x.net, x.images, convention="states"),
        "Unknown NSI convention 'states'. Did you mean 'state'? Expected one of:",
    ),
    (
        "stiffness-convention-none",
        lambda x: attnlab.stiffness(x.net, x.images, convention=None),
        "Unknown NSI convention None. Expected one of: state, normed, branch, paper.",
    ),
    (
        "stiffness-si-neg",
        lambda x: attnlab.stiffness(x.net, x.images, si=-2),
        "Expected si to be at least 0 but got -2.",
    ),
    (
        "stiffness-si-str",
        lambda x: attnlab.stiffness(x.net, x.images, si="2"),
        "Expected si to be a whole number but got '2'.",
    ),
    (
        "stiffness-si-float",
        lambda x: attnlab.stiffness(x.net, x.images, si=1.5),
        "Expected si to be a whole number but got 1.5.",
    ),
    (
        "stiffness-grid-str",
        lambda x: attnlab.stiffness(x.net, x.images, grid="fine"),
        "Expected grid to be an attnlab.instruments.stiffness.Grid but got 'fine'.",
    ),
    (
        "stiffness-grid-list",
        lambda x: attnlab.stiffness(x.net, x.images, grid=[1, 2]),
        "Expected grid to be an attnlab.instruments.stiffness.Grid but got [1, 2].",
    ),
    (
        "stiffness-example-str",
        lambda x: attnlab.stiffness(x.net, x.images, example="x"),
        "Expected the example to be a tensor, a tuple of inputs or a dictionary o",
    ),
    (
        "stiffness-plain",
        lambda x: attnlab.stiffness(torch.nn.Conv2d(3, 3, 1), x.images),
        "Conv2d has no residual step x + f(x), so it has no trajectory of states",
    ),
    (
        "stiffness-nan-weights",
        lambda x: attnlab.stiffness(x.nanned, x.images),
        "Expected at least one usable input but got none (2 skipped, because a no",
    ),
    (
        "capture-none",
        lambda _: attnlab.capture(None).__enter__(),
        "Expected the model to be a torch.nn.Module but got None.",
    ),
    (
        "capture-plain",
        lambda _: attnlab.capture(torch.nn.Conv2d(3, 3, 1), torch.randn(1, 3, 8, 8)).__enter__(),
        "Conv2d has no residual step x + f(x), so it has no trajectory of states",
    ),
    (
        "stripe-none",
        lambda x: attnlab.stripe(None, x.images),
        "Expected a network: a name, a file of weights, the folder of a run, or a ",
    ),
    (
        "stripe-plain",
        lambda x: attnlab.stripe(x.net, x.images),
        "ResNet has no gate to watch: no gate that attnlab inserted, no squeeze-a",
    ),
    (
        "stripe-loader-int",
        lambda x: attnlab.stripe(x.seen, 3),
        "Expected the loader to be an iterable of batches, such as a DataLoader o",
    ),
    (
        "maps-none",
        lambda x: attnlab.maps(None, x.images),
        "Expected a network: a name, a file of weights, the folder of a run, or a ",
    ),
    (
        "maps-loader-empty",
        lambda x: attnlab.maps(x.seen, []),
        "Expected a loader with at least one batch but got an empty one.",
    ),
    (
        "stripe-loader-empty",
        lambda x: attnlab.stripe(x.seen, []),
        "Expected a loader with at least one batch but got an empty one.",
    ),
    (
        "stripe-loader-nan",
        lambda x: attnlab.stripe(x.seen, [torch.full((2, 3, 32, 32), float("nan"))]),
        "Expected an example of finite values but 3072 of its 3072 are NaN or inf",
    ),
    (
        "stripe-loader-str",
        lambda x: attnlab.stripe(x.seen, ["x"]),
        "Expected batches that are ",
    ),
    (
        "save-none",
        lambda x: attnlab.save(None, x.tmp / "a.safetensors", Description("resnet20")),
        "Expected the network to be a torch.nn.Module but got None.",
    ),
    (
        "save-suffix",
        lambda x: attnlab.save(x.seen, x.tmp / "a.pt", Description("resnet20", gate="se")),
        "Expected a path that ends in .safetensors but got '{tmp}/a.pt'.",
    ),
    (
        "save-nomodel",
        lambda x: attnlab.save(x.seen, x.tmp / "a.safetensors", "resnet20"),
        "Expected an attnlab.networks.checkpoint.Description of the network but got a str.",
    ),
    (
        "save-wrong",
        lambda x: attnlab.save(x.seen, x.tmp / "a.safetensors", Description("resnet20")),
        "'{tmp}/a.safetensors' was not written, because Description('resnet20') i",
    ),
    (
        "save-path",
        lambda x: attnlab.save(x.seen, 3, Description("resnet20", gate="se")),
        "Expected path to be a path but got 3.",
    ),
    (
        "load-missing",
        lambda _: attnlab.load("/nowhere.safetensors"),
        "There is no file of weights at '/nowhere.safetensors'.",
    ),
    ("load-int", lambda _: attnlab.load(3), "Expected path to be a path but got 3."),
    (
        "load-garbage",
        lambda x: attnlab.load(x.garbage),
        "Could not read '{tmp}/g.safetensors' as a safetensors file (100 bytes):",
    ),
    (
        "load-empty",
        lambda x: attnlab.load(x.empty),
        "Could not read '{tmp}/e.safetensors' as a safetensors file (0 bytes): it",
    ),
    (
        "load-dir",
        lambda x: attnlab.load(x.tmp),
        "There is no '{tmp}/model.safetensors': the run is not finished, or '{tmp",
    ),
    (
        "load-text",
        lambda x: attnlab.load(x.text),
        "'{tmp}/a.txt' does not say which network it belongs to. Expected a file",
    ),
    (
        "images-limit-neg",
        lambda x: attnlab.open(x.net, "digits", limit=-4),
        "Expected limit to be at least 1 but got -4.",
    ),
    (
        "images-limit-0",
        lambda x: attnlab.open(x.net, "digits", limit=0),
        "Expected limit to be at least 1 but got 0.",
    ),
    (
        "images-limit-float",
        lambda x: attnlab.open(x.net, "digits", limit=2.5),
        "Expected limit to be a whole number but got 2.5.",
    ),
    (
        "images-limit-fake-neg",
        lambda x: attnlab.open(x.net, "fake", limit=-4),
        "Expected limit to be at least 1 but got -4.",
    ),
    (
        "images-batch-0",
        lambda x: attnlab.open(x.net, "digits", batch=0),
        "Expected batch to be at least 1 but got 0.",
    ),
    (
        "images-batch-neg",
        lambda x: attnlab.open(x.net, "digits", batch=-1),
        "Expected batch to be at least 1 but got -1.",
    ),
    (
        "images-batch-str",
        lambda x: attnlab.open(x.net, "digits", batch="8"),
        "Expected batch to be a whole number but got '8'.",
    ),
    (
        "images-size-neg",
        lambda x: attnlab.open(x.net, "digits", size=-8),
        "Expected size to be at least 1 but got -8.",
    ),
    (
        "images-size-0",
        lambda x: attnlab.open(x.net, "digits", size=0),
        "Expected size to be at least 1 but got 0.",
    ),
    (
        "images-size-tuple",
        lambda x: attnlab.open(x.net, "digits", size=(3, 8)),
        "Expected size to be a whole number but got (3, 8).",
    ),
    (
        "images-size-str",
        lambda x: attnlab.open(x.net, "digits", size="8"),
        "Expected size to be a whole number but got '8'.",
    ),
    (
        "images-name",
        lambda x: attnlab.open(x.net, "digitz"),
        "Expected the data to be a folder of images, an .npz archive or one of digit",
    ),
    (
        "images-network",
        lambda _: attnlab.open(None, "digits"),
        "Expected a network: a name, a file of weights, the folder of a run, or a ",
    ),
    (
        "data-name",
        lambda _: attnlab.data.DataConfig(name="digitz"),
        "Unknown data 'digitz'. Did you mean 'digits' or 'digit-pairs' or 'digit-",
    ),
    (
        "data-subset-0",
        lambda _: attnlab.data.DataConfig(train_subset=0),
        "Setting 'train_subset' of data: expected greater than 0 but got 0.",
    ),
    (
        "data-subset-neg",
        lambda _: attnlab.data.DataConfig(test_subset=-4),
        "Setting 'test_subset' of data: expected greater than 0 but got -4.",
    ),
    (
        "data-size-str",
        lambda _: attnlab.data.DataConfig(size="eight"),
        "Setting 'size' of data: expected a valid integer, unable to parse string",
    ),
    (
        "data-classes-0",
        lambda _: attnlab.data.DataConfig(name="fake", classes=0),
        "Setting 'classes' of data: expected greater than 0 but got 0.",
    ),
    (
        "data-option",
        lambda _: attnlab.data.DataConfig(sise=8),
        "Unknown setting 'sise' of data. Did you mean 'size' or 'classes'? Expect",
    ),
    (
        "data-crop",
        lambda _: attnlab.data.DataConfig(augmentation={"crop": "center"}),
        "Setting 'crop' of augmentation: expected 'none', 'padded' or 'resized' b",
    ),
    (
        "data-transform",
        lambda _: attnlab.data.DataConfig(augmentation={"transform": "flip"}),
        "Expected the transform to be your own class as 'module.Class' but got",
    ),
    (
        "data-subset-large",
        lambda _: attnlab.data.load_data(attnlab.data.DataConfig(train_subset=10**7)),
        "digits (training) has 1438 images but a subset of 10000000 was asked for",
    ),
    (
        "data-npz-none",
        lambda _: attnlab.data.load_data(attnlab.data.DataConfig(name="npz")),
        "Data 'npz' needs the path of a numpy archive, root = 'images.npz'.",
    ),
    (
        "data-npz-missing",
        lambda _: attnlab.data.load_data(attnlab.data.DataConfig(name="npz", root="/nowhere.npz")),
        "There is no file '/nowhere.npz'. Expected a numpy archive (.npz).",
    ),
    (
        "data-npz-garbage",
        lambda x: attnlab.data.load_data(attnlab.data.DataConfig(name="npz", root=str(x.garbage))),
        "'{tmp}/g.safetensors' is not a readable numpy archive: This file contain",
    ),
    (
        "data-folder-none",
        lambda _: attnlab.data.load_data(attnlab.data.DataConfig(name="folder", size=8)),
        "Data 'folder' needs its folder, root = 'path/of/the/data'.",
    ),
    (
        "data-folder-size",
        lambda x: attnlab.data.load_data(attnlab.data.DataConfig(name="folder", root=str(x.tmp))),
        "Data 'folder' needs the side of the images, size = 224 for example.",
    ),
    (
        "data-folder-missing",
        lambda _: attnlab.data.load_data(
            attnlab.data.DataConfig(name="folder", root="/nowhere", size=8)
        ),
        "There is no folder '/nowhere'.",
    ),
    (
        "data-folder-empty",
        lambda x: attnlab.data.load_data(
            attnlab.data.DataConfig(name="folder", root=str(x.tmp), size=8)
        ),
        "Expected folders train and test (or val) in '{tmp}', each with one folde",
    ),
    (
        "data-own",
        lambda _: attnlab.data.load_data(attnlab.data.DataConfig(name="nothing.Data")),
        "There is no module 'nothing' for the data 'nothing.Data'. Install it, or",
    ),
    (
        "data-own-kind",
        lambda _: attnlab.data.load_data(attnlab.data.DataConfig(name="collections.OrderedDict")),
        "Module 'collections' is a part of Python itself and holds no data, so ",
    ),
    (
        "data-resized",
        lambda _: attnlab.data.load_data(attnlab.data.DataConfig(augmentation={"crop": "resized"})),
        "crop = 'resized' cuts from the original photographs: it is for data 'fol",
    ),
    (
        "data-cifar",
        lambda x: attnlab.data.load_data(attnlab.data.DataConfig(name="cifar10", root=str(x.tmp))),
        "There is no whole CIFAR10 in '{tmp}' (Dataset not found or corrupted), an",
    ),
    (
        "run-epochs-0",
        lambda _: run(recipe={"name": "digits", "epochs": 0}),
        "Setting 'epochs' of recipe: expected greater than 0 but got 0.",
    ),
    (
        "run-epochs-neg",
        lambda _: run(recipe={"name": "digits", "epochs": -1}),
        "Setting 'epochs' of recipe: expected greater than 0 but got -1.",
    ),
    (
        "run-epochs-str",
        lambda _: run(recipe={"name": "digits", "epochs": "many"}),
        "Setting 'epochs' of recipe: expected a valid integer, unable to parse st",
    ),
    (
        "run-batch-0",
        lambda _: run(recipe={"name": "digits", "batch_size": 0}),
        "Setting 'batch_size' of recipe: expected greater than 0 but got 0.",
    ),
    (
        "run-lr-neg",
        lambda _: run(recipe={"name": "digits", "lr": -0.1}),
        "Setting 'lr' of recipe: expected greater than 0 but got -0.1.",
    ),
    (
        "run-lr-nan",
        lambda _: run(recipe={"name": "digits", "lr": float("nan")}),
        "Setting 'lr' of recipe: expected a finite number but got nan.",
    ),
    (
        "run-lr-str",
        lambda _: run(recipe={"name": "digits", "lr": "fast"}),
        "Setting 'lr' of recipe: expected a valid number, unable to parse string",
    ),
    (
        "run-recipe",
        lambda _: run(recipe={"name": "digitz"}),
        "Unknown recipe 'digitz'. Did you mean 'digits'? Expected one of: acnet_c",
    ),
    (
        "run-recipe-key",
        lambda _: run(recipe={"name": "digits", "epoch": 3}),
        "Unknown setting 'epoch' of recipe. Did you mean 'epochs' or 'step_epochs",
    ),
    (
        "run-optimizer",
        lambda _: run(recipe={"name": "digits", "optimizer": "sgdd"}),
        "Unknown optimizer 'sgdd'. Did you mean 'sgd'? Expected one of: sgd, adam",
    ),
    (
        "run-schedule",
        lambda _: run(recipe={"name": "digits", "schedule": "cosin"}),
        "Unknown schedule 'cosin'. Did you mean 'cosine'? Expected one of: consta",
    ),
    (
        "run-precision",
        lambda _: run(recipe={"name": "digits", "precision": "32"}),
        "Setting 'precision' of recipe: expected '32-true', '16-mixed' or 'bf16-m",
    ),
    (
        "run-ema",
        lambda _: run(recipe={"name": "digits", "ema": 2.0}),
        "Setting 'ema' of recipe: expected less than 1 but got 2.0.",
    ),
    (
        "run-momentum",
        lambda _: run(recipe={"name": "digits", "momentum": -1}),
        "Setting 'momentum' of recipe: expected greater than or equal to 0 but go",
    ),
    (
        "run-weight-decay",
        lambda _: run(recipe={"name": "digits", "weight_decay": -1}),
        "Setting 'weight_decay' of recipe: expected greater than or equal to 0 bu",
    ),
    (
        "run-milestones",
        lambda _: run(recipe={"name": "digits", "milestones": [5, 3]}),
        "Expected rising milestones but got [5, 3].",
    ),
    (
        "run-warmup",
        lambda _: run(recipe={"name": "digits", "warmup_epochs": -3}),
        "Setting 'warmup_epochs' of recipe: expected greater than or equal to 0 b",
    ),
    (
        "run-seed-neg",
        lambda _: run(seed=-1),
        "Setting 'seed' of run: expected greater than or equal to 0 but got -1.",
    ),
    (
        "run-seed-str",
        lambda _: run(seed="one"),
        "Setting 'seed' of run: expected a valid integer, unable to parse string",
    ),
    (
        "run-where-empty",
        lambda _: run(attention="se", where=[]),
        "where=() selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "run-where-text",
        lambda _: run(attention="se", where=""),
        "where='' selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "run-start",
        lambda _: run(attention="se", start="zero"),
        "Setting 'start' of run: expected 'paper' or 'identity' but got 'zero'.",
    ),
    (
        "run-place",
        lambda _: run(attention="se", place="end"),
        "Setting 'place' of run: expected 'auto', 'branch', 'norm' or 'heads' but got 'end",
    ),
    (
        "run-task",
        lambda _: run(task={"name": "classificaton"}),
        "Unknown task 'classificaton'. Did you mean 'classification'? Expected on",
    ),
    (
        "run-task-option",
        lambda _: build_task(run(task={"name": "classification", "options": {"smoothing": 0.1}})),
        "Task 'classification' has no option 'smoothing'. Did you mean 'label_smo",
    ),
    (
        "run-task-smoothing",
        lambda _: build_task(
            run(task={"name": "classification", "options": {"label_smoothing": 2}})
        ),
        "Expected label_smoothing to be at least 0 and below 1 but got 2.",
    ),
    (
        "run-task-smoothing-str",
        lambda _: build_task(
            run(task={"name": "classification", "options": {"label_smoothing": "x"}})
        ),
        "Task 'classification': expected label_smoothing to be a number but got '",
    ),
    (
        "run-key",
        lambda _: run(backbon="resnet20"),
        "Unknown setting 'backbon' of run. Did you mean 'backbone' or 'backbone_o",
    ),
    (
        "train-devices-0",
        lambda x: attnlab.lab.training.train(run(), x.tmp / "t", devices=0),
        "Expected devices to be at least 1 but got 0.",
    ),
    (
        "train-devices-neg",
        lambda x: attnlab.lab.training.train(run(), x.tmp / "t", devices=-1),
        "Expected devices to be at least 1 but got -1.",
    ),
    (
        "train-devices-str",
        lambda x: attnlab.lab.training.train(run(), x.tmp / "t", devices="two"),
        "Expected devices to be a whole number but got 'two'.",
    ),
    (
        "train-threads-0",
        lambda x: attnlab.lab.training.train(run(), x.tmp / "t", threads=0),
        "Expected threads to be at least 1 but got 0.",
    ),
    (
        "train-threads-neg",
        lambda x: attnlab.lab.training.train(run(), x.tmp / "t", threads=-1),
        "Expected threads to be at least 1 but got -1.",
    ),
    (
        "train-threads-str",
        lambda x: attnlab.lab.training.train(run(), x.tmp / "t", threads="2"),
        "Expected threads to be a whole number but got '2'.",
    ),
    (
        "train-config",
        lambda x: attnlab.lab.training.train({"backbone": "resnet20"}, x.tmp / "t"),
        "Expected a RunConfig to train but got a dict.",
    ),
    (
        "train-directory",
        lambda x: attnlab.lab.training.train(run(), x.text),
        "Expected a folder for the run but '{tmp}/a.txt' is a file.",
    ),
    (
        "train-attention",
        lambda x: attnlab.lab.training.train(run(attention="see"), x.tmp / "t1"),
        "Unknown gate 'see'. Did you mean 'se' or 'sge' or 'sem'? Expected one of",
    ),
    (
        "train-backbone",
        lambda x: attnlab.lab.training.train(run(backbone="resnet21"), x.tmp / "t2"),
        "Unknown network 'resnet21'. Did you mean 'resnet32' or 'resnet20' or 're",
    ),
    (
        "train-option",
        lambda x: attnlab.lab.training.train(
            run(attention="se", gate_options={"reduction": "4"}), x.tmp / "t3"
        ),
        "Gate 'se': expected reduction to be a number but got '4'.",
    ),
    (
        "study-empty",
        lambda _: attnlab.lab.study.Study(),
        "Setting 'data' of study is missing. Setting 'backbone' of study is missi",
    ),
    (
        "study-seeds-0",
        lambda _: study(seeds=0),
        "Setting 'seeds' of study: expected at least 1 but got 0.",
    ),
    (
        "study-seeds-neg",
        lambda _: study(seeds=-2),
        "Setting 'seeds' of study: expected at least 1 but got -2.",
    ),
    (
        "study-seeds-twice",
        lambda _: study(seeds=[1, 1]),
        "Setting 'seeds' of study: expected each once but got [1, 1].",
    ),
    (
        "study-seeds-empty",
        lambda _: study(seeds=[]),
        "Setting 'seeds' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-attention-empty",
        lambda _: study(attention=[]),
        "Setting 'attention' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-attention-int",
        lambda _: study(attention=[3]),
        "Expected a table of settings of module but got 3.",
    ),
    (
        "study-where-empty",
        lambda _: planned(study(where=[])),
        "where=() selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "study-where-entry",
        lambda _: planned(study(attention=["none", {"gate": "se", "where": []}])),
        "where=() selects no site. Expected None or 'all' for every site, a selec",
    ),
    (
        "study-twice",
        lambda _: planned(study(attention=["se", "se"])),
        "Two rows of the study are called 'se'; give each its own label.",
    ),
    (
        "study-backbone-empty",
        lambda _: study(backbone=[]),
        "Setting 'backbone' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-data-empty",
        lambda _: study(data=[]),
        "Setting 'data' of study: expected at least 1 entry but got [].",
    ),
    (
        "study-key",
        lambda _: study(sedes=3),
        "Unknown setting 'sedes' of study. Did you mean 'seeds' or 'threads'? Expected one of:",
    ),
    (
        "study-name",
        lambda _: study(name="../../etc"),
        "Setting 'name' of study: expected a text of the form ^[A-Za-z0-9][A-Za-z",
    ),
    (
        "study-paper",
        lambda _: (
            study(paper={"source": "x", "top1": {"nothing": {"plain": "90"}}}).paper
            and planned(study(paper={"source": "x", "top1": {"nothing": {"plain": "90"}}}))
        ),
        "[paper.top1] names the group 'nothing', which the study does not have. I",
    ),
    (
        "study-load",
        lambda _: attnlab.lab.study.load_study("demoo"),
        "Unknown study 'demoo'. Did you mean 'demo'",
    ),
    (
        "study-load-missing",
        lambda _: attnlab.lab.study.load_study("nowhere.toml"),
        "There is no file 'nowhere.toml'. Expected the TOML file of a study.",
    ),
    (
        "study-load-dir",
        lambda x: attnlab.lab.study.load_study(str(x.tmp)),
        "There is no file '{tmp}'. Expected the TOML file of a study.",
    ),
    (
        "study-load-latin",
        lambda x: attnlab.lab.study.load_study(str(x.latin)),
        "{tmp}/latin.toml is not UTF-8 text, which TOML is: byte 11 cannot be rea",
    ),
    (
        "study-load-toml",
        lambda x: attnlab.lab.study.load_study(str(x.text_toml)),
        "{tmp}/t.toml is not a TOML file: Invalid value (at line 1, column 9).",
    ),
    (
        "executor-slots-0",
        lambda _: attnlab.lab.study.LocalExecutor(0),
        "Expected slots to be at least 1 but got 0.",
    ),
    (
        "executor-slots-neg",
        lambda _: attnlab.lab.study.LocalExecutor(-1),
        "Expected slots to be at least 1 but got -1.",
    ),
    (
        "executor-slots-str",
        lambda _: attnlab.lab.study.LocalExecutor("2"),
        "Expected slots to be a whole number but got '2'.",
    ),
    (
        "executor-threads-0",
        lambda _: attnlab.lab.study.LocalExecutor(1, threads=0),
        "Expected threads to be at least 1 but got 0.",
    ),
    (
        "executor-threads-neg",
        lambda _: attnlab.lab.study.LocalExecutor(1, threads=-2),
        "Expected threads to be at least 1 but got -2.",
    ),
    (
        "statistics-empty",
        lambda _: attnlab.lab.statistics.summarize([]),
        "Expected at least one value to summarize but got none.",
    ),
    (
        "paired-none",
        lambda _: attnlab.lab.statistics.paired_difference({}, {}),
        "Expected runs with the same seeds but got [] for the module and [] for t",
    ),
    (
        "report-missing",
        lambda _: attnlab.report("/nowhere"),
        "There is no '/nowhere'. Expected the folder of the runs of a study (attn",
    ),
    (
        "report-empty",
        lambda x: attnlab.report(x.tmp),
        "There is no study in '{tmp}': it has no studies/NAME/study.json. Expecte",
    ),
    (
        "report-text",
        lambda x: attnlab.report(x.text),
        "'{tmp}/a.txt' is not JSON. Expected the folder of the runs of a study (a",
    ),
    (
        "report-study",
        lambda x: attnlab.report(x.tmp, study="x"),
        "There is no study in '{tmp}': it has no studies/NAME/study.json. Expecte",
    ),
    (
        "measure-name",
        lambda x: attnlab.lab.measures.measure_run(x.tmp, only=["stifness"]),
        "Unknown measurement 'stifness'. Did you mean 'stiffness' or 'stripe'? Expect",
    ),
    (
        "measure-dir",
        lambda _: attnlab.lab.measures.measure_run("/nowhere"),
        "There is no '/nowhere/config.json', so '/nowhere' is not a run's folder.",
    ),
    (
        "involution-channels-0",
        lambda _: attnlab.evolution.Involution2d(0),
        "Expected at least 1 input and 1 output channel but got 0 and 0.",
    ),
    (
        "involution-channels-neg",
        lambda _: attnlab.evolution.Involution2d(-4),
        "Expected at least 1 input and 1 output channel but got -4 and -4.",
    ),
    (
        "involution-groups",
        lambda _: attnlab.evolution.Involution2d(64, groups=7),
        "Expected groups to divide the 64 channels but got 7. The nearest that do",
    ),
    (
        "involution-kernel-0",
        lambda _: attnlab.evolution.Involution2d(64, kernel_size=0),
        "Expected kernel_size to be at least 1 but got 0.",
    ),
    (
        "involution-kernel-even",
        lambda _: attnlab.evolution.Involution2d(64, kernel_size=4),
        "Expected an odd kernel_size but got 4: a centred window has a middle pix",
    ),
    (
        "involution-channels-str",
        lambda _: attnlab.evolution.Involution2d("64"),
        "Expected in_channels to be a whole number but got '64'.",
    ),
    (
        "involution-input",
        lambda _: attnlab.evolution.Involution2d(64)(torch.randn(1, 32, 8, 8)),
        "Involution2d expected x of shape (B, 64, H, W) but got (1, 32, 8, 8).",
    ),
    (
        "involution-input-3d",
        lambda _: attnlab.evolution.Involution2d(64)(torch.randn(64, 8, 8)),
        "Involution2d expected x of shape (B, 64, H, W) but got (64, 8, 8).",
    ),
    (
        "attention-heads",
        lambda _: attnlab.evolution.LocalAttention2d(64, 64, heads=7),
        "Expected heads to divide the 64 output channels but got 7.",
    ),
    (
        "attention-kernel",
        lambda _: attnlab.evolution.LocalAttention2d(64, 64, kernel_size=-1),
        "Expected kernel_size to be at least 1 but got -1.",
    ),
    (
        "gate-build",
        lambda _: attnlab.gates.build_gate("see", 64),
        "Unknown gate 'see'. Did you mean 'se' or 'sge' or 'sem'? Expected one of",
    ),
    (
        "gate-channels-0",
        lambda _: attnlab.gates.build_gate("se", 0),
        "Expected channels to be at least 1 but got 0.",
    ),
    (
        "gate-channels-neg",
        lambda _: attnlab.gates.build_gate("se", -4),
        "Expected channels to be at least 1 but got -4.",
    ),
    (
        "gate-channels-str",
        lambda _: attnlab.gates.build_gate("se", "64"),
        "Expected channels to be a whole number but got '64'.",
    ),
    (
        "steps-one",
        lambda _: attnlab.evolution.Involution2d(4.0),
        "Expected in_channels to be a whole number but got 4.0.",
    ),
    (
        "three-body-neg",
        lambda _: three_body.encounter_shares(-5, 0),
        "Expected trajectories to be at least 1 but got -5.",
    ),
    (
        "three-body-0",
        lambda _: three_body.encounter_shares(0, 0),
        "Expected trajectories to be at least 1 but got 0.",
    ),
    (
        "three-body-seed",
        lambda _: three_body.encounter_shares(2, -1),
        "Expected seed to be at least 0 but got -1.",
    ),
    (
        "recipe-typo",
        lambda _: attnlab.lab.training.load_recipe("digitz"),
        "Unknown recipe 'digitz'. Did you mean 'digits'? Expected one of: acnet_c",
    ),
]


@pytest.mark.parametrize(("do", "message"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_bad_input_is_answered(
    x: SimpleNamespace, do: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(attnlab.AttnlabError) as raised:
        do(x)
    said = " ".join(str(raised.value).replace(str(x.tmp), "{tmp}").split())
    assert said.startswith(message)


def test_the_table_is_large_and_says_each_thing_once() -> None:
    names = [name for name, _, _ in CASES]
    assert len(set(names)) == len(names) > 250
