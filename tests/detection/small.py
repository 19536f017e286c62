"""A small detector and a few shapes."""

import torch

from attnlab.data import Augmentation, DataConfig, load_data
from attnlab.data.batches import Chunk
from attnlab.tasks import TaskConfig, build_task

CPU = torch.device("cpu")


def shapes(train=16, test=8):
    whole = Augmentation(crop="none")
    config = DataConfig(name="shapes", train_subset=train, test_subset=test, augmentation=whole)
    return load_data(config)


def task_for(data, **options):
    return build_task(TaskConfig(name="detection", options=options), data.facts)


def training_batch(data, number=4):
    return next(data.training([Chunk(torch.arange(number), 1.0)], 0, 0, CPU))


def some_batch(data, number=4):
    return next(data.testing([torch.arange(number)], CPU))


def detector(backbone="resnet20", seed=0, **options):
    """With random statistics in its norms, so that they matter, in eval mode."""
    torch.manual_seed(seed)
    network = task_for(shapes(), **options).build(backbone, {})
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
            torch.nn.init.normal_(module.bias, 0, 0.1)
    return network.eval()


def images(*sizes):
    """Random ones, (height, width) each."""
    numbers = torch.Generator().manual_seed(1)
    return [torch.rand(3, *size, generator=numbers) for size in sizes]
