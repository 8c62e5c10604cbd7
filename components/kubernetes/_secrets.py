"""Secrets that operators make: certificates of the platform's issuer, entries of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.components.catalogue.clusters import SECRET_STORE
from falaj.components.kubernetes._objects import Manifest

STORE: Final = SECRET_STORE
"""The platform's `ClusterSecretStore`."""
_VALID = "2160h"
_RENEWED_BEFORE = "720h"


def certificate(
    about: Mapping[str, Any],
    secret_labels: Mapping[str, str],
    issuer: str,
    common_name: str,
    *,
    names: Sequence[str],
    usages: Sequence[str],
) -> Manifest:
    """A certificate that is renewed, in a Secret of its name; servers notice the new one.

    Args:
        about: its metadata.
        secret_labels: of the Secret.
        issuer: a ClusterIssuer.
        common_name: whom it names.
        names: names of DNS that it holds for; may be none.
        usages: beside ``digital signature``.
    """
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": dict(about),
        "spec": {
            "secretName": about["name"],
            "secretTemplate": {"labels": dict(secret_labels)},
            "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": issuer},
            "commonName": common_name,
            **({"dnsNames": list(names)} if names else {}),
            "duration": _VALID,
            "renewBefore": _RENEWED_BEFORE,
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "usages": ["digital signature", *usages],
        },
    }


def external_secret(
    about: dict[str, Any], store: str, entry: str, key: str, *, decoding: str = "None"
) -> Manifest:
    """A secret that External Secrets makes hourly of an entry of the store in the country.

    Without a template the secret gets the labels of this object: `setMetadata` in
    pkg/controllers/externalsecret/externalsecret_controller_template.go of External Secrets.

    Args:
        about: its metadata; the secret has the same name.
        store: the `ClusterSecretStore`.
        entry: what the store calls it.
        key: of the secret, under which the value is.
        decoding: ``None``, or ``Base64`` where the entry holds bytes.
    """
    remote = {
        "key": entry,
        "decodingStrategy": decoding,
        "conversionStrategy": "Default",
        "metadataPolicy": "None",
    }
    return {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ExternalSecret",
        "metadata": about,
        "spec": {
            "refreshInterval": "1h0m0s",
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": store},
            "target": {
                "name": about["name"],
                "creationPolicy": "Owner",
                "deletionPolicy": "Retain",
            },
            "data": [{"secretKey": key, "remoteRef": remote}],
        },
    }
