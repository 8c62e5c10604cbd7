"""External Secrets: secrets stay in the cloud's, or the site's, own store.

Values: https://github.com/external-secrets/external-secrets/blob/v2.9.0/deploy/charts/external-secrets/values.yaml
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._secrets import STORE
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    ISSUER,
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.arguments import Default
from falaj.components.specification.called_ports import KUBELET
from falaj.components.specification.described import described
from falaj.components.specification.limits import HTTPS

_NAMESPACE: Final = "external-secrets"
_ACCOUNT: Final = "external-secrets"
_API: Final = "external-secrets.io/v1"


@described
class ExternalSecretsOptions(TypedDict):
    """Options of ``external-secrets``."""

    vault_url: NotRequired[Annotated[str, HTTPS]]
    """Address of the Key Vault (``https://….vault.azure.net``) on AKS, or of OpenBao
    (``https://openbao.…:8200``) on an ``existing`` cluster. Needed on both; not on EKS, where the
    store is Secrets Manager of the region. A Key Vault's name says no place: list its host in
    the packs' and the cluster's allowed hosts."""
    client_id: NotRequired[str]
    """Client id of the managed identity that reads the Key Vault. Needed on AKS."""
    path: NotRequired[Annotated[str, Default("secret")]]
    """Mount of OpenBao's key-value engine."""
    role: NotRequired[Annotated[str, Default("external-secrets")]]
    """Role of OpenBao's Kubernetes login."""


def _check(options: OptionsChecker, placed: InCluster) -> None:
    allowed = {
        "eks": (),
        "aks": ("vault_url", "client_id"),
        "existing": ("vault_url", "path", "role"),
    }
    for option in ExternalSecretsOptions.__annotations__:
        if option not in allowed[placed.distribution]:
            options.foreign(option, placed.distribution)
        elif option in ("vault_url", "client_id"):
            options.needed(option, f"on {placed.distribution}")


def _values(spec: PlatformSpec) -> dict[str, Values]:
    image = {
        "repository": spec.repository("external-secrets"),
        "tag": spec.tag("external-secrets"),
    }
    pods: Values = {
        "image": image,
        "nodeSelector": spec.node_selector,
        "priorityClassName": PRIORITY_CLASS,
        "resources": resources("20m", "192Mi"),
    }
    account: Values = {"name": _ACCOUNT}
    if client := spec.options("external-secrets")["client_id"]:
        account["annotations"] = {"azure.workload.identity/client-id": client}
    certificates: Values = {"cert": {"issuerRef": {"kind": "ClusterIssuer", "name": ISSUER}}}
    return {
        "external-secrets": {
            **pods,
            "installCRDs": True,
            "leaderElect": True,
            "replicaCount": 2,
            "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
            "serviceAccount": account,
            # What isn't used has no rights: secrets aren't pushed out, nor spread by a controller
            # over namespaces.
            "processClusterExternalSecret": False,
            "processPushSecret": False,
            "processClusterPushSecret": False,
            "rbac": {"aggregateToView": False, "aggregateToEdit": False},
            "webhook": {
                **pods,
                "certManager": {"enabled": spec.has("cert-manager"), **certificates},
            },
            "certController": {**pods, "create": not spec.has("cert-manager")},
        }
    }


def _store(spec: PlatformSpec) -> list[Manifest]:
    """The store, for the platform's own namespaces and those that serve.

    Whoever may create an `ExternalSecret` in a namespace reads any entry that the store's identity
    may read: which entries those are is the cloud identity's policy, and the admission policies
    bind an entry's name to the tenant.
    """
    options = spec.options("external-secrets")
    provider: dict[str, Any]
    if spec.placed.distribution == "eks":
        provider = {"aws": {"service": "SecretsManager", "region": spec.placed.region}}
    elif spec.placed.distribution == "aks":
        provider = {
            "azurekv": {
                "authType": "WorkloadIdentity",
                "vaultUrl": options["vault_url"],
                "serviceAccountRef": {"name": _ACCOUNT, "namespace": _NAMESPACE},
            }
        }
    else:
        account = {"name": _ACCOUNT, "namespace": _NAMESPACE}
        login = {"mountPath": "kubernetes", "role": options["role"]}
        provider = {
            "vault": {
                "server": options["vault_url"],
                "path": options["path"],
                "version": "v2",
                "auth": {"kubernetes": {**login, "serviceAccountRef": account}},
            }
        }
    own = {"matchLabels": {"falaj.io/component": "platform"}}
    serving = {"matchLabels": {"falaj.io/duty": "serving"}}
    return [
        {
            "apiVersion": _API,
            "kind": "ClusterSecretStore",
            "metadata": spec.metadata(STORE),
            "spec": {
                "provider": provider,
                "conditions": [{"namespaceSelector": own}, {"namespaceSelector": serving}],
            },
        }
    ]


def generated_secret(
    spec: PlatformSpec, name: str, namespace: str, key: str, **fixed: str
) -> list[Manifest]:
    """A secret with one random value, made once inside the cluster and never rotated by itself."""
    return [
        {
            "apiVersion": "generators.external-secrets.io/v1alpha1",
            "kind": "Password",
            "metadata": spec.metadata(name, namespace),
            "spec": {
                "length": 32,
                "digits": 8,
                "symbols": 0,
                "allowRepeat": True,
                "noUpper": False,
            },
        },
        {
            "apiVersion": _API,
            "kind": "ExternalSecret",
            "metadata": spec.metadata(name, namespace),
            "spec": {
                "refreshPolicy": "CreatedOnce",
                "target": {
                    "name": name,
                    "template": {"data": {key: "{{ .password }}", **fixed}},
                },
                "dataFrom": [
                    {
                        "sourceRef": {
                            "generatorRef": {
                                "apiVersion": "generators.external-secrets.io/v1alpha1",
                                "kind": "Password",
                                "name": name,
                            }
                        }
                    }
                ],
            },
        },
    ]


EXTERNAL_SECRETS: Final = Addon(
    name="external-secrets",
    summary="secrets from the cloud's own store, or OpenBao",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("external-secrets", "external-secrets", _NAMESPACE),),
    options=ExternalSecretsOptions,
    check=_check,
    images=lambda spec: ("external-secrets",),
    values=_values,
    traffic=lambda spec: {
        _NAMESPACE: Traffic(webhooks=(KUBELET,), scrapes=(8080,), endpoints=True)
    },
    scrapes=(Scrape(_NAMESPACE, {"app.kubernetes.io/instance": "external-secrets"}, "metrics"),),
    after=_store,
    follows=("cert-manager",),
)
