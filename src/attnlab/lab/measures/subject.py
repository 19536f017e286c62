"""What is measured: the network of a run with its task and data, or any network on a data set."""

from __future__ import annotations

from pathlib import Path

import torch

from attnlab._errors import OptionError
from attnlab.data import DataConfig, load_data
from attnlab.instruments.measurement import Subject
from attnlab.lab.training.directory import check_data, read_config
from attnlab.lab.training.network import load_network
from attnlab.networks.checkpoint import load
from attnlab.networks.create import create
from attnlab.tasks import TaskConfig, build_task

_BATCH = 256


def subject_of(
    network: str | Path,
    data: str | None = None,
    *,
    weights: str | None = None,
    root: str | None = None,
    size: int | None = None,
    batch_size: int = _BATCH,
) -> Subject:
    """A trained network with the test images on which it is measured.

    Args:
        network: the folder of a finished run, which needs nothing else; a file of weights that
            `attnlab.save` wrote; or a name as for `attnlab.create`.
        data: of what is not a run: the name of a data set with classes, as in a run's settings.
        weights: of a named network.
        root: where the data are.
        size: side of the images; their own when not given.
        batch_size: test images per batch, of what is not a run.
    """
    path = Path(network)
    if path.is_dir():
        given = {"data": data, "weights": weights, "root": root, "size": size}
        for option in (name for name, value in given.items() if value is not None):
            raise OptionError(
                f"{option} does not go with the folder of a run, whose data and weights are known. "
                f"Leave it out, or give another network than {str(network)!r}."
            )
        return run_subject(path)
    if data is None:
        raise OptionError(
            f"{str(network)!r} is not a run's folder, so the images to test it on must be given: "
            f"data with classes, such as digits, cifar10 or npz."
        )
    images = load_data(DataConfig(name=data, root=root, size=size))
    task = build_task(TaskConfig(), images.facts)
    if path.is_file():
        if weights is not None:
            raise OptionError(f"{str(network)!r} is a file of weights itself: leave weights out.")
        model = load(path)
    else:
        torch.manual_seed(0)
        model = create(str(network), images.facts.outputs, weights=weights)
    return Subject(model.to(_device()).eval(), task, images, batch_size, _device())


def run_subject(folder: Path) -> Subject:
    """The network of a finished run on its own test images."""
    config = read_config(folder)
    data = load_data(config.data)
    check_data(folder, data)
    network = load_network(folder).to(_device())
    task = build_task(config.task, data.facts)
    return Subject(network, task, data, config.recipe.test_batch_size, _device())


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
