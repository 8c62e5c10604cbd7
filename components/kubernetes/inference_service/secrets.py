"""What replicas prove themselves with and open their package with: certificates and keys."""

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.inference_service.arguments import SCRAPER, InferenceServiceSpec
from falaj.components.kubernetes.inference_service.deployment import PACKED_KEYS, TOKEN_KEYS

_VALID = "2160h"
_RENEWED_BEFORE = "720h"


def secrets(spec: InferenceServiceSpec) -> list[Manifest]:
    """The certificates of the servers and of Prometheus, the key ring, the issuer's keys."""
    found = [
        _certificate(spec, "tls", spec.name, _names(spec), ["server auth", "client auth"]),
        _certificate(spec, "scraper", SCRAPER, [], ["client auth"]),
        _key_ring(spec),
    ]
    if spec.access.token_keys:
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": spec.metadata(f"{spec.name}-tokens"),
                "data": {TOKEN_KEYS: spec.access.token_keys},
            }
        )
    return found


def _names(spec: InferenceServiceSpec) -> list[str]:
    """The names that clients in the cluster know the servers by."""
    services = [spec.name, *(spec.of(version) for version in spec.versions)]
    hosts = [f"{each}.{spec.namespace}.svc" for each in services]
    return [*hosts, *(f"{host}.cluster.local" for host in hosts)]


def _certificate(
    spec: InferenceServiceSpec, what: str, common_name: str, names: list[str], usages: list[str]
) -> Manifest:
    """A certificate that cert-manager renews; servers notice the new one without a restart."""
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": spec.metadata(f"{spec.name}-{what}"),
        "spec": {
            "secretName": f"{spec.name}-{what}",
            "secretTemplate": {"labels": spec.placed.labels("inference-service")},
            "issuerRef": {
                "group": "cert-manager.io",
                "kind": "ClusterIssuer",
                "name": spec.access.certificate_issuer,
            },
            "commonName": common_name,
            **({"dnsNames": names} if names else {}),
            "duration": _VALID,
            "renewBefore": _RENEWED_BEFORE,
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "usages": ["digital signature", *usages],
        },
    }


def _key_ring(spec: InferenceServiceSpec) -> Manifest:
    """The key ring, as External Secrets fetches it from the secret store in the country."""
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": spec.metadata(f"{spec.name}-keys"),
        "spec": {
            "refreshInterval": "1h0m0s",
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": spec.access.secret_store},
            "target": {
                "name": f"{spec.name}-keys",
                "creationPolicy": "Owner",
                "deletionPolicy": "Retain",
            },
            "data": [
                {
                    "secretKey": PACKED_KEYS,
                    "remoteRef": {
                        "key": spec.access.key_secret,
                        "decodingStrategy": "Base64",
                        "conversionStrategy": "Default",
                        "metadataPolicy": "None",
                    },
                }
            ],
        },
    }
