"""Which version an alias stands for, as its signer said it: counted, dated, and for a time only.

A signature says who, not whether it is the newest that was said. A registry that shows an older
record (or somebody who pushed one there) is found out by its number, which only grows, and one
that keeps new records back by the time after which the last one isn't valid any more. That is what
the roles snapshot and timestamp of The Update Framework do, for one name:
https://theupdateframework.github.io/specification/latest/#file-formats-timestamp
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from falaj.workloads.bounds import REGISTRY
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.alias_list import MAX_HISTORY
from falaj.workloads.registry.keyring import Trusted, key_id, sign, trusted_keys, verify
from falaj.workloads.registry.oci_layout import DIGEST
from falaj.workloads.registry.package import canonical, check_alias, check_model_name, is_version

RECORD_FORMAT: Final = "falaj.alias/1"
RECORD_PAYLOAD: Final = "application/vnd.falaj.alias+json"
"""What the signature says the signed bytes are."""
MAX_RECORD_BYTES: Final = 16 << 10
MAX_NUMBER: Final = int(REGISTRY["record"].high)
MAX_DAYS: Final = 366
"""Longest time that a record may be valid."""

_FIELDS: Final = frozenset({
    "format", "model", "alias", "number", "version", "image", "history", "previous", "issued",
    "expires", "signer",
})  # fmt: skip
_WHY: Final = "why"
_SHARE: Final = "share"
_SAID: Final = frozenset({_WHY, _SHARE})
"""Fields that are there where they say something."""
MAX_WHY: Final = 500
"""Characters of what a record says of its reason."""


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """What an alias stands for from one moment on.

    Attributes:
        model: name of the model.
        alias: such as ``production``.
        number: 1, 2, … of the alias's records.
        version: what it stands for.
        image: digest of that version's image in registries (``packageDigest``).
        history: versions that it stood for before, oldest first; a rollback takes the last.
        previous: digest of the image of the record before; None where there was none.
        issued: when, UTC, whole seconds.
        expires: when it isn't valid any more.
        signer: id of the key.
        why: what its signer says of the reason; empty for nothing.
        share: percent of the requests that the version may have now, as it was found good enough
            with fewer; 0 where nothing is said.
    """

    model: str
    alias: str
    number: int
    version: int
    image: str
    history: tuple[int, ...]
    previous: str | None
    issued: datetime
    expires: datetime
    signer: str
    why: str = ""
    share: int = 0

    def to_json(self) -> dict[str, Any]:
        """For programs, and what is signed."""
        return {
            "format": RECORD_FORMAT,
            "model": self.model,
            "alias": self.alias,
            "number": self.number,
            "version": self.version,
            "image": self.image,
            "history": list(self.history),
            "previous": self.previous,
            "issued": _text(self.issued),
            "expires": _text(self.expires),
            "signer": self.signer,
            **({_WHY: self.why} if self.why else {}),
            **({_SHARE: self.share} if self.share else {}),
        }

    def to_bytes(self) -> bytes:
        """The one form that is signed."""
        return canonical(self.to_json())

    def signed(self, key: Ed25519PrivateKey) -> bytes:
        """The detached signature of `to_bytes`."""
        return sign(self.to_bytes(), RECORD_PAYLOAD, key)


@dataclass(frozen=True, slots=True)
class Before:
    """What a new record follows.

    Attributes:
        record: the one before, if there is one.
        image: digest of its image.
        seen: highest number that is known to have been given, by that one or any other.
    """

    record: AliasRecord | None = None
    image: str | None = None
    seen: int = 0


def check_days(days: int) -> int:
    """Return for how many days a record may be valid.

    Raises:
        WorkloadError: it is none of 1 to `MAX_DAYS`.
    """
    if not 1 <= days <= MAX_DAYS:
        raise WorkloadError(f"days: given {days}; allowed: 1 to {MAX_DAYS}")
    return days


def check_why(why: str) -> str:
    """Return what a record says of its reason.

    Raises:
        WorkloadError: it is more than `MAX_WHY` characters, or not one printable line.
    """
    if len(why) > MAX_WHY or not why.isprintable():
        raise WorkloadError(
            f"why: given {len(why)} characters; allowed: one printable line of at most {MAX_WHY}"
        )
    return why


def check_share(share: object) -> int:
    """Return what a record says of a share; 0 for nothing.

    Raises:
        WorkloadError: it is none.
    """
    bound = REGISTRY["share"]
    if type(share) is not int or not (share == 0 or bound.allows(share)):
        raise WorkloadError(f"share: given {share}; allowed: {bound.description} (percent)")
    return share


def new_record(
    before: Before, says: tuple[str, str, int, str], history: tuple[int, ...], *,
    signer: Ed25519PublicKey, days: int, now: datetime, why: str = "", share: int = 0,
) -> AliasRecord:  # fmt: skip
    """The record that follows another.

    Args:
        before: what it follows.
        says: model, alias, version, and the digest of that version's image.
        history: versions to go back to, oldest first; the oldest are forgotten.
        signer: whose private half will sign it.
        days: for which it is valid, 1 to `MAX_DAYS`.
        now: when it is issued.
        why: the reason, for who reads the records. Default: none is said.
        share: percent of the requests that the version may have. Default: none is said.

    Raises:
        WorkloadError: the names, the days, the reason or the share aren't allowed, or no number is
            left.
    """
    model, alias, version, image = says
    check_days(days)
    number = max(before.record.number if before.record else 0, before.seen) + 1
    if number > MAX_NUMBER:
        raise WorkloadError(f"{alias} of {model} has {MAX_NUMBER} records: take another alias")
    issued = now.astimezone(UTC).replace(microsecond=0)
    return AliasRecord(
        check_model_name(model), check_alias(alias), number, version, image,
        history[-MAX_HISTORY:], before.image, issued, issued + timedelta(days=days),
        key_id(signer), check_why(why), check_share(share),
    )  # fmt: skip


def read_record(payload: bytes, signature: bytes, key: Trusted, what: str) -> AliasRecord:
    """Verify a record's signature and read it; whether it is still valid is the caller's to ask.

    Args:
        payload: the signed bytes.
        signature: the detached signature.
        key: the trusted public key.
        what: names the record in errors.

    Raises:
        IntegrityError: it is another's, was changed, or isn't in the one form of a record.
    """
    verify(payload, RECORD_PAYLOAD, signature, key, what)
    try:
        document: Any = json.loads(payload)
        if not isinstance(document, dict) or _FIELDS ^ (
            cast("dict[str, Any]", document).keys() - _SAID
        ):
            raise ValueError(f"it must hold exactly: {', '.join(sorted(_FIELDS))}")
        found = _record(cast("dict[str, Any]", document))
    except (ValueError, TypeError, RecursionError, WorkloadError) as error:
        raise IntegrityError(f"{what} is malformed: {error}") from error
    if found.to_bytes() != payload or found.signer not in trusted_keys(key).ids:
        raise IntegrityError(f"{what} isn't in the form that records are written in")
    return found


def _record(values: dict[str, Any]) -> AliasRecord:
    match values:
        case {
            "format": str(kind), "model": str(model), "alias": str(alias), "number": int(number),
            "version": int(version), "image": str(image), "history": [*history],
            "previous": str() | None as previous, "issued": str(issued), "expires": str(expires),
            "signer": str(signer),
        }:  # fmt: skip
            pass
        case _:
            raise ValueError("a value is of another type")
    why = values.get(_WHY, "")
    if not isinstance(why, str):
        raise TypeError("what it says of its reason is no text")
    versions: list[Any] = history
    digests = [image, *([previous] if previous else [])]
    numbers = [version, *versions]
    if kind != RECORD_FORMAT:
        raise ValueError(f"its format is {kind!r}; allowed: {RECORD_FORMAT!r}")
    if not all(DIGEST.fullmatch(each) for each in digests) or previous == "":
        raise ValueError("a digest is none")
    if not all(type(each) is int and is_version(str(each)) for each in numbers):
        raise ValueError("a version is none")
    if type(number) is not int or not 1 <= number <= MAX_NUMBER or len(versions) > MAX_HISTORY:
        raise ValueError(f"its number is {number}, with {len(versions)} versions before it")
    if number == 1 and previous is not None:
        raise ValueError("the first record names one before it")
    times = [datetime.fromisoformat(each) for each in (issued, expires)]
    if any(each.tzinfo is None for each in times):
        raise ValueError("a time has no zone")
    if not timedelta(0) < times[1] - times[0] <= timedelta(days=MAX_DAYS):
        raise ValueError(f"it is valid for {times[1] - times[0]}; allowed: to {MAX_DAYS} days")
    return AliasRecord(
        check_model_name(model), check_alias(alias), number, version, image, tuple(versions),
        previous, times[0], times[1], signer, check_why(why), check_share(values.get(_SHARE, 0)),
    )  # fmt: skip


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
