"""Copies images and charts into the registry of a closed network, by digest, and looks after.

A second run copies nothing; one that was interrupted goes on with what is missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane, Helm, RegistryError, archive_digest, layer_digest
from falaj.stacks.images.items import Item, Lock, Locked
from falaj.workloads.registry.shelf import AT_ONCE

Say = Callable[[str], None]
UNKNOWN: Final = (
    "no digest is known, and a tag alone may be moved: let `falaj images pin --lock FILE` ask for "
    "it, and name the file with --lock"
)


@dataclass
class Outcome:
    """What a run did, by item's name."""

    copied: list[str] = field(default_factory=list[str])
    there: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    """Would have been copied, in a dry run."""
    moved: list[str] = field(default_factory=list[str])
    """Their tags stand for something else upstream by now; copied by digest all the same."""
    failed: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def exit_status(self) -> int:
        """1 where something failed."""
        return 1 if self.failed else 0


class Mirror:
    """A registry that is filled."""

    def __init__(
        self, registry: str, crane: Crane, helm: Helm, say: Say, *, dry_run: bool = False
    ) -> None:
        """``registry`` was checked by `require_in_country`."""
        self._registry = registry
        self._crane = crane
        self._helm = helm
        self._say = say
        self._dry_run = dry_run

    def fill(self, wanted: Sequence[Item]) -> Outcome:
        """Copy what is missing; one that fails doesn't keep the others from being copied."""
        outcome = Outcome()
        for number, item in enumerate(wanted, 1):
            label = f"[{number}/{len(wanted)}] {item.name}"
            try:
                self._one(item, label, outcome)
            except StackError as error:
                outcome.failed[item.name] = str(error)
                self._say(f"{label}: FAILED\n  {error}")
        return outcome

    def _one(self, item: Item, label: str, outcome: Outcome) -> None:
        target = item.at(self._registry)
        if item.digest is None:
            raise StackError(UNKNOWN)
        have = digest_there(self._crane, item, target)
        if have == item.digest:
            outcome.there.append(item.name)
            self._say(f"{label}: there")
            return
        if have is not None:
            raise StackError(
                f"{target} is {have}, not {item.digest}: somebody pushed another image under the "
                "same tag; find out who, then remove that tag from the registry and run again"
            )
        if item.is_ours:
            raise StackError(
                f"{target} is missing: it is built here, with `falaj images build {item.name} "
                f"--push {self._registry}`"
            )
        if self._dry_run:
            outcome.missing.append(item.name)
            self._say(f"{label}: would be copied from {item.upstream} to {target}")
            return
        if item.is_archive:
            self._send_archive(item)
        else:
            if self._has_moved(item):
                outcome.moved.append(item.name)
                self._say(f"{label}: the tag {item.upstream} stands for something else by now; "
                          f"what is pinned is copied: {item.digest}")  # fmt: skip
            self._crane.copy(f"{item.source}@{item.digest}", target)
        self._verify(item, target)
        outcome.copied.append(item.name)
        self._say(f"{label}: copied to {target}")

    def _has_moved(self, item: Item) -> bool:
        return self._crane.digest(item.upstream) not in (None, item.digest)

    def _send_archive(self, item: Item) -> None:
        with tempfile.TemporaryDirectory(prefix="falaj-chart-") as folder:
            archive = self._helm.fetch(item, Path(folder))
            got = archive_digest(archive)
            if got != item.digest:
                raise RegistryError(
                    f"{item.source} gave an archive of {item.name} {item.tag} with {got}, pinned "
                    f"is {item.digest}: its content was changed since; not copied"
                )
            self._helm.push(archive, self._registry, item.mirror)

    def _verify(self, item: Item, target: str) -> None:
        have = digest_there(self._crane, item, target)
        if have != item.digest:
            raise RegistryError(
                f"{target} is {have or 'missing'} after copying, not {item.digest}: the registry "
                "changes what it is sent, or somebody else pushes there; don't use it"
            )


# Asks registries which digest each tag stands for, and says where a tag was moved.


def digest_there(crane: Crane, item: Item, target: str) -> str | None:
    """The digest of an image, or of a chart's archive, in a registry; None where none is there."""
    return layer_digest(crane, target) if item.is_archive else crane.digest(target)


@dataclass
class Pinned:
    """What registries said."""

    lock: Lock
    """The old lock with what was found."""
    found: list[str] = field(default_factory=list[str])
    moved: dict[str, str] = field(default_factory=dict[str, str])
    """Tags that stand for another digest than what was pinned; those stay as they were."""
    failed: dict[str, str] = field(default_factory=dict[str, str])


def pin(
    wanted: Sequence[Item],
    lock: Lock,
    *,
    registry: str | None,
    today: str,
    crane: Crane,
    helm: Helm,
    accept: Collection[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> Pinned:
    """Ask for the digest of each tag.

    Args:
        wanted: what to ask for.
        lock: what was pinned so far.
        registry: the mirror to ask. Default: each image's own registry upstream.
        today: the date to write, ``YYYY-MM-DD``.
        crane: asks registries.
        helm: fetches charts that no registry serves.
        accept: names whose tags may have moved.
        progress: gets one line for each answer.
    """
    entries = {kind: dict(lock.of(kind)) for kind in ("images", "charts")}
    result = Pinned(lock)

    def ask(item: Item) -> str | StackError:
        try:
            return _digest(item, registry, crane, helm)
        except StackError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for item, answer in zip(wanted, pool.map(ask, wanted), strict=True):
            reference = item.at(registry) if registry else item.upstream
            if isinstance(answer, StackError):
                result.failed[item.name] = str(answer)
                progress(f"{item.name}: FAILED\n  {answer}")
            elif item.digest not in (None, answer) and item.name not in accept:
                result.moved[item.name] = (
                    f"{reference} stands for {answer} now; pinned is {item.digest}"
                )
                progress(f"{item.name}: MOVED\n  {result.moved[item.name]}")
            else:
                entries[item.kind][item.name] = Locked(reference, answer, today)
                result.found.append(item.name)
                progress(f"{item.name}: {answer}")
    result.lock = Lock(entries["images"], entries["charts"])
    return result


def _digest(item: Item, registry: str | None, crane: Crane, helm: Helm) -> str:
    if registry is not None:
        there = (
            layer_digest(crane, item.at(registry))
            if item.is_archive
            else crane.digest(item.at(registry))
        )
        if there is None:
            raise RegistryError(f"{item.at(registry)} is not there; mirror it or build it first")
        return there
    if item.is_ours:
        raise RegistryError(
            "it is built here: build and push it with `falaj images build --push REGISTRY`, then "
            "ask that registry with --registry"
        )
    if item.is_archive:
        with tempfile.TemporaryDirectory(prefix="falaj-chart-") as folder:
            return archive_digest(helm.fetch(item, Path(folder)))
    upstream = crane.digest(item.upstream)
    if upstream is None:
        raise RegistryError(f"{item.upstream} is not there: the tag was removed upstream")
    return upstream
