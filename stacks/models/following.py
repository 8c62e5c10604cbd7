"""What a service that follows aliases is to serve: the stable version, and a canary beside it.

Resolved into the stack's file before the stack is brought up, and not while it is previewed, for
the reason that `falaj.stacks.models.pinning` gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from falaj.stacks.errors import StackError
from falaj.stacks.models.pinning import SECTION, Pin
from falaj.wire.documents import is_dictionary, sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.aliases import (
    Entry,
    Seen,
    newest,
    note,
    read,
    records_of,
    resolve,
)
from falaj.workloads.registry.keyring import VerifyKey, public_keys_of
from falaj.workloads.registry.shelf import Client, Shelf
from falaj.workloads.registry.store import PRODUCTION


@dataclass(frozen=True)
class Followed:
    """What a stack's file says that a service follows."""

    service: str
    """Its key below `SECTION`."""
    model: str
    stable: str
    canary: str
    """Both are aliases."""
    share: int
    """Percent of the requests that a canary gets."""
    steps: tuple[int, ...]
    """Those that it gets as its record says, percent."""
    key: VerifyKey
    versions: tuple[Mapping[str, Any], ...]
    """What the file says is served."""


def followed(services: Mapping[str, Any]) -> list[Followed]:
    """The services that follow aliases.

    Args:
        services: the stack's section `SECTION`, as its file has it.

    Raises:
        StackError: one doesn't say what it follows, or its key isn't one.
    """
    return [
        _followed(key, cast("dict[str, Any]", entry))
        for key, entry in services.items()
        if isinstance(entry, dict) and cast("dict[str, Any]", entry).get("canary") is not None
    ]


def _followed(service: str, entry: Mapping[str, Any]) -> Followed:
    at = f"falaj:{SECTION}.{service}.canary"
    match entry["canary"]:
        case {"model": str(name), "share": int(share), "verifyKey": str(pem), **rest}:
            model, _, alias = name.partition("@")
        case given:
            keys = ", ".join(cast("dict[str, Any]", given)) if isinstance(given, dict) else given
            raise StackError(
                f"{at}: given {keys!r}; needed: model (MODEL@ALIAS), share (percent) and "
                "verifyKey (the text of the key ring's signing.pub.pem)"
            )
    if not alias or model != entry.get("model"):
        raise StackError(
            f"{at}.model: given {name!r}; allowed: {entry.get('model')}@ALIAS, such as "
            f"{entry.get('model')}@candidate"
        )
    try:
        key = public_keys_of(pem.encode(), f"{at}.verifyKey")
    except WorkloadError as error:
        raise StackError(str(error)) from error
    return Followed(
        service, model, str(rest.get("stable", PRODUCTION)), alias, share,
        tuple(each for each in sequence(rest.get("steps")) if isinstance(each, int)), key,
        tuple(filter(is_dictionary, sequence(entry.get("versions")))),
    )  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What the aliases stand for."""

    versions: list[dict[str, Any]]
    """What the file is to say is served."""
    record: int | None
    """Number of the record by which there is a canary; None where there is none."""
    text: str
    """One line, for people."""


def found(follow: Followed, shelf: Shelf[Client], seen: Seen) -> Found:
    """What a service is to serve by its aliases: what the file says of a version besides, stays.

    A canary is newer than the stable version, and its record still holds and wasn't decided about:
    a version that the stable alias stood for since, and left again, isn't tried once more.

    Args:
        follow: the service.
        shelf: the registry's packages.
        seen: the records that were seen before.

    Before anything was promoted the stable version is the one that the file says is served, or,
    where that says none, the model's first: the one that the canary's alias stands for.

    Raises:
        StackError: the registry is behind what was seen.
        WorkloadError: neither alias stands for anything, or one isn't valid any more.
        RegistryError: the registry can't be asked.
        IntegrityError: a record or package isn't what the trusted key signed.
    """
    first = _first(follow, shelf, seen)
    stable = first or resolve(shelf, follow.model, follow.stable, follow.key, seen)
    tried = newest(shelf, follow.model, follow.canary, follow.key)
    if tried is not None:
        # One that withdrew a canary counts as well: who keeps it back brings the canary back.
        note(seen, shelf.repository(follow.model), tried.record, follow.key)
    why_not = _why_not(follow, shelf, stable, tried)
    if why_not and first is not None:
        why_not = f"there is no alias {follow.stable} yet"
    if tried is None or why_not:
        versions = [_entry(follow, shelf, stable, 100)]
        said = f"{_in_words(stable)} has all requests: {why_not}"
        return Found(versions, None, said + _reason(stable, tried))
    share = _share(follow, tried)
    versions = [_entry(follow, shelf, stable, 100 - share), _entry(follow, shelf, tried, share)]
    shares = f"{_in_words(tried)} has {share} %, {_in_words(stable)} the rest"
    return Found(versions, tried.record.number, shares + _reason(tried))


def _share(follow: Followed, tried: Entry) -> int:
    """The share that a canary's record says it has earned, as far as the file has it so."""
    earned = tried.record.share
    return max((each for each in follow.steps if each <= earned), default=follow.share)


def _reason(*entries: Entry | None) -> str:
    """What the newest of some records says of its reason, as who judged a canary wrote it."""
    records = [each.record for each in entries if each is not None]
    last = max(records, key=lambda each: each.issued)
    said = f"\n  {last.alias} since {last.issued:%Y-%m-%d %H:%M} UTC: {last.why}"
    return said if last.why else ""


def is_published(follow: Followed, shelf: Shelf[Client]) -> bool:
    """Whether any alias that a service follows stands for a version.

    Raises:
        RegistryError: the registry can't be asked.
    """
    return not {follow.stable, follow.canary}.isdisjoint(_records(follow, shelf))


def _records(follow: Followed, shelf: Shelf[Client]) -> dict[str, list[int]]:
    """Numbers of the records of each alias that the registry has of the model."""
    return records_of(shelf.client.tags(shelf.repository(follow.model)))


def _first(follow: Followed, shelf: Shelf[Client], seen: Seen) -> Entry | None:
    """The stable version where nothing was promoted yet; None where something was."""
    have = _records(follow, shelf)
    if follow.stable in have or follow.canary not in have:
        return None
    if not follow.versions:
        return resolve(shelf, follow.model, follow.canary, follow.key, seen)
    served = max(follow.versions, key=lambda each: each.get("weight", 0)).get("version")
    for number in reversed(have[follow.canary]):
        entry = read(shelf, follow.model, follow.canary, number, follow.key)
        if entry.record.version == served:
            return entry
    return None


def _in_words(entry: Entry) -> str:
    record = entry.record
    return f"version {record.version} of {record.model} ({record.alias})"


def _why_not(follow: Followed, shelf: Shelf[Client], stable: Entry, tried: Entry | None) -> str:
    """Why there is no canary; empty where there is one."""
    if tried is None:
        return f"there is no alias {follow.canary}"
    if tried.record.version == stable.record.version:
        return f"{follow.canary} stands for it, too"
    if tried.record.version < stable.record.version:
        return f"{follow.canary} stands for the older version {tried.record.version}"
    if tried.expired(datetime.now(UTC)):
        return f"{follow.canary} was valid until {tried.record.expires:%Y-%m-%d %H:%M} UTC"
    if _was_left(follow, shelf, stable, tried):
        return (
            f"{follow.stable} stood for version {tried.record.version}, and was moved back from it"
        )
    return ""


def _was_left(follow: Followed, shelf: Shelf[Client], stable: Entry, tried: Entry) -> bool:
    """Whether the stable alias stood for the canary's version since the canary's record."""
    for number in reversed(_records(follow, shelf).get(follow.stable, [])):
        entry = read(shelf, follow.model, follow.stable, number, follow.key)
        if entry.record.issued < tried.record.issued:
            return False
        if entry.record.version == tried.record.version:
            return True
    return False


def _entry(follow: Followed, shelf: Shelf[Client], alias: Entry, weight: int) -> dict[str, Any]:
    """What the file is to say of a version."""
    record = alias.record
    image = shelf.package(follow.model, record.version, record.image)
    shelf.contents(image, follow.key)
    _, keys = shelf.keys(image)
    pin = Pin(record.version, image.itself.digest, keys.itself.digest, weight)
    own = next((each for each in follow.versions if each.get("version") == pin.version), None)
    return {**(own or {}), **pin.to_file()}
