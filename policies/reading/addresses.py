"""Addresses and ports as firewalls have them: which mean the world, which only admins use."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.clusters import PRIVATE_RANGES, SHARED_RANGE
from falaj.policies.model import is_unknown, number, text

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Words for every address there is: Azure's prefixes and tags, other tools' spellings.
_WORLD_WORDS: Final = frozenset(("*", "any", "internet", "all", "<nw>/0", "0/0", "/0"))
#: Nobody but a registry of addresses holds more of IPv4 than a /8: whoever writes less means the
#: world, or much of it.
_LARGE_V4: Final = 7
#: The largest blocks that operators hold of IPv6 are a /19 or smaller
#: (https://www.iana.org/assignments/ipv6-unicast-address-assignments).
_LARGE_V6: Final = 15
#: A list of ranges that has this much of IPv4 in all is open as well.
_MUCH_V4: Final = 2**30
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(each)
    for each in (
        *PRIVATE_RANGES, SHARED_RANGE, "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "fc00::/7",
        "fe80::/10", "ff00::/8",
    )
)  # fmt: skip
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_OCTETS: Final = re.compile(r"(\d{1,10})\.(\d{1,10})\.(\d{1,10})\.(\d{1,10})")
_SEPARATORS: Final = re.compile(r"[\s,;]+")
_ADDRESS_RANGE: Final = re.compile(r"([0-9A-Fa-f.:]+)\s*-\s*([0-9A-Fa-f.:]+)")

#: Inputs of security groups and their rules that hold ranges, and lists of ranges.
CIDR_INPUTS: Final = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
PREFIX_LIST_INPUTS: Final = ("prefixListIds", "prefixListId")


def network(value: object) -> Network | None:
    """The network that a text names, as clouds read it: host bits are dropped, zeros may lead.

    A netmask may stand for the prefix; an address alone is itself. None for anything else.
    """
    address, slash, prefix = text(value).strip("[]").partition("/")
    address = _OCTETS.sub(
        lambda found: ".".join(str(int(each)) for each in found.groups()), address
    )
    prefix = prefix.strip()
    if prefix.isascii() and prefix.isdigit():
        prefix = prefix.lstrip("0") or "0"
    try:
        found = ipaddress.ip_network(f"{address.strip()}{slash}{prefix}", strict=False)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Network) and found.subnet_of(_MAPPED):
        inner = ipaddress.IPv4Address(int(found.network_address) & 0xFFFFFFFF)
        return ipaddress.IPv4Network((inner, found.prefixlen - 96))
    return found


def is_open(value: object) -> bool:
    """Whether a text stands for the world, or for a large part of its public addresses.

    ``0.0.0.0/0``, ``::/0`` and their other spellings, ``0.0.0.0`` and ``::`` alone, ``*``,
    ``Any``, ``Internet``; prefixes of public IPv4 shorter than /8 and of IPv6 shorter than /16;
    a range from-to; any of these in a list with commas. Private ranges are not open, nor is what
    isn't a text.
    """
    given = text(value)
    if between := _ADDRESS_RANGE.fullmatch(given):
        return is_range_open(between[1], between[2])
    parts = [each for each in _SEPARATORS.split(given) if each]
    return any(_is_open(each) for each in parts) or (len(parts) > 1 and are_open(parts))


def _is_open(given: str) -> bool:
    if given.lower() in _WORLD_WORDS or given in {"0.0.0.0", "::", "0::", "0::0"}:  # noqa: S104
        return True
    found = network(given)
    if found is None:
        return False
    large = _LARGE_V4 if found.version == 4 else _LARGE_V6
    return found.prefixlen <= large and not _is_within(found)


def _is_within(found: Network) -> bool:
    """Whether nothing of it is public."""
    return any(
        isinstance(found, ipaddress.IPv4Network) == isinstance(each, ipaddress.IPv4Network)
        and each.prefixlen <= found.prefixlen
        and found.network_address in each
        for each in _NOT_PUBLIC
    )


def are_open(values: Iterable[object]) -> bool:
    """Whether a list stands for the world: one of it does, or all together are much of it.

    ``0.0.0.0/1`` with ``128.0.0.0/1``, or the world cut into many pieces: from a quarter of IPv4.
    """
    pieces: list[ipaddress.IPv4Network] = []
    for value in values:
        if is_open(value):
            return True
        found = network(value)
        if isinstance(found, ipaddress.IPv4Network) and not _is_within(found):
            pieces.append(found)
    size = sum(each.num_addresses for each in ipaddress.collapse_addresses(pieces))
    return size >= _MUCH_V4


def is_range_open(first: object, last: object) -> bool:
    """Whether the addresses from one to another (both included) are the world, or much of it."""
    low, high = _address(first), _address(last)
    if low is None or high is None or low.version != high.version or int(low) > int(high):
        return False
    size = int(high) - int(low) + 1
    if low.version == 6:
        return size >= 2 ** (128 - _LARGE_V6)
    private = [each for each in _NOT_PUBLIC if isinstance(each, ipaddress.IPv4Network)]
    if any(low in each and high in each for each in private):
        return False
    return size >= 2 ** (32 - _LARGE_V4)


def _address(value: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    found = network(text(value).partition("/")[0])
    return found.network_address if found is not None else None


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
_PORT_RANGE: Final = re.compile(r"(\d+)\s*(?:-|:|\.\.)\s*(\d+)")


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
        given = part.strip()
        if given.lower() in {"*", "any", "all"}:
            found.append(EVERY_PORT)
        elif between := _PORT_RANGE.fullmatch(given):
            # More digits than a port has are beyond the last one.
            first, last = (min(int(each[:12]), LAST_PORT) for each in between.groups())
            found.append(Ports(min(first, last), max(first, last)))
        elif (single := port(given)) is not None:
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
    given = text(protocol).lower() or _numbered(protocol)
    if given in _EVERY_PROTOCOL:
        return EVERY_PORT, True
    if given not in _WITH_PORTS:
        return None, True
    ends = [found for each in (first, last) if (found := port(each)) is not None]
    # Both zero, or minus one, is how people write every port; so is leaving them out.
    if not any(each > 0 for each in ends):
        return EVERY_PORT, True
    return Ports(max(min(ends), 0), max(ends)), True


def _numbered(protocol: object) -> str:
    found = number(protocol)
    return str(int(found)) if found is not None and abs(found) < 256 else ""
