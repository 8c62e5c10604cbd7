"""Keys and secrets that exist in several regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_true,
    is_unknown,
    rule,
    violation,
)
from falaj.policies.reading.place import places_said
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS

_KEYS: Final = (*CONTROLS, "iso27001:A.8.24", "uae-ia:T7.4.2")
_REPLICAS: Final = frozenset((
    "aws:kms/replicaKey:ReplicaKey", "aws:kms/replicaExternalKey:ReplicaExternalKey",
))  # fmt: skip
_MAY_SPAN: Final = frozenset(("aws:kms/key:Key", "aws:kms/externalKey:ExternalKey"))


@rule(
    "residency-aws-multi-region-key",
    "Key material stays in its region",
    Severity.CRITICAL,
    _REPLICAS | _MAY_SPAN,
    _KEYS,
    "Leave multiRegion off, and use a key of its own in each allowed region. Whether a key spans "
    "regions can't be changed later: make a new key and encrypt anew.",
)
def multi_region_key(resource: Resource, view: View) -> Iterator[Finding]:
    """A replica has its primary, which holds the same key material, in another region."""
    if resource.kind in _REPLICAS:
        if resource.custom:
            yield violation(
                "", f"it shares its key material with another region; {places_said(view)}"
            )
        return
    value = resource.get("multiRegion")
    if is_unknown(value):
        yield indeterminate("multiRegion", "whether the key may be replicated can't be known")
    elif is_true(value):
        yield violation(
            "multiRegion", f"the key may be replicated to other regions; {places_said(view)}"
        )


@rule(
    "residency-aws-secret-replica",
    "Secrets are replicated within allowed regions",
    Severity.CRITICAL,
    {"aws:secretsmanager/secret:Secret"},
    _KEYS,
    "Remove the replicas of other regions.",
)
def secret_replica(resource: Resource, view: View) -> Iterator[Finding]:
    """Regions of replicas."""
    yield from aws_targets.region(resource, view, "replicas.region", "the replica")


RULES: tuple[Rule, ...] = (multi_region_key, secret_replica)
