"""What a rule of a firewall lets through: protocols and ports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from falaj.policies.reading.addresses import EVERY_PORT, Ports

#: Numbers that rules give in place of names
#: (https://www.iana.org/assignments/protocol-numbers).
_NUMBERED: Final = {"1": "icmp", "6": "tcp", "17": "udp", "50": "esp", "51": "ah", "58": "icmpv6"}
_EVERY: Final = frozenset(("", "-1", "*", "all", "any"))


@dataclass(frozen=True)
class Traffic:
    """Protocols with ports; everything where `protocol` is empty and every port is meant."""

    protocol: str
    ports: tuple[Ports, ...]
    """Empty for protocols without ports."""
    names: tuple[str, ...] = ()
    """Ports that have a name in place of a number."""
    is_seen: bool = True

    @classmethod
    def of(
        cls,
        protocol: object,
        ports: Iterable[Ports],
        names: Iterable[str] = (),
        *,
        seen: bool = True,
    ) -> Traffic:
        """Traffic of a protocol by its name or number."""
        said = str(protocol).strip().lower()
        name = "" if said in _EVERY else _NUMBERED.get(said, said)
        return cls(name, tuple(ports), tuple(names), seen)

    @property
    def label(self) -> str:
        """How people say it: ``tcp 443, 8443``, ``everything``."""
        if not self.is_seen:
            return "ports that can't be seen yet"
        every = self.ports == (EVERY_PORT,) and not self.names
        if not self.ports and not self.names:
            return self.protocol or "everything"
        if every:
            return f"every {self.protocol} port" if self.protocol else "everything"
        listed = [_said(each) for each in sorted(set(self.ports), key=lambda one: one.first)]
        return " ".join(filter(None, (self.protocol, ", ".join((*listed, *self.names)))))

    def covers(self, other: Traffic) -> bool:
        """Whether everything of the other is in this."""
        if not self.is_seen or not other.is_seen:
            return True
        if self.protocol not in {"", other.protocol}:
            return False
        if not self.ports and not self.names:
            return True
        return set(other.names) <= set(self.names) and all(
            any(mine.first <= one.first and one.last <= mine.last for mine in self.ports)
            for one in other.ports or (EVERY_PORT,)
        )


EVERYTHING: Final = Traffic("", (EVERY_PORT,))


def _said(ports: Ports) -> str:
    return str(ports.first) if ports.first == ports.last else f"{ports.first}-{ports.last}"
