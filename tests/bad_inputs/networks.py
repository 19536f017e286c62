"""Networks, their files and their operators."""

from __future__ import annotations

import torch
from tests.bad_inputs.shared import Case

import attnlab
from attnlab.networks.checkpoint import Description

CASES: list[Case] = [
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
]
