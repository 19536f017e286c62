"""Insertion of gates."""

from __future__ import annotations

import copy

import numpy
import torch
from tests.bad_inputs.shared import Case

import attnlab

CASES: list[Case] = [
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
]
