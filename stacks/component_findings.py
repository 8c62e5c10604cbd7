"""What components refuse, told by the keys of the stack's file.

A value to write instead is proposed only where the component's check takes it. Loaded only where
something is refused: most runs need none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from falaj.components import catalogue
from falaj.components.specification.argument_errors import ArgumentError, InvalidArgumentsError
from falaj.components.specification.limits import Between, Limit, OneOf, TextRule
from falaj.components.specification.placed import region_zones
from falaj.stacks.invalid_component import InvalidComponent
from falaj.stacks.settings import CloudSettings
from falaj.stacks.settings.corrections import instead
from falaj.stacks.settings.error_messages import value_at
from falaj.stacks.settings.origins import in_words, origin, section_of, steps
from falaj.stacks.settings.problems import Action, Drop, Finding, Put, Rename
from falaj.stacks.settings.problems import Path as KeyPath
from falaj.stacks.settings.shapes import Choice, Number, Text, takes
from falaj.stacks.settings.suggestions import alike

_ABSENT: Any = object()
_NAME: KeyPath = ("name",)
_ACKNOWLEDGED: KeyPath = ("acknowledgeDegraded", "asOf")


def findings(settings: CloudSettings, refused: Sequence[InvalidComponent]) -> list[Finding]:
    """What is wrong with the settings, by the refusals of their components.

    What all components refuse alike, such as a tenant's name, is one finding.
    """
    found: dict[tuple[KeyPath, str], Finding] = {}
    for each in refused:
        for error in each.error.problems:
            finding = _finding(settings, each, error)
            found.setdefault((finding.path, finding.message), finding)
    return list(found.values())


def _finding(settings: CloudSettings, refused: InvalidComponent, error: ArgumentError) -> Finding:
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
    settings: CloudSettings, refused: InvalidComponent, error: ArgumentError, way: KeyPath
) -> Iterator[Any]:
    """Values that the component may take, the likeliest first; at last none at all."""
    given = value_at(refused.args, way)
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


def _mends(refused: InvalidComponent, error: ArgumentError, way: KeyPath, value: Any) -> bool:
    """Whether the component takes the rest as before, and this as well."""
    before = {(each.argument, each.reason) for each in refused.error.problems}
    try:
        refused.check(refused.name, _with(refused.args, way, value))
    except InvalidArgumentsError as invalid:
        after = {(each.argument, each.reason) for each in invalid.problems}
        return after < before and (error.argument, error.reason) not in after
    return True


def _is_name(refused: InvalidComponent, name: str) -> bool:
    try:
        refused.check(name, refused.args)
    except InvalidArgumentsError as invalid:
        return not any(each.argument == "name" for each in invalid.problems)
    return True


def _names(given: str, limit: Limit | None) -> Iterator[str]:
    if isinstance(limit, TextRule):
        yield from (str(each) for each in instead(None, Text(limit), given))
    yield from (each for each in ("addons", "main") if takes(Text(), each))


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
