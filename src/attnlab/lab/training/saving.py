"""When a run is saved: after every epoch, inside of one by steps or minutes, and when it is asked
to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from attnlab._checked import check_whole
from attnlab._errors import OptionError
from attnlab.lab.training.midway import Midway
from attnlab.lab.training.state import State, save_state
from attnlab.lab.training.stopping import Stop

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class SaveEvery(NamedTuple):
    """How often a run is saved inside of an epoch; it decides no bit of the weights."""

    minutes: float | None
    steps: int | None

    def check(self) -> None:
        """Refuse what is not a number of minutes or steps."""
        if self.steps is not None:
            check_whole("save_steps", self.steps, 1)
        given = self.minutes
        if given is None:
            return
        if (
            isinstance(given, bool)
            or not isinstance(given, int | float)
            or not 0 < given < math.inf
        ):
            raise OptionError(
                f"Expected save_minutes to be a number above 0, or None to save after each epoch "
                f"only, but got {given!r}."
            )


class Saver:
    """Writes the checkpoints of a run, which all processes call at the same steps."""

    def __init__(
        self,
        fabric: Fabric,
        state: State,
        folder: Path,
        run_id: str,
        every: SaveEvery,
        stop: Stop,
    ) -> None:
        self._fabric, self._state, self._folder, self._run_id = fabric, state, folder, run_id
        self._every, self.stop = every, stop
        self._last = time.monotonic()
        self._ended: Midway | None = state.midway

    def save(self, midway: Midway | None) -> None:
        """Write a checkpoint."""
        save_state(self._fabric, self._state, self._folder, self._run_id, midway)
        self._last = time.monotonic()
        self._ended = None

    def after(self, step: int, steps: int, reached: Callable[[int], Midway]) -> None:
        """A step is done: save if it is time, save and stop if that was asked of any process."""
        if step == steps:
            self._ended = reached(step)  # the test follows, and the checkpoint of the epoch
            return
        asked, due = self._agreed(step)
        if asked or due:
            self._state.midway = reached(step)
            self.save(self._state.midway)
        if asked:
            self.stop.obey(asked)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """What is done meanwhile is not torn apart; all processes obey together at its end."""
        with self.stop.deferred():
            yield
        if not self.stop.is_deferred:
            asked, _ = self._agreed(1)
            if asked:
                self.stop.obey(asked)

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Train, test and save an epoch: stopped after its last step, its steps are saved. A
        test takes minutes on large data, so it does not delay a stop; it is made again. Several
        processes could not agree in the middle of one, so they end it."""
        self._ended = self._state.midway
        try:
            with nullcontext() if self._fabric.world_size == 1 else self.deferred():
                yield
        except (KeyboardInterrupt, SystemExit):
            ended = self._ended
            if self._fabric.world_size == 1 and ended is not None and ended.step == ended.steps:
                self._state.midway = ended
                self.save(ended)
            raise

    def _agreed(self, step: int) -> tuple[int, bool]:
        """The signal that some process was sent, or 0, and whether it is time to save: the same in
        all of them."""
        steps, minutes = self._every.steps, self._every.minutes
        due = steps is not None and step % steps == 0
        due |= minutes is not None and time.monotonic() - self._last > 60 * minutes
        asked = self.stop.asked or 0
        if self._fabric.world_size == 1:
            return asked, due
        both = torch.tensor([asked, int(due)], device=self._fabric.device)
        torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX)
        return int(both[0]), bool(both[1])
