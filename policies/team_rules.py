"""Rules of a team's own, beside those of the packs: tables in its repository, or a package.

A table is a file that the setting ``rules`` of ``falaj:policies`` names::

    rules:
      - id: encryption-acme-buckets-versioned
        title: Buckets keep earlier versions
        severity: high
        types: ["aws:s3/bucketVersioning:BucketVersioning"]
        controls: ["iso27001:A.8.13"]
        remediation: Set versioningConfiguration.status to Enabled.
        requirements:
          - path: versioningConfiguration.status
            allowed: [Enabled]
            default: Disabled

A requirement is a row as the packs' own tables have them: its keys are those of `Requirement`.
Rules that a row can't say are written in Python, as `Rule`, in a package that offers them as an
entry point of the group ``falaj.rules``: a rule, or several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Final, cast

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from falaj.components.catalogue.pod_rules import SeverityName
from falaj.policies.controls import controls
from falaj.policies.model import (
    PACKS,
    Context,
    Finding,
    PolicyError,
    Requirement,
    Resource,
    Rule,
    Severity,
    kind_of,
    unmet,
)
from falaj.policies.model.rule import Check
from falaj.wire.documents import is_mapping, is_sequence

#: Entry points of this group offer rules.
GROUP: Final = "falaj.rules"
_TYPE: Final = re.compile(r"[\w.-]+(:[\w./*-]+){1,2}")


def _as_written(value: Any) -> Any:
    """A scalar as rules compare it: YAML reads ``true`` and ``3`` as what they look like."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Scalar = Annotated[str, BeforeValidator(_as_written)]
Text = Annotated[str, Field(min_length=1)]


class _Only(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Text
    values: Annotated[tuple[Scalar, ...], Field(min_length=1)]


class _Row(BaseModel):
    """A `Requirement` as a table writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Text
    allowed: tuple[Scalar, ...] = ()
    default: Scalar = ""
    source: str = ""
    denied: tuple[Scalar, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    each: str = ""
    only: _Only | None = None
    absent: str = ""
    hint: str = ""

    @model_validator(mode="after")
    def _demands_something(self) -> _Row:
        limits = self.minimum is not None or self.maximum is not None
        if not (self.allowed or self.denied or limits or self.absent):
            raise ValueError(
                "nothing is demanded: give allowed, denied, minimum, maximum or absent"
            )
        return self

    @property
    def requirement(self) -> Requirement:
        """The row as rules have it."""
        given = self.model_dump(exclude={"only"})
        if self.only is None:
            return Requirement(**given)
        lower = tuple(each.lower() for each in self.only.values)
        return Requirement(**given, only=(self.only.path, lower))


class _Entry(BaseModel):
    """A rule as a table writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Text
    title: Text
    severity: SeverityName
    types: Annotated[tuple[Text, ...], Field(min_length=1)]
    remediation: Text
    requirements: Annotated[tuple[_Row, ...], Field(min_length=1)]
    controls: tuple[Text, ...] = ()
    waivable: bool = True


@dataclass(frozen=True)
class _Rows:
    """The check of a table's rule: its types may be patterns, and all rows are asked of each."""

    requirements: tuple[Requirement, ...]

    def __call__(self, resource: Resource, context: Context) -> Iterator[Finding]:
        return unmet(resource, self.requirements)


def read_rules(path: Path, known: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules of a table.

    Args:
        path: the file.
        known: rules that there are already, whose ids are taken.

    Raises:
        PolicyError: the file can't be read, or a rule in it can't be used; all problems are named
            at once.
    """
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = " ".join(str(error).split())
        raise PolicyError(f"the rules in {path} can't be read: {message}") from None
    entries: Any = found.get("rules") if is_mapping(found) else None
    if not is_sequence(entries) or not entries:
        raise PolicyError(f"{path}: expected a list of rules under the key 'rules'")
    problems: list[str] = []
    rules: list[Rule] = []
    for number, entry in enumerate(entries, start=1):
        try:
            rules.append(_rule(_Entry.model_validate(entry)))
        except ValidationError as error:
            problems += [f"rule {number}: {each}" for each in _problems(error)]
        except ValueError as error:
            problems.append(f"rule {number}: {error}")
    problems += _clashes(rules, known)
    if problems:
        raise PolicyError(f"{path} can't be used: {'; '.join(problems)}")
    return tuple(rules)


def _rule(entry: _Entry) -> Rule:
    """The rule of an entry. Raises ValueError where it says what no rule can be."""
    pack = _pack_of(entry.id)
    _require_controls(entry.id, entry.controls)
    for each in entry.types:
        if not _TYPE.fullmatch(each):
            raise ValueError(
                f"types: given {each!r}, expected a type such as aws:s3/bucket:Bucket, where '*' "
                "stands for any text"
            )
    check: Check = _Rows(tuple(each.requirement for each in entry.requirements))
    return Rule(
        entry.id,
        pack,
        entry.title.rstrip("."),
        Severity(entry.severity),
        frozenset(map(kind_of, entry.types)),
        entry.controls,
        entry.remediation,
        check,
        entry.waivable,
    )


def _pack_of(identity: str) -> str:
    """The pack that a rule joins, by its id."""
    beginnings = {each.replace("_", "-") + "-": each for each in PACKS}
    for beginning, pack in beginnings.items():
        if identity.startswith(beginning):
            return pack
    raise ValueError(
        f"id: given {identity!r}, expected one that begins with its pack's name: "
        f"{', '.join(beginnings)}"
    )


def _require_controls(identity: str, given: Iterable[str]) -> None:
    known = {each.reference for each in controls()}
    if wrong := sorted(set(given) - known):
        raise ValueError(
            f"controls of {identity}: given {', '.join(wrong)}, expected references such as "
            "iso27001:A.8.24; `falaj policies --coverage` lists them"
        )


def _problems(error: ValidationError) -> Iterator[str]:
    for each in error.errors(include_url=False):
        where = ".".join(str(part + 1 if isinstance(part, int) else part) for part in each["loc"])
        message = each["msg"].removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            kind = _Row if "requirements" in each["loc"] else _Entry
            kind = _Only if "only" in each["loc"] else kind
            message = f"no such key; allowed: {', '.join(kind.model_fields)}"
        elif each["type"] not in {"missing", "value_error"}:
            message = f"{message}, not {each['input']!r}"
        yield f"{where or 'it'}: {message}"


def _clashes(rules: Iterable[Rule], known: Iterable[Rule]) -> list[str]:
    """Ids that more than one rule has."""
    taken = {each.id for each in known}
    problems: list[str] = []
    for each in rules:
        if each.id in taken:
            problems.append(f"id {each.id} is another rule's already")
        taken.add(each.id)
    return problems


@cache
def installed_rules() -> tuple[Rule, ...]:
    """The rules that installed packages offer as entry points of the group ``falaj.rules``.

    Raises:
        PolicyError: an entry point can't be loaded, or offers what is no rule, or a rule that
            can't be used.
    """
    found: list[Rule] = []
    for each in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        where = f"the entry point {each.name} = {each.value} of {GROUP}"
        try:
            offered: Any = each.load()
        except (Exception, SystemExit) as error:
            raise PolicyError(
                f"{where} can't be loaded: {type(error).__name__}: {error}; mend or remove the "
                "package that offers it"
            ) from error
        rules = [offered] if isinstance(offered, Rule) else offered
        if not isinstance(rules, Iterable) or isinstance(rules, str | bytes | Mapping):
            raise PolicyError(f"{where} offers {offered!r}; expected a Rule, or a list of rules")
        for rule in cast("Iterable[Any]", rules):
            if not isinstance(rule, Rule):
                raise PolicyError(f"{where} offers {rule!r}; expected a Rule, or a list of rules")
            try:
                _require_controls(rule.id, rule.controls)
            except ValueError as error:
                raise PolicyError(f"{where}: {error}") from None
            types = frozenset(map(kind_of, rule.types))
            found.append(rule if types == rule.types else replace(rule, types=types))
    return tuple(found)


def require_distinct(rules: Iterable[Rule]) -> None:
    """Raise PolicyError where two rules have one id: findings and waivers couldn't tell them."""
    if problems := _clashes(rules, ()):
        raise PolicyError(f"rules can't be used: {'; '.join(problems)}")
