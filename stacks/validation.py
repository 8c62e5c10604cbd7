"""Finds what a stack's components would refuse, before the engine makes the first resource.

The stack's blueprint is run as for a deployment, but instead of the components it is handed
stand-ins of the same names (`CheckedComponents`): each calls the check of the component's
arguments, notes what that refuses, and makes nothing. What the next components take of its outputs
is a `Placeholder`. So every component is checked with exactly the arguments that it would get.

What was refused is told by the keys of the stack's file. A value to write instead is proposed only
where the component's check takes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import pulumi

from falaj.components import catalogue
from falaj.components.specification.argument_errors import ArgumentError, InvalidArgumentsError
from falaj.components.specification.limits import Between, Limit, OneOf, TextRule
from falaj.components.specification.placed import region_zones
from falaj.components.specification.property_names import module_of
from falaj.stacks.blueprints.cloud import (
    Cloud,
    common_arguments,
    declare_cluster,
    declare_foundation,
    declare_smb,
)
from falaj.stacks.sandbox_guard import made_up
from falaj.stacks.settings import (
    CloudSettings,
    ClusterSettings,
    InClusterSettings,
    SmbSettings,
)
from falaj.stacks.settings.cloud import OwnFoundation
from falaj.stacks.settings.origins import in_words, origin, section_of, steps
from falaj.stacks.settings.problems import (
    Action,
    Drop,
    Finding,
    Put,
    RefusedSettingsError,
    Rename,
)
from falaj.stacks.settings.problems import (
    Path as KeyPath,
)
from falaj.stacks.settings.shapes import Choice, Number, Text, takes
from falaj.stacks.settings.suggestions import alike, instead

#: Checks a component's arguments by its name.
Check: TypeAlias = Callable[[str, Mapping[str, Any]], object]
_ABSENT: Any = object()
_NAME: KeyPath = ("name",)
_ACKNOWLEDGED: KeyPath = ("acknowledgeDegraded", "asOf")


@dataclass(frozen=True)
class Refused:
    """A component that refused its arguments."""

    component: str
    """Its class."""
    name: str
    args: Mapping[str, Any]
    check: Check
    error: InvalidArgumentsError


def findings(settings: CloudSettings, refused: Sequence[Refused]) -> list[Finding]:
    """What is wrong with the settings, by the refusals of their components.

    What all components refuse alike, such as a tenant's name, is one finding.
    """
    found: dict[tuple[KeyPath, str], Finding] = {}
    for each in refused:
        for error in each.error.problems:
            finding = _finding(settings, each, error)
            found.setdefault((finding.path, finding.message), finding)
    return list(found.values())


def _finding(settings: CloudSettings, refused: Refused, error: ArgumentError) -> Finding:
    message = in_words(settings, error.reason)
    way = steps(error.argument, refused.args)
    if way == _NAME and "name" not in refused.args:
        path = section_of(refused.component, refused.name) or ()
        names = (name for name in _names(refused.name, error.limit) if _is_name(refused, name))
        return Finding(path, message, tuple(Rename(path, each) for each in names), at_key=True)
    path = origin(settings, refused.component, refused.name, way)
    if path == _ACKNOWLEDGED and settings.acknowledge_degraded is None:
        return _unacknowledged(settings, message, error)
    actions: list[Action] = []
    for value in _candidates(settings, refused, error, way):
        if _mends(refused, error, way, value):
            actions.append(Drop(path) if value is _ABSENT else Put(path, value))
            break
    return Finding(path, message, tuple(actions))


def _unacknowledged(settings: CloudSettings, message: str, error: ArgumentError) -> Finding:
    """A degraded region that nobody has accepted; for the sandbox that can be done at once."""
    path = _ACKNOWLEDGED[:1]
    stamps = error.limit.values if isinstance(error.limit, OneOf) else ()
    region = settings.places[0].partition("/")[2]
    accepted = ({"region": region, "asOf": str(stamp), "for": "sandbox"} for stamp in stamps)
    return Finding(path, message, tuple(Put(path, each) for each in accepted))


def _candidates(
    settings: CloudSettings, refused: Refused, error: ArgumentError, way: KeyPath
) -> Iterator[Any]:
    """Values that the component may take, the likeliest first; at last none at all."""
    given = _at(refused.args, way)
    yield from _aliases(settings, given)
    match error.limit:
        case OneOf(values):
            yield from instead(None, Choice(values), given)
            yield from values
        case Between() as limits:
            yield from instead(None, Number(isinstance(given, int), limits), given)
        case TextRule() as rule:
            yield from instead(None, Text(rule), given)
        case _:
            pass
    yield _ABSENT


def _aliases(settings: CloudSettings, given: Any) -> Iterator[str]:
    """Zones by the names that the catalogue knows beside those that resources use."""
    for name in settings.places:
        if name not in catalogue.PLACES or not isinstance(given, str):
            continue
        place = catalogue.parse(name)
        for zone, known in zip(region_zones(place), place.zones, strict=False):
            names = [known.id, *([zone, f"{place.region}-{zone}"] if known.name else [])]
            if given != zone and any(alike(given, each) for each in names):
                yield zone


def _mends(refused: Refused, error: ArgumentError, way: KeyPath, value: Any) -> bool:
    """Whether the component takes the rest as before, and this as well."""
    before = {(each.argument, each.reason) for each in refused.error.problems}
    try:
        refused.check(refused.name, _with(refused.args, way, value))
    except InvalidArgumentsError as invalid:
        after = {(each.argument, each.reason) for each in invalid.problems}
        return after < before and (error.argument, error.reason) not in after
    return True


def _is_name(refused: Refused, name: str) -> bool:
    try:
        refused.check(name, refused.args)
    except InvalidArgumentsError as invalid:
        return not any(each.argument == "name" for each in invalid.problems)
    return True


def _names(given: str, limit: Limit | None) -> Iterator[str]:
    if isinstance(limit, TextRule):
        yield from (str(each) for each in instead(None, Text(limit), given))
    yield from (each for each in ("addons", "main") if takes(Text(), each))


def _at(args: Any, way: KeyPath) -> Any:
    here = args
    for part in way:
        if isinstance(here, Mapping):
            here = cast("Mapping[Any, Any]", here).get(part)
        elif isinstance(here, list) and isinstance(part, int):
            items = cast("list[Any]", here)
            here = items[part] if part < len(items) else None
        else:
            return None
    return here


def _with(args: Any, way: KeyPath, value: Any) -> Any:
    """Arguments with another value; what isn't on the way there stays the same object."""
    if not way:
        return value
    part, *rest = way
    if isinstance(args, list) and isinstance(part, int):
        items = list(cast("list[Any]", args))
        if value is _ABSENT and not rest:
            del items[part : part + 1]
        elif part < len(items):
            items[part] = _with(items[part], tuple(rest), value)
        return items
    changed = dict(cast("Mapping[Any, Any]", args)) if isinstance(args, Mapping) else {}
    if value is _ABSENT and not rest:
        changed.pop(part, None)
    else:
        changed[part] = _with(changed.get(part), tuple(rest), value)
    return changed


class Placeholder:
    """Stands for an output: whatever is read from it is as unknown as itself."""

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: str) -> Placeholder:
        return self

    def apply(self, function: Callable[..., object]) -> Placeholder:
        """Nothing is known, so nothing is done."""
        del function
        return self


class CheckedComponents:
    """Components that only check their arguments, and remember what they refuse."""

    def __init__(self, check_of: Callable[[str], Check]) -> None:
        """``check_of`` finds a component's check by the component's module."""
        self._check_of = check_of
        self.refused: list[Refused] = []

    @classmethod
    def in_cloud(cls, cloud: str) -> CheckedComponents:
        """The components of ``aws`` or ``azure``."""

        def check_of(module: str) -> Check:
            check = importlib.import_module(f"falaj.components.specification.{module}").check
            return lambda name, args: check(cloud, name, args)

        return cls(check_of)

    @classmethod
    def in_cluster(cls) -> CheckedComponents:
        """The components inside a cluster."""
        return cls(
            lambda module: importlib.import_module(f"falaj.components.kubernetes.{module}").check
        )

    def __getattr__(self, component: str) -> Callable[..., Placeholder]:
        check = self._check_of(module_of(component))

        def make(name: str, args: Mapping[str, Any], options: object) -> Placeholder:
            del options
            try:
                check(name, args)
            except InvalidArgumentsError as invalid:
                self.refused.append(Refused(component, name, args, check, invalid))
            return Placeholder()

        return make

    def require_accepted(self, settings: CloudSettings) -> None:
        """Raises SettingsError with everything that was refused, by the stack's keys."""
        found = findings(settings, self.refused)
        if found:
            raise RefusedSettingsError.of(settings.provenance, found)


class OutputPlaceholder(pulumi.Output[Any]):
    """Stands for an output where components ask whether a value is one."""

    def __init__(self) -> None:
        """Nothing is known of it, and nothing waits for it."""


def validate_in_cluster(settings: InClusterSettings, digests: Mapping[str, str]) -> None:
    """Check the arguments of every component of a stack inside a cluster.

    Args:
        settings: the stack's settings.
        digests: of images, by their short names.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    # A stack in a cloud needs none of these.
    from falaj.stacks.blueprints import in_cluster  # noqa: PLC0415
    from falaj.stacks.settings import PlatformSettings, WorkloadsSettings  # noqa: PLC0415

    checked = CheckedComponents.in_cluster()
    parts = in_cluster.InClusterParts(
        checked, in_cluster.common_arguments(settings), digests, pulumi.ResourceOptions(),
        unknown=OutputPlaceholder(),
    )  # fmt: skip
    if isinstance(settings, PlatformSettings):
        in_cluster.declare_platform(settings, parts)
    elif isinstance(settings, WorkloadsSettings):
        in_cluster.declare_workloads(settings, parts)
    checked.require_accepted(settings)


def validate_in_cloud(
    settings: CloudSettings, place: catalogue.Place, made_up: Mapping[str, Any]
) -> None:
    """Check the arguments of every component of a stack.

    Args:
        settings: the stack's settings.
        place: where it is to be made.
        made_up: what the sandbox stands in with.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    parts = CheckedComponents.in_cloud(place.cloud)
    common = common_arguments(settings, place)
    cloud = Cloud(place, parts, common, pulumi.ResourceOptions(), unknown=Placeholder())
    if isinstance(settings, ClusterSettings):
        declare_cluster(settings, cloud)
    elif isinstance(settings, SmbSettings):
        declare_smb(settings, cloud, made_up)
    elif isinstance(settings, OwnFoundation):
        declare_foundation(settings, cloud)
    parts.require_accepted(settings)


def with_what_components_refuse(error: RefusedSettingsError, root: Path) -> RefusedSettingsError:
    """A refusal of settings, with what the components would refuse of the rest.

    Args:
        error: what was refused before any component was asked.
        root: the project's folder.
    """
    try:
        ask_components(error.mended, root)
    except RefusedSettingsError as more:
        return error.and_also(more)
    return error


def ask_components(settings: Any, root: Path) -> None:
    """Check what can be known of a stack beside its settings' types, as in the sandbox.

    Args:
        settings: of any stack; of a local one nothing is asked.
        root: the project's folder, where the path of the images' lock file starts.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    if isinstance(settings, InClusterSettings):
        from falaj.stacks.image_digests import digests  # noqa: PLC0415

        validate_in_cluster(settings, digests(settings, root, sandboxed=True).by_name)
    elif isinstance(settings, CloudSettings) and len(settings.places) == 1:
        place = catalogue.parse(settings.places[0])
        validate_in_cloud(settings, place, made_up(settings, place))
