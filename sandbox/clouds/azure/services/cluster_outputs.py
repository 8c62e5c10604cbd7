"""What AKS answers of a cluster: its host names, issuer, identities and pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, generated
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.azure.services import agent_pool
from falaj.sandbox.clouds.inputs import Resource

_API: Final = "apiServerAccessProfile"
# Whatever is made without a version gets one that is supported at the sandbox's date.
_DEFAULT_VERSION: Final = "1.34"


def compute(resource: Resource) -> dict[str, Any]:
    """The outputs of a cluster."""
    id, region = resource.id, location(resource) or "unknown"
    name = id.rpartition("/")[2]
    reference = arm.parse(id)
    group = (reference.group if reference else None) or ""
    prefix = (
        resource.optional_string("dnsPrefix") or resource.optional_string("fqdnSubdomain") or name
    )
    label = f"{prefix.lower()}-{generated.digest(8, id)}"
    private = resource.flag(f"{_API}.enablePrivateCluster")
    resources = resource.optional_string("nodeResourceGroup") or f"MC_{group}_{name}_{region}"[:80]
    kubelet = (
        f"{arm.group_id(resources)}/providers/Microsoft.ManagedIdentity/"
        f"userAssignedIdentities/{name}-agentpool"
    )
    version = resource.optional_string("kubernetesVersion") or _DEFAULT_VERSION
    found: dict[str, Any] = {
        "kubernetesVersion": version,
        "currentKubernetesVersion": version if version.count(".") == 2 else f"{version}.1",
        "nodeResourceGroup": resources,
        "maxAgentPools": 100,
        "resourceUID": generated.digest(24, "uid", id),
        "powerState": {"code": "Running"},
        "azurePortalFQDN": f"{label}.portal.hcp.{region}.azmk8s.io",
        "agentPoolProfiles": [
            {**item, **agent_pool.computed(resource, path, version)}
            for path, item in resource.items("agentPoolProfiles")
            if isinstance(item, Mapping)
        ],
        "identityProfile": resource.get(
            "identityProfile",
            {
                "kubeletidentity": {
                    "resourceId": kubelet,
                    "clientId": generated.guid("client", kubelet),
                    "objectId": generated.guid("principal", kubelet),
                }
            },
        ),
    }
    if private:
        zone = resource.optional_string(f"{_API}.privateDNSZone") or "system"
        host = f"privatelink.{region}.azmk8s.io"
        if zone.lower() not in ("system", "none"):
            host = zone.rpartition("/")[2]
        elif zone.lower() == "system":
            host = f"{generated.guid('zone', id)}.{host}"
        found["privateFQDN"] = f"{label}.{host}"
    if not private or resource.at(f"{_API}.enablePrivateClusterPublicFQDN") is not False:
        found["fqdn"] = f"{label}.hcp.{region}.azmk8s.io"
    if resource.flag("oidcIssuerProfile.enabled"):
        found["oidcIssuerProfile"] = {
            "enabled": True,
            "issuerURL": f"https://{region}.oic.prod-aks.azure.com/{generated.TENANT}/"
            f"{generated.guid('issuer', id)}/",
        }
    return found
