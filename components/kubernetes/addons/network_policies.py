"""Namespaces of add-ons, and who may talk to whom: nobody, but for what an add-on names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.addons.addon import MONITORING, Namespace, PlatformSpec, Traffic
from falaj.components.specification.limits import DEFAULT_KUBERNETES_VERSION as KUBERNETES

_NAME: Final = "kubernetes.io/metadata.name"
_SECURITY: Final = "pod-security.kubernetes.io"
#: The service's port, and the API server's own behind it: policies see either, by CNI.
_API_SERVER: Final = (443, 6443)
#: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html
_POD_IDENTITY: Final = "169.254.170.23/32"


def namespace(spec: PlatformSpec, of: Namespace) -> Manifest:
    """A namespace with its pod security standard, written into its labels with the reason."""
    about = spec.metadata(of.name)
    for mode in ("enforce", "audit", "warn"):
        about["labels"][f"{_SECURITY}/{mode}"] = of.level
        about["labels"][f"{_SECURITY}/{mode}-version"] = f"v{KUBERNETES}"
    if of.why:
        about["annotations"]["falaj.io/reason"] = of.why
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": about}


def policies(spec: PlatformSpec, name: str, traffic: Traffic) -> list[Manifest]:
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

    control_plane = _ranges(spec.control_plane_cidrs)
    dns = {
        "to": [{**_peer("kube-system"), "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}],
        "ports": [{"port": 53, "protocol": "UDP"}, *_ports([53])],
    }
    within = [{"podSelector": {}}]
    found = [
        policy("default-deny", (), ()),
        policy("allow-names", egress=[dns]),
        policy("allow-within", [{"from": within}], [{"to": within}]),
    ]
    if traffic.api_server:
        call = {"to": control_plane, "ports": _ports(_API_SERVER)}
        found.append(policy("allow-api-server", egress=[call]))
    if traffic.webhooks:
        call = {"from": control_plane, "ports": _ports(traffic.webhooks)}
        found.append(policy("allow-webhooks", [call]))
    if traffic.scrapes and spec.has("monitoring"):
        scrape = {"from": [_peer(MONITORING)], "ports": _ports(traffic.scrapes)}
        found.append(policy("allow-scrapes", [scrape]))
    if traffic.endpoints:
        calls = [{"to": _ranges(spec.endpoint_cidrs), "ports": _ports([443])}]
        if spec.placed.distribution == "eks":
            calls.append({"to": _ranges([_POD_IDENTITY]), "ports": _ports([80])})
        found.append(policy("allow-endpoints", egress=calls))
    for caller, ports in traffic.callers.items():
        rule = {"from": [_peer(caller)], "ports": _ports(ports)}
        found.append(policy(f"allow-from-{_word(caller)}", [rule]))
    for called, ports in traffic.calls.items():
        rule = {"to": [_peer(called)], "ports": _ports(ports)}
        found.append(policy(f"allow-to-{_word(called)}", egress=[rule]))
    return found


def _word(namespace: str) -> str:
    return {"*": "everywhere", "duty:serving": "serving"}.get(namespace, namespace)


def _peer(namespace: str) -> dict[str, Any]:
    if namespace == "*":
        return {"namespaceSelector": {}}
    key, colon, value = namespace.partition(":")
    labels = {f"falaj.io/{key}": value} if colon else {_NAME: namespace}
    return {"namespaceSelector": {"matchLabels": labels}}


def _ranges(cidrs: Iterable[str]) -> list[dict[str, Any]]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


def _ports(ports: Iterable[int]) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": "TCP"} for port in ports]
