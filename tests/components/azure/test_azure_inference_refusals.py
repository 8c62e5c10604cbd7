"""CPU inference tiers on Azure: what is refused, early and late, and addresses out of ids."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.azure import CpuInferenceTier
from falaj.components.azure._ids import IdError
from falaj.components.azure._tier_access import secret_url
from tests.components.azure.compute_foundation import IMAGE, ZONES
from tests.components.azure.conftest import PLACED
from tests.components.azure.inference_tiers import BASE, make

SECRET = f"{BASE}/Microsoft.KeyVault/vaults/acme-keys/secrets/keyring"
PLAIN: dict[str, Any] = {
    **PLACED,
    "network_id": "network",
    "serving_subnet_ids": dict.fromkeys(ZONES, "serving"),
    "security_group_id": "rules",
    "disk_encryption_id": "disks",
    "data_key_id": "data",
    "log_key_id": "logs",
    "registry_id": "registry",
    "log_destination_id": "workspace",
    "image": IMAGE,
    "package_repository": "acmeregistry.azurecr.io/models/churn",
    "model": "churn",
    "version": 3,
    "package_digest": "sha256:" + "b" * 64,
    "keys_digest": "sha256:" + "c" * 64,
    "keyring_secret_id": SECRET,
    "certificate_id": SECRET,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"certificate_id": None}, "certificate_id: missing; needed on Azure"),
        ({"keyring_secret_id": None}, "keyring_secret_id: missing; needed on Azure"),
        ({"log_destination_id": None}, "log_destination_id: missing; needed on Azure"),
        ({"certificate_id": "arn:aws:acm:x"}, "certificate_id: .*Key Vault secret"),
        ({"keyring_secret_id": "https://a.vault.azure.net/secrets/x"}, "keyring_secret_id: .*id"),
        ({"boundary_id": "x"}, "boundary_id: .*AWS only"),
        ({"log_days": 30}, "log_days: the workspace decides on Azure"),
        ({"image": "acme.azurecr.io/inference:latest"}, "image: .*by digest"),
        ({"model": "models/churn"}, "model: .*lower-case letters"),
        ({"version": "latest"}, "version: .*1 to 999999999"),
        ({"package_digest": "v3"}, "package_digest: .*a digest"),
        ({"keys_digest": None}, "keys_digest: missing"),
        ({"package_repository": None}, "package_repository: missing"),
        ({"host_name": "inference"}, "host_name: "),
        ({"mode": "functions"}, "mode: .*instances, serverless"),
        ({"mode": "serverless", "machine": "Standard_D2s_v6"}, "machine: .*serverless"),
        ({"mode": "serverless", "int8": "amx"}, "int8: .*serverless"),
        ({"mode": "serverless", "machine_image": "a:b:c:d"}, "machine_image: .*serverless"),
        ({"mode": "serverless", "vcpu": 8}, "vcpu: .*1, 2, 3, 4"),
        ({"mode": "serverless", "vcpu": 2, "memory_gib": 8}, "memory_gib: .*4 GiB with 2"),
        ({"mode": "serverless", "port": 443}, "port: .*any port but 80 and 443"),
        ({"port": 22}, "port: .*remote shells"),
        ({"port": 70_000}, "port: "),
        ({"port": 9443}, "port: given 9443; allowed: 443 or 8443 on Azure"),
        ({"int8": "sse"}, "int8: "),
        ({"vcpu": 0}, "vcpu: "),
        ({"memory_gib": 30_000}, "memory_gib: "),
        ({"machine": "m7i.large"}, "machine: "),
        ({"zones": ["5"]}, "zones.*1, 2, 3"),
        ({"min_instances": 0}, "min_instances: "),
        ({"min_instances": 5, "max_instances": 2}, "min_instances: .*at most"),
        ({"cpu_target_percent": 100}, "cpu_target_percent: .*10 to 90"),
        ({"allowed_cidrs": ["0.0.0.0/0"]}, "allowed_cidrs"),
        ({"allowed_cidrs": ["8.8.8.0/24"]}, "allowed_cidrs"),
        ({"tls": False}, "tls: is not an argument"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    args: Any = {key: value for key, value in {**PLAIN, **changes}.items() if value is not None}
    with pytest.raises(pulumi.InputPropertiesError, match=words):
        CpuInferenceTier("churn", args)


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ({"image": "acmeregistry.azurecr.io/inference:v1"}, "image: given.*by digest"),
        ({"serving_subnet_ids": {}}, "serving_subnet_ids of CpuInferenceTier 'churn' are none"),
    ],
)
def test_values_that_are_known_late_are_refused_in_words(late: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        make(late)


def test_addresses_come_out_of_ids() -> None:
    assert secret_url(SECRET) == "https://acme-keys.vault.azure.net/secrets/keyring"
    with pytest.raises(IdError, match="secrets/<name>"):
        secret_url("https://acme-keys.vault.azure.net/secrets/keyring")
