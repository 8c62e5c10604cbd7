"""A rule: what it demands, of which types, why, and how to mend what it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from falaj.policies.model.context import Context
from falaj.policies.model.finding import Finding, Severity
from falaj.policies.model.resource import Resource

PACKS: Final = ("residency", "encryption", "zero_trust", "kubernetes", "governance")
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
