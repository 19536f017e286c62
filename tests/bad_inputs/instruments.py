"""Steps, folding, and what is measured of a network."""

from __future__ import annotations

import numpy
import torch
from tests.bad_inputs.shared import Case

import attnlab
from attnlab.instruments.dynamics import three_body

CASES: list[Case] = [
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
        "Batch 0 of the images has values that are not finite. Expected images as the network",
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
]
