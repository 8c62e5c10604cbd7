"""Parts of CEL expressions, as the API server evaluates them.

https://kubernetes.io/docs/reference/using-api/cel/
"""

import json
import re
from collections.abc import Iterable

from falaj.components.catalogue.clusters import OWN_RANGES, PRIVATE_SUFFIXES, TOP_LEVEL_DOMAINS

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")


def text(value: str) -> str:
    """A literal text."""
    return json.dumps(value, ensure_ascii=False)


def literal(value: str | int | bool) -> str:
    """A literal text, number or truth."""
    return json.dumps(value, ensure_ascii=False)


def texts(values: Iterable[str]) -> str:
    """A literal list of texts, sorted where its order says nothing."""
    listed = sorted(values) if isinstance(values, (set, frozenset)) else values
    return "[" + ", ".join(text(each) for each in listed) + "]"


def each_container(wrong: str, said: str = "c.name") -> str:
    """What is wrong with containers ``c`` of every list, as a list of texts.

    Args:
        wrong: whether container ``c`` is one to name.
        said: the text about it. Default: its name.
    """
    return " + ".join(
        f"variables.pod.?{each}.orValue([]).filter(c, {wrong}).map(c, {said})"
        for each in CONTAINER_LISTS
    )


def when(condition: str, said: str) -> str:
    """A list of one text where the condition holds, else of none."""
    return f"({condition} ? [{said}] : [])"


def is_own_address(address: str, own: Iterable[str] = ()) -> str:
    """Whether a text is an address of one's own networks; ``own`` are further ranges."""
    ranges = texts([*OWN_RANGES, *own])
    return f"(isIP({address}) && {ranges}.exists(n, cidr(n).containsIP(ip({address}))))"


def is_own_host(host: str, pattern: str, own: Iterable[str] = ()) -> str:
    """Whether a host may be reached: an own address, a name that ``pattern`` has, a service's.

    Two labels, of which the last isn't a domain that companies register names in, are a service
    and its namespace.
    """
    service = text(r"^[^.]+\.[a-z](?:[a-z0-9-]*[a-z0-9])$")
    domain = text(rf"\.(?:[a-z]{{2}}|{'|'.join(sorted(TOP_LEVEL_DOMAINS))})$")
    return (
        f"({is_own_address(host, own)} || (!isIP({host}) && ({host}.lowerAscii().matches("
        f"{text(pattern)}) || ({host}.lowerAscii().matches({service}) && "
        f"!{host}.lowerAscii().matches({domain})))))"
    )


def hosts_pattern(regions: Iterable[tuple[str, str]], listed: Iterable[str]) -> str:
    """Names of hosts that may be reached, as a regular expression of RE2.

    Args:
        regions: cloud and region whose own services may be.
        listed: further hosts; ``*.example.ae`` with all below it.
    """
    private = "|".join(re.escape(each[1:]) for each in PRIVATE_SUFFIXES)
    names = [r"[^.]+", rf".+\.(?:{private})"]
    for cloud, region in regions:
        if cloud == "aws":
            names.append(rf"(?:.+\.)?{region}\.(?:[a-z]+\.)?(?:amazonaws\.com|api\.aws|on\.aws)")
        else:
            names.append(
                rf"(?:.+\.)?{region}\.(?:(?:cloudapp|monitor|data)\.)*"
                r"(?:azure\.com|azure\.net|windows\.net|azurecr\.io|azmk8s\.io)"
            )
    for each in listed:
        name = re.split(r"[:/]", each, maxsplit=1)[0].lower()
        names.append(r".+\." + re.escape(name[2:]) if name.startswith("*.") else re.escape(name))
    return rf"^(?:{'|'.join(names)})\.?$"


def images_pattern(registries: Iterable[str], regions: Iterable[str] = ()) -> str:
    """References to images of some registries, as a regular expression of RE2 in small letters.

    Args:
        registries: ``host``, ``*.host`` or ``host:port/path``.
        regions: regions of AWS, all of whose private registries may be used.
    """
    found: list[str] = []
    for each in registries:
        host, _, path = each.lower().strip("/").partition("/")
        host = host.removesuffix(":443")
        name = r"[a-z0-9.-]+\." + re.escape(host[2:]) if host.startswith("*.") else re.escape(host)
        port = "" if ":" in host else "(?::443)?"
        found.append(f"{name}{port}/" + (rf"{re.escape(path)}(?:/|:|@|$)" if path else ""))
    for region in regions:
        found.append(rf"[0-9]{{12}}\.dkr\.ecr(?:-fips)?\.{region}\.amazonaws\.com(?::443)?/")
        found.append(rf"[0-9]{{12}}\.dkr-ecr(?:-fips)?\.{region}\.on\.aws(?::443)?/")
    return f"^(?:{'|'.join(found)})"
