"""The aliases of a registry's models: signed records under tags that are never moved.

``models/NAME:alias.production.0000000042`` is the 42nd record of ``production``. The highest one
counts. Which one this machine has seen is kept, so that a registry can't go back behind it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from falaj.engine.files import data_home
from falaj.stacks.errors import StackError
from falaj.stacks.models.shelf import Shelf, check_repository, tag_of
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import locked, make_private_folder, read_json, write_json_atomic
from falaj.workloads.registry.alias_record import AliasRecord, Before, new_record, read_record
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.oci_layout import (
    ALIAS_TYPE,
    ImageManifest,
    read_alias_layer,
    write_alias_image,
)
from falaj.workloads.registry.package import check_alias

DAYS: Final = 30
"""For which a record is valid, if nothing else is said."""

_TAG: Final = re.compile(r"alias\.([a-z][a-z0-9-]{0,63})\.(\d{10})")


def alias_tag(alias: str, number: int) -> str:
    """The tag of a record."""
    return f"alias.{alias}.{number:010d}"


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


def read(shelf: Shelf, model: str, alias: str, number: int, key: Ed25519PublicKey) -> Entry:
    """One record, verified.

    Raises:
        StackError: it isn't there, or the registry can't be asked.
        IntegrityError: it isn't what the trusted key signed under this name.
    """
    tag = alias_tag(alias, number)
    what = shelf.at(model, tag)
    image = shelf.image(model, tag, ALIAS_TYPE)
    layer = image.layers[0]
    data = shelf.crane.blob(f"{shelf.repository(model)}@{layer.digest}", layer.size)
    record = read_record(*read_alias_layer(data, image), key, what)
    if (record.model, record.alias, record.number) != (model, alias, number):
        raise IntegrityError(
            f"{what} holds record {record.number} of {record.alias} of {record.model}: it was "
            "moved there"
        )
    if record.version != image.version:
        raise IntegrityError(f"{what} names version {image.version}, and {record.version} inside")
    return Entry(record, image)


def newest(shelf: Shelf, model: str, alias: str, key: Ed25519PublicKey) -> Entry | None:
    """The record that counts, verified; None where there is none.

    Raises:
        StackError: the registry can't be asked.
        IntegrityError: it isn't what the trusted key signed. Older ones aren't taken instead.
    """
    tags = shelf.crane.tags(shelf.repository(check_repository(model)))
    numbers = records_of(tags).get(check_alias(alias))
    return read(shelf, model, alias, numbers[-1], key) if numbers else None


def resolve(
    shelf: Shelf, model: str, alias: str, key: Ed25519PublicKey, *, older: bool = False
) -> Entry:
    """What an alias stands for now, held against what this machine has seen before.

    Args:
        shelf: where to look.
        model: name of the model.
        alias: such as ``production``.
        key: who is trusted to say so.
        older: take a record behind the newest that was seen, as after the loss of the registry
            that had it.

    Raises:
        StackError: there is none, it isn't valid any more, or the registry is behind.
        IntegrityError: it isn't what the trusted key signed.
    """
    found = newest(shelf, model, alias, key)
    if found is None:
        have = ", ".join(records_of(shelf.crane.tags(shelf.repository(model)))) or "none"
        raise StackError(
            f"{shelf.repository(model)} has no alias {alias!r}; it has: {have}\n"
            "  falaj models promote makes one"
        )
    record = found.record
    if found.expired(datetime.now(UTC)):
        raise StackError(
            f"{shelf.at(model, alias_tag(alias, record.number))} was valid until "
            f"{record.expires.isoformat()}: whether a newer one is kept back can't be known; who "
            "signs it says so again with `falaj models promote --renew`"
        )
    _note_seen(shelf, record, older=older)
    return found


@contextmanager
def _marks() -> Generator[tuple[Path, dict[str, int]]]:
    """The file of the highest numbers that this machine has seen, and what is in it."""
    folder = make_private_folder(data_home() / "models")
    path = folder / "seen.json"
    with locked(folder / ".lock"):
        seen: Any = read_json(path, "the records that were seen") if path.exists() else {}
        if not isinstance(seen, dict) or not all(
            isinstance(each, int) for each in cast("dict[str, Any]", seen).values()
        ):
            raise WorkloadError(f"{path} is damaged: remove it, then run again")
        yield path, cast("dict[str, int]", seen)


def _name(signer: str, model: str, alias: str) -> str:
    # By who signs, not by registry: a copy that is behind is behind wherever it stands.
    return f"{signer} {model} {alias}"


def highest_seen(signer: str, model: str, alias: str) -> int:
    """The highest number of an alias's records that this machine has seen; 0 for none."""
    with _marks() as (_, seen):
        return seen.get(_name(signer, model, alias), 0)


def _note_seen(shelf: Shelf, record: AliasRecord, *, older: bool) -> None:
    """Hold a record's number against the highest that was seen, and keep it."""
    name = _name(record.signer, record.model, record.alias)
    with _marks() as (path, seen):
        highest = seen.get(name, 0)
        if record.number < highest and not older:
            raise StackError(
                f"{shelf.repository(record.model)} has record {record.number} of {record.alias}, "
                f"this machine has seen {highest}: the registry is behind, or somebody went back\n"
                "  ask the registry that is ahead, or copy from it with `falaj models copy`; if "
                "it is lost, take this one with --older"
            )
        if record.number > highest:
            write_json_atomic(path, {**seen, name: record.number})


@dataclass(frozen=True)
class Signer:
    """Who makes records, and for how long they are valid."""

    keyring: KeyRing
    days: int = DAYS


def promote(
    shelf: Shelf, package: tuple[str, int], alias: str, signer: Signer, *, renew: bool = False
) -> tuple[Entry, bool]:
    """Let an alias stand for a version of the registry.

    Args:
        shelf: where the version is.
        package: model and version.
        alias: such as ``production``.
        signer: whose key ring signed the version, too.
        renew: make a record even where one says so already, so that it is valid for longer.

    Returns:
        The record that counts now, and whether it is new.

    Raises:
        StackError: there is no such version, the registry can't be asked, or somebody else made
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
            _note_seen(shelf, record, older=False)
            return before, False
    return _push(shelf, image, alias, signer, (before, history)), True


def roll_back(shelf: Shelf, model: str, alias: str, signer: Signer) -> Entry:
    """Let an alias stand for the version before, past those that the registry hasn't any more.

    Raises:
        StackError: there is no such alias, nothing to go back to, a registry that is behind what
            this machine has seen, or see `promote`.
        IntegrityError: see `promote`.
    """
    before = newest(shelf, model, alias, signer.keyring.verify_key())
    if before is None:
        raise StackError(
            f"{shelf.repository(model)} has no alias {alias!r}: make it with falaj models promote"
        )
    # What comes before is the record's word: an older record would have another.
    _note_seen(shelf, before.record, older=False)
    have = {version for version, tags in shelf.tags(model).items() if tag_of(version) in tags}
    history = [each for each in before.record.history if each in have]
    while history:
        version = history.pop()
        if version != before.record.version:
            image = _signed_package(shelf, model, version, signer)
            return _push(shelf, image, alias, signer, (before, tuple(history)))
    raise StackError(
        f"{alias} of {model} stands for version {before.record.version}, and there is no earlier "
        "one to go back to"
    )


def _signed_package(shelf: Shelf, model: str, version: int, signer: Signer) -> ImageManifest:
    package = shelf.package(model, version)
    shelf.contents(package, signer.keyring.verify_key())
    return package


def _push(
    shelf: Shelf, package: ImageManifest, alias: str, signer: Signer,
    follows: tuple[Entry | None, tuple[int, ...]],
) -> Entry:  # fmt: skip
    keyring, (before, history) = signer.keyring, follows
    seen = highest_seen(keyring.signing_key_id, package.model, alias)
    record = new_record(
        Before(before.record, before.image.itself.digest, seen) if before else Before(seen=seen),
        (package.model, alias, package.version, package.itself.digest), history,
        signer=keyring.verify_key(), days=signer.days, now=datetime.now(UTC),
    )  # fmt: skip
    reference = shelf.at(package.model, alias_tag(alias, record.number))
    with tempfile.TemporaryDirectory(prefix="falaj-alias-") as folder:
        layout = Path(folder, "image")
        signature = record.signed(keyring.signing_key())
        issued = str(record.to_json()["issued"])
        image = write_alias_image(record.to_bytes(), signature, package, issued, layout)
        if shelf.crane.digest(reference) is not None:
            raise StackError(
                f"{reference} was made meanwhile by somebody else: look at it with `falaj models "
                "aliases`, then run again"
            )
        shelf.crane.push(layout, reference)
    shelf.require(package.model, alias_tag(alias, record.number), image.itself.digest)
    _note_seen(shelf, record, older=False)
    return Entry(record, image)
