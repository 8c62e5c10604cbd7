"""Asks registries which digest each tag stands for, and says where a tag was moved."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from falaj.stacks.errors import StackError
from falaj.stacks.images.chart_archives import Helm, archive_digest, layer_digest
from falaj.stacks.images.crane import Crane, RegistryError
from falaj.stacks.images.items import Item
from falaj.stacks.images.lock import Lock, Locked

#: Registries limit how fast they are asked; a handful at once is what browsers do.
AT_ONCE: Final = 6


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
