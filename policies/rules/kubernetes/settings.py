"""What pods are told of their surroundings: regions of the cloud, and servers of names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.clusters import COREDNS_CUSTOM
from falaj.components.catalogue.region_names import place_named
from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    indeterminate,
    is_unknown,
    items,
    rule,
    text,
    violation,
)
from falaj.policies.reading.corefile import directives, imports, open_zones, refuses
from falaj.policies.reading.kubernetes import ANY_OBJECT, Manifest, kinds, manifests
from falaj.policies.reading.pods import Pod, each_pod, pods_of
from falaj.policies.reading.services import is_own_address, may_reach
from falaj.wire.documents import is_mapping, mapping

_OF_AWS: Final = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION", "AMAZON_REGION"})
_REGION: Final = re.compile(r"(?:\w+_)?(?:REGION|LOCATION)", re.I)
#: The region of an output, in Fluent Bit's own format of files.
_FLUENT_REGION: Final = re.compile(r"(?mi)^\s*region\s+(\S+)\s*$")
_OPTION: Final = re.compile(r"--?(?:[\w-]+-)?(?:region|location)", re.I)
_ARGUMENT: Final = re.compile(rf"(?<!\S){_OPTION.pattern}[=\s]\s*(\S+)", re.I)


@rule(
    "kubernetes-region-setting",
    "Programs are told to work in allowed regions",
    Severity.CRITICAL,
    ANY_OBJECT,
    ("pdpl:22", "pdpl:23", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.23"),
    "Set the region to an allowed one.",
)
def region_setting(resource: Resource, context: Context) -> Iterator[Finding]:
    """No setting, argument or entry of a map names a region abroad."""
    for pod in pods_of(resource):
        for container in pod.containers:
            for index, each in enumerate(items(container.get("env"))):
                at = f"{container.at}.env[{index}].value"
                name, value = text(get(each, "name")), get(each, "value")
                yield from _judge(pod.manifest, at, name, value, context)
            for key in ("args", "command"):
                given = items(container.get(key))
                for index, each in enumerate(given):
                    for at, value in _arguments(given, index, text(each)):
                        where = f"{container.at}.{key}[{at}]"
                        yield from _judge(pod.manifest, where, "region", value, context)
    for manifest in manifests(resource):
        data = manifest.get("data")
        if manifest.kind == "ConfigMap" and not manifest.group and is_mapping(data):
            for key, value in data.items():
                at = format_path(("data", str(key)))
                yield from _judge(manifest, at, str(key), value, context)
                if "[OUTPUT]" in text(value).upper():
                    for found in _FLUENT_REGION.finditer(text(value)):
                        yield from _judge(manifest, at, "region", found[1], context)


def _arguments(given: list[Any], index: int, each: str) -> Iterator[tuple[int, Any]]:
    """Regions that an argument names, alone, before the next, or within a shell's command."""
    if _OPTION.fullmatch(each):
        if index + 1 < len(given):
            yield index + 1, given[index + 1]
    else:
        for found in _ARGUMENT.finditer(each):
            yield index, found[1].strip("\"';")


def _judge(
    manifest: Manifest, at: str, name: str, value: Any, context: Context
) -> Iterator[Finding]:
    if not _REGION.fullmatch(name):
        return
    allowed = context.settings.allowed_places
    if is_unknown(value):
        yield manifest.indeterminate(at, f"the region {value.reason}")
        return
    place = place_named(value)
    wrong = place not in allowed if place else name.upper() in _OF_AWS and bool(text(value))
    if wrong and not text(value).startswith("$("):
        yield manifest.violation(
            at, f"{name} is {format_value(value)}; allowed are {', '.join(allowed)}"
        )


@rule(
    "kubernetes-dns",
    "Pods ask servers of names of one's own, about domains of one's own",
    Severity.HIGH,
    ANY_OBJECT,
    ("iso27001:A.8.20", "iso27001:A.8.12", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Remove dnsConfig.nameservers, so that the cluster's own are asked, or name those of your "
    "network. Search domains of your own, or name them in allowedHosts.",
)
@each_pod()
def dns(pod: Pod, context: Context) -> Iterator[Finding]:
    """What is asked tells who is called, and names may carry data out."""
    servers = pod.get("dnsConfig.nameservers")
    for index, each in enumerate(items(servers)):
        path = f"dnsConfig.nameservers[{index}]" if not is_unknown(servers) else "dnsConfig"
        if is_unknown(each):
            yield pod.indeterminate(path, f"the server of names {each.reason}")
        elif not may_reach(each, context.settings):
            yield pod.violation(path, f"{format_value(each)} is a public server of names")
    domains = pod.get("dnsConfig.searches")
    for index, each in enumerate(items(domains)):
        path = f"dnsConfig.searches[{index}]" if not is_unknown(domains) else "dnsConfig"
        if is_unknown(each):
            yield pod.indeterminate(path, f"the domain that is searched {each.reason}")
        elif each != "." and not may_reach(each, context.settings):
            yield pod.violation(path, f"names that aren't found are asked of {format_value(each)}")


_FORWARD: Final = re.compile(r"(?m)^\s*forward\s+\S+\s+([^{\n]+)")


@rule(
    "kubernetes-dns-forward",
    "The cluster's server of names asks servers of one's own",
    Severity.HIGH,
    kinds("core:ConfigMap"),
    ("iso27001:A.8.20", "iso27001:A.8.12", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Forward to /etc/resolv.conf or to servers of your network.",
)
def dns_forward(resource: Resource, context: Context) -> Iterator[Finding]:
    """No zone of CoreDNS is forwarded to a public server."""
    for manifest in manifests(resource):
        data = manifest.get("data")
        if manifest.kind != "ConfigMap" or not is_mapping(data):
            continue
        for key, value in data.items():
            if not (str(key) == "Corefile" or str(key).endswith((".server", ".override"))):
                continue
            path = format_path(("data", str(key)))
            if is_unknown(value):
                yield manifest.indeterminate(path, f"where names are asked {value.reason}")
                continue
            for found in _FORWARD.finditer(text(value)):
                for each in found[1].split():
                    server = each.rpartition("://")[2]
                    if not (server.startswith("/") or may_reach(server, context.settings)):
                        yield manifest.violation(path, f"names are asked of {format_value(each)}")


_ADDON: Final = "aws:eks/addon:Addon"
#: ConfigMaps that resolvers read: CoreDNS by kubeadm and EKS; by AKS and k3s; caches on nodes.
_RESOLVERS: Final = frozenset({"coredns", COREDNS_CUSTOM, "node-local-dns", "nodelocaldns"})


@rule(
    "kubernetes-dns-refusal",
    "The cluster's server of names refuses names of domains that nobody allowed",
    Severity.HIGH,
    kinds("core:ConfigMap") | {_ADDON},
    ("iso27001:A.8.20", "iso27001:A.8.12", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Ask others about domains that you list, in blocks of their own, and give the rest the plugin "
    "template ANY ANY . with rcode NXDOMAIN: Cluster's resolver on EKS and the platform's add-on "
    "resolver do so with the mode enforce. Have caches on nodes ask the cluster's server.",
)
def dns_refusal(resource: Resource, context: Context) -> Iterator[Finding]:
    """A question for a name reaches who holds its domain, and what is in the name with it."""
    del context
    if resource.kind == _ADDON:
        yield from _addon_refusal(resource)
        return
    for manifest in manifests(resource):
        data, name = manifest.get("data"), text(manifest.get("metadata.name"))
        if manifest.kind != "ConfigMap" or name not in _RESOLVERS:
            continue
        if is_unknown(data):
            yield manifest.indeterminate("data", f"which names are refused {data.reason}")
            continue
        given = mapping(data)
        refused = False
        for key, value in given.items():
            path = format_path(("data", str(key)))
            if is_unknown(value):
                yield manifest.indeterminate(path, f"which names are refused {value.reason}")
                refused = True
            elif str(key).endswith(".override"):
                refused = refused or refuses(directives(text(value)))
            elif str(key) == "Corefile" or str(key).endswith(".server"):
                # What a default block imports is in the other map.
                if str(key) == "Corefile" and imports(text(value)):
                    continue
                for zone in open_zones(text(value)):
                    yield manifest.violation(path, f"any name in {zone!r} is asked of others")
        if name == COREDNS_CUSTOM and not refused:
            yield manifest.violation("data", "nothing in it refuses names of others")


def _addon_refusal(resource: Resource) -> Iterator[Finding]:
    given = resource.get("configurationValues")
    if text(resource.get("addonName")) != "coredns":
        return
    if is_unknown(given):
        yield indeterminate("configurationValues", f"which names are refused {given.reason}")
        return
    try:
        found: Any = json.loads(text(given) or "{}")
    except ValueError:
        yield indeterminate("configurationValues", "it is no JSON")
        return
    corefile = text(get(found, "corefile")) if is_mapping(found) else ""
    if not corefile:
        yield violation("configurationValues", "it has no corefile: any name is asked of others")
    for zone in open_zones(corefile):
        yield violation("configurationValues", f"any name in {zone!r} is asked of others")


@rule(
    "kubernetes-host-aliases",
    "Pods give no names to public addresses",
    Severity.MEDIUM,
    ANY_OBJECT,
    ("iso27001:A.8.20", "iso27001:A.8.12", "uae-ia:T4.5.3"),
    "Remove the alias; name the host in allowedHosts and let it be resolved.",
)
@each_pod()
def host_aliases(pod: Pod, context: Context) -> Iterator[Finding]:
    """A private name for a public address hides where data goes."""
    for index, each in enumerate(items(pod.get("hostAliases"))):
        path, address = f"hostAliases[{index}].ip", get(each, "ip")
        if is_unknown(each) or is_unknown(address):
            hidden = each if is_unknown(each) else address
            yield pod.indeterminate(path, f"the address {hidden.reason}")
        elif text(address) and not is_own_address(address):
            yield pod.violation(path, f"{format_value(address)} is a public address")


RULES: tuple[Rule, ...] = (region_setting, dns, dns_forward, dns_refusal, host_aliases)
