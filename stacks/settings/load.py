"""From a stack file, or from the engine, to checked settings of the stack's kind.

Values that the kind's model refuses become findings. Each is mended as it proposes and the rest is
checked once more, so that one mistake doesn't hide the others.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from falaj.components.catalogue.own_models import OWN_MODEL
from falaj.components.nearest import nearest
from falaj.stacks.settings.document import decimal, written
from falaj.stacks.settings.given import Given, Values, as_meant, foreign, nest
from falaj.stacks.settings.problems import (
    Action,
    Drop,
    Finding,
    Problem,
    Put,
    RefusedSettingsError,
    Rename,
    before,
    format_value,
    is_secret,
    is_there,
    mended,
)
from falaj.stacks.settings.problems import Path as KeyPath
from falaj.stacks.settings.shapes import (
    AnyValue,
    ByName,
    Choice,
    Either,
    Key,
    Keys,
    Number,
    Shape,
    at,
    below,
    choices,
    describe,
    example,
    key_of_model,
    keys_of,
    section_at,
    takes,
)
from falaj.stacks.settings.source import given_by_engine, given_in_files
from falaj.stacks.settings.suggestions import closest, instead, meant
from falaj.wire.documents import is_sequence

if TYPE_CHECKING:
    from falaj.stacks.settings.cloud import ClusterSettings, FoundationSettings, SmbSettings
    from falaj.stacks.settings.in_cluster import PlatformSettings, WorkloadsSettings
    from falaj.stacks.settings.local import LocalSettings

    Settings: TypeAlias = (
        LocalSettings
        | FoundationSettings
        | ClusterSettings
        | SmbSettings
        | PlatformSettings
        | WorkloadsSettings
    )


# The kinds of stacks. The settings of each are loaded where a stack is of that kind: those of a
# local stack need no component.

#: Where the settings of each kind are, by the name that the reference gives it.
MODELS: Final[Mapping[str, tuple[str, str]]] = {
    "local": ("local", "LocalSettings"),
    "foundation": ("cloud", "FoundationSettings"),
    "cluster": ("cloud", "ClusterSettings"),
    "smb": ("cloud", "SmbSettings"),
    "platform": ("in_cluster", "PlatformSettings"),
    "workloads": ("in_cluster", "WorkloadsSettings"),
}

PLATFORMS: Final = ("local", "aws", "azure", "kubernetes")


class Kinds(Mapping[str, "type[Settings]"]):
    """Settings by a name, each loaded when it is asked for."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        """``kinds`` are the kinds by the names that a stack gives them."""
        self._kinds = kinds

    def __getitem__(self, name: str) -> type[Settings]:
        module, model = MODELS[self._kinds[name]]
        return getattr(importlib.import_module(f"falaj.stacks.settings.{module}"), model)

    def kind(self, name: str) -> str:
        """The kind that a stack names so."""
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        return name in self._kinds  # without loading it

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


ALL: Final = Kinds({name: name for name in MODELS})
#: The kinds of stacks in a cloud, and the settings of each.
BLUEPRINTS: Final = Kinds({name: name for name in MODELS if name != "local"})
#: The kinds on an existing cluster: its ``cluster`` is what a cloud's ``platform`` is.
EXISTING: Final = Kinds({"cluster": "platform", "workloads": "workloads"})


def kinds_on(platform: object) -> Kinds:
    """What a stack on a platform may be."""
    return EXISTING if platform == "kubernetes" else BLUEPRINTS


# What pydantic refuses becomes findings: what was given, what is allowed, what would mend it.

_PLAIN_TEXT = "settings are read before anything is decrypted: write it as plain text"


def refused(error: ValidationError, model: type[BaseModel], own: Any) -> list[Finding]:
    """One finding for each place that was refused.

    Args:
        error: what pydantic says.
        model: what the stack's values were to be.
        own: the values.
    """
    by_path: dict[KeyPath, ErrorDetails] = {}
    for problem in error.errors(include_url=False, include_context=False):
        by_path.setdefault(_path(problem["loc"], model, own), problem)
    whole = Keys(model)
    found = {
        path: _finding(path, problem, model, own)
        for path, problem in by_path.items()
        # Of several shapes the one that got furthest was meant.
        if not (isinstance(at(whole, path), Either) and any(_is_below(e, path) for e in by_path))
    }
    return [
        each
        for each in _each_name_once(found.values())
        if by_path[each.path]["type"] != "missing" or each.path not in _misspelt(found.values())
    ]


def _misspelt(findings: Iterable[Finding]) -> set[KeyPath]:
    """Keys that are there under the names that some findings correct: they aren't missing."""
    return {
        (*first.path[:-1], first.name)
        for each in findings
        if each.actions and isinstance(first := each.actions[0], Rename)
    }


def _each_name_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings of which no two give keys of a section the same name."""
    taken: set[KeyPath] = set()
    for each in findings:
        actions: list[Action] = []
        for action in each.actions:
            if isinstance(action, Rename) and (*action.path[:-1], action.name) in taken:
                continue
            actions.append(action)
        yield dataclasses.replace(each, actions=tuple(actions))
        if actions and isinstance(actions[0], Rename):
            taken.add((*actions[0].path[:-1], actions[0].name))


def _is_below(path: KeyPath, other: KeyPath) -> bool:
    return len(path) > len(other) and path[: len(other)] == other


def encrypted(own: Any, given: Given) -> list[Finding]:
    """Values that are encrypted in the file, or that the engine has decrypted."""
    paths = [path for path, key in given.own() if key in given.secrets]
    paths += [path for path in _secrets(own, ()) if path not in paths]
    return [Finding(path, f"given an encrypted value; {_PLAIN_TEXT}") for path in paths]


def _secrets(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if is_secret(value):
        yield path
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _secrets(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(cast("list[Any]", value)):
            yield from _secrets(inner, (*path, position))


def unclear(given: Given, model: type[BaseModel]) -> list[Finding]:
    """What stands without quotes and is read as something else than it looks like.

    Keys that are no text, and keys of the engine's own level without a value: it hands on an
    empty text for them.
    """
    whole = Keys(model)
    found = [
        Finding(path, "the key is no text; put it in quotes", (Rename(path, key.text),), True)
        for path, key in given.key_scalars()
        if not key.quote
        and not isinstance(key.value, str)
        # Another name wouldn't make it a key where only certain ones are.
        and at(whole, (*path[:-1], key.text)) is not None
    ]
    tops = {path for path, _ in given.own()}
    for path, scalar in given.scalars():
        if scalar.value is None and path in tops:
            message = "given nothing; write a value, or leave the key out"
            found.append(Finding(path, message, (Drop(path),)))
        shape = at(whole, path)
        if shape is None or scalar.quote:
            continue
        numeric = any(isinstance(each, Number | AnyValue) for each in choices(shape))
        if scalar.unclear:
            number = decimal(scalar.text) if numeric else None
            value = scalar.text if number is None else number
            hint = _quotes(shape, scalar.text) if number is None else f"write {written(number)}"
            message = f"given {scalar.text} without quotes, {scalar.unclear}; {hint}"
        elif scalar.loses and not numeric:
            message = (
                f"given {scalar.text} without quotes, read as the number "
                f"{format_value(scalar.value)}; {_quotes(shape, scalar.text)}"
            )
            value = scalar.text
        else:
            continue
        if isinstance(value, str):
            value = next(iter(allowed_here(shape, (value, *meant(shape, value)))), value)
        found.append(Finding(path, message, (Put(path, value),)))
    return found


def _quotes(shape: Shape, text: str) -> str:
    """What to do about a text that lacks its quotes."""
    return "put it in quotes" if takes(shape, text) else f"allowed: {describe(shape)}"


def value_at(own: Any, path: KeyPath) -> Any:
    """The value at a path of plain values; None where there is none."""
    here = own
    for part in path:
        if isinstance(here, dict):
            here = cast("dict[Any, Any]", here).get(part)
        elif is_sequence(here) and isinstance(part, int) and 0 <= part < len(here):
            here = here[part]
        else:
            return None
    return here


def allowed_here(shape: Shape, values: Iterable[Any]) -> Iterator[Any]:
    """Those of some values that a shape really takes."""
    return (value for value in values if takes(shape, value))


_IN_PODS: Final = frozenset({"trainingJobs", "sweeps", "pipelines"})
"""Sections in which people expect the keys that ``training`` has on one machine."""


def unknown_key(path: KeyPath, model: type[BaseModel]) -> Finding:
    """A key that a section doesn't have."""
    names = [key.name for key in keys_of(model)]
    if path[0] in _IN_PODS and path[-1] in OWN_MODEL:
        message = (
            "unknown key; a folder of code is trained on one machine (falaj:training) and doesn't "
            "travel to pods: build an image with your model and its program, and name them as "
            f"image and program of a training job\n  allowed here: {', '.join(sorted(names))}"
        )
        return Finding(path, message, (Drop(path),), at_key=True)
    near = nearest(path[-1], names) or [name for name in [closest(path[-1], names)] if name]
    hint = f"; did you mean {near[0]}?" if near else ""
    actions: tuple[Action, ...] = (*(Rename(path, each) for each in near), Drop(path))
    message = f"unknown key{hint}\n  allowed here: {', '.join(sorted(names))}"
    return Finding(path, message, actions, at_key=True)


def _finding(path: KeyPath, problem: ErrorDetails, model: type[BaseModel], own: Any) -> Finding:
    whole = Keys(model)
    if problem["type"] == "extra_forbidden":
        return unknown_key(path, section_at(whole, path[:-1]) or model)
    key = _key(whole, path)
    shape = at(whole, path) or AnyValue()
    if problem["type"] == "missing":
        value = key.example if key and key.example else example(shape, str(path[-1]))
        return Finding(path, f"missing; allowed: {describe(shape)}", (Put(path, value),))
    named = at(whole, path[:-1])
    if problem["loc"][-1] == "[key]":
        return _wrong_name(path, cast("ByName", named))
    given = value_at(own, path)
    values = allowed_here(shape, instead(key, shape, given, str(path[-1])))
    actions: list[Action] = [Put(path, value) for value in values]
    if isinstance(path[-1], int) or (key is not None and not key.required):
        actions.append(Drop(path))
    near = next(iter(allowed_here(shape, meant(shape, given))), None)
    hint = f"; did you mean {near}?" if isinstance(near, str) and isinstance(given, str) else ""
    return Finding(
        path, f"given {format_value(given)}; allowed: {describe(shape)}{hint}", tuple(actions)
    )


def _wrong_name(path: KeyPath, named: ByName) -> Finding:
    """A name of an entry, such as a pool's, that isn't of the form."""
    names = list(allowed_here(named.names, instead(None, named.names, path[-1])))
    return Finding(
        path,
        f"given the name {format_value(path[-1])}; allowed: {describe(named.names)}",
        tuple(Rename(path, str(name)) for name in names),
        at_key=True,
    )


def _key(whole: Shape, path: KeyPath) -> Key | None:
    """The key that a path ends in; None for entries by name and for items."""
    section = section_at(whole, path[:-1]) if isinstance(path[-1], str) else None
    return key_of_model(section, str(path[-1])) if section else None


def _path(loc: Iterable[int | str], model: type[BaseModel], own: Any) -> KeyPath:
    """Where the values have it: pydantic adds the names of branches, and marks wrong names."""
    path: KeyPath = ()
    shape: Shape | None = Keys(model)
    for part in loc:
        if part == "[key]":
            continue
        inner = below(shape, part) if shape is not None else None
        here = value_at(own, path)
        known = inner is not None and (
            isinstance(part, int) or _written(shape, part) or not isinstance(shape, Keys)
        )
        present = isinstance(here, dict) and part in here
        if known or present:
            path = (*path, part if present else _written(shape, part) or part)
            shape = inner
    return path


def _written(shape: Shape | None, part: int | str) -> str:
    """A key as it is written, where pydantic says Python's name."""
    section = section_at(shape, ()) if shape is not None else None
    key = key_of_model(section, part) if section and isinstance(part, str) else None
    return key.name if key else ""


#: How often values are mended to find what else is wrong: a mended section can lack a key.
_ROUNDS: Final = 3


def load_file(path: Path, root: Path) -> Settings:
    """Settings of a stack file, without an engine; ``root`` is the project's folder.

    Raises:
        SettingsError: the file is missing or not YAML, or a value was refused.
    """
    return checked(given_in_files(path, root), root)


def load_engine(stack: str, root: Path) -> Settings:
    """Settings that the engine handed to the running program.

    Raises:
        SettingsError: a value was refused.
    """
    return checked(given_by_engine(stack, root), root)


def validate(values: Values, root: Path, *, stack: str) -> Settings:
    """Check namespaced values (``falaj:dataset``) and return the settings of the stack's kind.

    Raises:
        SettingsError: names every refused key with its path, the value and what is allowed.
    """
    return checked(Given(dict(values), stack=stack), root)


def checked(given: Given, root: Path) -> Settings:
    """The settings of what a stack says.

    Raises:
        RefusedSettingsError: everything that is wrong, as far as it can be found.
    """
    problems: list[Problem] = [*given.problems, *foreign(given)]
    if not given.is_whole:
        raise RefusedSettingsError(problems)
    given = as_meant(given)
    own, found = nest(given)
    for finding in encrypted(own, given):
        found.append(finding)
        own = mended(own, finding)
    kind = _kind(own, found)
    if kind is None:
        raise RefusedSettingsError(problems, found, given)
    settings, own = _settings(kind, own, given, found)
    if settings is not None:
        settings.read_from(given)
        more = further(settings, root, {finding.path for finding in found})
        found += more
        if more:
            settings = _mended_settings(kind, own, more, given)
    if problems or found or settings is None:
        raise RefusedSettingsError(problems, found, given, mended=settings)
    return settings


def _mended_settings(
    kind: type[Settings], own: dict[str, Any], findings: list[Finding], given: Given
) -> Any:
    """The settings as they would be without some problems; None where they would be none."""
    for finding in findings:
        own = mended(own, finding)
    try:
        settings = kind.model_validate(own)
    except ValidationError:
        return None
    settings.read_from(given)
    return settings


def _settings(
    kind: type[Settings], own: dict[str, Any], given: Given, found: list[Finding]
) -> tuple[Any, dict[str, Any]]:
    """The settings and their values; where some were refused, as with the first correction.

    What is refused is added to ``found``; what only a correction brought about is not.
    """
    original = own
    for finding in unclear(given, kind):
        found.append(finding)
        own = mended(own, finding)
    renames: list[Rename] = []
    for number in range(_ROUNDS):
        try:
            return kind.model_validate(own), own
        except ValidationError as error:
            problems = refused(error, kind, own)
        for finding in problems:
            as_given = before(finding, renames)
            known = any(each.path == as_given.path for each in found)
            if not known and (number == 0 or is_there(original, as_given.path)):
                found.append(as_given)
            own = mended(own, finding)
        renames += [
            each.actions[0]
            for each in problems
            if each.actions and isinstance(each.actions[0], Rename)
        ]
    return None, own


def further(settings: Settings, root: Path, known: set[KeyPath]) -> list[Finding]:
    """What only the settings as a whole show: places, files, other stacks.

    Args:
        settings: with the right types and keys.
        root: the project's folder.
        known: paths at which something is wrong already.
    """
    checks = importlib.import_module(
        f"falaj.stacks.settings.{'local' if settings.platform == 'local' else 'cloud'}"
    ).CHECKS
    return [each for check in checks for each in check(settings, root) if each.path not in known]


def _kind(own: dict[str, Any], found: list[Finding]) -> type[Settings] | None:
    """The settings that the stack's platform and blueprint ask for; None where that isn't known.

    What is wrong with both is added to ``found``. What was meant is taken in place of what was
    given, so that the rest can be checked.
    """
    platform = own.get("platform")
    if platform is None and "placement" in own:
        if "region" in own:
            message = (
                f"given {format_value(own.pop('region'))} beside falaj:placement, which names "
                "the regions"
            )
            found.append(Finding(("region",), message, (Drop(("region",)),)))
    elif not isinstance(platform, str) or platform not in PLATFORMS:
        found.append(_choice("platform", platform, PLATFORMS, likeliest=_likely_platform(own)))
        own["platform"] = platform = closest(platform, PLATFORMS) if platform else None
        if platform is None:
            return None
    elif "placement" in own and platform != "local":
        message = (
            f"given {format_value(own.pop('platform'))} beside falaj:placement, which names the "
            "clouds; leave one of them out"
        )
        found.append(Finding(("platform",), message, (Drop(("platform",)),)))
        own.pop("region", None)
    if platform == "local":
        return ALL["local"]
    kinds = kinds_on(platform)
    blueprint = own.get("blueprint")
    if not isinstance(blueprint, str) or blueprint not in kinds:
        on = f" on the platform {platform}" if kinds is EXISTING else ""
        found.append(_choice("blueprint", blueprint, tuple(kinds), on))
        own["blueprint"] = blueprint = closest(blueprint, kinds) if blueprint else None
    return kinds[blueprint] if blueprint else None


def _likely_platform(own: dict[str, Any]) -> str:
    """Where a stack is that doesn't say it, by its other keys."""
    if "context" in own:
        return "kubernetes"
    if "blueprint" not in own and "region" not in own:
        return "local"
    known = [place.split("/") for place in _places()]
    return next((cloud for cloud, region in known if region == own.get("region")), "aws")


def _places() -> tuple[str, ...]:
    """Places in the country, as ``aws/me-central-1``."""
    from falaj.components.catalogue import PLACES  # noqa: PLC0415 - no local stack needs them

    return PLACES


def _choice(
    key: str, value: Any, allowed: tuple[str, ...], where: str = "", likeliest: str = ""
) -> Finding:
    near = closest(value, allowed) if value else None
    hint = f"; did you mean {near}?" if near else ""
    message = f"given {format_value(value)}; allowed{where}: {describe(Choice(allowed))}{hint}"
    return Finding((key,), message, (Put((key,), near or likeliest or allowed[0]),))
