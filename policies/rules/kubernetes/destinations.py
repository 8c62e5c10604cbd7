"""Objects of operators: where stores, receivers, issuers and exporters are."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.components.catalogue.destinations import DESTINATION_HOST
from falaj.policies.model import Context, Finding, Resource, Rule, Severity, rule
from falaj.policies.reading.destinations import judged, of_rule
from falaj.policies.reading.kubernetes import kinds, manifests


@rule(
    DESTINATION_HOST,
    "Operators send to and fetch from hosts of the cluster, allowed regions or the list only",
    Severity.CRITICAL,
    kinds(*of_rule(DESTINATION_HOST)),
    (
        "pdpl:22", "pdpl:23", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.14",
        "iso27001:A.8.12",
    ),
    "Name a service of the cluster in full (service.namespace.svc), a host of an allowed region "
    "or an address of your own networks, or the host in allowedHosts; leave out services that are "
    "abroad alone.",
)  # fmt: skip
def destination_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Metrics, alerts, secrets, certificates and proxies' code stay with allowed hosts."""
    for manifest in manifests(resource):
        yield from judged(manifest, DESTINATION_HOST, context)


RULES: tuple[Rule, ...] = (destination_host,)
