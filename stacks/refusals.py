"""What components refuse of a stack's settings, told by the keys of its file.

What a component would take instead is tried on the component itself before it is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from falaj.components import catalogue
from falaj.components.specification.limits import Between, Limit, OneOf, TextRule
from falaj.components.specification.refusals import Refusal as ArgumentRefusal
from falaj.components.specification.refusals import RefusedArgumentsError
from falaj.components.specification.zones import region_zones
from falaj.stacks.settings.cloud import CloudSettings
from falaj.stacks.settings.origins import in_words, origin, section_of, steps
from falaj.stacks.settings.problems import Action, Drop, Finding, Path, Put, Rename
from falaj.stacks.settings.shapes import Choice, Number, Text, takes
from falaj.stacks.settings.suggestions import alike, instead

#: Checks a component's arguments by its name.
Check: TypeAlias = Callable[[str, Mapping[str, Any]], object]
_ABSENT: Any = object()
_NAME: Path = ("name",)
_ACKNOWLEDGED: Path = ("acknowledgeDegraded", "asOf")


@dataclass(frozen=True)
class Refused:
    """A component that refused its arguments."""

    component: str
    """Its class."""
    name: str
    args: Mapping[str, Any]
    check: Check
    error: RefusedArgumentsError


def findings(settings: CloudSettings, refused: Sequence[Refused]) -> list[Finding]:
    """What is wrong with the settings, by the refusals of their components.

    What all components refuse alike, such as a tenant's name, is one finding.
    """
    found: dict[tuple[Path, str], Finding] = {}
    for each in refused:
        for refusal in each.error.refusals:
            finding = _finding(settings, each, refusal)
            found.setdefault((finding.path, finding.said), finding)
    return list(found.values())


def _finding(settings: CloudSettings, refused: Refused, refusal: ArgumentRefusal) -> Finding:
    said = in_words(settings, refusal.reason)
    way = steps(refusal.argument, refused.args)
    if way == _NAME and "name" not in refused.args:
        path = section_of(refused.component, refused.name) or ()
        names = (name for name in _names(refused.name, refusal.limit) if _is_name(refused, name))
        return Finding(path, said, tuple(Rename(path, each) for each in names), at_key=True)
    path = origin(settings, refused.component, refused.name, way)
    if path == _ACKNOWLEDGED and settings.acknowledge_degraded is None:
        return _unacknowledged(settings, said, refusal)
    actions: list[Action] = []
    for value in _candidates(settings, refused, refusal, way):
        if _mends(refused, refusal, way, value):
            actions.append(Drop(path) if value is _ABSENT else Put(path, value))
            break
    return Finding(path, said, tuple(actions))


def _unacknowledged(settings: CloudSettings, said: str, refusal: ArgumentRefusal) -> Finding:
    """A degraded region that nobody has accepted; for the sandbox that can be done at once."""
    path = _ACKNOWLEDGED[:1]
    stamps = refusal.limit.values if isinstance(refusal.limit, OneOf) else ()
    region = settings.places[0].partition("/")[2]
    accepted = ({"region": region, "asOf": str(stamp), "for": "sandbox"} for stamp in stamps)
    return Finding(path, said, tuple(Put(path, each) for each in accepted))


def _candidates(
    settings: CloudSettings, refused: Refused, refusal: ArgumentRefusal, way: Path
) -> Iterator[Any]:
    """Values that the component may take, the likeliest first; at last none at all."""
    given = _at(refused.args, way)
    yield from _aliases(settings, given)
    match refusal.limit:
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


def _mends(refused: Refused, refusal: ArgumentRefusal, way: Path, value: Any) -> bool:
    """Whether the component takes the rest as before, and this as well."""
    before = {(each.argument, each.reason) for each in refused.error.refusals}
    try:
        refused.check(refused.name, _with(refused.args, way, value))
    except RefusedArgumentsError as error:
        after = {(each.argument, each.reason) for each in error.refusals}
        return after < before and (refusal.argument, refusal.reason) not in after
    return True


def _is_name(refused: Refused, name: str) -> bool:
    try:
        refused.check(name, refused.args)
    except RefusedArgumentsError as error:
        return not any(each.argument == "name" for each in error.refusals)
    return True


def _names(given: str, limit: Limit | None) -> Iterator[str]:
    if isinstance(limit, TextRule):
        yield from (str(each) for each in instead(None, Text(limit), given))
    yield from (each for each in ("addons", "main") if takes(Text(), each))


def _at(args: Any, way: Path) -> Any:
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


def _with(args: Any, way: Path, value: Any) -> Any:
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
