"""A run that is asked to stop: what a scheduler, a terminal or Ctrl-C sends while it trains."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from types import FrameType

NUMBERS = tuple(
    getattr(signal, name)
    # SIGUSR1 and SIGUSR2 are what Slurm is asked to send before the end of a job; Windows has none
    # of them, and no SIGHUP.
    for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_PATIENCE = 60.0
"""Seconds after which a signal that is sent again ends the run where it is. The processes of a
study are asked every ten seconds, and a step of a large network may take longer than that."""

Handler = Callable[[int, FrameType | None], object] | int | None
"""As the module `signal` has it."""


class Stop:
    """Whether the run was asked to stop. A signal ends it at once, unless what is under way is
    `deferred`: then the run looks at `asked` when it can save, and calls `obey`."""

    def __init__(self) -> None:
        self.asked: int | None = None
        """The number of the signal."""
        self._since = 0.0
        self._deferring = 0
        self._before: dict[int, Handler] = {}

    def obey(self, number: int | None = None) -> None:
        """Do what the signal meant before this run listened: end by default. Whoever listened
        before is called, and if that returns, as submitit's does at SIGTERM, the run goes on."""
        number, self.asked = self.asked if number is None else number, None
        if number is None:
            return
        before = self._before.get(number)
        if not callable(before):
            raise SystemExit(128 + number)
        before(number, None)

    @property
    def is_deferred(self) -> bool:
        """Whether a signal is remembered now, and not obeyed."""
        return self._deferring > 0

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """What is done meanwhile is not torn apart by a signal; it is for the caller to obey."""
        self._deferring += 1
        try:
            yield
        finally:
            self._deferring = max(self._deferring - 1, 0)

    def _hear(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked is None:
            self.asked, self._since = number, now
        elif number == signal.SIGINT or now - self._since > _PATIENCE:
            self._deferring = 0  # Ctrl-C a second time, or a step that does not end
        if not self.is_deferred:
            self.obey(number)

    @contextmanager
    def listening(self, hear: Callable[[int, FrameType | None], object] | None) -> Iterator[None]:
        """Call `hear` for each of the signals. What `nohup` has a process ignore stays ignored."""
        found = {number: signal.getsignal(number) for number in NUMBERS}
        # None is a listener that Python did not set and cannot put back.
        self._before = {n: h for n, h in found.items() if h not in (signal.SIG_IGN, None)}
        for number in self._before:
            signal.signal(number, hear or self._hear)
        try:
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)


@contextmanager
def terminating() -> Iterator[Stop]:
    """Signals that end a process end it as an exception, so that half-written files are removed,
    or, while a run trains, after the step that is under way."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread hears signals
        return
    with stop.listening(None):
        yield stop


@contextmanager
def forwarding() -> Iterator[None]:
    """Signals go to the processes that were started from here, which save and end; then this one
    does what it was asked to."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, _: FrameType | None) -> None:
        stop.asked = number
        for child in active_children():
            child.terminate()  # not `number`: a terminal sends Ctrl-C to all of them itself

    with stop.listening(forward):
        try:
            yield
        except Exception:
            stop.obey()  # the children ended because they were asked to: no error of theirs
            raise
        stop.obey()
