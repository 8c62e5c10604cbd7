"""CoreDNS' configuration: whether names that nobody listed are asked of others.

https://coredns.io/manual/configuration/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from falaj.components.catalogue.clusters import PRIVATE_SUFFIXES

_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|[^\s"]\S*')
#: What asks other servers: https://coredns.io/plugins/forward/, and /grpc/.
_ASKS: Final = frozenset({"forward", "grpc", "proxy"})
_REFUSALS: Final = frozenset({"NXDOMAIN", "REFUSED"})
#: What NodeLocal DNSCache puts in for the cluster's own resolver:
#: https://kubernetes.io/docs/tasks/administer-cluster/nodelocaldns/
_OWN: Final = frozenset({"__PILLAR__CLUSTER__DNS__", "__PILLAR__DNS__SERVER__"})


@dataclass(frozen=True)
class Directive:
    """A line, with the lines of its braces."""

    words: tuple[str, ...]
    inner: tuple[Directive, ...] = ()

    @property
    def name(self) -> str:
        """Its first word: a plugin, or a zone of a block of servers."""
        return self.words[0] if self.words else ""

    def says(self, *words: str) -> bool:
        """Whether a line of its braces begins with these words."""
        return any(each.words[: len(words)] == words for each in self.inner)


def directives(text: str) -> tuple[Directive, ...]:
    """The blocks of servers of a configuration, or the plugins of a part of one."""
    lines = iter(
        [line for each in text.splitlines() if (line := _TOKEN.findall(each.partition("#")[0]))]
    )
    return tuple(_read(lines))


def _read(lines: Iterator[list[str]]) -> Iterator[Directive]:
    for words in lines:
        if words[0] == "}":
            return
        if words[-1] == "{":
            yield Directive(tuple(words[:-1]), tuple(_read(lines)))
        else:
            yield Directive(tuple(words))


def refuses(plugins: Sequence[Directive]) -> bool:
    """Whether plugins of a block refuse every name that gets to it."""
    return any(_refuses(each) for each in plugins)


def _refuses(plugin: Directive) -> bool:
    if plugin.name == "template":
        every = plugin.words[1:2] in (("ANY",), ("IN",)) and plugin.words[2:3] == ("ANY",)
        zones = plugin.words[3:]
        free = not plugin.says("match") and not plugin.says("expr")
        refused = any(each.words[:1] == ("rcode",) and set(each.words[1:]) & _REFUSALS
                      for each in plugin.inner)  # fmt: skip
        return bool(every and free and refused and (not zones or "." in zones))
    if plugin.name == "acl":
        zones = plugin.words[1:]
        first = next((each.words for each in plugin.inner), ())
        return first in (("block",), ("filter",), ("drop",)) and (not zones or "." in zones)
    return False


def open_zones(text: str) -> Iterator[str]:
    """Zones of a configuration whose names go to others and that anybody may have names in."""
    for block in directives(text):
        plugins = block.inner
        asks = any(each.name in _ASKS and not set(each.words[2:]) & _OWN for each in plugins)
        if asks and not refuses(plugins):
            yield from filter(_is_open, map(_zone, block.words))


def imports(text: str) -> bool:
    """Whether further plugins of a default block stand in files beside the configuration."""
    return any(each.words[:1] == ("import",) for block in directives(text) for each in block.inner)


def _zone(key: str) -> str:
    """The zone of a block's key, as ``dns://example.ae.:53,``."""
    return re.sub(r":\d+$", "", key.rstrip(",").rpartition("://")[2]).rstrip(".") or "."


def _is_open(zone: str) -> bool:
    """Whether a zone is the root, a top-level domain or that of all addresses."""
    private = f".{zone}" in PRIVATE_SUFFIXES
    return zone in {".", "in-addr.arpa", "ip6.arpa"} or ("." not in zone and not private)
