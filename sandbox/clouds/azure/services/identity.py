"""Microsoft.ManagedIdentity: identities, and whom they trust."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, invented, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Problem

IDENTITY: Final = "azure-native:managedidentity:UserAssignedIdentity"
FEDERATED: Final = "azure-native:managedidentity:FederatedIdentityCredential"
_SUBJECT: Final = re.compile(r"system:serviceaccount:[a-z0-9-]{1,63}:[a-z0-9.-]{1,253}")


def _outputs(ask: Ask) -> dict[str, Any]:
    id = ask.id or ""
    return {
        "principalId": invented.guid("principal", id),
        "clientId": invented.guid("client", id),
        "tenantId": invented.TENANT,
    }


def _federated_problems(ask: Ask) -> Iterator[Problem]:
    issuer = ask.text("issuer")
    if issuer and not re.fullmatch(r"https://[^\s/]+(?:/\S*)?", issuer):
        yield Problem("issuer", f"{issuer!r} isn't an https address; give the cluster's issuerURL")
    subject = ask.text("subject")
    if subject and subject.startswith("system:") and not _SUBJECT.fullmatch(subject):
        yield Problem(
            "subject",
            f"{subject!r} isn't a service account; it looks like "
            "system:serviceaccount:NAMESPACE:NAME",
        )
    if isinstance(ask.at("audiences"), list) and len(ask.items("audiences")) != 1:
        # Source: Entra workload-identity-federation-considerations: one audience.
        yield Problem(
            "audiences",
            f"{len(ask.items('audiences'))} are given; give one, which for "
            "Azure is api://AzureADTokenExchange",
        )


def _federated_conflicts(ask: Ask) -> Iterator[Problem]:
    if ask.world is None or ask.id is None:
        return
    parent = ask.id.rsplit("/", 2)[0]
    siblings = [
        made
        for made in ask.world.all(FEDERATED)
        if arm.is_below(made.id, parent) and not arm.same(made.id, ask.id)
    ]
    # Source: Entra workload-identity-federation-considerations: 20 at most, pairs are unique.
    if len(siblings) >= 20:
        yield Problem(
            "resourceName",
            "the identity trusts 20 others already, which is the most; use another identity",
        )
    for made in siblings:
        if (made.inputs.get("issuer"), made.inputs.get("subject")) == (
            ask.text("issuer"),
            ask.text("subject"),
        ):
            yield Problem(
                "subject",
                f"the pair of issuer and subject is trusted already, by "
                f"{made.id.rpartition('/')[2]!r}",
            )


KINDS: Final = (
    Kind(
        IDENTITY,
        "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
        name=naming.IDENTITY,
        outputs=_outputs,
    ),
    Kind(
        FEDERATED,
        "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}/"
        "federatedIdentityCredentials/{federatedIdentityCredentialResourceName}",
        name=naming.NameRule(3, 120, naming.IDENTITY.pattern, naming.IDENTITY.text),
        problems=_federated_problems,
        conflicts=_federated_conflicts,
    ),
)
