"""Waivers: exceptions that somebody approved, for one rule, some resources, and a time.

The file, in the repository::

    waivers:
      - id: W-2026-004
        rule: encryption-azure-logs-key
        urn: "urn:pulumi:*::falaj::azure-native:operationalinsights:Workspace::audit"
        reason: searchable logs are under the platform's key until a dedicated cluster is there
        approver: ciso@example.ae
        expires: 2027-03-31

An expired waiver covers nothing, and where it would have been used, the finding says so. Rules
that may not be waived, and residency of restricted data, are never covered.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.policies.model import PolicyError, Resource, Rule
from falaj.wire.documents import is_mapping, is_sequence

KEYS: Final = ("id", "rule", "urn", "reason", "approver", "expires")
#: Nobody approves for longer: a person looks again at least once a year.
MOST_DAYS: Final = 366


@dataclass(frozen=True)
class Waiver:
    """One exception."""

    id: str
    rule: str
    urn: str
    """Pattern of URNs: ``*`` stands for any text, ``?`` for one letter."""
    reason: str
    approver: str
    expires: datetime.date
    """The last day on which it is valid."""

    def covers(self, rule: Rule, resource: Resource) -> bool:
        """Whether it is about this rule and resource, expired or not."""
        return rule.id == self.rule and self._pattern.fullmatch(resource.urn) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # No other letter is special: names may hold brackets, and `[!x]` would stand for all.
        parts = {"*": ".*", "?": "."}
        text = "".join(parts.get(each) or re.escape(each) for each in self.urn)
        return re.compile(text, re.DOTALL)

    def has_expired(self, today: datetime.date) -> bool:
        """Whether its last day is over."""
        return today > self.expires


@dataclass(frozen=True)
class Ruling:
    """What the waivers say of one rule at one resource."""

    waiver: Waiver | None = None
    """The one that covers it."""
    note: str = ""
    """Why one that is about it doesn't cover it."""


@dataclass(frozen=True)
class Waivers:
    """The waivers of a project."""

    waivers: tuple[Waiver, ...] = ()
    today: datetime.date = field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).date()
    )

    def ruling(self, rule: Rule, resource: Resource, data_class: str) -> Ruling:
        """Whether a finding of the rule at the resource is waived, and by which.

        Args:
            rule: the rule that found something.
            resource: where.
            data_class: class of the resource's data (`outcome.class_of`).
        """
        note = ""
        for each in self.waivers:
            if not each.covers(rule, resource):
                continue
            if rule.pack == "residency" and data_class == "restricted":
                note = f"waiver {each.id} doesn't count: residency of restricted data stays"
            elif not rule.waivable:
                note = f"waiver {each.id} doesn't count: this rule can't be waived"
            elif each.has_expired(self.today):
                note = f"waiver {each.id} expired on {each.expires}"
            else:
                return Ruling(each)
        return Ruling(None, note)


def read_waivers(path: Path, rules: Iterable[Rule], today: datetime.date | None = None) -> Waivers:
    """The waivers of a file.

    Args:
        path: the file.
        rules: all rules there are, which waivers may name.
        today: the day on which they are used. Default: today, in UTC.

    Raises:
        PolicyError: the file can't be read, or a waiver in it can't be used; all problems are
            named at once.
    """
    day = today or _today()
    entries = read_entries(path)
    known = {each.id for each in rules}
    problems: list[str] = []
    waivers: list[Waiver] = []
    for number, entry in enumerate(entries, start=1):
        wrong = _problems(entry, known, day)
        problems += [f"waiver {number}: {each}" for each in wrong]
        if not wrong:
            waivers.append(Waiver(**{key: _value(key, entry[key]) for key in KEYS}))
    ids = [each.id for each in waivers]
    problems += [
        f"id {each} is given twice" for each in sorted({i for i in ids if ids.count(i) > 1})
    ]
    if problems:
        raise PolicyError(f"{path} can't be used: {'; '.join(problems)}")
    return Waivers(tuple(waivers), day)


def read_entries(path: Path) -> list[Any]:
    """The entries of a file of waivers as they stand there, good or not.

    Raises:
        PolicyError: the file can't be read, or has no list of them.
    """
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PolicyError(
            f"the waivers in {path} can't be read: {' '.join(str(error).split())}"
        ) from None
    entries: Any = found.get("waivers") if is_mapping(found) else None
    if not is_sequence(entries):
        raise PolicyError(f"{path}: expected a list under the key 'waivers'")
    return entries


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def _value(key: str, given: Any) -> Any:
    return _date(given) if key == "expires" else str(given).strip()


def _date(given: Any) -> Any:
    """A date, which programs that write YAML put into quotation marks; else what was given."""
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            return datetime.date.fromisoformat(given.strip())
    return given


def _problems(given: Any, known: set[str], today: datetime.date) -> list[str]:
    if not is_mapping(given) or set(given) != set(KEYS):
        return [f"expected exactly the keys {', '.join(KEYS)}"]
    problems = [
        f"{key}: given {given[key]!r}, expected a text"
        for key in KEYS
        if key != "expires" and not (isinstance(given[key], str) and given[key].strip())
    ]
    if problems:
        return problems
    if given["rule"] not in known:
        problems.append(f"rule: given {given['rule']!r}, which is no rule; one rule a waiver")
    if not re.search(r"[A-Za-z0-9]", given["urn"].rpartition("::")[2]):
        problems.append(f"urn: given {given['urn']!r}, expected a pattern that names resources")
    expires = _date(given["expires"])
    if type(expires) is not datetime.date:
        problems.append(f"expires: given {expires!r}, expected a date as 2027-03-31")
    elif (expires - today).days > MOST_DAYS:
        problems.append(f"expires: given {expires}, expected at most {MOST_DAYS} days from now")
    return problems
