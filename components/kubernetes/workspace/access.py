"""Who gets to a workspace, and where it gets: rights of one person, no way in, hardly one out."""

from __future__ import annotations

from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._peers import resolver_egress
from falaj.components.kubernetes._placed import COMPONENT_LABEL, PROTECTED, TENANT_LABEL
from falaj.components.kubernetes._rights import account, role, rule
from falaj.components.kubernetes._secrets import certificate, external_secret
from falaj.components.kubernetes.workspace.arguments import WorkspaceSpec
from falaj.components.specification.node_pools import label_value

TOKEN_KEY: Final = "token"  # noqa: S105 - the key's name


def access(spec: WorkspaceSpec) -> list[Manifest]:
    """Everything but the home and the pod."""
    return [
        _network_policy(spec),
        _account(spec),
        *_rights(spec),
        certificate(
            spec.metadata(tls_secret(spec)),
            {**spec.placed.labels(spec.base), **PROTECTED},
            spec.certificate_issuer,
            spec.base,
            names=[spec.host, "localhost"],
            usages=["server auth"],
        ),
        external_secret(
            spec.metadata(token_secret(spec), PROTECTED),
            spec.secret_store, spec.token_secret, TOKEN_KEY,
        ),
    ]  # fmt: skip


def tls_secret(spec: WorkspaceSpec) -> str:
    """The Secret with the server's certificate and key."""
    return f"{spec.base}-tls"


def token_secret(spec: WorkspaceSpec) -> str:
    """The Secret with the token."""
    return f"{spec.base}-token"


def _network_policy(spec: WorkspaceSpec) -> Manifest:
    """Nobody gets in; names, and the package mirror where one is named, are the ways out.

    It adds to the tenant's own policies, and holds where a namespace has none.
    """
    egress: list[dict[str, Any]] = [resolver_egress()]
    if spec.mirror is not None:
        ranges = [{"ipBlock": {"cidr": each}} for each in spec.mirror.cidrs]
        egress.append({"to": ranges, "ports": [{"port": spec.mirror.port, "protocol": "TCP"}]})
    labels = {
        TENANT_LABEL: spec.placed.tenant,
        COMPONENT_LABEL: label_value(spec.base),
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": spec.metadata(spec.base),
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress", "Egress"],
            "egress": egress,
        },
    }


def _account(spec: WorkspaceSpec) -> Manifest:
    """An account that nothing is for: the one of training may have an identity of the cloud."""
    return account(spec.metadata(spec.base))


def _rights(spec: WorkspaceSpec) -> list[Manifest]:
    """What the person may do, each by the object's name.

    The API server asks for ``create`` and, of clients that connect by WebSocket, for ``get``:
    https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
    """
    rules = [
        rule("", "pods", "get", "delete", names=[spec.base]),
        rule("", "pods/log", "get", names=[spec.base]),
        rule("", "pods/portforward", "create", "get", names=[spec.base]),
        rule("", "secrets", "get", names=[token_secret(spec)]),
    ]
    return role(spec.metadata(f"{spec.base}-owner"), rules, [spec.user])
