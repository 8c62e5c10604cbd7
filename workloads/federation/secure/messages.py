"""What sites and coordinator send each other in a round, and how it is read.

All but masked vectors is JSON: bytes are base64, and fields, names and lengths are checked. A
masked vector is its numbers, little endian, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.federation.secure.identities import Directory, Identity
from falaj.workloads.federation.secure.masking import Numbers
from falaj.workloads.federation.secure.sharing import SHARE_BYTES
from falaj.workloads.federation.updates import MessageError

KEYS: Final = "keys"
SHARES: Final = "shares"
MASKED: Final = "masked"
UNMASKING: Final = "unmasking"
STAGES: Final = (KEYS, SHARES, MASKED, UNMASKING)
"""Of a round: what all sites send before the next."""

_PROTOCOL: Final = "falaj.secure-aggregation/1"
_KEY_BYTES: Final = 32
_NONCE: Final = bytes(12)
"""A key seals one message, so that its nonce needn't differ."""
_MOST_CERTIFICATE: Final = 16 * 1024
_MOST_SIGNATURE: Final = 2 * 1024
_SEALED_BYTES: Final = 2 * SHARE_BYTES + 16
_ONE_SITE: Final = 1_024
"""Bytes of JSON for a site: its name and two shares, sealed or clear."""


@dataclass(frozen=True)
class Session:
    """One attempt at a round; keys and masks are of it alone.

    Attributes:
        federation: digest of the task.
        number: of the round.
        id: random, of the attempt, hexadecimal.
    """

    federation: str
    number: int
    id: str

    def context(self, what: str, *names: str) -> bytes:
        """Text that ties a key or signature to the session, to what it is for and to whom."""
        return json.dumps(
            [_PROTOCOL, self.federation, self.number, self.id, what, *names]
        ).encode()


@dataclass(frozen=True)
class Advertised:
    """Public keys of a site for one session, signed by it.

    Attributes:
        name: of the site.
        channel: X25519, for what sites send each other through the coordinator.
        mask: X25519, of which masks shared with the others are made.
        commitment: to the seed of its own mask.
        certificate: of the site, DER.
        signature: see `signed`.
    """

    name: str
    channel: bytes
    mask: bytes
    commitment: bytes
    certificate: bytes
    signature: bytes

    @staticmethod
    def signed(
        session: Session, name: str, channel: bytes, mask: bytes, commitment: bytes
    ) -> bytes:
        """What a site signs."""
        return session.context(KEYS, name, channel.hex(), mask.hex(), commitment.hex())

    @classmethod
    def of(
        cls, session: Session, who: Identity, channel: bytes, mask: bytes, commitment: bytes
    ) -> Advertised:
        """A site's keys, signed with the key of its certificate."""
        text = cls.signed(session, who.name, channel, mask, commitment)
        return cls(who.name, channel, mask, commitment, who.certificate, who.sign(text))

    def check(self, session: Session, directory: Directory) -> None:
        """Refuse keys that aren't the named site's for this session.

        Raises:
            IdentityError: says what is wrong.
        """
        text = self.signed(session, self.name, self.channel, self.mask, self.commitment)
        directory.check(self.name, self.certificate, text, self.signature)

    def to_json(self) -> dict[str, str]:
        """As `from_json` takes it."""
        found = {"name": self.name}
        return found | {each: _text(getattr(self, each)) for each in _PARTS}

    @classmethod
    def from_json(cls, value: object) -> Advertised:
        """What `to_json` made.

        Raises:
            MessageError: it is something else.
        """
        found = _fields(value, {"name", *_PARTS}, "a site's keys")
        name = found["name"]
        if not isinstance(name, str):
            raise MessageError("a site's keys have no name")
        parts = {each: _bytes(found[each], low, most) for each, (low, most) in _PARTS.items()}
        return cls(name, **parts)


_PARTS: Final = {
    "channel": (_KEY_BYTES, _KEY_BYTES), "mask": (_KEY_BYTES, _KEY_BYTES),
    "commitment": (_KEY_BYTES, _KEY_BYTES), "certificate": (1, _MOST_CERTIFICATE),
    "signature": (1, _MOST_SIGNATURE),
}  # fmt: skip


@dataclass(frozen=True)
class Held:
    """Shares of another site's secrets that a site holds.

    Attributes:
        seed: of its own mask's seed.
        key: of its mask key.
    """

    seed: bytes
    key: bytes


@dataclass(frozen=True)
class Wanted:
    """What the coordinator asks of the sites to take the masks off.

    Attributes:
        seeds: sites that delivered: shares of the seeds of their own masks are wanted.
        keys: sites that dropped out after the shares: shares of their mask keys are wanted.
    """

    seeds: tuple[str, ...]
    keys: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps({"seeds": self.seeds, "keys": self.keys}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Wanted:
        """What `to_bytes` wrote.

        Raises:
            MessageError: it is something else.
        """
        found = _fields(_read(data), {"seeds", "keys"}, "what is wanted")
        return cls(_names(found["seeds"]), _names(found["keys"]))


def most_bytes(stage: str, sites: int, numbers: int) -> int:
    """The most bytes of what a site sends at a stage.

    Args:
        stage: one of `STAGES`.
        sites: of the federation.
        numbers: of a masked vector.
    """
    if stage == MASKED:
        return 8 * numbers
    return 4 * _MOST_CERTIFICATE if stage == KEYS else _ONE_SITE * (sites + 1)


def commitment(session: Session, name: str, seed: bytes) -> bytes:
    """What is told of a seed of 32 random bytes before it is needed: its digest."""
    return hashlib.sha256(session.context("commitment", name) + seed).digest()


def public(key: X25519PrivateKey) -> bytes:
    """The public half of a key, 32 bytes."""
    return key.public_key().public_bytes_raw()


def agreed(session: Session, own: X25519PrivateKey, other: bytes, what: str, *names: str) -> bytes:
    """A key of 32 bytes that only those two know: HKDF-SHA-256 of X25519's secret.

    Args:
        session: which it is of.
        own: one's private key.
        other: the public one of the other side.
        what: it is for.
        names: of both, in an order that both know.

    Raises:
        MessageError: the public key is one that gives every caller the same secret.
    """
    try:
        secret = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise MessageError(f"a public key of {' or '.join(names)} is none") from error
    info = session.context(what, *names)
    return HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=info).derive(secret)


def mask_key(session: Session, own: X25519PrivateKey, me: str, other: str, key: bytes) -> bytes:
    """The key of the mask that two sites share; the same for both."""
    return agreed(session, own, key, "mask", *sorted((me, other)))


def seal(session: Session, own: X25519PrivateKey, me: str, to: Advertised, held: Held) -> bytes:
    """Shares for another site, which the coordinator passes on and can't read: AES-256-GCM."""
    key = agreed(session, own, to.channel, "channel", me, to.name)
    context = session.context("sealed", me, to.name)
    return AESGCM(key).encrypt(_NONCE, held.seed + held.key, context)


def unseal(
    session: Session, own: X25519PrivateKey, me: str, sender: Advertised, data: bytes
) -> Held:
    """What `seal` was given.

    Raises:
        MessageError: a byte was changed, or it is of another sender, receiver or session.
    """
    key = agreed(session, own, sender.channel, "channel", sender.name, me)
    context = session.context("sealed", sender.name, me)
    try:
        clear = AESGCM(key).decrypt(_NONCE, data, context)
    except InvalidTag as error:
        raise MessageError(
            f"the shares of {sender.name} were changed on their way, or are of another round"
        ) from error
    if len(clear) != 2 * SHARE_BYTES:
        raise MessageError(f"the shares of {sender.name} have another length")
    return Held(clear[:SHARE_BYTES], clear[SHARE_BYTES:])


def encode_keys(keys: Mapping[str, Advertised]) -> bytes:
    """The keys of all sites that take part."""
    return json.dumps([each.to_json() for each in keys.values()]).encode()


def decode_keys(data: bytes) -> dict[str, Advertised]:
    """What `encode_keys` was given, by name.

    Raises:
        MessageError: it is something else, or names a site twice.
    """
    value = _read(data)
    if not is_sequence(value):
        raise MessageError("the list of keys is none")
    found = [Advertised.from_json(each) for each in value]
    names = {each.name: each for each in found}
    if len(names) != len(found):
        raise MessageError("the list of keys names a site twice")
    return names


def decode_advertised(data: bytes) -> Advertised:
    """A site's own keys as it sent them; errors as `Advertised.from_json`."""
    return Advertised.from_json(_read(data))


def encode_advertised(keys: Advertised) -> bytes:
    """A site's own keys."""
    return json.dumps(keys.to_json()).encode()


def encode_sealed(shares: Mapping[str, bytes]) -> bytes:
    """Sealed shares, by the other site's name."""
    return json.dumps({name: _text(each) for name, each in shares.items()}).encode()


def decode_sealed(data: bytes) -> dict[str, bytes]:
    """What `encode_sealed` was given; MessageError where it is something else."""
    value = _read(data)
    if not is_dictionary(value):
        raise MessageError("sealed shares are no JSON object")
    return {name: _bytes(each, _SEALED_BYTES, _SEALED_BYTES) for name, each in value.items()}


def encode_opened(seeds: Mapping[str, bytes], keys: Mapping[str, bytes]) -> bytes:
    """Shares that were wanted, by the name of whose secret they are of."""
    parts = {"seeds": seeds, "keys": keys}
    found = {part: {n: _text(s) for n, s in each.items()} for part, each in parts.items()}
    return json.dumps(found).encode()


def decode_opened(data: bytes) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What `encode_opened` was given; MessageError where it is something else."""
    found = _fields(_read(data), {"seeds", "keys"}, "what was wanted")
    parts: list[dict[str, bytes]] = []
    for part in ("seeds", "keys"):
        value = found[part]
        if not is_dictionary(value):
            raise MessageError(f"the {part} are no JSON object")
        parts.append({n: _bytes(each, SHARE_BYTES, SHARE_BYTES) for n, each in value.items()})
    return parts[0], parts[1]


def encode_numbers(numbers: Numbers) -> bytes:
    """A masked vector."""
    return numbers.astype("<u8").tobytes()


def decode_numbers(data: bytes, count: int) -> Numbers:
    """What `encode_numbers` was given.

    Raises:
        MessageError: it has another length.
    """
    if len(data) != 8 * count:
        raise MessageError(
            f"the masked vector has {len(data):,} bytes: the model's has {8 * count:,}"
        )
    return np.frombuffer(data, "<u8").astype(np.uint64)


def _read(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"the message can't be read: {error}") from error


def _fields(value: object, wanted: set[str], what: str) -> dict[str, Any]:
    if not is_dictionary(value) or set(value) != wanted:
        raise MessageError(f"{what}: a JSON object of {', '.join(sorted(wanted))} is needed")
    return dict(value)


def _names(value: object) -> tuple[str, ...]:
    if not is_sequence(value) or not all(isinstance(each, str) for each in value):
        raise MessageError("a list of sites is none")
    if len(set(value)) != len(value):
        raise MessageError("a list of sites names one twice")
    return tuple(value)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(value: object, low: int, most: int) -> bytes:
    try:
        found = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError as error:
        raise MessageError(f"bytes of the message are no base64: {error}") from error
    if not low <= len(found) <= most:
        raise MessageError(
            f"a part of the message has {len(found)} bytes: allowed is {low} to {most}"
        )
    return found
