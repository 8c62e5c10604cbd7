"""The aliases of a registry's models: signed records under tags that are never moved.

``models/NAME:alias.production.0000000042`` is the 42nd record of ``production``. The highest one
counts. Who asks more than once keeps which one it has seen, so that a registry can't go back
behind it.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from falaj.workloads.bounds import FORMS, RECORD_DIGITS
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.alias_record import AliasRecord, Before, new_record, read_record
from falaj.workloads.registry.keyring import KeyRing, Trusted, trusted_keys
from falaj.workloads.registry.oci_layout import (
    ALIAS_TYPE,
    ImageManifest,
    read_alias_layer,
    write_alias_image,
)
from falaj.workloads.registry.package import check_alias
from falaj.workloads.registry.shelf import Client, Shelf, check_repository, tag_of

DAYS: Final = 30
"""For which a record is valid, if nothing else is said."""

_TAG: Final = re.compile(
    rf"alias\.({FORMS['registry']['alias'].pattern})\.(\d{{{RECORD_DIGITS}}})"
)


class Seen(Protocol):
    """The highest numbers of records that somebody has seen, by who signs, model and alias."""

    def highest(self, signer: str, model: str, alias: str) -> int:
        """The highest number of an alias's records; 0 for none."""
        ...

    def note(self, repository: str, record: AliasRecord, *, older: bool = False) -> None:
        """Hold a record's number against the highest, and keep it.

        Args:
            repository: where it is, for the error.
            record: the record.
            older: whether one behind the highest is taken.

        Raises:
            WorkloadError: it is behind the highest.
        """
        ...


class NothingSeen:
    """Who asks once, as a pod does: what the registry has is all that is known."""

    def highest(self, signer: str, model: str, alias: str) -> int:
        """None."""
        return 0

    def note(self, repository: str, record: AliasRecord, *, older: bool = False) -> None:
        """Nothing is kept."""


def alias_tag(alias: str, number: int) -> str:
    """The tag of a record."""
    return f"alias.{alias}.{number:0{RECORD_DIGITS}d}"


def records_of(tags: list[str]) -> dict[str, list[int]]:
    """The numbers of records by alias, both in order, among a repository's tags."""
    found: dict[str, list[int]] = {}
    for tag in tags:
        if match := _TAG.fullmatch(tag):
            found.setdefault(match[1], []).append(int(match[2]))
    return {alias: sorted(found[alias]) for alias in sorted(found)}


def record_tags(tags: list[str]) -> list[str]:
    """The tags of records among a repository's, each alias's in order."""
    return [alias_tag(alias, each) for alias, found in records_of(tags).items() for each in found]


@dataclass(frozen=True)
class Entry:
    """A record in a registry, whose signature was verified."""

    record: AliasRecord
    image: ImageManifest

    def expired(self, now: datetime) -> bool:
        """Whether it isn't valid any more."""
        return now >= self.record.expires

    def to_json(self, now: datetime) -> dict[str, Any]:
        """For programs."""
        return {
            **self.record.to_json(), "record": self.image.itself.digest,
            "expired": self.expired(now),
        }  # fmt: skip


def read(shelf: Shelf[Client], model: str, alias: str, number: int, key: Trusted) -> Entry:
    """One record, verified.

    Raises:
        WorkloadError: it isn't there, or the registry can't be asked.
        IntegrityError: it isn't what the trusted key signed under this name.
    """
    tag = alias_tag(alias, number)
    what = shelf.at(model, tag)
    image = shelf.image(model, tag, ALIAS_TYPE)
    layer = image.layers[0]
    data = shelf.client.blob(f"{shelf.repository(model)}@{layer.digest}", layer.size)
    record = read_record(*read_alias_layer(data, image), key, what)
    if (record.model, record.alias, record.number) != (model, alias, number):
        raise IntegrityError(
            f"{what} holds record {record.number} of {record.alias} of {record.model}: it was "
            "moved there"
        )
    if record.version != image.version:
        raise IntegrityError(f"{what} names version {image.version}, and {record.version} inside")
    return Entry(record, image)


def newest(shelf: Shelf[Client], model: str, alias: str, key: Trusted) -> Entry | None:
    """The record that counts, verified; None where there is none.

    Raises:
        WorkloadError: the registry can't be asked.
        IntegrityError: it isn't what the trusted key signed. Older ones aren't taken instead.
    """
    tags = shelf.client.tags(shelf.repository(check_repository(model)))
    numbers = records_of(tags).get(check_alias(alias))
    return read(shelf, model, alias, numbers[-1], key) if numbers else None


def resolve(
    shelf: Shelf[Client], model: str, alias: str, key: Trusted, seen: Seen, *,
    older: bool = False,
) -> Entry:  # fmt: skip
    """What an alias stands for now, held against what was seen before.

    Args:
        shelf: where to look.
        model: name of the model.
        alias: such as ``production``.
        key: who is trusted to say so.
        seen: what was seen before.
        older: take a record behind the newest that was seen, as after the loss of the registry
            that had it.

    Raises:
        WorkloadError: there is none, it isn't valid any more, or the registry is behind.
        IntegrityError: it isn't what the trusted key signed.
    """
    found = newest(shelf, model, alias, key)
    if found is None:
        have = ", ".join(records_of(shelf.client.tags(shelf.repository(model)))) or "none"
        raise WorkloadError(
            f"{shelf.repository(model)} has no alias {alias!r}; it has: {have}\n"
            "  falaj models promote makes one"
        )
    record = found.record
    if found.expired(datetime.now(UTC)):
        raise WorkloadError(
            f"{shelf.at(model, alias_tag(alias, record.number))} was valid until "
            f"{record.expires.isoformat()}: whether a newer one is kept back can't be known; who "
            "signs it says so again with `falaj models promote --renew`"
        )
    note(seen, shelf.repository(model), record, key, older=older)
    return found


def note(
    seen: Seen, repository: str, record: AliasRecord, key: Trusted, *, older: bool = False
) -> None:
    """Hold a record against what was seen of every trusted key: a rotation doesn't start anew.

    Args:
        seen: what was seen before.
        repository: where the record is, for the error.
        record: the record.
        key: who is trusted to sign it.
        older: whether one behind the highest is taken. Default: False.

    Raises:
        WorkloadError: it is behind the highest.
    """
    for signer in trusted_keys(key).ids:
        seen.note(repository, replace(record, signer=signer), older=older)


@dataclass(frozen=True)
class Signer:
    """Who makes records, for how long they are valid, and what it has seen of others."""

    keyring: KeyRing
    seen: Seen
    days: int = DAYS


def promote(
    shelf: Shelf[Client],
    package: tuple[str, int],
    alias: str,
    signer: Signer,
    *,
    renew: bool = False,
    why: str = "",
    share: int = 0,
) -> tuple[Entry, bool]:
    """Let an alias stand for a version of the registry.

    Args:
        shelf: where the version is.
        package: model and version.
        alias: such as ``production``.
        signer: whose key ring signed the version, too.
        renew: make a record even where one says so already, so that it is valid for longer.
        why: the reason, which the record keeps. Default: none is said.
        share: percent of the requests that it may have, of a canary. Default: none is said.

    Returns:
        The record that counts now, and whether it is new.

    Raises:
        WorkloadError: there is no such version, the registry can't be asked, or somebody else made
            a record meanwhile.
        IntegrityError: the version, or the record before, isn't what the key ring signed.
    """
    model, version = package
    image = _signed_package(shelf, model, version, signer)
    before = newest(shelf, model, alias, signer.keyring.verify_key())
    history: tuple[int, ...] = ()
    if before is not None:
        record = before.record
        same = (record.version, record.image) == (version, image.itself.digest)
        history = record.history if same else (*record.history, record.version)
        if same and not renew and not before.expired(datetime.now(UTC)):
            note(signer.seen, shelf.repository(model), record, signer.keyring.verify_key())
            return before, False
    return _push(shelf, image, alias, signer, (before, history), why=why, share=share), True


def roll_back(shelf: Shelf[Client], model: str, alias: str, signer: Signer) -> Entry:
    """Let an alias stand for the version before, past those that the registry hasn't any more.

    Raises:
        WorkloadError: there is no such alias, nothing to go back to, a registry that is behind
            what was seen, or see `promote`.
        IntegrityError: see `promote`.
    """
    before = newest(shelf, model, alias, signer.keyring.verify_key())
    if before is None:
        raise WorkloadError(
            f"{shelf.repository(model)} has no alias {alias!r}: make it with falaj models promote"
        )
    # What comes before is the record's word: an older record would have another.
    trusted = signer.keyring.verify_key()
    note(signer.seen, shelf.repository(model), before.record, trusted)
    have = {version for version, tags in shelf.tags(model).items() if tag_of(version) in tags}
    history = [each for each in before.record.history if each in have]
    while history:
        version = history.pop()
        if version != before.record.version:
            image = _signed_package(shelf, model, version, signer)
            return _push(shelf, image, alias, signer, (before, tuple(history)))
    raise WorkloadError(
        f"{alias} of {model} stands for version {before.record.version}, and there is no earlier "
        "one to go back to"
    )


def _signed_package(
    shelf: Shelf[Client], model: str, version: int, signer: Signer
) -> ImageManifest:
    package = shelf.package(model, version)
    shelf.contents(package, signer.keyring.verify_key())
    return package


def _push(
    shelf: Shelf[Client], package: ImageManifest, alias: str, signer: Signer,
    follows: tuple[Entry | None, tuple[int, ...]], *, why: str = "", share: int = 0,
) -> Entry:  # fmt: skip
    keyring, (before, history) = signer.keyring, follows
    seen = max(
        signer.seen.highest(each, package.model, alias) for each in keyring.verify_key().ids
    )
    record = new_record(
        Before(before.record, before.image.itself.digest, seen) if before else Before(seen=seen),
        (package.model, alias, package.version, package.itself.digest), history,
        signer=keyring.verify_key().current, days=signer.days, now=datetime.now(UTC), why=why,
        share=share,
    )  # fmt: skip
    reference = shelf.at(package.model, alias_tag(alias, record.number))
    with tempfile.TemporaryDirectory(prefix="falaj-alias-") as folder:
        layout = Path(folder, "image")
        signature = record.signed(keyring.signing_key())
        issued = str(record.to_json()["issued"])
        image = write_alias_image(record.to_bytes(), signature, package, issued, layout)
        if shelf.client.digest(reference) is not None:
            raise WorkloadError(
                f"{reference} was made meanwhile by somebody else: look at it with `falaj models "
                "aliases`, then run again"
            )
        shelf.client.push(layout, reference)
    shelf.require(package.model, alias_tag(alias, record.number), image.itself.digest)
    signer.seen.note(shelf.repository(package.model), record)
    return Entry(record, image)
