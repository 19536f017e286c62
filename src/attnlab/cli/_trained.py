"""A trained network that a command is given, with images to choose on and others to judge on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli._networks import images_line

if TYPE_CHECKING:
    from torch import nn

    from attnlab.networks.checkpoint import Description
    from attnlab.results.provenance import Provenance

_BATCH = 64


@dataclass(frozen=True)
class Given:
    """A network, its images, and the Python that makes both."""

    network: nn.Module
    images: list[Any]
    test: list[Any]
    description: Description
    provenance: Provenance
    trained: bool
    lines: list[str]
    described: str


def given_network(
    network: str,
    data: str | None,
    weights: str | None,
    root: str | None,
    size: int | None,
    limit: int,
) -> Given:
    from attnlab.cli._provenance import of_file, of_name, of_run

    path = Path(network)
    trained = path.exists() or weights is not None
    if not path.is_dir() and data is not None and (Path(data).is_dir() or data == "fake"):
        model, images, test, description, lines = _of_pictures(network, data, weights, size, limit)
        source = of_name(network, None, weights, data)
    else:
        model, images, test, description, lines = _of_subject(
            network, data, weights, root, size, limit
        )
        source = of_run(path) if path.is_dir() else of_file(network, network, None, weights)
    described = (
        f"description = attnlab.networks.checkpoint.describe({network!r})"
        if path.exists()
        else f"description = attnlab.networks.checkpoint.{description.shown()}"
    )
    return Given(model, images, test, description, source, trained, lines, described)


_Made = tuple["nn.Module", list[Any], list[Any], "Description", list[str]]


def _of_subject(
    network: str,
    data: str | None,
    weights: str | None,
    root: str | None,
    size: int | None,
    limit: int,
) -> _Made:
    from attnlab.subject import open as open_subject

    subject = open_subject(
        network,
        data,
        weights=weights,
        root=root,
        size=size,
        batch=_BATCH,
        trust=Path(network).is_dir(),
    )
    description = _described(network)
    if description is None:
        facts = subject.images().facts
        description = Description(network, facts.outputs, input_size=list(facts.shape))
    options = {"weights": weights, "root": root, "size": size}
    more = "".join(f", {key}={value!r}" for key, value in options.items() if value is not None)
    chosen = "" if data is None else f", {data!r}"
    lines = [
        f"subject = attnlab.open({network!r}{chosen}{more}, batch={_BATCH})",
        "network = subject.network",
        f"images = list(subject.batches({limit}, 'train'))",
        f"test = list(subject.batches({limit}))",
    ]
    images = list(subject.batches(limit, "train"))
    test = list(subject.batches(limit))
    return subject.network, images, test, description, lines


def _of_pictures(
    network: str, data: str, weights: str | None, size: int | None, limit: int
) -> _Made:
    """Every other image is ranked on, and the others are judged on; without labels, because a
    folder's classes need not be the network's."""
    import torch

    import attnlab
    from attnlab.data import images_for
    from attnlab.networks.checkpoint import Description

    torch.manual_seed(0)
    description = _described(network)
    if description is None:
        description = Description(network, input_size=None if size is None else [3, size, size])
        model = attnlab.create(network, weights=weights).eval()
        with_weights = "" if weights is None else f", weights={weights!r}"
        made = f"network = attnlab.create({network!r}{with_weights}).eval()"
    else:
        model = attnlab.load(network)
        made = f"network = attnlab.load({network!r})"
    options: dict[str, Any] = {"limit": 2 * limit, "batch": _BATCH, "size": size}
    lines = [
        "import torch",
        "from attnlab.data import images_for",
        "torch.manual_seed(0)",
        made,
        images_line(data, **options),
        "pictures = [batch[0] for batch in loader]",
        "images, test = ([each[n::2] for each in pictures if len(each) > n] for n in (0, 1))",
    ]
    pictures = [batch[0] for batch in images_for(model, data, **options)]
    images, test = ([each[n::2] for each in pictures if len(each) > n] for n in (0, 1))
    return model, images, test, description, lines


def _described(network: str) -> Description | None:
    from attnlab.networks.checkpoint import describe

    return describe(network) if Path(network).exists() else None
