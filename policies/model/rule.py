"""A rule, what it knows besides the resource, and what it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from falaj.components.catalogue.tag_names import DATA_CLASSES, tag_names
from falaj.policies.choices import PACKS
from falaj.policies.model.resource import Resource, Stack
from falaj.policies.model.settings import Settings
from falaj.wire import STACK_REFERENCE

LESSER_CLASSES: Final = DATA_CLASSES[:-1]
"""Of data that aren't restricted."""


@dataclass(frozen=True)
class Context:
    """The settings and, in the second look, the whole stack.

    A resource is judged twice. At first alone (`stack` is None): what is certain then blocks it
    before it is made. A rule that needs other resources, or a value that isn't known yet, yields
    an indeterminate finding in that look. Where a rule did so, it is asked again once the whole
    stack is known, and what it then yields is what counts. So a rule is one function for both.
    Violations of the first look are said at once: nothing in the stack can explain them.
    """

    settings: Settings = field(default_factory=Settings)
    stack: Stack | None = None

    def referred(self, resource: Resource, path: str) -> list[Resource]:
        """The resources that a property refers to; empty while the stack isn't known."""
        return self.stack.referred(resource, path) if self.stack else []

    def is_from_another_stack(self, resource: Resource, path: str) -> bool:
        """Whether a property's value was made from what another stack offers.

        That stack's resources are judged with it; a reference is a program's own word that they
        are one's own. Known in the second look only.
        """
        top = re.split(r"[.\[]", path, maxsplit=1)[0]
        urns = resource.dependencies.get(top, ()) if self.stack else ()
        return any(f"::{STACK_REFERENCE}::" in urn for urn in urns)

    def data_class(self, resource: Resource) -> str:
        """The class of the resource's data: its own tag's, else the stack's."""
        own = (resource.tags.get(each) for each in (*tag_names("data-class"), "data-class"))
        return next((each for each in own if isinstance(each, str) and each), "") or (
            self.settings.data_class
        )

    def is_restricted(self, resource: Resource) -> bool:
        """Whether the resource's data are restricted; a class that nobody knows counts as that."""
        return self.data_class(resource).strip().lower() not in LESSER_CLASSES


class FindingKind(Enum):
    """Whether a finding is certain."""

    VIOLATION = "violation"
    INDETERMINATE = "indeterminate"


class Severity(Enum):
    """How much harm a violation does, worst first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True)
class Finding:
    """One thing that a rule objects to, or can't see."""

    path: str
    """The property, as ``rules[0].destination.bucket``; empty for the resource itself."""
    reason: str
    """What is wrong, what was given, what is allowed: a clause without a full stop. Never holds
    the value of a secret."""
    kind: FindingKind = FindingKind.VIOLATION
    rule_failed: bool = False
    """Whether the rule itself raised: nothing is proved then, however lax checks are."""


def violation(path: str, reason: str) -> Finding:
    """A finding that is certain."""
    return Finding(path, reason)


def indeterminate(path: str, reason: str) -> Finding:
    """A finding about what can't be seen: it fails where checks are strict."""
    return Finding(path, reason, FindingKind.INDETERMINATE)


#: Every resource, whatever its type.
EVERY: Final = frozenset({"*"})

Check = Callable[[Resource, Context], Iterator[Finding]]

_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


@dataclass(frozen=True)
class Rule:
    """One demand. `check` is pure and total: it never raises, whatever the properties are.

    Attributes:
        id: stable name with the pack's first, as ``residency-aws-s3-replication``.
        pack: the pack that carries it, one of `PACKS`.
        title: what is demanded, one line without a full stop.
        severity: how much harm a violation does.
        types: types in their one spelling (`kind_of`); ``*`` stands for any part, so that
            ``kubernetes:*:Deployment`` is every version's; `EVERY` for a walker.
        controls: references into ``policies/controls/controls.yaml``, as ``iso27001:A.8.24``.
        remediation: what to change, in whole sentences.
        check: yields what it finds; see `Context` for what is known when.
        waivable: False where no waiver may cover it.
    """

    id: str
    pack: str
    title: str
    severity: Severity
    types: frozenset[str]
    controls: tuple[str, ...]
    remediation: str
    check: Check
    waivable: bool = True

    def __post_init__(self) -> None:
        if self.pack not in PACKS or not _ID.fullmatch(self.id):
            raise ValueError(f"rule {self.id!r} of pack {self.pack!r} isn't named properly")
        if not self.id.startswith(self.pack.replace("_", "-") + "-"):
            raise ValueError(f"rule {self.id!r} doesn't begin with its pack's name")
        if not (self.title and self.remediation and self.types):
            raise ValueError(f"rule {self.id!r} lacks its title, types or remediation")

    @property
    def is_walker(self) -> bool:
        """Whether it looks at resources of any type."""
        return self.types == EVERY

    @cached_property
    def _patterns(self) -> re.Pattern[str] | None:
        found = [re.escape(each).replace(r"\*", ".*") for each in self.types if "*" in each]
        return re.compile("|".join(found)) if found else None

    def concerns(self, kind: str) -> bool:
        """Whether it looks at resources of a type (in its one spelling)."""
        if kind in self.types:
            return True
        return self._patterns is not None and self._patterns.fullmatch(kind) is not None


def rule(  # noqa: PLR0917 - in the order in which a rule is read
    id: str,
    title: str,
    severity: Severity,
    types: frozenset[str] | set[str],
    controls: tuple[str, ...],
    remediation: str,
    *,
    waivable: bool = True,
) -> Callable[[Check], Rule]:
    """Make a rule of a function; its pack is read off the id."""
    pack = next((each for each in PACKS if id.startswith(each.replace("_", "-") + "-")), "")

    def decorate(check: Check) -> Rule:
        return Rule(
            id, pack, title, severity, frozenset(types), controls, remediation, check, waivable
        )

    return decorate
