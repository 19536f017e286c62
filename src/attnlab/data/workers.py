"""Worker processes that read: started once, and alive as long as the data are used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

Item = TypeVar("Item")
Made = TypeVar("Made")


def number_of_workers() -> int:
    """One core is left to the training; more than eight readers wait for the disk."""
    return min(8, (os.cpu_count() or 2) - 1)


def loader(
    items: Dataset[Item], batches: Any, *, workers: int, collate: Callable | None, **more: Any
) -> DataLoader:
    """A loader that draws no number of the network's, which a run that is taken up in the middle of
    an epoch would draw a second time."""
    return DataLoader(
        items,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=collate,
        generator=torch.Generator(),
        **more,
    )


class _Asked(Generic[Item]):
    """The batches that are asked for next; a sampler that a loader goes through anew each time."""

    def __init__(self) -> None:
        self.batches: Sequence[Sequence[Item]] = []

    def __iter__(self) -> Iterator[Sequence[Item]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class Workers(Generic[Item, Made]):
    """Reads batches of items, whatever they are asked for, by the same processes each time: to
    start them takes seconds if packages are to be imported."""

    def __init__(self, items: Dataset[Any], collate: Callable[[list[Any]], Made]) -> None:
        self._items, self._collate = items, collate
        self._asked: _Asked[Item] = _Asked()
        self._loader: DataLoader | None = None
        self._pinned = False
        self._reading = False

    def __getstate__(self) -> dict[str, object]:
        """Processes are not copied to others: each copy starts its own."""
        return {**self.__dict__, "_loader": None, "_reading": False}

    def read(self, batches: Sequence[Sequence[Item]], *, pinned: bool) -> Iterator[Made]:
        """One answer for each batch, in order. While one reading is not at its end, another one
        has processes of its own, or it would get the first one's answers."""
        if self._reading or not batches:
            yield from self._made(batches, pinned, alive=False)
            return
        if self._loader is None or self._pinned != pinned:
            self._loader, self._pinned = self._made(self._asked, pinned, alive=True), pinned
        self._asked.batches, self._reading = batches, True
        try:
            yield from self._loader
        finally:
            self._reading = False

    def _made(self, batches: Any, pinned: bool, *, alive: bool) -> DataLoader:
        workers = number_of_workers()
        return loader(
            self._items,
            batches,
            workers=workers,
            collate=self._collate,
            pin_memory=pinned,
            persistent_workers=alive and workers > 0,
        )
