"""Where properties send data to: the place of the workspace, account or network that they name.

What isn't in the stack has a place that can't be seen, and is no more allowed than a region that
nobody named: the finding is indeterminate, which fails where checks are strict. Subscriptions in
the setting allowedAccounts are under the same rules, so what is in them is taken to be in the
country; so is what another stack offers, which is judged with that stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    select,
    violation,
)
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_places import (
    GROUP,
    allowed,
    is_trusted,
    place_of,
    refers_to,
    where_allowed,
)

CONTROLS: Final = (
    "health-data:13", "cbuae-outsourcing:6.1", "uae-ia:T6.3.1", "pdpl:22", "gdpr:44",
    "iso27001:A.5.14",
)  # fmt: skip


def judge_target(
    resource: Resource, path: str, value: Any, view: View, what: str
) -> Iterator[Finding]:
    """What is wrong with the place of something that a property sends data to.

    Args:
        resource: whose property.
        path: of the property.
        value: an id or a name; nothing is found for what is absent.
        view: the settings and the stack.
        what: how the target is called in the reason, as ``the workspace``.
    """
    if value is ABSENT or value is None or (isinstance(value, str) and not value.strip()):
        return
    if is_trusted(value, view):
        return
    if view.stack is None:
        yield indeterminate(path, f"the place of {what} is judged with the whole stack")
        return
    found = refers_to(resource, path, value, view)
    if not found and view.is_from_another_stack(resource, path):
        return
    if is_unknown(value) and not path.endswith("ResourceGroupId"):
        # Ids are made of their groups' names as well; what is in a group may be elsewhere.
        found = [each for each in found if each.kind != GROUP]
    places = {each.name: place_of(each, view) for each in found}
    foreign = [(name, at) for name, at in places.items() if at and at not in allowed(view)]
    for name, at in foreign:
        yield violation(path, f"{what} {name!r} is in {at}; {where_allowed(view)}")
    if not foreign and (not places or None in places.values()):
        reason = (
            "isn't in this stack, so its place can't be seen"
            if not places
            else ("has a place that can't be seen")
        )
        yield indeterminate(
            path,
            f"{what} {reason}; {where_allowed(view)}, or name its subscription in allowedAccounts",
        )


@dataclass(frozen=True)
class Target:
    """A property that names where data goes."""

    path: str
    """Keys with dots, through all lists on the way."""
    what: str
    """How it is called in a reason, as ``the workspace``."""


def targets(
    id: str,
    title: str,
    table: Mapping[str, Sequence[Target]],
    remediation: str,
    controls: tuple[str, ...] = CONTROLS,
) -> Rule:
    """One rule over a table of types (as ``module:Type``) and of what they send data to."""
    by_kind = {kind: found for name, found in table.items() for kind in azure(name)}

    @rule(id, title, Severity.CRITICAL, frozenset(by_kind), controls, remediation)
    def check(resource: Resource, view: View) -> Iterator[Finding]:
        hidden: set[str] = set()
        for each in by_kind.get(resource.kind, ()):
            for path, value in select(resource.properties, each.path):
                # What hides several of them is told once.
                if not is_unknown(value) or path not in hidden:
                    yield from judge_target(resource, path, value, view, each.what)
                if is_unknown(value):
                    hidden.add(path)

    return check
