"""The kubeconfig that a cluster hands out: well-formed, and of no use outside of the sandbox."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Literal

from falaj.sandbox.clouds.azure import generated
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Made

# The Entra application of every AKS API server. Source: aks/kubelogin-authentication.
_SERVER_APPLICATION: Final = "6dae42f8-4368-4678-94ff-3960e28e3630"
_CERTIFICATE: Final = (
    "-----BEGIN CERTIFICATE-----\nnone: made by the sandbox\n-----END CERTIFICATE-----\n"
)


def entry(cluster: Made, name: Literal["clusterUser", "clusterAdmin"]) -> dict[str, str]:
    """One of a cluster's kubeconfigs, its text in base64. JSON is YAML too."""
    text = json.dumps(document(cluster, name), indent=2)
    return {"name": name, "value": _encoded(text)}


def document(cluster: Made, name: Literal["clusterUser", "clusterAdmin"]) -> dict[str, Any]:
    """The kubeconfig of a cluster: with a made-up token, or with kubelogin where Entra is used."""
    asked = Inputs(cluster.outputs)
    host = (
        asked.optional_string("privateFQDN") or asked.optional_string("fqdn") or "sandbox.invalid"
    )
    own = cluster.id.rpartition("/")[2]
    user: dict[str, Any] = {"token": f"not-a-real-token-{generated.digest(32, cluster.id, name)}"}
    if name == "clusterUser" and asked.is_given("aadProfile"):
        user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": "kubelogin",
                "args": [
                    "get-token",
                    "--environment",
                    "AzurePublicCloud",
                    "--server-id",
                    _SERVER_APPLICATION,
                    "--tenant-id",
                    generated.TENANT,
                ],
                "provideClusterInfo": False,
            }
        }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": own,
                "cluster": {
                    "server": f"https://{host}:443",
                    "certificate-authority-data": _encoded(_CERTIFICATE),
                },
            }
        ],
        "users": [{"name": f"{name}_{own}", "user": user}],
        "contexts": [{"name": own, "context": {"cluster": own, "user": f"{name}_{own}"}}],
        "current-context": own,
        "preferences": {},
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
