"""Batches: every image once, and the same batches for one process and for many."""

from __future__ import annotations

import pytest
import torch

from attnlab._errors import InputError
from attnlab.data.batches import (
    Facts,
    Points,
    batches_per_epoch,
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


def test_the_images_of_a_file_come_together_unless_told() -> None:
    groups = torch.arange(30) % 10
    order = shuffled(30, 4, 0, groups)
    files = groups[order].tolist()
    assert sorted(order.tolist()) == list(range(30))
    assert [files[n] for n in range(0, 30, 3)] == [files[n + 2] for n in range(0, 30, 3)]
    assert len(set(files[::3])) == 10


def test_how_many_batches_an_epoch_has() -> None:
    found = [batches_per_epoch(images, recipe(8)) for images in (7, 8, 9, 16, 17)]
    assert found == [1, 1, 2, 2, 3]
    dropped = [batches_per_epoch(images, recipe(8, True)) for images in (7, 8, 9, 16, 17)]
    assert dropped == [0, 1, 1, 2, 2]


def test_some_batches_of_an_epoch() -> None:
    chunks = training_chunks(torch.arange(20), recipe(6), some=slice(1, 3))
    assert [chunk.images.tolist() for chunk in chunks] == [
        [6, 7, 8, 9, 10, 11],
        [12, 13, 14, 15, 16, 17],
    ]
    # Of three processes, of two images: three times two sixths, and two thirds of three.
    shares = [training_chunks(torch.arange(8), recipe(6), rank, 3)[1].share for rank in range(3)]
    assert shares == [1.5, 1.5, 0]
    assert training_chunks(torch.arange(6), recipe(6), 1, 3)[0].share == 1


def test_the_numbers_of_a_point() -> None:
    assert (Points(17, True).shape, Points(5, False).shape) == ((17, 3), (5, 2))


def facts(**given: object) -> Facts:
    settings = {"mean": (0.2, 0.4), "std": (0.5, 0.25), "targets": "class", "outputs": 3, **given}
    return Facts(
        name="made",
        shape=(2, 4, 5),
        train=1,
        test=1,
        checksum="",
        **settings,  # type: ignore[arg-type]
    )


def test_pixels_and_what_a_network_sees_of_them() -> None:
    """0.3 and 0.6 of two channels, by hand."""
    seen = torch.tensor([(0.3 - 0.2) / 0.5, (0.6 - 0.4) / 0.25]).view(1, 2, 1, 1)
    pixels = facts().pixels(seen).flatten().tolist()
    assert pixels == pytest.approx([0.3, 0.6])
    mean, std = facts().statistics(torch.device("cpu"))
    assert (mean.tolist(), std.tolist()) == (pytest.approx([0.2, 0.4]), [0.5, 0.25])


def test_an_example_of_images_and_of_tokens() -> None:
    assert torch.equal(facts().example(), torch.zeros(1, 2, 4, 5))
    assert facts().example(3).shape == (3, 2, 4, 5)
    tokens = Facts("made", "tokens", 7, (6,), 1, 1, (), (), "").example(2)
    assert tokens.shape == (2, 6)
    assert (tokens.dtype, bool(((tokens >= 0) & (tokens < 7)).all())) == (torch.long, True)


def test_a_name_of_two_classes_is_refused() -> None:
    assert facts(categories=("a", "b")).categories == ("a", "b")
    with pytest.raises(InputError) as caught:
        facts(categories=("a", "b", "c", "b", "b"))
    assert str(caught.value) == (
        "made: the name 'b' is that of 3 classes. Expected another name for each."
    )
