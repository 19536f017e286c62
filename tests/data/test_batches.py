"""Batches: every image once, and the same batches for one process and for many."""

from __future__ import annotations

import pytest
import torch

from attnlab._errors import InputError
from attnlab.data.batches import (
    check_batch_size,
    evaluation_chunks,
    shuffled,
    training_chunks,
)
from attnlab.lab.training import Recipe


def recipe(batch_size: int, drop_last: bool = False) -> Recipe:
    return Recipe(epochs=1, batch_size=batch_size, lr=0.1, drop_last=drop_last)


def test_every_image_once_in_an_order_of_its_epoch() -> None:
    first = torch.cat([c.images for c in training_chunks(shuffled(103, 0, 0), recipe(16))])
    again = torch.cat([c.images for c in training_chunks(shuffled(103, 0, 0), recipe(25))])
    later = torch.cat([c.images for c in training_chunks(shuffled(103, 0, 1), recipe(16))])
    assert sorted(first.tolist()) == list(range(103))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_one_processs_batches(processes: int) -> None:
    alone = training_chunks(shuffled(103, 5, 2), recipe(16))
    order = shuffled(103, 5, 2)
    shared = [training_chunks(order, recipe(16), rank, processes) for rank in range(processes)]
    losses = torch.rand(103, dtype=torch.float64)
    for batch, *parts in zip(alone, *shared, strict=True):
        assert torch.equal(torch.cat([part.images for part in parts]), batch.images)
        # The mean over processes of (mean loss × share) is the mean loss of the whole batch.
        mean = sum(losses[p.images].mean() * p.share for p in parts) / processes
        assert mean.item() == pytest.approx(losses[batch.images].mean().item(), rel=1e-12)


def test_drop_last_drops_the_incomplete_batch() -> None:
    assert [len(c.images) for c in training_chunks(shuffled(20, 0, 0), recipe(8))] == [8, 8, 4]
    assert [len(c.images) for c in training_chunks(shuffled(20, 0, 0), recipe(8, True))] == [8, 8]


def test_evaluation_covers_every_image_once() -> None:
    parts = [chunk for rank in range(3) for chunk in evaluation_chunks(10, 2, rank, 3)]
    assert torch.equal(torch.cat(parts), torch.arange(10))
    assert evaluation_chunks(1, 2, 1, 2) == []


def test_refusals() -> None:
    check_batch_size(20, recipe(8), 2)
    with pytest.raises(InputError) as caught:
        check_batch_size(17, recipe(8), 1)
    assert str(caught.value) == (
        "Expected at least two images per batch and process but 17 training images in batches of "
        "8 over 1 process leave a batch of 1. Set drop_last = true, or another batch_size."
    )
    check_batch_size(17, recipe(8, True), 1)
    with pytest.raises(InputError, match="over 4 processes leave a batch of 4"):
        check_batch_size(20, recipe(8), 4)
    with pytest.raises(InputError, match="at least one whole batch of 8"):
        check_batch_size(7, recipe(8, True), 1)
