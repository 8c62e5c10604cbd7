"""Places and services abroad, wherever in a resource they stand: region keys, ARNs, hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

from falaj.components.catalogue.region_names import (
    AWS_REGION,
    aws_region_of,
    is_azure_location,
    place_named,
    regions_in,
)
from falaj.policies.model import (
    EVERY,
    REDACTED,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    indeterminate,
    is_unknown,
    rule,
    violation,
)
from falaj.policies.reading.hosts import foreign_service, host_of, is_listed, may_talk_to
from falaj.policies.reading.place import format_places, is_allowed, referred_place
from falaj.policies.reading.program_hosts import is_market
from falaj.policies.reading.walk import Leaf, is_document, walk

# Which keys name a region, a zone or a location.

PlaceKind = Literal["region", "zone", "location", ""]

_WORD: Final = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|\d+")
#: Words after the one that counts: ``regionName``, ``regionLists``, ``zoneIds``.
_TAIL: Final = frozenset(("name", "names", "id", "ids", "list", "lists", "code", "codes", "value"))
_KINDS: Final[dict[str, PlaceKind]] = {
    "region": "region", "regions": "region", "zone": "zone", "zones": "zone", "az": "zone",
    "azs": "zone", "location": "location", "locations": "location",
}  # fmt: skip
#: Switches, which are true or false (``multiRegion``, ``allRegions``), and parts of addresses of
#: people (``stateOrRegion``).
_OTHERWISE: Final = frozenset(("multi", "cross", "all", "global", "or", "and"))
#: Keys whose meaning the one above them gives: ``regions[].name``, ``{name: REGION, value: …}``.
_BELOW: Final = frozenset((
    "name", "id", "value", "values", "default", "defaultvalue", "parametervalue", "allowedvalues",
))  # fmt: skip


#: Last words of keys whose text calls something by a name that its owner chose.
_CALLS: Final = frozenset((
    "name", "names", "id", "ids", "identifier", "identifiers", "prefix", "prefixes", "suffix",
    "suffixes", "alias", "aliases", "bucket", "buckets", "sid",
))  # fmt: skip


@lru_cache(maxsize=8192)
def calls_something(key: str) -> bool:
    """Whether a key holds a name of one's own: a bucket may be called after any region.

    >>> calls_something("setIdentifier"), calls_something("TARGET")
    (True, False)
    """
    words = _WORD.findall(key)
    return bool(words) and words[-1].lower() in _CALLS


@lru_cache(maxsize=8192)
def kind_of_key(key: str) -> PlaceKind:
    """What a key by itself names; empty for any other key.

    >>> kind_of_key("destinationRegion"), kind_of_key("AWS_REGION"), kind_of_key("multiRegion")
    ('region', 'region', '')
    """
    words = [each.lower() for each in _WORD.findall(key)]
    while len(words) > 1 and words[-1] in _TAIL:
        words.pop()
    if not words or (len(words) > 1 and words[-2] in _OTHERWISE):
        return ""
    # DNS zones are zones of names.
    if words[-1].startswith("zone") and len(words) > 1 and words[-2] in {"hosted", "dns"}:
        return ""
    return _KINDS.get(words[-1], "")


def kind_named(keys: tuple[str, ...]) -> PlaceKind:
    """What a value's keys name: the nearest, or the one above where that only says ``name``."""
    if not keys:
        return ""
    found = kind_of_key(keys[-1])
    if not found and len(keys) > 1 and keys[-1].lower() in _BELOW:
        return kind_of_key(keys[-2])
    return found


CONTROLS: Final = (
    "pdpl:22", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.14", "iso27001:A.5.23",
    "uae-ia:T6.3.1", "gdpr:44",
)  # fmt: skip

#: Regions that no data goes to, by the first keys of their paths.
_INWARD: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    # Copies of images and snapshots into the resource's own region.
    "aws:ec2/amiCopy:AmiCopy": (("sourceAmiRegion",),),
    "aws:ebs/snapshotCopy:SnapshotCopy": (("sourceRegion",),),
    # Collects what other regions record.
    "aws:cfg/configurationAggregator:ConfigurationAggregator": (
        ("accountAggregationSource", "regions"), ("organizationAggregationSource", "regions"),
    ),
    "aws:observabilityadmin/centralizationRuleForOrganization:CentralizationRuleForOrganization": (
        ("rule", "source"),
    ),
    # A rule of its own reads whether the region is switched on or off.
    "aws:account/region:Region": (("regionName",),),
    # What other regions' buckets hold is counted at home.
    "aws:s3control/storageLensConfiguration:StorageLensConfiguration": (
        ("storageLensConfiguration", "include"),
    ),
    # Checkers ask from abroad, and learn whether there is an answer.
    "aws:route53/healthCheck:HealthCheck": (("regions",),),
    # What the console shows.
    "aws:uxc/accountCustomizations:AccountCustomizations": (("visibleRegions",),),
    # Marks of objects, and columns of tables that are named after a region.
    "aws:s3/bucketObject:BucketObject": (("metadata",),),
    "aws:s3/bucketObjectv2:BucketObjectv2": (("metadata",),),
    "aws:s3/objectCopy:ObjectCopy": (("metadata",),),
    "aws:glue/partition:Partition": (("partitionValues",),),
    # What callers' requests are compared with.
    "aws:lb/listenerRule:ListenerRule": (("conditions",),),
    "aws:alb/listenerRule:ListenerRule": (("conditions",),),
    "aws:wafv2/webAcl:WebAcl": (("rules",), ("ruleJson",)),
    "aws:wafv2/ruleGroup:RuleGroup": (("rules",), ("rulesJson",)),
    "aws:wafv2/regexPatternSet:RegexPatternSet": (("regularExpressions",),),
    # Costs and findings are sorted by where they arise.
    "aws:costexplorer/costCategory:CostCategory": (
        ("rules",), ("defaultValue",), ("splitChargeRules",),
    ),
    "aws:securityhub/insight:Insight": (("filters",),),
    "aws:securityhub/automationRule:AutomationRule": (("criteria",),),
}  # fmt: skip

#: Keys of parts of paths, and of values that a table's partitions may have.
_PARTS: Final = re.compile(r"(?i)(?:prefix|suffix|path)(?:es|s)?$|^projection\.")
#: Keys of queries, which compare records with a region.
_QUERIES: Final = re.compile(
    r"(?i)(?:quer(?:y|ies)|querystring|sql|pattern|filter|expression|predicate|searchstring)s?$"
)

#: A setting in a script, a template or a command line: ``--region eu-west-1``, ``REGION=…``,
#: ``AvailabilityZone: eu-west-1a``, and items of YAML's lists.
_SETTING: Final = re.compile(
    rf"(?im)(?:--region\s+|(?:region|zone)\w*[\"']?\s*[:=]\s*|^\s*-\s+)"
    rf"[\"']?({AWS_REGION})[a-z]?(?![\w-])"
)
#: Redshift's COPY and UNLOAD: ``REGION AS 'eu-west-1'``.
_OPTION: Final = re.compile(rf"(?i)\bregion\s+(?:as\s+)?[\"']({AWS_REGION})[\"']")
#: The same of any cloud, in options of its commands: ``--location westeurope``.
_ANYWHERE: Final = re.compile(
    r"(?i)(?<!\S)--?(?:region|location|zone)s?[\s=]+[\"']?([a-z][a-z0-9-]{4,30})(?![\w-])"
)
_LIST: Final = re.compile(r"[\s,;|]+")


def _concerns(resource: Resource, leaf: Leaf) -> bool:
    """Whether no other rule says what the value means."""
    if leaf.path == ("region",) and resource.package in {"aws", "pulumi"}:
        return False
    if leaf.path == ("location",) and resource.package == "pulumi":
        return False
    # Rules of their own read Azure's locations.
    if resource.package == "azure-native" and (
        is_unknown(leaf.value) or is_azure_location(leaf.value, geographies=True)
    ):
        return False
    return not any(leaf.keys[: len(keys)] == keys for keys in _INWARD.get(resource.kind, ()))


def _named(leaf: Leaf) -> Iterator[str]:
    """The places that a text names, alone or in a list with commas."""
    given = leaf.value
    if not isinstance(given, str) or len(given) > 2000:
        return
    kind = kind_named(leaf.keys)
    if (not kind and calls_something(leaf.key)) or _is_part(leaf):
        return
    if leaf.is_own and is_market(leaf.name, given):
        return
    if whole := place_named(given) if kind else _aws(given) or _elsewhere(leaf, given):
        yield whole
        return
    parts = [each for each in _LIST.split(given.strip("[]()\"' ")) if each]
    if len(parts) > 1:
        places = [_aws(each.strip("\"'")) for each in parts]
        if all(places):
            yield from places


def _elsewhere(leaf: Leaf, given: str) -> str:
    """The region of another cloud whose id a setting is: ``europe-west4`` and ``westeurope`` mean
    nothing else."""
    place = place_named(given) if leaf.is_own else ""
    is_id = place.startswith(("gcp/", "oci/")) or place == f"azure/{given}"
    return place if is_id else ""


def _aws(given: str) -> str:
    region = aws_region_of(given)
    return f"aws/{region}" if region else ""


def _is_part(leaf: Leaf) -> bool:
    """Whether it is a part of a path, which may be called after anything."""
    return not leaf.is_own and _PARTS.search(leaf.key) is not None


def _in_text(leaf: Leaf) -> Iterator[str]:
    if not isinstance(leaf.value, str) or len(leaf.value) <= 12 or is_document(leaf.value):
        return
    asks = not leaf.is_own and _QUERIES.search(leaf.key)
    settings = () if _is_part(leaf) or asks else (_SETTING,)
    for pattern in (*settings, _OPTION):
        for found in pattern.finditer(leaf.value):
            yield f"aws/{found[1].lower()}"
    for found in _ANYWHERE.finditer(leaf.value) if settings else ():
        yield from filter(None, (place_named(found[1]),))


def _hidden(resource: Resource, context: Context, leaf: Leaf, path: str) -> Iterator[Finding]:
    """What can't be seen counts only under a key that names where data goes."""
    # A zone is always one of the resource's own region, and a location may be a path or a table.
    if kind_named(leaf.keys) == "region":
        place = referred_place(context, resource, path)
        if place == "unknown" or is_allowed(place, context):
            # What is made from something at home may still say another region than its own.
            yield indeterminate(
                path, f"names a place that {_reason(leaf)}; {format_places(context)}"
            )
        else:
            yield violation(path, f"names a place made from {place}; {format_places(context)}")


def _reason(leaf: Leaf) -> str:
    return "is a secret" if leaf.value is REDACTED else "can't be known yet"


@rule(
    "residency-foreign-region",
    "No property names a region, zone or location abroad",
    Severity.CRITICAL,
    EVERY,
    CONTROLS,
    "Name one of the allowed places, or leave the property out where it only adds regions. What "
    "the resource does in the region that is named, it does with data outside of the country.",
)
def foreign_region(resource: Resource, context: Context) -> Iterator[Finding]:
    """Region keys at any depth, and region ids under any key that isn't a name or a label."""
    for leaf in walk(resource):
        if not _concerns(resource, leaf):
            continue
        path = format_path(leaf.path)
        if is_unknown(leaf.value):
            # What a component makes of it is judged by itself.
            yield from _hidden(resource, context, leaf, path) if resource.custom else ()
            continue
        for place in dict.fromkeys((*_named(leaf), *_in_text(leaf))):
            if not is_allowed(place, context):
                yield violation(path, f"names {place}; {format_places(context)}")


def _pointers(resource: Resource, context: Context, *, arns: bool) -> Iterator[Finding]:
    allowed = context.settings.regions("aws")
    for leaf in walk(resource):
        if not isinstance(leaf.value, str) or is_document(leaf.value):
            continue
        for region, evidence in dict.fromkeys(regions_in(leaf.value)):
            if evidence.lower().startswith("arn:") is arns and region not in allowed:
                yield violation(
                    format_path(leaf.path),
                    f"{evidence} is in aws/{region}; {format_places(context)}",
                )


@rule(
    "residency-foreign-arn",
    "No ARN points into a region abroad",
    Severity.CRITICAL,
    EVERY,
    CONTROLS,
    "Use the resource of the same purpose in an allowed region: what an ARN points to receives "
    "the data, encrypts it or may be used by whoever the permission is for. To forbid a region, "
    "use a statement with the effect Deny.",
)
def foreign_arn(resource: Resource, context: Context) -> Iterator[Finding]:
    """ARNs with a region, in any text."""
    return _pointers(resource, context, arns=True)


@rule(
    "residency-foreign-host",
    "No host or service name of AWS points into a region abroad",
    Severity.CRITICAL,
    EVERY,
    CONTROLS,
    "Use the endpoint, registry or endpoint service of an allowed region.",
)
def foreign_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Hosts such as ``*.eu-west-1.amazonaws.com``, in any text."""
    return _pointers(resource, context, arns=False)


# Hosts that anything is configured to send data to.

_HOST_CONTROLS: Final = (*CONTROLS, "iso27001:A.8.12")
_URL: Final = re.compile(r"\b[a-z][a-z0-9+.:-]{0,40}://[^\s\"'<>|;,]+", re.IGNORECASE)
#: Keys whose whole text is a host or URL that is talked to.
_TALKS: Final = re.compile(
    r"(?i)(host|endpoint|url|uri|site|server|dsn|address|broker|target|exporter|collector)s?$"
)
#: Keys under which telemetry is sent, whatever the host.
_TELEMETRY: Final = re.compile(
    r"(?i)otel_exporter|otlp|webhook|sentry_dsn|remote_?write|telemetry|tracing_(url|endpoint)|"
    r"collector_(url|endpoint|host)|zipkin|jaeger_endpoint|fluent\w*_host|syslog"
)
#: Protocols that only carry data; what has a page at https:// may be but a link.
_CARRIES: Final = re.compile(
    r"(?i)(postgres(ql)?|mysql|mariadb|mssql|sqlserver|oracle|mongodb(\+srv)?|rediss?|amqps?|kafka|"
    r"nats|mqtts?|ftps?|sftp|smtps?|rtmps?|srt|rtp|udp|ldaps?|jdbc:.*|tcp|tls|grpcs?|syslog)://"
)
#: Schemes that mean a service by themselves.
_SERVICES: Final = {
    "gs": "Google Cloud Storage", "gcs": "Google Cloud Storage", "oss": "Alibaba's object storage",
}  # fmt: skip
#: Hosts of the clouds that say no region: named rules place what is behind them.
SAYS_NOTHING: Final = (".windows.net", ".azure.com", ".azure.net", ".amazonaws.com", ".aws")
#: Types that name hosts to answer for, to filter or to block, and types with rules of their own.
_ONLY_NAMES: Final = (
    "aws:route53/", "aws:networkfirewall/", "aws:wafv2/", "kubernetes:", "aws:iam/", "azuread:",
)  # fmt: skip


def _texts(resource: Resource) -> Iterator[tuple[Leaf, str]]:
    if not resource.kind.startswith(_ONLY_NAMES):
        for leaf in walk(resource):
            if isinstance(leaf.value, str) and not is_document(leaf.value):
                yield leaf, leaf.value


@rule(
    "residency-foreign-service",
    "Nothing is configured to send data to a service abroad",
    Severity.HIGH,
    EVERY,
    _HOST_CONTROLS,
    "Send telemetry, prompts and files to a service that runs in an allowed region; Falaj's "
    "stacks bring collectors of their own. A host that is known to be in the country goes into "
    "the setting allowedHosts.",
)
def foreign_service_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Hosts of known services for telemetry, models, data and messages."""
    for leaf, given in _texts(resource):
        hosts = [host_of(each) for each in _URL.findall(given)] if "://" in given else []
        if _TALKS.search(leaf.key):
            hosts.append(host_of(given))
        for host in dict.fromkeys(hosts):
            if (found := foreign_service(host)) and not is_listed(host, context.settings):
                yield violation(
                    format_path(leaf.path), f"{host} is {found}, abroad; {format_places(context)}"
                )


@rule(
    "residency-off-list-host",
    "Databases, queues and telemetry are at hosts that may have data",
    Severity.HIGH,
    EVERY,
    _HOST_CONTROLS,
    "Use a host of an allowed region or of one's own network, or add the host to the setting "
    "allowedHosts once it is sure that it is in the country.",
)
def off_list_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """URLs of protocols that carry data, and every host under a key of telemetry."""
    for leaf, given in _texts(resource):
        path = format_path(leaf.path)
        urls = _URL.findall(given) if "://" in given else []
        hosts = [host_of(each) for each in urls if _CARRIES.match(each)]
        if _TELEMETRY.search(leaf.key):
            hosts.append(host_of(given))
        for host in dict.fromkeys(hosts):
            if (
                host
                and not foreign_service(host)
                and not host.endswith(SAYS_NOTHING)
                and not may_talk_to(host, context.settings)
            ):
                yield violation(path, f"data goes to {host}, which no setting allows")
        for scheme in dict.fromkeys(each.partition(":")[0].lower() for each in urls):
            if found := _SERVICES.get(scheme):
                yield violation(path, f"data goes to {found}; {format_places(context)}")


RULES: tuple[Rule, ...] = (
    foreign_region,
    foreign_arn,
    foreign_host,
    foreign_service_host,
    off_list_host,
)
