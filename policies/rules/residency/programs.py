"""Where programs are told to send data: settings and arguments of every kind of workload.

Functions, tasks, jobs, containers, sites and workflows of AWS and Azure; pods have rules of their
own (`policies.rules.kubernetes.egress`), by the same list of what may be reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.components.catalogue.region_names import place_named
from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    is_unknown,
    rule,
    select,
    violation,
)
from falaj.policies.reading.hosts import BUCKET_SCHEMES, foreign_service, host_of, is_listed
from falaj.policies.reading.place import format_places, is_allowed
from falaj.policies.reading.program_hosts import (
    NO_HOSTS,
    URL,
    far_ends,
    in_pieces,
    is_link,
    without_scheme,
)
from falaj.policies.reading.services import may_reach, outside
from falaj.policies.reading.types import aws, aws_type, azure
from falaj.policies.reading.walk import Leaf, is_document, plain_key, walk
from falaj.policies.rules.residency.destinations import unseen
from falaj.policies.rules.residency.everywhere import CONTROLS, SAYS_NOTHING

#: Keys below which a program's settings and arguments stand, in any type; in small letters
#: without ``-`` and ``_``.
_PROGRAM: Final = frozenset((
    "appcommandline", "appsettings", "args", "arguments", "command", "commandline",
    "commandlinearguments", "connectionstrings", "containerenvironmentvariables",
    "defaultarguments", "defaultrunproperties", "entrypoint", "env", "environment",
    "environmentvariables", "logconfiguration", "nonoverridablearguments",
    "runcommand", "runtimeenvironmentvariables", "scriptparameters", "stagevariables",
    "startcommand", "variables",
))  # fmt: skip
#: Of these, lists that make one command.
_IN_PIECES: Final = frozenset(("args", "command", "entrypoint"))
#: Types whose settings stand under a key that means something else in others.
_OF_TYPES: Final[dict[str, str]] = dict.fromkeys(
    azure(
        "web:WebAppApplicationSettings", "web:WebAppApplicationSettingsSlot",
        "web:WebAppConnectionStrings", "web:WebAppConnectionStringsSlot",
    ),
    "properties",
)  # fmt: skip
#: Workflows, whose actions call what these keys name.
_WORKFLOWS: Final = azure("logic:Workflow") | aws("sfn/stateMachine")
_CALLED: Final = frozenset(("uri", "url", "endpoint", "host", "apiendpoint"))
#: Names of settings whose text is a host, also without a port.
_HOST_SETTING: Final = re.compile(
    r"(?:host|hostname|endpoint|url|uri|server|dsn|broker|proxy|ip|addr|address)(?:e?s)?$",
    re.IGNORECASE,
)
_SEPARATORS: Final = re.compile(r"[\s,;]+")
#: What stands for a value that is given later: ``$HOST``, ``%(host)s``, ``@{…}``, ``<host>``.
_OPEN: Final = re.compile(r"[$%@{}<>*]")
#: A text of more lines is a script or a file, which names hosts of every kind; there other rules
#: look for what is known to be abroad.
_LINES: Final = "\n"


#: Documents that hold programs' settings among other things.
_HOLDERS: Final = frozenset(("containerdefinitions", "containerproperties", "ecsproperties"))


def _is_destination(leaf: Leaf, resource: Resource) -> bool:
    if resource.kind in _WORKFLOWS:
        return leaf.key.lower() in _CALLED or leaf.keys[:1] == ("parameters",)
    if leaf.keys[:1] == (_OF_TYPES.get(resource.kind),):
        return True
    return not _PROGRAM.isdisjoint(map(plain_key, leaf.keys)) or _hides(leaf)


def _hides(leaf: Leaf) -> bool:
    """Whether all settings of a program, or of several, can't be seen."""
    return is_unknown(leaf.value) and plain_key(leaf.key) in _PROGRAM | _HOLDERS


def _hosts(name: str, value: str) -> Iterator[str]:
    rest = value
    for found in URL.finditer(value):
        rest = rest.replace(found[0], " ")
        if found[1].lower() not in NO_HOSTS | BUCKET_SCHEMES:
            yield host_of(found[0])
    for each in without_scheme(rest):
        yield host_of(each)
    if _HOST_SETTING.search(name):
        yield from (host_of(each) for each in _SEPARATORS.split(rest) if each)


@rule(
    "residency-program-destination",
    "Programs are told to reach hosts of allowed regions, of one's own networks or the list only",
    Severity.HIGH,
    {"aws:*", "azure-native:*"},
    (*CONTROLS, "iso27001:A.8.12"),
    "Name the host in allowedHosts where data may go to it; else use one of an allowed region or "
    "of one's own network.",
)
def program_destination(resource: Resource, context: Context) -> Iterator[Finding]:
    """URLs, hosts with a port, addresses, connection strings, and far ends of commands, in
    settings and commands of functions, tasks, jobs, containers, sites and workflows."""
    for leaf in walk(resource):
        if not _is_destination(leaf, resource):
            continue
        path = format_path(leaf.path)
        if is_unknown(leaf.value):
            if (_hides(leaf) or _HOST_SETTING.search(leaf.name)) and resource.custom:
                near = context.referred(resource, path)
                yield from unseen(near, path, "what it reaches", context, "can't be known")
            continue
        given = leaf.value
        if not isinstance(given, str) or is_document(given) or _LINES in given:
            continue
        if is_link(leaf.name, given):
            continue
        for host in dict.fromkeys(_hosts(leaf.name, given)):
            if (
                host
                and not _OPEN.search(host)
                and not host.endswith(SAYS_NOTHING)
                and not may_reach(host, context.settings)
            ):
                yield violation(path, outside(host))
    for path, command in _commands(resource):
        for host in dict.fromkeys(in_pieces(command)):
            given = host_of(host) or host
            if not given.endswith(SAYS_NOTHING) and not may_reach(given, context.settings):
                yield violation(path, outside(given))


def _commands(resource: Resource) -> Iterator[tuple[str, str]]:
    """Commands that are given in pieces, as one line each: ``[ssh, ops@host]``."""
    pieces: dict[tuple[str, ...], list[Leaf]] = {}
    for leaf in walk(resource):
        if isinstance(leaf.value, str) and plain_key(leaf.key) in _IN_PIECES:
            pieces.setdefault(leaf.keys, []).append(leaf)
    for found in pieces.values():
        if len(found) > 1:
            yield format_path(found[0].path), " ".join(each.value for each in found)


@rule(
    "residency-script-copy",
    "No script copies to a host abroad",
    Severity.HIGH,
    {"aws:*", "azure-native:*"},
    (*CONTROLS, "iso27001:A.8.12"),
    "Copy to a host of an allowed region or of one's own network, or name the host in "
    "allowedHosts.",
)
def script_copy(resource: Resource, context: Context) -> Iterator[Finding]:
    """Far ends of shells, copies, sockets, databases' clients and proxies, and of uploads, in
    scripts of machines and builds."""
    for leaf in walk(resource):
        if isinstance(leaf.value, str) and _LINES in leaf.value:
            for host in dict.fromkeys(far_ends(leaf.value)):
                given = host_of(host) or host
                if not given.endswith(SAYS_NOTHING) and not may_reach(given, context.settings):
                    yield violation(format_path(leaf.path), outside(given))


#: Where records of names are, by type: the property that holds their targets.
_RECORDS: Final[dict[str, tuple[str, ...]]] = {
    aws_type("route53/record"): ("records", "aliases.name"),
    **dict.fromkeys(
        azure("dns:RecordSet", "privatedns:PrivateRecordSet"),
        ("cnameRecord.cname", "srvRecords.target", "mxRecords.exchange"),
    ),
}


@rule(
    "residency-dns-target",
    "No name of one's own stands for a host abroad",
    Severity.HIGH,
    frozenset(_RECORDS),
    (*CONTROLS, "iso27001:A.8.12"),
    "Point the record at a host in the country, or add the host to the setting allowedHosts: who "
    "is told the name sends data to what it stands for.",
)
def dns_target(resource: Resource, context: Context) -> Iterator[Finding]:
    """Records that name a host of any cloud's region abroad, or of a service known to be."""
    for key in _RECORDS[resource.kind]:
        for path, value in select(resource.properties, key):
            if is_unknown(value):
                near = context.referred(resource, path)
                yield from unseen(
                    near, path, "what the name stands for", context, "can't be known"
                )
            host = host_of(value)
            if not host or is_listed(host, context.settings):
                continue
            places = filter(None, map(place_named, host.split(".")))
            abroad = [each for each in places if not is_allowed(each, context)]
            if what := (abroad[0] if abroad else foreign_service(host)):
                yield violation(path, f"{host} is in {what}; {format_places(context)}")


RULES: tuple[Rule, ...] = (program_destination, script_copy, dns_target)
