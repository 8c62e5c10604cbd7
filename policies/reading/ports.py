"""Ports: ranges as rules of firewalls write them, and the ports that administrators use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import is_unknown, number, text

LAST_PORT: Final = 65535
#: Ports that only administrators and other servers have business with, by what listens there
#: (https://www.iana.org/assignments/service-names-port-numbers, and the products' documents).
ADMIN_PORTS: Final[dict[int, str]] = {
    20: "FTP", 21: "FTP", 22: "SSH", 23: "Telnet", 135: "RPC", 137: "NetBIOS", 138: "NetBIOS",
    139: "NetBIOS", 445: "SMB", 512: "rexec", 513: "rlogin", 514: "rsh", 1433: "SQL Server",
    1434: "SQL Server", 1521: "Oracle", 2049: "NFS", 2181: "ZooKeeper", 2375: "Docker",
    2376: "Docker", 2379: "etcd", 2380: "etcd", 2483: "Oracle", 2484: "Oracle", 3306: "MySQL",
    3389: "RDP", 4333: "mSQL", 5432: "PostgreSQL", 5439: "Redshift", 5500: "VNC", 5601: "Kibana",
    5900: "VNC", 5985: "WinRM", 5986: "WinRM", 6379: "Redis", 6443: "Kubernetes",
    7000: "Cassandra", 7001: "Cassandra", 7199: "Cassandra", 8020: "HDFS", 8086: "InfluxDB",
    8888: "notebooks", 9042: "Cassandra", 9092: "Kafka", 9160: "Cassandra", 9200: "Elasticsearch",
    9300: "Elasticsearch", 10250: "kubelet", 10255: "kubelet", 11211: "Memcached",
    27017: "MongoDB", 27018: "MongoDB", 27019: "MongoDB", 50070: "HDFS", 61621: "Cassandra",
}  # fmt: skip
_EVERY_PROTOCOL: Final = frozenset(("-1", "all", "any", "*"))
_WITH_PORTS: Final = frozenset(("tcp", "udp", "6", "17"))
_RANGE: Final = re.compile(r"(\d+)\s*(?:-|:|\.\.)\s*(\d+)")


@dataclass(frozen=True)
class Ports:
    """Ports from `first` to `last`, both included."""

    first: int
    last: int

    @property
    def admin(self) -> str:
        """The first administrative port among them with what listens there, else empty."""
        for port, name in ADMIN_PORTS.items():
            if self.first <= port <= self.last:
                return f"{port} ({name})"
        return ""

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __str__(self) -> str:
        if self.first == self.last:
            return f"port {self.first}"
        return "every port" if self == EVERY_PORT else f"ports {self.first}-{self.last}"


EVERY_PORT: Final = Ports(0, LAST_PORT)


def port(value: object) -> int | None:
    """A port given as a number or a text of one; None for anything else."""
    found = number(value)
    if found is None or not -1 <= found <= LAST_PORT:
        return None
    return int(found)


def ports_of(value: object) -> list[Ports]:
    """The ports that a text or number names: ``22``, ``20-30``, ``*``, ``22,80-90``."""
    if (single := port(value)) is not None:
        return [EVERY_PORT if single == -1 else Ports(single, single)]
    found: list[Ports] = []
    for part in text(value).split(","):
        said = part.strip()
        if said.lower() in {"*", "any", "all"}:
            found.append(EVERY_PORT)
        elif between := _RANGE.fullmatch(said):
            # More digits than a port has are beyond the last one.
            first, last = (min(int(each[:12]), LAST_PORT) for each in between.groups())
            found.append(Ports(min(first, last), max(first, last)))
        elif (single := port(said)) is not None:
            found.append(Ports(single, single))
    return found


def ports_of_rule(rule: Mapping[str, Any]) -> tuple[Ports | None, bool]:
    """The ports of a rule of an AWS security group, and whether they can be seen.

    None for protocols without ports.
    """
    protocol = next(
        (rule[key] for key in ("protocol", "ipProtocol") if rule.get(key) is not None), "-1"
    )
    first, last = rule.get("fromPort"), rule.get("toPort")
    if is_unknown(protocol) or is_unknown(first) or is_unknown(last):
        return EVERY_PORT, False
    said = text(protocol).lower() or _numbered(protocol)
    if said in _EVERY_PROTOCOL:
        return EVERY_PORT, True
    if said not in _WITH_PORTS:
        return None, True
    ends = [found for each in (first, last) if (found := port(each)) is not None]
    # Both zero, or minus one, is how people write every port; so is leaving them out.
    if not any(each > 0 for each in ends):
        return EVERY_PORT, True
    return Ports(max(min(ends), 0), max(ends)), True


def _numbered(protocol: object) -> str:
    found = number(protocol)
    return str(int(found)) if found is not None and abs(found) < 256 else ""
