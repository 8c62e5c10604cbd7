"""Tokens of the clouds' types, from the short names that tables write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Modules that azure-native 3 renamed, with their name in 2
#: (https://www.pulumi.com/registry/packages/azure-native/from-v2-to-v3/; read from the aliases of
#: pulumi_azure_native 3.29.0).
_FORMER: Final = {
    "applicationinsights": "insights",
    "cosmosdb": "documentdb",
    "deviceprovisioningservices": "devices",
    "dns": "network",
    "dnsresolver": "network",
    "frontdoor": "network",
    "iothub": "devices",
    "mongocluster": "documentdb",
    "monitor": "insights",
    "privatedns": "network",
    "redis": "cache",
    "redisenterprise": "cache",
    "trafficmanager": "network",
}
#: Load balancers of AWS, by all of their modules.
AWS_BALANCERS: Final = (
    "lb/loadBalancer", "alb/loadBalancer", "applicationloadbalancing/loadBalancer",
    "elasticloadbalancingv2/loadBalancer", "elb/loadBalancer", "elasticloadbalancing/loadBalancer",
)  # fmt: skip
#: Pools of Karpenter, in every version of its API.
KARPENTER_POOL: Final = "kubernetes:karpenter.sh/*:NodePool"


def _tokens(name: str) -> Iterator[str]:
    module, _, kind = name.partition(":")
    yield f"azure-native:{name}"
    if module in _FORMER:
        yield f"azure-native:{_FORMER[module]}:{kind}"


def azure(*names: str) -> frozenset[str]:
    """Tokens of types given as ``module:Type``, their former modules' included."""
    return frozenset(token for name in names for token in _tokens(name))


def aws_type(name: str) -> str:
    """The token of an AWS type from ``ec2/securityGroup``."""
    last = name.rpartition("/")[2]
    return f"aws:{name}:{last[0].upper()}{last[1:]}"


def aws(*names: str) -> frozenset[str]:
    """Tokens of AWS types given as ``ec2/securityGroup``."""
    return frozenset(map(aws_type, names))
