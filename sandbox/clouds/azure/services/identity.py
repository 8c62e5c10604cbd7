"""Microsoft.ManagedIdentity: identities, and whom they trust."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, generated, naming
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import formed

IDENTITY: Final = "azure-native:managedidentity:UserAssignedIdentity"
FEDERATED: Final = "azure-native:managedidentity:FederatedIdentityCredential"
_SUBJECT: Final = re.compile(r"system:serviceaccount:[a-z0-9-]{1,63}:[a-z0-9.-]{1,253}")


def _outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    return {
        "principalId": generated.guid("principal", id),
        "clientId": generated.guid("client", id),
        "tenantId": generated.TENANT,
    }


def _federated_problems(inputs: Inputs) -> Iterator[Problem]:
    subject = inputs.optional_string("subject")
    if subject and subject.startswith("system:") and not _SUBJECT.fullmatch(subject):
        yield Problem(
            "subject",
            f"{subject!r} isn't a service account; it looks like "
            "system:serviceaccount:NAMESPACE:NAME",
        )
    if isinstance(inputs.at("audiences"), list) and len(inputs.items("audiences")) != 1:
        # Source: Entra workload-identity-federation-considerations: one audience.
        yield Problem(
            "audiences",
            f"{len(inputs.items('audiences'))} are given; give one, which for "
            "Azure is api://AzureADTokenExchange",
        )


def _federated_conflicts(resource: Resource) -> Iterator[Problem]:
    parent = resource.id.rsplit("/", 2)[0]
    siblings = [
        made
        for made in resource.world.all(FEDERATED)
        if arm.is_below(made.id, parent) and not arm.same(made.id, resource.id)
    ]
    # Source: Entra workload-identity-federation-considerations: 20 at most, pairs are unique.
    if len(siblings) >= 20:
        yield Problem(
            "resourceName",
            "the identity trusts 20 others already, which is the most; use another identity",
        )
    for made in siblings:
        if (made.inputs.get("issuer"), made.inputs.get("subject")) == (
            resource.optional_string("issuer"),
            resource.optional_string("subject"),
        ):
            yield Problem(
                "subject",
                f"the pair of issuer and subject is trusted already, by "
                f"{made.id.rpartition('/')[2]!r}",
            )


KINDS: Final = (
    AzureKind(
        IDENTITY,
        "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
        name=naming.IDENTITY,
        computed=_outputs,
    ),
    AzureKind(
        FEDERATED,
        "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}/"
        "federatedIdentityCredentials/{federatedIdentityCredentialResourceName}",
        name=naming.NameRule(3, 120, naming.IDENTITY.pattern, naming.IDENTITY.text),
        rules=(
            formed(
                "issuer", r"https://[^\s/]+(?:/\S*)?",
                "isn't an https address; give the cluster's issuerURL",
            ),
            _federated_problems,
        ),
        crosschecks=(_federated_conflicts,),
    ),
)  # fmt: skip
