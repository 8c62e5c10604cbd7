"""From a stack file, or from the engine, to checked settings of the stack's kind.

Values that the kind's model refuses become findings. Each is mended as it proposes and the rest is
checked once more, so that one mistake doesn't hide the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from pydantic import ValidationError

from falaj.stacks.settings.given import Given, Values, as_meant, foreign, nest
from falaj.stacks.settings.problems import (
    Drop,
    Finding,
    Problem,
    RefusedSettingsError,
    Rename,
    before,
    format_value,
    is_secret,
    is_there,
    mended,
)
from falaj.stacks.settings.problems import Path as KeyPath
from falaj.stacks.settings.source import given_by_engine, given_in_files
from falaj.stacks.settings.suggestions import closest

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


_PLAIN_TEXT: Final = "settings are read before anything is decrypted: write it as plain text"


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
    if given.has_unclear:
        from falaj.stacks.settings.error_messages import unclear  # noqa: PLC0415 - as its module says

        for finding in unclear(given, kind):
            found.append(finding)
            own = mended(own, finding)
    renames: list[Rename] = []
    for number in range(_ROUNDS):
        try:
            return kind.model_validate(own), own
        except ValidationError as error:
            from falaj.stacks.settings.error_messages import refused  # noqa: PLC0415 - as above

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
        known: paths at which something is wrong already: what is there, and below, was mended for
            these checks, and nobody gave it.
    """
    checks = importlib.import_module(
        f"falaj.stacks.settings.{'local_checks' if settings.platform == 'local' else 'cloud'}"
    ).CHECKS
    return [
        each for check in checks for each in check(settings, root)
        if not any(each.path[:depth] in known for depth in range(1, len(each.path) + 1))
    ]  # fmt: skip


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
        found.append(_wrong("platform", platform, PLATFORMS, likeliest=_likely_platform(own)))
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
        found.append(_wrong("blueprint", blueprint, tuple(kinds), on))
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


def _wrong(
    key: str, value: Any, allowed: tuple[str, ...], where: str = "", likeliest: str = ""
) -> Finding:
    from falaj.stacks.settings.error_messages import wrong_choice  # noqa: PLC0415 - as its module says

    return wrong_choice(key, value, allowed, where, likeliest)
