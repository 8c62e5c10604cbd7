"""Versions that a stack's file names: written there once, or as aliases stand for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falaj.stacks.command import testplane
from falaj.stacks.command.model_options import Where
from falaj.stacks.command.project import StackFile
from falaj.stacks.images.crane import Crane
from falaj.stacks.models import following
from falaj.stacks.models.pinning import (
    SECTION,
    TIER,
    Pin,
    pinned,
    require_tier,
    service_of,
    tier_pinned,
)
from falaj.stacks.models.seen import SeenHere
from falaj.workloads.registry.shelf import Shelf

if TYPE_CHECKING:
    from falaj.stacks.settings import WorkloadsSettings
    from falaj.stacks.settings.in_cluster import Trainer


def follow_in(file: StackFile, *, dry_run: bool) -> list[Pinned]:
    """Write what the aliases stand for that a stack's services follow.

    Returns:
        One for each service that follows any; none where the stack is of another kind. Of one
        whose first version is awaited, there are no versions.

    Raises:
        StackError: a service doesn't say what it follows, or the registry isn't allowed or behind.
        WorkloadError: an alias can't be resolved, see `falaj.stacks.models.following.found`.
    """
    pins, stood_for = _stood_for(file)
    for each, found in stood_for:
        at = f"{SECTION}.{each.service}"
        values: dict[str, Any] = {f"{at}.versions": found.versions}
        if found.record is not None:
            values[f"{at}.canary.record"] = found.record
        text = written(file, values, dry_run=dry_run)
        pins.append(Pinned(each.service, found.versions, f"{each.service}: {found.text}\n{text}"))
    return pins


def _stood_for(
    file: StackFile,
) -> tuple[list[Pinned], list[tuple[following.Followed, following.Found]]]:
    """Services of a stack whose first version is awaited, and the others with what they follow.

    Raises:
        StackError, WorkloadError: as of `follow_in`.
    """
    asked = _following(file)
    if asked is None:
        return [], []
    follows, awaited, shelf = asked
    waiting = [
        Pinned(each.service, [], _awaits(each, awaited[each.service]))
        for each in follows
        if each.service in awaited and not following.is_published(each, shelf)
    ]
    names = {each.service for each in waiting}
    others = (each for each in follows if each.service not in names)
    return waiting, [(each, following.found(each, shelf, SeenHere())) for each in others]


def moved_in(file: StackFile) -> list[str]:
    """Of each service whose aliases stand for something else than its stack's file has: both.

    Raises:
        StackError: a service doesn't say what it follows, or the registry isn't allowed or behind.
        WorkloadError: an alias can't be resolved, see `falaj.stacks.models.following.found`.
    """
    said: list[str] = []
    for each, now in _stood_for(file)[1]:
        if now.versions != list(each.versions):
            has = ", ".join(
                f"version {one.get('version')} with {one.get('weight', 100)} %"
                for one in each.versions
            )
            said.append(
                f"{each.service}: {file.shown_path} has {has or 'no version'}, "
                f"and its aliases have moved since: {now.text}"
            )
    return said


def has_first_version(file: StackFile) -> bool:
    """Whether there is a version now for a service of a stack whose first one is awaited.

    Raises:
        RegistryError: the registry can't be asked.
    """
    asked = _following(file)
    if asked is None:
        return False
    follows, awaited, shelf = asked
    return any(each.service in awaited and following.is_published(each, shelf) for each in follows)


def _following(
    file: StackFile,
) -> tuple[list[following.Followed], Mapping[str, Trainer], Shelf[Crane]] | None:
    """What services of a stack follow, which of them await their first version, and where.

    Returns:
        None: none follows any, or the stack is of another kind.
    """
    follows = _follows(file)
    if not follows:
        return None
    from falaj.stacks.settings import WorkloadsSettings  # noqa: PLC0415 - as in `_follows`

    settings = file.settings()
    if not isinstance(settings, WorkloadsSettings):
        return None
    shelf = Where(file.name, file.project.root).shelf(_registry_of(settings))
    return follows, settings.awaited, shelf


def _registry_of(settings: WorkloadsSettings) -> str:
    """Where a stack's packages are asked for from here: beside real machines of this computer,
    the registry that answers them for the stack's own."""
    beside = testplane.registry()
    if beside is None:
        return settings.registry
    return "/".join(filter(None, (beside, settings.registry.partition("/")[2])))


def _awaits(follow: following.Followed, trainer: Trainer) -> str:
    return (
        f"{follow.service}: comes once {trainer} has published {follow.model}@{follow.canary}, "
        "its first version"
    )


def _follows(file: StackFile) -> list[following.Followed]:
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    given = [key for key, _ in edit.values_of(file.path, file.project.root)]
    if not any(key.partition(".")[0] == f"falaj:{SECTION}" for key in given):
        return []
    return following.followed(edit.value_of(file.path, file.project.root, SECTION))


@dataclass(frozen=True)
class Pinned:
    """What a stack's file says now, or would."""

    service: str
    versions: list[dict[str, Any]]
    text: str
    """The lines that come into the file."""


def service_in(file: StackFile, model: str, service: str | None) -> tuple[str, dict[str, Any]]:
    """The service of a stack's file that has a model: its key, and what stands there.

    Raises:
        StackError: there is no such file, or no such service in it.
    """
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    if _is_tier(file):
        tier = edit.value_of(file.path, file.project.root, TIER)
        require_tier(tier, model, service)
        return TIER, tier
    services = edit.value_of(file.path, file.project.root, SECTION)
    name = service_of(services, model, service)
    return name, services[name]


def _is_tier(file: StackFile) -> bool:
    """Whether a stack's file is of a tier that serves one model."""
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    given = edit.values_of(file.path, file.project.root)
    return ("blueprint", "smb") in ((key.removeprefix("falaj:"), each) for key, each in given)


def pin_into(
    file: StackFile, model: str, service: str | None, wanted: Pin, *, dry_run: bool
) -> Pinned:
    """Write a version into a stack's file, for the service or the tier that has the model.

    Raises:
        StackError: the file has no such service, or its versions leave no room for this one.
    """

    name, entry = service_in(file, model, service)
    if name == TIER and _is_tier(file):
        pins = tier_pinned(wanted)
        versions, values = [pins], {f"{TIER}.{key}": value for key, value in pins.items()}
    else:
        versions = pinned(entry.get("versions") or [], wanted)
        values = {f"{SECTION}.{name}.versions": versions}
    return Pinned(name, versions, written(file, values, dry_run=dry_run))


def written(file: StackFile, values: dict[str, Any], *, dry_run: bool) -> str:
    """Set keys in a stack's file; what came into it, or would."""
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    if dry_run:
        return "\n".join(f"{key} would be {json.dumps(value)}" for key, value in values.items())
    change = edit.set_values(file.path, file.project.root, values)
    lines = [f"{change.label}:{number}: {line}" for number, line in change.come]
    return "\n".join(lines) or f"{change.label} says so already; nothing was changed"
