"""What a platform installs, in which order: pure functions of its arguments.

Each add-on has namespaces, in which nobody may talk to anybody but for what it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._peers import (
    POD_IDENTITY,
    api_server_egress,
    in_namespace,
    resolver_egress,
)
from falaj.components.kubernetes._placed import InCluster, check_in_cluster
from falaj.components.kubernetes._pods import pod_security
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.addon import (
    MONITORING,
    MONITORING_API,
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Scrape,
    Traffic,
    Values,
)
from falaj.components.kubernetes.bill_of_materials import resolve
from falaj.components.nearest import nearest
from falaj.components.specification.address_plan import private_ranges
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import DEFAULT_KUBERNETES_VERSION as KUBERNETES

#: Above every tenant's priorities; 1,000,000,000 is the most that users' classes may have.
_PRIORITY: Final = 1_000_000


@dataclass(frozen=True)
class ChartToInstall:
    """A chart of the in-country registry with its values."""

    release: str
    reference: str
    version: str
    namespace: str
    values: Values


@dataclass(frozen=True)
class Installation:
    """An add-on as it is installed."""

    addon: str
    waits_for: tuple[str, ...]
    """Installed add-ons that come first."""
    before: tuple[Manifest, ...]
    charts: tuple[ChartToInstall, ...]
    after: tuple[Manifest, ...]


def check_platform(name: str, args: Mapping[str, Any], kind: type) -> PlatformSpec:
    """The arguments of a platform, checked.

    Raises:
        pulumi.InputPropertiesError: what is wrong and what is allowed.
    """
    errors = ArgumentErrors(f"Platform {name!r}")
    errors.names(args, kind)
    placed = check_in_cluster(args, errors)
    control_plane = private_ranges(args, "control_plane_cidrs", errors)
    endpoints = private_ranges(args, "endpoint_cidrs", errors) or control_plane
    storage_class: str = errors.checked_only(args, kind)["storage_class"]
    domains = args.get("allowed_domains") or ()
    if placed is None:
        errors.raise_if_any()
        raise AssertionError("refused arguments raise")
    chosen = _chosen(args, placed, errors)
    _asked(args, chosen, errors)
    spec = PlatformSpec(
        placed=placed,
        name=name,
        addons=chosen,
        images={},
        control_plane_cidrs=control_plane,
        endpoint_cidrs=endpoints,
        storage_class=storage_class,
        allowed_domains=domains,
        cluster_name=args.get("cluster_name") or "",
        network_id=args.get("network_id") or "",
    )
    errors.raise_if_any()
    wanted = [image for addon in chosen for image in ADDONS[addon].images(spec)]
    images = resolve(placed, list(dict.fromkeys(wanted)), args.get("images"), errors)
    errors.raise_if_any()
    return replace(spec, images=images)


def _asked(args: Mapping[str, Any], chosen: Iterable[str], errors: ArgumentErrors) -> None:
    """Refuse to leave out what the chosen add-ons ask for."""
    missing: dict[str, list[str]] = {}
    for name in chosen:
        for argument in ADDONS[name].asks:
            if args.get(argument) is None:
                missing.setdefault(argument, []).append(name)
    for argument, names in missing.items():
        switches = " and ".join(f"addons.{name}" for name in names)
        errors.say(
            argument,
            f"missing; needed by {', '.join(names)}: give what the component that makes the "
            f"cluster or its network tells, or set {switches} to false",
        )


def _chosen(
    args: Mapping[str, Any], placed: InCluster, errors: ArgumentErrors
) -> dict[str, Mapping[str, Any]]:
    """Options by add-on, in the order of installation."""
    given: object = args.get("addons")
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        errors.add("addons", given, "options, true or false by name of the add-on")
        return {}
    asked = cast("Mapping[str, Any]", given)
    for unknown in [each for each in asked if each not in ADDONS]:
        near = nearest(unknown, ADDONS)
        hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(ADDONS)}"
        errors.say(f"addons.{unknown}", f"is not an add-on; {hint}")
    chosen: dict[str, Mapping[str, Any]] = {}
    for addon in ADDONS.values():
        options = _options(addon, asked, placed, errors)
        if options is not None:
            chosen[addon.name] = options
    for addon_name in chosen:
        for needed in ADDONS[addon_name].needs:
            if needed not in chosen:
                errors.say(
                    f"addons.{addon_name}",
                    f"needs {needed!r}, which is left out; install it, or set addons.{addon_name} "
                    "to false",
                )
    return chosen


def _options(
    addon: Addon, asked: Mapping[str, Any], placed: InCluster, errors: ArgumentErrors
) -> Mapping[str, Any] | None:
    """Options of an add-on, checked; None where it isn't installed, or was refused."""
    at = f"addons.{addon.name}"
    value = asked.get(addon.name)
    here = placed.distribution in addon.distributions
    if value is None:
        value = addon.default and here and placed.distribution not in addon.asked_on
    if value is False:
        return None
    if not here:
        errors.say(
            at,
            f"can't be installed on {placed.distribution}; allowed on "
            f"{', '.join(addon.distributions)}",
        )
        return None
    if value is True:
        value = {}
    if not isinstance(value, Mapping):
        errors.add(at, value, "true, false or its options")
        return None
    options = cast("Mapping[str, Any]", value)
    known = sorted(addon.options.__annotations__) or ["none"]
    for unknown in [each for each in options if each not in known]:
        errors.unknown(f"{at}.{unknown}", addon.name, known, "option")
    checker = OptionsChecker(at, options, errors)
    found = checker.checked(addon.options)
    addon.check(checker, placed)
    return found


def foundation(spec: PlatformSpec) -> list[Manifest]:
    """The priority class, and each add-on's namespaces with their network policies."""
    found: list[Manifest] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": spec.metadata(PRIORITY_CLASS),
            "value": _PRIORITY,
            "globalDefault": False,
            "preemptionPolicy": "PreemptLowerPriority",
            "description": "Add-ons that jobs and services of tenants can't do without.",
        }
    ]
    for name in spec.addons:
        addon = ADDONS[name]
        traffic = addon.traffic(spec)
        for each in (*addon.namespaces, *addon.asked_namespaces(spec)):
            found.append(namespace(spec, each))
            found += network_policies(
                spec, each.name, _present(spec, traffic.get(each.name, Traffic()))
            )
    return found


def _present(spec: PlatformSpec, traffic: Traffic) -> Traffic:
    """Without exceptions for namespaces of add-ons that aren't installed."""
    absent = {
        each.name
        for name, addon in ADDONS.items()
        if not spec.has(name)
        for each in addon.namespaces
    }
    return Traffic(
        traffic.api_server,
        traffic.webhooks,
        traffic.scrapes,
        traffic.endpoints,
        {name: ports for name, ports in traffic.callers.items() if name not in absent},
        {name: ports for name, ports in traffic.calls.items() if name not in absent},
    )


def namespace(spec: PlatformSpec, of: Namespace) -> Manifest:
    """A namespace with its pod security standard, written into its labels with the reason."""
    about = spec.metadata(of.name)
    about["labels"] |= pod_security(of.level, f"v{KUBERNETES}")
    if of.why:
        about["annotations"]["falaj.io/reason"] = of.why
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": about}


def network_policies(spec: PlatformSpec, name: str, traffic: Traffic) -> list[Manifest]:
    """Default deny for a namespace, and an exception for each thing that ``traffic`` names."""

    def policy(
        of: str,
        ingress: Sequence[Mapping[str, Any]] | None = None,
        egress: Sequence[Mapping[str, Any]] | None = None,
    ) -> Manifest:
        rules: dict[str, Any] = {"podSelector": {}, "policyTypes": []}
        for key, given in (("ingress", ingress), ("egress", egress)):
            if given is not None:
                rules["policyTypes"].append(key.capitalize())
                rules |= {key: list(given)} if given else {}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": spec.metadata(of, name),
            "spec": rules,
        }

    within: list[Manifest] = [{"podSelector": {}}]
    found = [
        policy("default-deny", (), ()),
        policy("allow-names", egress=[resolver_egress()]),
        policy("allow-within", [{"from": within}], [{"to": within}]),
    ]
    if traffic.api_server:
        call = api_server_egress(spec.control_plane_cidrs)
        found.append(policy("allow-api-server", egress=[call]))
    if traffic.webhooks:
        call = {"from": _ranges(spec.control_plane_cidrs), "ports": _ports(traffic.webhooks)}
        found.append(policy("allow-webhooks", [call]))
    if traffic.scrapes and spec.has(MONITORING):
        scrape = {"from": [_peer(MONITORING)], "ports": _ports(traffic.scrapes)}
        found.append(policy("allow-scrapes", [scrape]))
    if traffic.endpoints:
        calls = [{"to": _ranges(spec.endpoint_cidrs), "ports": _ports([443])}]
        if spec.placed.distribution == "eks":
            calls.append({"to": _ranges([POD_IDENTITY]), "ports": _ports([80])})
        found.append(policy("allow-endpoints", egress=calls))
    for caller, ports in traffic.callers.items():
        rule = {"from": [_peer(caller)], "ports": _ports(ports)}
        found.append(policy(f"allow-from-{_policy_suffix(caller)}", [rule]))
    for called, ports in traffic.calls.items():
        rule = {"to": [_peer(called)], "ports": _ports(ports)}
        found.append(policy(f"allow-to-{_policy_suffix(called)}", egress=[rule]))
    return found


def _policy_suffix(namespace: str) -> str:
    return {"*": "everywhere", "duty:serving": "serving"}.get(namespace, namespace)


def _peer(namespace: str) -> dict[str, Any]:
    if namespace == "*":
        return {"namespaceSelector": {}}
    key, colon, value = namespace.partition(":")
    if not colon:
        return in_namespace(namespace)
    return {"namespaceSelector": {"matchLabels": {f"falaj.io/{key}": value}}}


def _ranges(cidrs: Iterable[str]) -> list[dict[str, Any]]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


def _ports(ports: Iterable[int]) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


def monitor(spec: PlatformSpec, scrape: Scrape) -> Manifest:
    """A `PodMonitor`; a `ServiceMonitor` for metrics behind TLS and a login.

    It is in the add-on's namespace, where the certificate's secret is.
    """
    name = next(iter(scrape.labels.values()))
    selector = {"matchLabels": dict(scrape.labels)}
    if not scrape.certificate:
        port = {"portNumber" if isinstance(scrape.port, int) else "port": scrape.port}
        return {
            "apiVersion": MONITORING_API,
            "kind": "PodMonitor",
            "metadata": spec.metadata(name, scrape.namespace),
            "spec": {"selector": selector, "podMetricsEndpoints": [{**port, "path": scrape.path}]},
        }
    authority = {"secret": {"name": scrape.certificate, "key": "ca.crt"}}
    endpoint: dict[str, Any] = {
        "port": scrape.port,
        "path": scrape.path,
        "scheme": "https",
        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "tlsConfig": {"ca": authority, "serverName": scrape.server},
    }
    return {
        "apiVersion": MONITORING_API,
        "kind": "ServiceMonitor",
        "metadata": spec.metadata(name, scrape.namespace),
        "spec": {"selector": selector, "endpoints": [endpoint]},
    }


def installations(spec: PlatformSpec) -> Iterator[Installation]:
    """The add-ons in their order; each waits for those installed that it needs or follows."""
    for name in spec.addons:
        addon = ADDONS[name]
        values = addon.values(spec)
        charts = tuple(
            ChartToInstall(
                each.name,
                f"oci://{spec.placed.registry}/{each.pinned.mirror}",
                each.pinned.version,
                each.namespace,
                values[each.name],
            )
            for each in addon.releases
        )
        watched = ADDONS if name == MONITORING else ()
        monitors = [
            monitor(spec, each)
            for other in watched
            if spec.has(other)
            for each in ADDONS[other].scrapes
            if not each.certificate or spec.has("cert-manager")
        ]
        yield Installation(
            name,
            tuple(other for other in (*addon.needs, *addon.follows) if spec.has(other)),
            tuple(addon.before(spec)),
            charts,
            (*addon.after(spec), *monitors),
        )


def manifests(spec: PlatformSpec) -> list[Manifest]:
    """All objects that are declared beside the charts' own."""
    return [
        *foundation(spec),
        *(one for each in installations(spec) for one in (*each.before, *each.after)),
    ]
