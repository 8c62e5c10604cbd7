"""A policy of admission: what it matches, what it refuses, how it says so, and its scope.

The scope is what one cluster allows: its place, its networks, and namespaces that may do more.

Every check yields a list of texts, each what is wrong; an object passes where all lists are empty.
The same texts stand in the message and in the audit log, under the id of the pack's rule.
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from falaj.components import catalogue
from falaj.components.catalogue.clusters import (
    NAMESPACE_NAME,
    OWN_RANGES,
    PLATFORM_NAMESPACES,
    PRIVATE_SUFFIXES,
    REGION_KEYS,
    TENANT_LABEL,
    ZONE_KEYS,
)
from falaj.components.catalogue.pod_rules import CONTAINER_LISTS
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import CLOUDS, InCluster
from falaj.components.kubernetes.addons.addon import MONITORING

# Parts of CEL expressions: https://kubernetes.io/docs/reference/using-api/cel/


def literal(value: str | int | bool) -> str:
    """A literal text, number or truth."""
    return json.dumps(value, ensure_ascii=False)


def texts(values: Iterable[str]) -> str:
    """A literal list of texts, sorted where its order says nothing."""
    listed = sorted(values) if isinstance(values, (set, frozenset)) else values
    return "[" + ", ".join(literal(each) for each in listed) + "]"


ASKER = "request.userInfo.username"
"""Who asks the API server."""
NON_EMPTY = '.filter(s, s != "")'
"""Of a list of texts, those that say something."""
TENANT_OF_NAMESPACE = f'namespaceObject.metadata.?labels[?{literal(TENANT_LABEL)}].orValue("")'
"""The tenant that the object's namespace is of; empty where it is nobody's."""


def null_safe(expression: str) -> str:
    """The same expression, for which a list or map that is null counts as left out.

    The API server shows fields without ``omitempty`` as null where they are empty: a slice without
    endpoints, a role without rules. Without this an expression on them is an error, which denies.
    """
    for empty in ("[]", "{}"):
        expression = expression.replace(
            f".orValue({empty})", f".optFlatMap(o, optional.ofNonZeroValue(o)).orValue({empty})"
        )
    return expression


def each_container(wrong: str, shown: str = "c.name") -> str:
    """What is wrong with containers ``c`` of every list, as a list of texts.

    Args:
        wrong: whether container ``c`` is one to name.
        shown: the text about it. Default: its name.
    """
    return " + ".join(
        f"variables.pod.?{each}.orValue([]).filter(c, {wrong}).map(c, {shown})"
        for each in CONTAINER_LISTS
    )


def when(condition: str, text: str) -> str:
    """A list of one text where the condition holds, else of none."""
    return f"({condition} ? [{text}] : [])"


def is_own_address(address: str, own: Iterable[str] = ()) -> str:
    """Whether a text is an address of one's own networks; ``own`` are further ranges."""
    ranges = texts([*OWN_RANGES, *own])
    return f"(isIP({address}) && {ranges}.exists(n, cidr(n).containsIP(ip({address}))))"


def is_own_host(host: str, pattern: str, own: Iterable[str] = ()) -> str:
    """Whether a host may be reached: an own address, or a name that ``pattern`` has.

    A service is named with the cluster's domain, or with ``.svc`` at least: what is judged here is
    looked up by a node, the API server or as an alias, none of which search in namespaces, so that
    ``service.namespace`` is a host of the world's.
    """
    return (
        f"({is_own_address(host, own)} || "
        f"(!isIP({host}) && {host}.lowerAscii().matches({literal(pattern)})))"
    )


def hosts_pattern(regions: Iterable[tuple[str, str]], listed: Iterable[str]) -> str:
    """Names of hosts that may be reached, as a regular expression of RE2.

    Args:
        regions: cloud and region whose own services may be.
        listed: further hosts; ``*.example.ae`` with all below it.
    """
    private = "|".join(re.escape(each[1:]) for each in PRIVATE_SUFFIXES)
    # A name without dots begins with a letter: 0x08080808 and 134744072 are addresses.
    names = [r"[a-z](?:[a-z0-9-]*[a-z0-9])?", rf".+\.(?:{private})"]
    for cloud, region in regions:
        if cloud == "aws":
            names.append(rf"(?:.+\.)?{region}\.(?:[a-z]+\.)?(?:amazonaws\.com|api\.aws|on\.aws)")
        else:
            names.append(
                rf"(?:.+\.)?{region}\.(?:(?:cloudapp|monitor|data)\.)*"
                r"(?:azure\.com|azure\.net|windows\.net|azurecr\.io|azmk8s\.io)"
            )
    return rf"^(?:{'|'.join((*names, *_listed(listed)))})\.?$"


def listed_pattern(listed: Iterable[str]) -> str:
    """Names of listed hosts alone; where none is listed nothing that is a name."""
    return rf"^(?:{'|'.join(_listed(listed)) or '-'})\.?$"


def _listed(listed: Iterable[str]) -> list[str]:
    names = [re.split(r"[:/]", each, maxsplit=1)[0].lower() for each in listed]
    return [
        r".+\." + re.escape(each[2:]) if each.startswith("*.") else re.escape(each)
        for each in names
    ]


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


API = "admissionregistration.k8s.io/v1"
RULES_ANNOTATION = "falaj.io/policy-rules"
"""Ids of the rules of the policy packs that a policy enforces, separated by commas."""
PREFIX = "falaj-"
#: Objects that are being deleted may lose their finalizers, whatever they were made like; a change
#: of anything else is judged: a finalizer of one's own keeps an object alive as long as one likes.
_JUDGED_WHILE_DELETED = (
    'request.operation in ["CREATE", "DELETE"] || !has(oldObject.metadata.deletionTimestamp) || '
    'dyn(object).exists(k, !(k in ["metadata", "status"]) && '
    "!(k in dyn(oldObject) && dyn(object)[k] == dyn(oldObject)[k])) || "
    "object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) || "
    "object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})"
)
#: The API server's own objects: the service it is reached by, and the roles it starts with.
_NOT_OF_THE_SERVER = f'{ASKER} != "system:apiserver"'
#: Annotations of the audit log that a policy may have (its API's own limit).
_MOST_CHECKS = 20


@dataclass(frozen=True)
class Target:
    """Resources of one API group."""

    group: str
    version: str
    resources: tuple[str, ...]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")


@dataclass(frozen=True)
class Check:
    """One thing that is refused."""

    rule: str
    """Id of the pack's rule, or of the cluster's own (`cluster-…`) where no pack can judge it."""
    wrong: str
    """A CEL expression: a list of texts, one for each thing that is wrong."""
    what: str
    """What is wrong, in words; the texts follow it."""
    allowed: str
    change: str
    """What to do instead."""
    permitted: str = ""
    """Whether who asks may all the same: a CEL expression, which may ask for rights
    (``authorizer``). Messages and the audit log's own notes can't, so that there is no note."""


@dataclass(frozen=True)
class Compared:
    """Objects of a namespace that others there are compared with.

    The API server looks for them before it asks the policy's conditions: only of whom it looks
    decides for whom they may not be missing.
    """

    api_version: str
    kind: str
    label: str
    """Which all of them have, with the value ``true``."""
    of: str
    """Label of the objects that are compared with them."""


@dataclass(frozen=True)
class Policy:
    """One ValidatingAdmissionPolicy with its binding."""

    name: str
    """What it is about; objects are called after it, behind `PREFIX`."""
    targets: tuple[Target, ...]
    checks: tuple[Check, ...]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Expressions that checks refer to as ``variables.NAME``, in this order."""
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    """What must hold, besides the targets, for the policy to look at an object."""
    exempt: frozenset[str] = frozenset()
    """Namespaces that it doesn't hold in."""
    compared: Compared | None = None
    """What objects are compared with: each of it, of the same namespace, in its turn as
    ``params``. Where there is none, they are refused."""

    def __post_init__(self) -> None:
        rules = [each.rule for each in self.checks]
        if len(set(rules)) < len(rules) or not 0 < len(rules) <= _MOST_CHECKS:
            raise ValueError(f"{self.name}: 1 to {_MOST_CHECKS} checks, each rule once: {rules}")


def manifests(
    policies: tuple[Policy, ...],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    enforce: bool = True,
) -> Iterator[Manifest]:
    """The policies and their bindings.

    Args:
        policies: what to render.
        labels: labels of every object.
        annotations: annotations of every object.
        enforce: whether what is wrong is denied; otherwise it is warned of and audited.
    """
    actions = ["Deny", "Audit"] if enforce else ["Warn", "Audit"]
    for each in policies:
        name = PREFIX + each.name
        rules = ",".join(check.rule for check in each.checks)
        about = {
            "name": name,
            "labels": dict(labels),
            "annotations": {**annotations, RULES_ANNOTATION: rules},
        }
        yield {
            "apiVersion": API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": about,
            "spec": _spec(each),
        }
        binding: dict[str, Any] = {"policyName": name, "validationActions": actions}
        if each.compared is not None:
            binding["paramRef"] = {
                "selector": {"matchLabels": {each.compared.label: "true"}},
                "parameterNotFoundAction": "Deny",
            }
        if each.exempt:
            binding["matchResources"] = {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": NAMESPACE_NAME, "operator": "NotIn", "values": sorted(each.exempt)}
                    ]
                }
            }
        yield {
            "apiVersion": API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": about,
            "spec": binding,
        }


def _spec(policy: Policy) -> dict[str, Any]:
    conditions = {
        "not-only-being-deleted": _JUDGED_WHILE_DELETED,
        "not-of-the-server": _NOT_OF_THE_SERVER,
        **policy.conditions,
    }
    variables = [
        {"name": name, "expression": null_safe(expression)}
        for name, expression in policy.variables.items()
    ]
    validations: list[dict[str, Any]] = []
    annotations: list[dict[str, str]] = []
    for number, check in enumerate(policy.checks, 1):
        wrong = f"wrong{number}"
        variables.append({"name": wrong, "expression": null_safe(check.wrong)})
        hint = f"; allowed: {check.allowed}; {check.change} ({check.rule})"
        passes = f"size(variables.{wrong}) == 0"
        if check.permitted:
            passes += f" || ({null_safe(check.permitted)})"
        validations.append(
            {
                "expression": passes,
                "messageExpression": (
                    f'{literal(check.what + ": ")} + variables.{wrong}.join(", ")'
                    f" + {literal(hint)}"
                ),
                "message": check.what + hint,
                "reason": "Forbidden",
            }
        )
        if not check.permitted:
            annotations.append({
                "key": check.rule, "valueExpression": f'variables.{wrong}.join("; ")',
            })  # fmt: skip
    compared = policy.compared
    kind: dict[str, Any] = {}
    only: dict[str, Any] = {}
    if compared:
        kind = {"paramKind": {"apiVersion": compared.api_version, "kind": compared.kind}}
        # Here and not in the binding: until the API server has found the kind, which takes it some
        # seconds after a start or a new definition, it refuses whatever the policy matches.
        only = {
            "objectSelector": {
                "matchExpressions": [
                    {"key": compared.of, "operator": "Exists"},
                    {"key": compared.label, "operator": "DoesNotExist"},
                ]
            }
        }
    return {
        "failurePolicy": "Fail",
        **kind,
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            **only,
            "resourceRules": [
                {
                    "apiGroups": [each.group],
                    "apiVersions": [each.version],
                    "operations": list(each.operations),
                    "resources": list(each.resources),
                }
                for each in policy.targets
            ],
        },
        "matchConditions": [
            {"name": name, "expression": null_safe(expression)}
            for name, expression in conditions.items()
        ],
        "variables": variables,
        "validations": validations,
        "auditAnnotations": annotations,
    }


ACCOUNTS = "system:serviceaccount:"
"""What names of service accounts begin with, before ``NAMESPACE:NAME``."""
#: The system's own: objects in them come with the cluster.
CLUSTER = frozenset({"kube-system", "kube-public", "kube-node-lease"})
#: Agents of the platform's add-ons, which need their nodes: drivers of GPUs and networks, the
#: mesh, metrics of nodes. Nothing else runs there.
AGENTS = frozenset({
    "gpu-operator", "network-operator", "efa-device-plugin", "istio-nodes", "monitoring-nodes",
})  # fmt: skip
#: Operators among them that make cluster roles for their agents, with their own accounts: wide
#: ones, as `*` on nodes. The API server lets nobody give more than he has himself.
#: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
ROLE_MAKERS = frozenset({"gpu-operator", "network-operator"})


@dataclass(frozen=True, kw_only=True)
class ClusterScope:
    """What is allowed in one cluster: its place, registries, networks and namespaces."""

    placed: InCluster
    registries: tuple[str, ...] = ()
    cluster_registries: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    storage_classes: tuple[str, ...] = ()
    agents: frozenset[str] = frozenset()
    audiences: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    partner_regions: tuple[str, ...] = ()
    metrics_hosts: tuple[str, ...] = ()

    @property
    def with_nodes(self) -> frozenset[str]:
        """Namespaces whose pods may reach into their nodes."""
        return CLUSTER | AGENTS | self.agents

    @property
    def platform(self) -> frozenset[str]:
        """Namespaces of the system and of every add-on."""
        return self.with_nodes | PLATFORM_NAMESPACES

    @property
    def zones(self) -> str:
        """The values of zone labels, as a regular expression."""
        place = self.placed
        if place.zones:
            return f"^(?:{'|'.join(each.replace('.', '[.]') for each in place.zones)})$"
        if place.distribution == "eks":
            ids = [each.id for each in catalogue.place("aws", place.region).zones]
            return f"^(?:{place.region}[a-z]{''.join('|' + each for each in ids)})$"
        if place.distribution == "aks":
            return f"^{place.region}-[0-9]$"
        return f"^{place.region}(?:-[a-z0-9.-]+)?$"

    @property
    def zones_in_words(self) -> str:
        """The same in words."""
        if self.placed.zones:
            return ", ".join(self.placed.zones)
        ways = {"eks": f"{self.placed.region}a …", "aks": f"{self.placed.region}-1 …"}
        return f"zones {ways.get(self.placed.distribution, self.placed.region + '-… ')}".strip()

    @property
    def in_words(self) -> str:
        """Where things may be, in words."""
        return f"region {self.placed.region}, {self.zones_in_words}"

    @property
    def hosts_pattern(self) -> str:
        """Names of hosts that may be reached."""
        regions = [(each.cloud, each.region) for each in catalogue.all_places()]
        return hosts_pattern(regions, self.hosts)

    @property
    def metrics_pattern(self) -> str:
        """Addresses of servers of metrics that scalers may ask."""
        services = rf"[a-z][a-z0-9-]*\.{MONITORING}(?:\.svc(?:\.cluster\.local)?)?"
        names = "|".join(_listed(self.metrics_hosts)) or services
        return rf"^https?://(?:{names})(?::[0-9]+)?(?:/[\w/.-]*)?$"

    @property
    def metrics_in_words(self) -> str:
        """The same in words."""
        return ", ".join(self.metrics_hosts) or f"services of {MONITORING}"

    @property
    def aws_regions(self) -> tuple[str, ...]:
        """The region all of whose private registries are AWS' own; none on other platforms."""
        return (self.placed.region,) if CLOUDS.get(self.placed.distribution) == "aws" else ()

    def is_abroad(self, key: str, value: str, *, no_zone: bool = False) -> str:
        """Whether a label ``key`` with ``value`` (CEL expressions) names another place.

        Args:
            key: the label's name.
            value: its value.
            no_zone: whether ``0`` passes, Azure's zone of machines that are in none.
        """
        none = f' && {value} != "0"' if no_zone and self.placed.distribution == "aks" else ""
        return (
            f"(({key} in {texts(REGION_KEYS)} && {value} != {literal(self.placed.region)}) || "
            f"({key} in {texts(ZONE_KEYS)} && !{value}.matches({literal(self.zones)}){none}))"
        )


PLACE_KEYS = texts(REGION_KEYS | ZONE_KEYS)
"""Labels that name places, as a list in CEL."""


def abroad_in_map(scope: ClusterScope, labels: str, *, no_zone: bool = False) -> str:
    """Labels of a map that name another place, each as ``key=value``."""
    wrong = scope.is_abroad("k", f"{labels}[k]", no_zone=no_zone)
    return f'{PLACE_KEYS}.filter(k, k in {labels} && {wrong}).map(k, k + "=" + {labels}[k])'


def abroad_in_terms(
    scope: ClusterScope,
    terms: str,
    expressions: str = "matchExpressions",
    *,
    partners: bool = False,
) -> str:
    """Terms of selectors that ask for another place, each as ``key in values``.

    Args:
        scope: what the cluster allows.
        terms: a list of terms.
        expressions: their field with expressions.
        partners: whether a list with this region may have those of partners as well: of a job that
            several clusters can run, which each of them finds on its own nodes.
    """
    wrong = scope.is_abroad("e.key", "v")
    if partners and scope.partner_regions:
        wrong = (
            f"({wrong} && !(e.key in {texts(REGION_KEYS)} && v in {texts(scope.partner_regions)} "
            f"&& {literal(scope.placed.region)} in e.?values.orValue([])))"
        )
    operator = ' && e.operator == "In"' if expressions == "matchExpressions" else ""
    return (
        f"{terms}.map(t, t.?{expressions}.orValue([]).filter(e, e.key in {PLACE_KEYS}{operator} "
        f'&& e.?values.orValue([]).exists(v, {wrong})).map(e, e.key + " in " + '
        f'e.?values.orValue([]).filter(v, {wrong}).join(" or ")).join(", ")){NON_EMPTY}'
    )


def joined(parts: Iterable[str]) -> str:
    """Lists as one."""
    return " + ".join(parts)
