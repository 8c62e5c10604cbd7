"""A site's side of a secure aggregation: what it tells, and what it refuses to tell.

A participant trusts the coordinator to pass messages on and to add up, and no further: it answers
one session at a time and each stage once, takes keys of the sites that its own settings name
alone, and says once in a round how masks come off, for a sum of at least ``threshold`` sites.
"""

from __future__ import annotations

import secrets
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.secure import messages, sharing
from falaj.workloads.federation.secure.identities import Directory, Identity
from falaj.workloads.federation.secure.masking import Numbers, masked
from falaj.workloads.federation.secure.messages import Advertised, Held, Session, Wanted

_SEED_BYTES: Final = 32


class UntrueError(WorkloadError):
    """The coordinator asks for what would show a single update, or passes on what isn't true."""


@dataclass
class _Secrets:
    """Of one session; forgotten with it."""

    session: Session
    channel: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    mask: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(_SEED_BYTES))
    keys: dict[str, Advertised] = field(default_factory=dict[str, Advertised])
    held: dict[str, Held] = field(default_factory=dict[str, Held])
    done: list[str] = field(default_factory=list[str])


class Participant:
    """A site in the rounds of a federation.

    Args:
        who: the site.
        directory: all sites of the federation, this one among them.
        threshold: fewest sites of a sum.

    Raises:
        UntrueError: this site isn't in the directory as it is, or the threshold is too low.
    """

    def __init__(self, who: Identity, directory: Directory, threshold: int) -> None:
        self._who, self._directory, self._threshold = who, directory, threshold
        least, sites = sharing.least_threshold(len(directory.pins)), len(directory.pins)
        if not least <= threshold <= sites:
            raise UntrueError(
                f"a sum of {threshold} sites would do for the coordinator: of {sites} sites "
                f"{least} to {sites} are allowed (--least-sites)"
            )
        probe = b"falaj: a site's own keys"
        directory.check(who.name, who.certificate, probe, who.sign(probe))
        self._now: _Secrets | None = None
        self._sessions: set[str] = set()
        self._told: set[int] = set()

    def begin(self, session: Session) -> bytes:
        """Fresh keys for a session; those of an earlier one are forgotten.

        Raises:
            UntrueError: the session was there before, or this site has told how masks come off in
                its round: two sums of one round would differ by single updates.
        """
        if session.id in self._sessions:
            raise UntrueError(f"session {session.id} was there before: its keys are forgotten")
        if session.number in self._told:
            raise UntrueError(
                f"round {session.number} was summed before: the sums of two groups of sites would "
                "differ by single updates"
            )
        self._sessions.add(session.id)
        now = self._now = _Secrets(session)
        shown = messages.commitment(session, self._who.name, now.seed)
        keys = Advertised.of(
            session, self._who, messages.public(now.channel), messages.public(now.mask), shown
        )
        now.keys = {self._who.name: keys}
        now.done.append(messages.KEYS)
        return messages.encode_advertised(keys)

    def share(self, session: Session, data: bytes) -> bytes:
        """Shares of this site's secrets, sealed for each other one.

        Args:
            session: that is under way.
            data: the keys of all that take part, by `messages.encode_keys`.

        Raises:
            UntrueError: they are too few, or this site's aren't as it sent them.
            IdentityError: keys aren't of the site that they are said to be of.
            MessageError: it is something else.
        """
        now = self._step(session, messages.SHARES)
        keys, me = messages.decode_keys(data), self._who.name
        if keys.get(me) != now.keys[me]:
            raise UntrueError("this site's keys aren't as it sent them")
        self._enough(keys.keys(), "have sent keys")
        for each in keys.values():
            each.check(session, self._directory)
        for part in ("channel", "mask"):
            if len({getattr(each, part) for each in keys.values()}) != len(keys):
                raise UntrueError("two sites have the same public key")
        now.keys = {name: keys[name] for name in sorted(keys)}
        seeds = sharing.split(now.seed, self._threshold, len(keys))
        halves = sharing.split(now.mask.private_bytes_raw(), self._threshold, len(keys))
        sealed: dict[str, bytes] = {}
        for (name, to), seed, half in zip(now.keys.items(), seeds, halves, strict=True):
            held = Held(seed, half)
            if name == me:
                now.held[me] = held
            else:
                sealed[name] = messages.seal(session, now.channel, me, to, held)
        return messages.encode_sealed(sealed)

    def mask(self, session: Session, data: bytes, numbers: Numbers) -> Numbers:
        """This site's numbers under its masks.

        Args:
            session: that is under way.
            data: the shares that others sealed for this one, by `messages.encode_sealed`.
            numbers: of `Grid.whole`.

        Raises:
            UntrueError: they are too few, or of a site that sent no keys.
            MessageError: shares were changed.
        """
        now = self._step(session, messages.MASKED)
        me, received = self._who.name, messages.decode_sealed(data)
        if not received.keys() < now.keys.keys() or me in received:
            raise UntrueError("shares are of a site that sent no keys")
        self._enough({me, *received}, "have sent shares")
        for name, each in received.items():
            now.held[name] = messages.unseal(session, now.channel, me, now.keys[name], each)
        shared = {
            name: messages.mask_key(session, now.mask, me, name, now.keys[name].mask)
            for name in received
        }
        return masked(
            numbers,
            now.seed,
            [key for name, key in shared.items() if me < name],
            [key for name, key in shared.items() if name < me],
        )

    def open(self, session: Session, data: bytes) -> bytes:
        """Shares by which the coordinator takes masks off the sum.

        Args:
            session: that is under way.
            data: whose, by `Wanted`.

        Raises:
            UntrueError: they would show a single update: both secrets of a site, a sum of too few,
                or a site that didn't take part.
            MessageError: it is something else.
        """
        now = self._step(session, messages.UNMASKING)
        wanted, me = Wanted.from_bytes(data), self._who.name
        delivered, dropped = set(wanted.seeds), set(wanted.keys)
        if both := delivered & dropped:
            raise UntrueError(
                f"the coordinator asks for both secrets of {', '.join(sorted(both))}: it could "
                "read that site's update; this site ends here"
            )
        if delivered | dropped != now.held.keys():
            raise UntrueError("the coordinator asks for shares of other sites than took part")
        if me not in delivered:
            raise UntrueError("the coordinator says that this site dropped out, which it didn't")
        self._enough(delivered, "are in the sum")
        self._told.add(session.number)
        self._now = None
        return messages.encode_opened(
            {name: now.held[name].seed for name in wanted.seeds},
            {name: now.held[name].key for name in wanted.keys},
        )

    def _step(self, session: Session, stage: str) -> _Secrets:
        """The secrets of the session, at the stage that comes next.

        Raises:
            UntrueError: another session is under way, or the stage was answered or comes too soon.
        """
        now = self._now
        if now is None or now.session != session:
            raise UntrueError(f"session {session.id} isn't under way at this site")
        if messages.STAGES[len(now.done) :][:1] != (stage,):
            raise UntrueError(f"stage {stage} was answered, or comes too soon")
        now.done.append(stage)
        return now

    def _enough(self, sites: Set[str], what: str) -> None:
        if len(sites) < self._threshold:
            raise UntrueError(f"{len(sites)} site(s) {what}: {self._threshold} are needed")
