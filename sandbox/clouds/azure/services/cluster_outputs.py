"""What AKS answers of a cluster: its host names, issuer, identities and pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, invented
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.azure.services import agent_pool

_API: Final = "apiServerAccessProfile"
# Whatever is made without a version gets one that is supported at the sandbox's date.
_DEFAULT_VERSION: Final = "1.34"


def compute(ask: Ask) -> dict[str, Any]:
    """The outputs of a cluster."""
    id, region = ask.id or "", location(ask) or "unknown"
    name = id.rpartition("/")[2]
    reference = arm.parse(id)
    group = (reference.group if reference else None) or ""
    prefix = ask.text("dnsPrefix") or ask.text("fqdnSubdomain") or name
    label = f"{prefix.lower()}-{invented.digest(8, id)}"
    private = ask.flag(f"{_API}.enablePrivateCluster")
    resources = ask.text("nodeResourceGroup") or f"MC_{group}_{name}_{region}"[:80]
    kubelet = (
        f"{arm.group_id(resources)}/providers/Microsoft.ManagedIdentity/"
        f"userAssignedIdentities/{name}-agentpool"
    )
    version = ask.text("kubernetesVersion") or _DEFAULT_VERSION
    found: dict[str, Any] = {
        "kubernetesVersion": version,
        "currentKubernetesVersion": version if version.count(".") == 2 else f"{version}.1",
        "nodeResourceGroup": resources,
        "maxAgentPools": 100,
        "resourceUID": invented.digest(24, "uid", id),
        "powerState": {"code": "Running"},
        "azurePortalFQDN": f"{label}.portal.hcp.{region}.azmk8s.io",
        "agentPoolProfiles": [
            {**item, **agent_pool.computed(ask, path, version)}
            for path, item in ask.items("agentPoolProfiles")
            if isinstance(item, Mapping)
        ],
        "identityProfile": ask.known(
            "identityProfile",
            {
                "kubeletidentity": {
                    "resourceId": kubelet,
                    "clientId": invented.guid("client", kubelet),
                    "objectId": invented.guid("principal", kubelet),
                }
            },
        ),
    }
    if private:
        zone = ask.text(f"{_API}.privateDNSZone") or "system"
        host = f"privatelink.{region}.azmk8s.io"
        if zone.lower() not in ("system", "none"):
            host = zone.rpartition("/")[2]
        elif zone.lower() == "system":
            host = f"{invented.guid('zone', id)}.{host}"
        found["privateFQDN"] = f"{label}.{host}"
    if not private or ask.at(f"{_API}.enablePrivateClusterPublicFQDN") is not False:
        found["fqdn"] = f"{label}.hcp.{region}.azmk8s.io"
    if ask.flag("oidcIssuerProfile.enabled"):
        found["oidcIssuerProfile"] = {
            "enabled": True,
            "issuerURL": f"https://{region}.oic.prod-aks.azure.com/{invented.TENANT}/"
            f"{invented.guid('issuer', id)}/",
        }
    return found
