"""One process per run at an address: a claim that its holder renews.

Claims of a run are numbered objects. Who wants the run creates the next number, which only one can
where the store has a conditional put; where it has none, all who tried put theirs, wait until lists
show them, and the first by name has it. A claim that was not renewed for a while is void, and so is
one of a process of this machine that is gone. Nobody takes it for more than it is: a claim saves
work. If two work on one run after all, because a machine slept or its clock is wrong by minutes,
the run of the one that is finished first counts, whole, and the other's is dropped.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from attnlab._strict import Strict
from attnlab.results.mirror import Mirror, newest_checkpoint
from attnlab.results.objects import Objects, StoreError

CLAIMS = "claims"
VOID = 180.0
"""Seconds after which a claim that was not renewed is void."""
RENEW = 30.0
_LOOK = 1.0
SETTLE = 5.0
"""Seconds in which lists of a store without conditional put show what was put."""
_FRESH = 2.0
_NAME = re.compile(r"(.+)~(\d+)(?:~\w+)?\.json")


class Holder(Strict):
    """The process that has a claim, and since when."""

    host: str
    pid: int
    since: float
    renewed: float
    token: str

    @property
    def is_alive(self) -> bool:
        """Whether the claim still holds."""
        if time.time() - self.renewed > VOID:
            return False
        return self.host != socket.gethostname() or process_lives(self.pid)

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}"


class Taken(NamedTuple):
    """A claim of this process."""

    name: str
    token: str


class Claims:
    """The claims at one address. What only looks may be seconds old."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._holders: dict[str, Holder] = {}
        self._looked = float("-inf")

    def holder(self, folder: str) -> Holder | None:
        """Who works on a run now."""
        if time.monotonic() - self._looked > _FRESH:
            names = self._last_names(self.objects.listing(CLAIMS))
            wanted = {f"{CLAIMS}/{name}": of for of, name in names.items()}
            found = self.objects.get_all(wanted)
            self._holders = {wanted[name]: _holder(content) for name, content in found}
            self._looked = time.monotonic()
        found_one = self._holders.get(folder)
        return found_one if found_one is not None and found_one.is_alive else None

    def take(self, folder: str) -> Taken | None:
        """The claim that this process now has; None if another has the run."""
        names = self._last_names(self.objects.listing(CLAIMS))
        number, last = 1, names.get(folder)
        if last is not None:
            content = self.objects.get(f"{CLAIMS}/{last}")
            if content is not None and _holder(content).is_alive:
                return None
            number = _parsed(last).number + 1
        now = time.time()
        token = secrets.token_hex(8)
        mine = Holder(
            host=socket.gethostname(), pid=os.getpid(), since=now, renewed=now, token=token
        )
        text = mine.model_dump_json().encode()
        if self.objects.conditional:
            name = f"{folder}~{number}.json"
            return Taken(name, token) if self.objects.create(f"{CLAIMS}/{name}", text) else None
        return self._take_by_list(folder, number, token, text)

    def _take_by_list(self, folder: str, number: int, token: str, text: bytes) -> Taken | None:
        name = f"{folder}~{number}~{token}.json"
        self.objects.put(f"{CLAIMS}/{name}", text)
        time.sleep(SETTLE)
        if self._last_names(self.objects.listing(CLAIMS)).get(folder, name) == name:
            return Taken(name, token)
        self.objects.remove([f"{CLAIMS}/{name}"])
        return None

    def renew(self, taken: Taken) -> bool:
        """Return whether this process still has the claim; if so, for longer."""
        found, (folder, number) = self._own(taken), _parsed(taken.name)
        later = self._last_names(self.objects.listing(CLAIMS)).get(folder, taken.name)
        if found is None or _parsed(later).number > number:
            return False
        renewed = found.model_copy(update={"renewed": time.time()})
        self.objects.put(f"{CLAIMS}/{taken.name}", renewed.model_dump_json().encode())
        return True

    def drop(self, taken: Taken) -> None:
        """Let others have the run: its claims up to this one go, unless another has it by now."""
        self._looked = float("-inf")
        if self._own(taken) is None:
            return
        folder, number = _parsed(taken.name)
        listed = [other for other in self.objects.listing(CLAIMS) if _NAME.fullmatch(other)]
        claims = {name: _parsed(name) for name in listed}
        old = [n for n, each in claims.items() if each.folder == folder and each.number < number]
        self.objects.remove(f"{CLAIMS}/{each}" for each in [*sorted(old), taken.name])

    def _own(self, taken: Taken) -> Holder | None:
        """What the claim says, if it is still that of this process and not another of its name."""
        content = self.objects.get(f"{CLAIMS}/{taken.name}")
        found = None if content is None else _holder(content)
        return found if found is not None and found.token == taken.token else None

    @staticmethod
    def _last_names(listed: dict[str, str]) -> dict[str, str]:
        """Return for each run its claim with the highest number; of several with it the first by
        name."""
        found: dict[str, str] = {}
        for name in sorted(filter(_NAME.fullmatch, listed)):
            folder, number = _parsed(name)
            if folder not in found or number > _parsed(found[folder]).number:
                found[folder] = name
        return found


class Lease:
    """A run at an address that this process works on: a thread renews the claim, and puts new
    checkpoints at the address while the training goes on."""

    def __init__(self, mirror: Mirror, claims: Claims, taken: Taken, directory: Path) -> None:
        self._mirror, self._claims, self._taken, self._directory = mirror, claims, taken, directory
        self._was_finished = mirror.is_published(directory)
        self._published = False
        self._held = True
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def publish(self) -> None:
        """Have the finished run count."""
        self._end_thread()
        if self._held or not self._was_finished:
            self._mirror.publish(self._directory, in_place=self._was_finished)
        self._published = True

    def begin(self) -> None:
        """Renew and carry from now on."""
        self._thread.start()

    def end(self) -> None:
        """Leave the run as it is at the address, and let others have it."""
        self._end_thread()
        if not self._published and self._held and not self._was_finished:
            self._mirror.carry(self._directory)
        self._claims.drop(self._taken)

    def _end_thread(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _go_on(self) -> None:
        renewed, carried = time.monotonic(), newest_checkpoint(self._directory)
        while not self._over.wait(_LOOK) and self._held:
            try:
                if time.monotonic() - renewed > RENEW:
                    self._held = self._claims.renew(self._taken)
                    renewed = time.monotonic()
                newest = newest_checkpoint(self._directory)
                if self._held and newest != carried and not self._was_finished:
                    self._mirror.carry(self._directory)
                    carried = newest
            except StoreError as error:  # the next look tries again; at the end it is an error
                print(f"{self._directory.name}: {error}", file=sys.stderr, flush=True)


@contextmanager
def leased(mirror: Mirror, directory: Path) -> Iterator[Lease | None]:
    """Work on a run at an address, brought here as it is there, unless someone else does."""
    claims = claims_of(mirror)
    taken = claims.take(directory.name)
    if taken is None:
        yield None
        return
    try:
        mirror.bring(directory.name)
        lease = Lease(mirror, claims, taken, directory)
    except BaseException:
        claims.drop(taken)
        raise
    lease.begin()
    try:
        yield lease
    except BaseException:
        with suppress(StoreError):  # what went wrong first is what is told
            lease.end()
        raise
    lease.end()


@contextmanager
def alone(mirror: Mirror, what: str) -> Iterator[None]:
    """Wait until nobody else does `what` at the address, and do it."""
    claims = claims_of(mirror)
    while (taken := claims.take(what)) is None:
        time.sleep(_LOOK)
    try:
        yield
    finally:
        claims.drop(taken)


_CLAIMS: dict[str, Claims] = {}


def claims_of(mirror: Mirror) -> Claims:
    """The claims at its address; one for each process, which remembers what it saw just now."""
    return _CLAIMS.setdefault(mirror.address, Claims(mirror.objects))


def process_lives(process: int) -> bool:
    """Return whether there is a process of this machine with that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def _holder(content: bytes) -> Holder:
    try:
        return Holder(**json.loads(content))
    except ValueError:  # nobody's: as if it were void
        return Holder(host="", pid=0, since=0.0, renewed=0.0, token="")


class _Parsed(NamedTuple):
    """What the name of a claim says."""

    folder: str
    number: int


def _parsed(name: str) -> _Parsed:
    match = _NAME.fullmatch(name)
    assert match is not None
    folder, number = match.groups()
    return _Parsed(folder, int(number))
