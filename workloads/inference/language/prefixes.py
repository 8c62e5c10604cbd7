"""What a conversation's answer leaves, keys and values of its tokens, for the next turn.

A next turn begins with all that was said before. What is found again depends on tokens alone, so
that a text that was changed is gone on from as far as it is the same. Nobody finds what another
caller left: how long an answer takes tells nobody of another one's words.

It lies in the memory that texts which are being generated leave of theirs (`Room`), goes first
where they need it, and is written over with zeros when it goes. A copy that the engine made for a
run isn't.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.language.cache import CacheForm

MOST_KEPT: Final = 64
"""Conversations of a worker."""
LEAST_SHARED: Final = 16
"""Tokens: fewer are run again sooner than they are found and copied."""
Slots = dict[str, NDArray[np.float32]]
"""Keys and values by their inputs' names, (1, heads, slots, size)."""


@dataclass(frozen=True)
class Left:
    """What a text leaves.

    Attributes:
        tokens: whose keys and values are there, from the text's first one.
        asked: how many of them it was asked with.
        slots: the keys and values, of at least as many.
    """

    tokens: Sequence[int]
    asked: int
    slots: Slots


@dataclass(frozen=True)
class Begun:
    """What needn't be run again of a text.

    Attributes:
        count: tokens, from its first one.
        slots: their keys and values, which belong to who gets them.
    """

    count: int
    slots: Slots


@dataclass
class _Entry:
    whose: bytes
    tokens: NDArray[np.int64]
    asked: int
    slots: Slots
    used: float
    """When it was left or found, on the clock."""

    @property
    def size(self) -> int:
        return _bytes(self.slots)


def whose(identity: Identity | None, names: Sequence[str | None]) -> bytes:
    """Return what tells callers apart, of a fixed length.

    Args:
        identity: who asks, by which means, with which rights.
        names: by which the caller tells its own callers apart.
    """
    who = None if identity is None else [identity.means, identity.subject, sorted(identity.scopes)]
    return hashlib.sha256(orjson.dumps([who, names])).digest()


class Prefixes:
    """What a worker keeps of texts that have ended, the least recently used first.

    Args:
        seconds: after which what nobody asked for goes; 0 keeps nothing.
        clock: seconds that only grow.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.held = 0
        """Bytes."""
        self._seconds = seconds
        self._clock = clock
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def find(
        self, whose: bytes, tokens: Sequence[int], form: CacheForm, most: int
    ) -> Begun | None:
        """Return what there is of a text's tokens; None: too little.

        Where a conversation goes on, or its last answer is asked for again, what it left is given
        away. Of another one, that begins alike, a copy is: its next turn is still to come.

        Args:
            whose: the caller's.
            tokens: of the text, at least the last of which is run.
            form: of the model's keys and values.
            most: tokens to which the text may come.
        """
        self.expire()
        given = np.asarray(tokens, dtype=np.int64)
        alike = [
            (_shared(each.tokens, given), place)
            for place, each in enumerate(self._entries)
            if each.whose == whose
        ]
        shared, place = max(alike, default=(0, 0))
        count = min(shared, len(given) - 1)
        if count < LEAST_SHARED:
            return None
        entry = self._entries.pop(place)
        fits = all(each.shape[2] <= form.slots(most) for each in entry.slots.values())
        if shared >= entry.asked and fits:
            self.held -= entry.size
            return Begun(count, entry.slots)
        entry.used = self._clock()
        self._entries.append(entry)
        return Begun(count, _copied(entry.slots, count, form.slots(count)))

    def keep(self, whose: bytes, left: Left, room: int) -> None:
        """Keep what a text left, which then belongs here.

        Args:
            whose: the caller's.
            left: by the text.
            room: bytes that there are for all that is kept.
        """
        tokens = np.asarray(left.tokens, dtype=np.int64)
        if self._seconds <= 0 or len(tokens) < LEAST_SHARED or _bytes(left.slots) > room:
            _wipe(left.slots)
            return
        for each in [*self._entries]:
            if each.whose == whose and _shared(each.tokens, tokens) == len(each.tokens):
                self._drop(each)
        entry = _Entry(whose, tokens, left.asked, left.slots, self._clock())
        self._entries.append(entry)
        self.held += entry.size
        self.fit(room)
        while len(self._entries) > MOST_KEPT:
            self._drop(self._entries[0])

    def fit(self, room: int) -> None:
        """Have what was used least recently go until no more bytes are held than these."""
        while self.held > max(0, room):
            self._drop(self._entries[0])

    def expire(self) -> None:
        """Have what nobody asked for in time go."""
        oldest = self._clock() - self._seconds
        while self._entries and self._entries[0].used <= oldest:
            self._drop(self._entries[0])

    def _drop(self, entry: _Entry) -> None:
        # By what it is: to compare arrays says nothing of two entries.
        self._entries = [each for each in self._entries if each is not entry]
        self.held -= entry.size
        _wipe(entry.slots)


def _shared(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Tokens with which both begin."""
    least = min(len(one), len(other))
    apart = np.flatnonzero(one[:least] != other[:least])
    return int(apart[0]) if len(apart) else least


def _copied(slots: Mapping[str, NDArray[np.float32]], count: int, room: int) -> Slots:
    found: Slots = {}
    for name, each in slots.items():
        rows, heads, _, size = each.shape
        found[name] = np.zeros((rows, heads, room, size), dtype=np.float32)
        found[name][:, :, :count] = each[:, :, :count]
    return found


def _wipe(slots: Slots) -> None:
    for each in slots.values():
        each.fill(0)


def _bytes(slots: Mapping[str, NDArray[np.float32]]) -> int:
    return sum(each.nbytes for each in slots.values())
