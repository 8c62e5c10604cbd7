"""What is open to the internet by settings of its own, as the policy packs see it.

Rules of firewalls are drawn one by one; services, balancers and control planes are open by a
switch. Which switch that is, the packs know: what violates one of these rules is drawn as open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from falaj.policies.model import Context, FindingKind, Resource
from falaj.policies.rules import rules_of
from falaj.stacks.drawing.builder import Builder
from falaj.stacks.drawing.model import INTERNET, OPENNESS

#: Rules by pack, and whether what they find lets everybody in (else: lets out to everybody).
_RULES: Final[Mapping[str, Mapping[str, bool]]] = {
    "zero_trust": {
        "zero-trust-aws-public-load-balancer": True,
        "zero-trust-aws-public-address": True,
        "zero-trust-aws-elastic-address": True,
        "zero-trust-aws-public-subnet": True,
        "zero-trust-aws-public-data-store": True,
        "zero-trust-aws-public-service": True,
        "zero-trust-aws-public-http-api": True,
        "zero-trust-aws-beanstalk-public": True,
        "zero-trust-aws-bucket-website": True,
        "zero-trust-aws-bucket-public-acl": True,
        "zero-trust-aws-open-allow-list": True,
        "zero-trust-aws-eks-public-endpoint": True,
        "zero-trust-azure-open-firewall-rule": True,
        "zero-trust-azure-open-address-list": True,
        "zero-trust-azure-aks-private-api": True,
        "zero-trust-azure-aks-node-addresses": True,
        "zero-trust-azure-web-app-public": True,
        "zero-trust-azure-public-access": True,
        "zero-trust-azure-public-telemetry": True,
        "zero-trust-azure-public-machine": True,
        "zero-trust-azure-public-frontend": True,
        "zero-trust-azure-public-container-app": True,
        "zero-trust-azure-public-environment": True,
        "zero-trust-azure-anonymous-blobs": True,
        "zero-trust-azure-static-website": True,
        "zero-trust-azure-firewall-open": False,
    },
    "kubernetes": {
        "kubernetes-public-load-balancer": True,
        "kubernetes-public-gateway": True,
    },
}


def openings(builder: Builder, parts: Mapping[str, list[str]]) -> None:
    """Edges from and to the internet for what is open by its own settings.

    Args:
        builder: the drawing.
        parts: nodes by the URN of what they are made from.
    """
    context = Context(stack=builder.stack)
    for pack, wanted in _RULES.items():
        for rule in rules_of(pack):
            inward = wanted.get(rule.id)
            if inward is None:
                continue
            for each in builder.stack.resources:
                if not rule.concerns(each.kind):
                    continue
                checked = list(rule.check(each, context))
                if any(one.kind is FindingKind.INDETERMINATE for one in checked):
                    builder.hide(OPENNESS, each)
                found = [one for one in checked if one.kind is FindingKind.VIOLATION]
                for reason in dict.fromkeys(f"{one.path}: {one.reason}" for one in found):
                    _edge(builder, parts, each, reason, inward=inward)


def _edge(
    builder: Builder,
    parts: Mapping[str, list[str]],
    resource: Resource,
    reason: str,
    *,
    inward: bool,
) -> None:
    nodes = builder.standing_for(resource)
    nodes = nodes or parts.get(resource.urn, []) or _owners(builder, resource)
    for id in nodes:
        ends = (builder.internet(), id) if inward else (id, builder.internet())
        builder.edge("flow", *ends, reason, resource.urn)


def _owners(builder: Builder, resource: Resource) -> list[str]:
    """The nodes of what a setting belongs to: what it was made from, else itself."""
    urns = dict.fromkeys(each for found in resource.dependencies.values() for each in found)
    owners = [urn for urn in urns if urn in builder.nodes and urn != INTERNET]
    same = [
        id
        for id, node in builder.nodes.items()
        if node.kind == "entrance" and node.urn and resource.package == "kubernetes"
    ]
    return (
        owners or same or [builder.stand_for(resource, "other", resource.type.rpartition(":")[2])]
    )
