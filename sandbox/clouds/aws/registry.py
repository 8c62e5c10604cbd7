"""All types that the model knows by more than the SDK's word."""

from __future__ import annotations

from functools import cache
from typing import Final

from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.services import (
    balancing,
    clusters,
    compute,
    containers,
    identity,
    network,
    observability,
    security_groups,
    storage,
)
from falaj.sandbox.clouds.aws.tokens import canonical

_SERVICES: Final = (
    balancing, clusters, compute, containers, identity, network, observability, security_groups,
    storage,
)  # fmt: skip


@cache
def kinds() -> AwsKinds:
    """Every described type by its token."""
    return {token: kind for service in _SERVICES for token, kind in service.KINDS.items()}


def kind_of(token: str) -> AwsKind | None:
    """The description of a type; None for those of which only the SDK speaks."""
    return kinds().get(canonical(token))
