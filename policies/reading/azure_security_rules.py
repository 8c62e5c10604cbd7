"""The rules of Azure's network security groups, wherever they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import Resource, get, is_list, is_unknown, items, number, scalar, text
from falaj.policies.reading.addresses import EVERY_PORT, Ports, are_open, ports_of
from falaj.policies.reading.types import azure
from falaj.wire.documents import is_mapping

GROUPS: Final = azure("network:NetworkSecurityGroup")
SINGLE: Final = azure("network:SecurityRule")
#: Rules of a network manager, which come before those of groups:
#: https://learn.microsoft.com/azure/virtual-network-manager/concept-security-admins
OVERRIDING: Final = azure("network:AdminRule")
TYPES: Final = GROUPS | SINGLE | OVERRIDING
#: Every address of every customer of Azure:
#: https://learn.microsoft.com/azure/virtual-network/service-tags-overview
_ALL_CUSTOMERS: Final = "azurecloud"
_WORDS: Final = frozenset(("*", "any", "internet"))
_WITHOUT_PORTS: Final = frozenset(("icmp", "esp", "ah"))


@dataclass(frozen=True)
class Side:
    """Who may send, or be sent to."""

    path: str
    """Of the value that opens it, or can't be seen; else of the first one."""
    is_open: bool
    is_seen: bool


@dataclass(frozen=True)
class SecurityRule:
    """One rule, as far as it can be seen."""

    path: str
    given: Mapping[str, Any]

    @property
    def allows(self) -> bool:
        """Whether it lets traffic through, or may do so."""
        return scalar(get(self.given, "access")) != "deny"

    @property
    def is_access_seen(self) -> bool:
        """Whether what it does with which direction's traffic is known."""
        return not any(is_unknown(get(self.given, key)) for key in ("access", "direction"))

    def may_be(self, direction: str) -> bool:
        """Whether it concerns a direction, ``inbound`` or ``outbound``, or may do so."""
        value = get(self.given, "direction")
        return is_unknown(value) or scalar(value) == direction

    @property
    def source(self) -> Side:
        """Where traffic comes from."""
        return self._side("source")

    @property
    def destination(self) -> Side:
        """Where traffic goes."""
        return self._side("destination")

    def _side(self, side: str) -> Side:
        keys = (f"{side}AddressPrefix", f"{side}AddressPrefixes", f"{side}s")
        found = [entry for key in keys for entry in self._prefixes(key)]
        for path, value in found:
            if are_open([value]) or (side == "source" and scalar(value) == _ALL_CUSTOMERS):
                return Side(path, True, True)
        if are_open(value for _, value in found if not is_unknown(value)):
            return Side(found[0][0], True, True)
        hidden = [path for path, value in found if is_unknown(value)]
        first = found[0][0] if found else self.path
        return Side(hidden[0] if hidden else first, False, not hidden)

    def _prefixes(self, key: str) -> Iterator[tuple[str, Any]]:
        value = get(self.given, key)
        where = self._at(key)
        if is_list(value):
            for index, each in enumerate(value):
                inner = get(each, "addressPrefix") if is_mapping(each) else each
                suffix = ".addressPrefix" if is_mapping(each) else ""
                yield f"{where}[{index}]{suffix}", inner
        elif is_unknown(value) or text(value):
            yield where, value

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    @property
    def ports(self) -> tuple[Ports, ...] | None:
        """The ports that it is about; all where the protocol has none; None where unseen."""
        if scalar(get(self.given, "protocol")) in _WITHOUT_PORTS:
            return (EVERY_PORT,)
        given = [
            one
            for key in ("destinationPortRange", "destinationPortRanges")
            for one in items(get(self.given, key))
        ]
        if any(is_unknown(each) for each in given):
            return None
        return tuple(each for one in given for each in ports_of(one)) or (EVERY_PORT,)

    @property
    def ports_path(self) -> str:
        """Path of its ports."""
        single = get(self.given, "destinationPortRange")
        return self._at("destinationPortRange" + ("" if is_unknown(single) else "s"))

    @property
    def has_ports(self) -> bool:
        """Whether its protocol has ports at all."""
        return scalar(get(self.given, "protocol")) not in _WITHOUT_PORTS

    def overrules(self, other: SecurityRule) -> bool:
        """Whether it comes first and denies all that the other one would allow."""
        first, second = (number(get(each.given, "priority")) for each in (self, other))
        if self.allows or not self.is_access_seen or first is None or second is None:
            return False
        mine, ports = self.ports, other.ports
        return (
            first < second
            and scalar(get(self.given, "direction")) == scalar(get(other.given, "direction"))
            and self._is_for_all("source")
            and self._is_for_all("destination")
            and scalar(get(self.given, "protocol")) in {"*", scalar(get(other.given, "protocol"))}
            and scalar(get(self.given, "sourcePortRange")) in {"", "*"}
            and mine is not None
            and ports is not None
            and all(any(p.first in m and p.last in m for m in mine) for p in ports)
        )

    def _is_for_all(self, side: str) -> bool:
        return scalar(get(self.given, f"{side}AddressPrefix")) in _WORDS


def security_rules(resource: Resource) -> Iterator[SecurityRule]:
    """The rules that a resource makes, without those that an earlier one overrules."""
    if resource.kind not in GROUPS:
        yield SecurityRule("", resource.properties)
        return
    given = resource.get("securityRules")
    found = [
        SecurityRule(f"securityRules[{index}]" if is_list(given) else "securityRules", each)
        for index, each in enumerate(items(given))
        if is_mapping(each)
    ]
    for each in found:
        if not any(other.overrules(each) for other in found):
            yield each


def hidden_rules(resource: Resource) -> Iterator[str]:
    """Paths of rules that can't be seen at all."""
    if resource.kind in GROUPS:
        given = resource.get("securityRules")
        for index, each in enumerate(items(given)):
            if is_unknown(each):
                yield f"securityRules[{index}]" if is_list(given) else "securityRules"
