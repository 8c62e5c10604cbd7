"""All types that the model knows by more than the SDK's word."""

from __future__ import annotations

from functools import cache
from typing import Final

from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.services import (
    balancing,
    certificates,
    clusters,
    compute,
    dns,
    files,
    firewall,
    gateways,
    governance,
    identity,
    keys,
    messaging,
    network,
    node_groups,
    observability,
    registries,
    scaling,
    security_groups,
    storage,
    tasks,
)
from falaj.sandbox.clouds.aws.tokens import canonical

_SERVICES: Final = (
    balancing,
    certificates,
    clusters,
    compute,
    dns,
    files,
    firewall,
    gateways,
    governance,
    identity,
    keys,
    messaging,
    network,
    node_groups,
    observability,
    registries,
    scaling,
    security_groups,
    storage,
    tasks,
)


@cache
def kinds() -> AwsKinds:
    """Every described type by its token."""
    return {token: kind for service in _SERVICES for token, kind in service.KINDS.items()}


def kind_of(token: str) -> AwsKind | None:
    """The description of a type; None for those of which only the SDK speaks."""
    return kinds().get(canonical(token))
