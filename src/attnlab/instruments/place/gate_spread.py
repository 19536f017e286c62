"""By the spread of gates over images, after a short warm-up of the network with gates everywhere.

A gate that is the same for every image could be folded away; one that differs does something that
a constant cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import InputError, OptionError
from attnlab.instruments.place.strategy import Placing, Scored, Strategy
from attnlab.instruments.stripe import StripeResult
from attnlab.instruments.stripe.measure import stripe
from attnlab.residuals.inputs import Loaded, read_batch
from attnlab.surgery.answer import check_labels
from attnlab.surgery.insertion.insert import insert


def labelled(asked: Placing, strategy: str) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, classes) of every batch, where the network is."""
    for batch in asked.loader:
        for sample in read_batch(batch, asked.network):
            if not isinstance(sample.inputs, Tensor) or sample.labels is None:
                raise InputError(
                    f"Strategy {strategy!r} needs the class of every image, a whole number: "
                    f"expected batches (images, classes) but got {_described(batch)}. Without "
                    f"classes choose 'stiffest', 'tns' or 'nsi-spread'."
                )
            yield sample.inputs, sample.labels.to(sample.inputs.device)


def _described(batch: Loaded) -> str:
    if isinstance(batch, tuple | list) and len(batch) > 1 and isinstance(batch[1], Tensor):
        kind = str(batch[1].dtype).removeprefix("torch.")
        return f"classes of shape {tuple(batch[1].shape)} in {kind}"
    return type(batch).__name__


def check_classes(network: nn.Module, output: object, classes: Tensor) -> None:
    """Refuse an output that has no value for some class."""
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(classes):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"Expected {type(network).__name__} to return a value per image and class but got "
            f"{shape}."
        )
    check_labels(output, classes)


def classes_note(seen: set[int], outputs: int) -> tuple[str, ...]:
    """Return what to look at if the labels may be others than those that the network learned."""
    if len(seen) == outputs:
        return ()
    return (
        f"the images have {len(seen)} classes and the network {outputs}: make sure that they are "
        f"numbered alike",
    )


STEPS, RATE = 100, 0.05
"""Of the warm-up: SGD with momentum 0.9, all parameters, from gates that change nothing."""


_NOTHING = 0.01


def gate_spread(asked: Placing) -> Scored:
    """The largest standard deviation of the gate over images, mean over channels."""
    first, _ = next(labelled(asked, "spread"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network, _ = insert(asked.network, asked.spread_gate, start="identity", example=first[:1])
        for parameter in network.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        classes, outputs = _warm_up(network, asked)
    found = stripe(network, asked.loader)
    notes = classes_note(classes, outputs)
    largest = max(site.image_spread for site in found.sites)
    if largest < _NOTHING:
        notes += (
            f"the gates have hardly moved in {STEPS} steps (largest spread {largest:.1g}), so the "
            f"choice rests on next to nothing",
        )
    return spread_scores(found, notes)


def spread_scores(found: StripeResult, notes: tuple[str, ...] = ()) -> Scored:
    """The spread of every gate that was found on a step."""
    if all(site.image_spread == 0 for site in found.sites):
        raise OptionError(
            "The gates are the same for every image, so they have no spread to choose by. Take a "
            "gate that reads the features, for example 'se'."
        )
    return Scored(
        {site.label: site.image_spread for site in found.sites},
        "spread of the gate over images",
        found.images,
        details={site.label: f"around a mean of {site.mean:.3g}" for site in found.sites},
        notes=notes,
        unscored="no gate is there",
    )


def _warm_up(network: nn.Module, asked: Placing) -> tuple[set[int], int]:
    """Train `network`; the classes that were seen, and how many it tells apart."""
    optimizer = torch.optim.SGD(network.parameters(), RATE, momentum=0.9)
    classes: set[int] = set()
    outputs = 0
    network.train()
    # All together and drawn anew: a folder's images come sorted by class.
    given = list(islice(labelled(asked, "spread"), STEPS))
    size = min(len(given[0][0]), sum(len(labels) for _, labels in given))
    if size < 2:
        raise InputError("Strategy 'spread' trains on batches of at least two images.")
    all_images, all_labels = (torch.cat(parts) for parts in zip(*given, strict=True))
    for _ in range(STEPS):
        drawn = torch.randperm(len(all_labels))[:size]
        images, labels = all_images[drawn], all_labels[drawn]
        output = network(images)
        check_classes(network, output, labels)
        loss = F.cross_entropy(output, labels)
        if not loss.isfinite():
            raise InputError("The loss of the warm-up is not finite: did the network diverge?")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        classes.update(labels.tolist())
        outputs = output.shape[1]
    network.eval()
    return classes, outputs


SPREAD = Strategy(
    "spread",
    f"gates that differ most between images, after a warm-up of {STEPS} steps",
    "labels",
    gate_spread,
)
