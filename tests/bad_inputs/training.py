"""Data, recipes and runs."""

from __future__ import annotations

from tests.bad_inputs.shared import Case, build_task, run

import attnlab

CASES: list[Case] = [
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
        "recipe-typo",
        lambda _: attnlab.lab.training.load_recipe("digitz"),
        "Unknown recipe 'digitz'. Did you mean 'digits'? Expected one of: acnet_c",
    ),
]
