"""Copies packages from one registry to another, and says how far the other is behind.

The recovery point is the age of the oldest version that the source has and the destination hasn't
wholly: what would be missing if the source were lost now (recovery point objective, RPO).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from falaj.engine.commands import LEFT
from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.aliases import record_tags
from falaj.workloads.registry.oci_layout import ALIAS_TYPE, PACKAGE_TYPE
from falaj.workloads.registry.sending import Say
from falaj.workloads.registry.shelf import Shelf, check_repository, keys_number, tag_of


@dataclass
class CopiedModel:
    """What became of one model's versions."""

    model: str
    versions: list[int] = field(default_factory=list[int])
    """At the source."""
    copied: list[int] = field(default_factory=list[int])
    there: list[int] = field(default_factory=list[int])
    """The destination had them, with all that goes with them."""
    left: dict[str, str] = field(default_factory=dict[str, str])
    """Tags that the destination hasn't, and why."""
    differs: list[str] = field(default_factory=list[str])
    """Of those, tags that stand for something else there."""
    oldest_left: datetime | None = None
    """When the oldest version that is left was published."""
    unknown: bool = False
    """Whether that can't be said of one."""
    records: list[str] = field(default_factory=list[str])
    """Tags of aliases' records that were copied."""

    @property
    def newest_at_source(self) -> int | None:
        """The newest version at the source."""
        return max(self.versions, default=None)

    @property
    def newest_at_destination(self) -> int | None:
        """The newest of the source's versions that the destination has wholly."""
        return max([*self.copied, *self.there], default=None)

    def recovery_point(self, now: datetime) -> float | None:
        """Seconds; 0 where nothing is left, None where it isn't known."""
        if not self.left:
            return 0.0
        if self.unknown or self.oldest_left is None:
            return None
        return max(0.0, (now - self.oldest_left).total_seconds())

    def leave(self, tag: str, why: str, created: datetime | None) -> None:
        """Note what the destination hasn't."""
        self.left[tag] = why
        if created is None:
            self.unknown = True
        elif self.oldest_left is None or created < self.oldest_left:
            self.oldest_left = created

    def to_json(self, now: datetime) -> dict[str, Any]:
        """For programs."""
        return {
            "model": self.model,
            "versions": len(self.versions),
            "copied": self.copied,
            "there": self.there,
            "left": self.left,
            "differs": self.differs,
            "records": self.records,
            "newestAtSource": self.newest_at_source,
            "newestAtDestination": self.newest_at_destination,
            "recoveryPointSeconds": self.recovery_point(now),
        }


@dataclass(frozen=True)
class Copied:
    """What became of all of them, and when that was so."""

    models: tuple[CopiedModel, ...]
    now: datetime
    seconds: float

    @property
    def recovery_point(self) -> float | None:
        """The worst of all models'; None where one isn't known."""
        points = [each.recovery_point(self.now) for each in self.models]
        known = [each for each in points if each is not None]
        return max(known, default=0.0) if len(known) == len(points) else None

    @property
    def exit_status(self) -> int:
        """0, or `LEFT`."""
        return LEFT if any(each.left for each in self.models) else 0

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "models": [each.to_json(self.now) for each in self.models],
            "recoveryPointSeconds": self.recovery_point,
            "seconds": round(self.seconds, 3),
        }


def copy_models(
    source: Shelf[Crane],
    destination: Shelf[Crane],
    models: Sequence[str],
    say: Say,
    *,
    dry_run: bool = False,
) -> Copied:
    """Copy what is missing, oldest versions first; a repeat goes on where the last one ended.

    Records of aliases come over once no version of their model is left: what stands for a version
    never comes before it.

    What is there under the same digest stays, what is there under another is left as it is and
    named. A version that fails doesn't keep the others from being copied.

    Args:
        source: where packages are.
        destination: where they are wanted.
        models: names; none for all that the source says it has.
        say: gets a line about each version.
        dry_run: look only.

    Raises:
        StackError: a registry can't be asked, or the source has no such model.
    """
    since = time.monotonic()
    if models:
        known = {each: source.known(check_repository(each)) for each in dict.fromkeys(models)}
    else:
        # What else stands in the folder, without versions, is somebody else's.
        known = {each: tags for each in source.models() if (tags := source.tags(each))}
    found: list[CopiedModel] = []
    for model, tags in known.items():
        outcome = CopiedModel(model, list(tags))
        there = {tag for each in destination.tags(model).values() for tag in each}
        for number, (version, wanted) in enumerate(tags.items(), 1):
            label = f"{model} [{number}/{len(tags)}] v{version}"
            _copy_version(
                _Version(source, destination, model, version, wanted), there, outcome,
                lambda text, label=label: say(f"{label}: {text}"), dry_run=dry_run,
            )  # fmt: skip
        _copy_records(source, destination, outcome, say, dry_run=dry_run)
        found.append(outcome)
    return Copied(tuple(found), datetime.now(UTC), time.monotonic() - since)


@dataclass(frozen=True)
class _Version:
    """A version at the source, on its way."""

    source: Shelf[Crane]
    destination: Shelf[Crane]
    model: str
    number: int
    tags: Sequence[str]
    """The package's first."""


def _copy_version(
    version: _Version, there: set[str], outcome: CopiedModel, say: Say, *, dry_run: bool
) -> None:
    model, left_before = version.model, len(outcome.left)
    created: datetime | None = None
    missing: list[str] = []
    try:
        wanted = version.source.digests(model, version.tags)
        have = version.destination.digests(model, [tag for tag in wanted if tag in there])
        missing = [tag for tag, digest in wanted.items() if have.get(tag) != digest]
        if not missing:
            outcome.there.append(version.number)
            say("there")
            return
        created = _checked(version, wanted, missing)
        taken = [tag for tag in missing if have.get(tag) is not None]
        for tag in taken:
            why = (
                f"stands for {have[tag]} at {version.destination.address}, for {wanted[tag]} at "
                f"{version.source.address}: find out who pushed it, then remove the wrong one"
            )
            outcome.differs.append(tag)
            outcome.leave(tag, why, created)
            say(f"REFUSED: {tag} {why}")
        # Without its package, or with another one, what goes with it is of no use.
        if tag_of(version.number) in taken:
            return
        for tag in missing:
            if tag in taken:
                continue
            if dry_run:
                outcome.leave(tag, "would be copied", created)
                say(f"{tag} would be copied")
                continue
            _copy_tag(version, tag, str(wanted[tag]), say)
    except (StackError, WorkloadError) as error:
        say(f"FAILED\n  {error}")
        for tag in missing or version.tags:
            if tag not in outcome.left:
                outcome.leave(tag, str(error), created)
        return
    if len(outcome.left) == left_before:
        outcome.copied.append(version.number)
        say("copied")


def _copy_records(
    source: Shelf[Crane],
    destination: Shelf[Crane],
    outcome: CopiedModel,
    say: Say,
    *,
    dry_run: bool,
) -> None:
    model, waits = outcome.model, bool(outcome.left)
    try:
        tags = record_tags(source.client.tags(source.repository(model)))
        wanted = source.digests(model, tags)
        have = destination.digests(model, tags)
    except StackError as error:
        say(f"{model}: FAILED\n  {error}")
        outcome.leave("alias.*", str(error), None)
        return
    for tag in tags:
        if have[tag] == wanted[tag]:
            continue
        try:
            created = source.image(model, tag, ALIAS_TYPE).created_at
            if have[tag] is not None:
                outcome.differs.append(tag)
                why = (
                    f"stands for {have[tag]} at {destination.address}, for {wanted[tag]} at "
                    f"{source.address}: two signed the same number; promote at one registry only"
                )
                outcome.leave(tag, why, created)
                say(f"{model}: REFUSED: {tag} {why}")
            elif waits or dry_run:
                why = "would be copied" if dry_run else "comes after the versions that are left"
                outcome.leave(tag, why, created)
                say(f"{model}: {tag} {why}")
            else:
                source.client.copy(
                    f"{source.repository(model)}@{wanted[tag]}", destination.at(model, tag)
                )
                destination.require(model, tag, str(wanted[tag]))
                outcome.records.append(tag)
                say(f"{model}: {tag} copied")
        except (StackError, WorkloadError) as error:
            say(f"{model}: FAILED: {tag}\n  {error}")
            outcome.leave(tag, str(error), None)


def _checked(
    version: _Version, wanted: Mapping[str, str | None], missing: Sequence[str]
) -> datetime:
    """Look at what is about to be copied; returns when the version was published.

    Raises:
        IntegrityError: it is no package, or no keys of it.
    """
    model, tag = version.model, tag_of(version.number)
    package = version.source.image(model, tag, PACKAGE_TYPE)
    if package.itself.digest != wanted.get(tag):
        raise IntegrityError(f"{version.source.at(model, tag)} was moved meanwhile; run again")
    for each in missing:
        if keys_number(each):
            version.source.keys_at(each, package)
    return package.created_at


def _copy_tag(version: _Version, tag: str, digest: str, say: Say) -> None:
    source = f"{version.source.repository(version.model)}@{digest}"
    say(f"copying {tag}")
    version.source.client.copy(source, version.destination.at(version.model, tag))
    version.destination.require(version.model, tag, digest)
