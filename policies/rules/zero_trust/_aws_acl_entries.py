"""Entries of AWS network ACLs, in both forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from falaj.policies.model import Resource, get, is_true, is_unknown, items, number, text
from falaj.policies.reading.cidr import is_open
from falaj.policies.reading.ports import ports_of_rule

_SHELLS = (22, 3389)
_NOT_TCP = frozenset(("udp", "17"))


def acl_entries(resource: Resource) -> Iterator[tuple[str, Any]]:
    """Entries for traffic that comes in, with their paths; unknowns among them."""
    if resource.kind.endswith(":NetworkAclRule"):
        if not is_true(resource.get("egress")):
            yield "", resource.properties
        return
    given = resource.get("ingress")
    for index, each in enumerate(items(given)):
        if is_unknown(each) or isinstance(each, Mapping):
            single = is_unknown(given) or isinstance(given, Mapping)
            yield ("ingress" if single else f"ingress[{index}]"), each


def _action(entry: object) -> object:
    found = get(entry, "action")
    return found if is_unknown(found) or text(found) else get(entry, "ruleAction")


def opens_shells(entry: Mapping[str, Any]) -> bool:
    """Whether an entry allows the ports of shells, or may."""
    ports, knows = ports_of_rule(entry)
    action = _action(entry)
    allows = is_unknown(action) or text(action).lower() == "allow"
    return allows and (not knows or (ports is not None and any(each in ports for each in _SHELLS)))


def is_denied(entry: Mapping[str, Any], key: str, entries: Sequence[tuple[str, Any]]) -> bool:
    """Whether entries with lower numbers deny the world the ports of shells that this one is
    about."""
    own = number(get(entry, "ruleNo"))
    allowed, knows = ports_of_rule(entry)
    if not knows or allowed is None:
        return False
    left = {each for each in _SHELLS if each in allowed}
    for _, other in entries:
        if not isinstance(other, Mapping) or text(_action(other)).lower() != "deny":
            continue
        earlier = number(get(other, "ruleNo"))
        if own is None or earlier is None or earlier >= own or not is_open(get(other, key)):
            continue
        ports, knows = ports_of_rule(other)
        if knows and ports is not None and text(get(other, "protocol")).lower() not in _NOT_TCP:
            left -= {each for each in left if each in ports}
    return not left
