"""The file that `attnlab study new` writes."""

from __future__ import annotations

from pathlib import Path

from attnlab._errors import InputError
from attnlab._files import write_whole

TEMPLATE = """\
# A study: every combination of data, backbone, attention, where and seed is one run.
#   attnlab study plan {path}     what will run, and how long it will take
#   attnlab study run {path}      run it; the same again resumes
#   attnlab study show {path}     the table
title = "Does attention help?"

# What is learned: classification, multilabel (data = "digit-pairs"), regression (data =
# "digit-angles"); or a class of yours. A table sets its options:
#   {{ name = "classification", options = {{ label_smoothing = 0.1 }} }}
task = "classification"

# digits (embedded), fake, cifar10, cifar100, stl10; or a table with any setting:
#   {{ name = "cifar10", root = "data", download = true, train_subset = 5000 }}
#   {{ name = "folder", root = "photos", size = 224, augmentation = {{ crop = "resized" }} }}
data = "digits"

# Names of attnlab.create: resnet20, resnet164, "timm:resnet50", "torchvision:resnet18";
# a list compares several.
backbone = "resnet20"

# "none" is the plain backbone, which the others are compared with. `attnlab modules` lists the
# gates. A table sets more:
#   {{ gate = "se", label = "SE, r = 8", options = {{ reduction = 8 }}, where = "stages:3" }}
attention = ["none", "se", "step", "asr:se"]

# Where the gates go: "all", "stages:1,3", "blocks:0,5", "every:2"; several make several rows. So
# many blocks in every stage cost the same, whichever: "random:1@0", "stiffest:1", "spread:1".
where = ["all"]

# A number (0, 1, 2, ...) or a list. One seed gives no interval; five are what the papers use.
seeds = 3

# A recipe, with any setting changed.
recipe = {{ name = "digits", epochs = 6 }}
"""


def new_study(path: str | Path) -> Path:
    """Write a study to start from; an existing file is not touched."""
    file = Path(path)
    if file.suffix != ".toml":
        file = file.with_name(f"{file.name}.toml")
    if file.exists():
        raise InputError(f"{file} exists already. Give another name, or remove it first.")
    return write_whole(file, TEMPLATE.format(path=file))
