"""The gates of a trained network over images: the numbers behind the stripe observation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from attnlab.insert import Attachment, attachments
from attnlab.record.example import evaluating
from attnlab.train.result import GateStatistics


def gate_values(network: nn.Module, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """Each attachment's gate (images, channels), averaged over space; one row where it does not
    depend on the image."""
    rows: dict[str, list[Tensor]] = {name: [] for name, _ in attachments(network)}
    with evaluating(network), _reading(network, rows):
        for images in batches:
            network(images)
    found = {name: torch.cat(parts) for name, parts in rows.items()}
    return {n: v[:1] if (v == v[:1]).all() else v for n, v in found.items()}


def gate_statistics(network: nn.Module, values: dict[str, Tensor]) -> tuple[GateStatistics, ...]:
    """One row per gate."""
    labels = {name: attachment.site.label for name, attachment in attachments(network)}
    return tuple(
        GateStatistics(
            label=labels[name],
            mean=value.mean().item(),
            image_spread=value.std(0, correction=0).mean().item(),
            channel_spread=value.mean(0).std(correction=0).item(),
        )
        for name, value in values.items()
    )


@contextmanager
def _reading(network: nn.Module, rows: dict[str, list[Tensor]]) -> Iterator[None]:
    """Note every gate's value while the network runs."""
    found = list(attachments(network))
    for name, attachment in found:
        attachment.__dict__["step_size"] = _noted(attachment, rows[name])
    try:
        yield
    finally:
        for _, attachment in found:
            del attachment.__dict__["step_size"]


def _noted(attachment: Attachment, rows: list[Tensor]) -> Callable[..., Tensor]:
    original, axis = attachment.step_size, attachment.site.channel_axis

    def step_size(branch: Tensor, shortcut: Tensor | None) -> Tensor:
        size = original(branch, shortcut)
        space = [a for a in range(1, size.ndim) if a != axis % size.ndim]
        rows.append((size.mean(space) if space else size).reshape(size.shape[0], -1).float())
        return size

    return step_size
