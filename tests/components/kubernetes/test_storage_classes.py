"""Storage classes: none without a key of one's own, and each in its place."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.components.kubernetes.storage_classes import check, manifests
from tests.components.kubernetes.cluster_parts import (
    COMMON,
    PLACES,
    by_key,
    findings,
    refusal,
    same_as_golden,
    shown,
)

KEY = "arn:aws:kms:me-central-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
SET = (
    "/subscriptions/0/resourceGroups/r/providers/Microsoft.Compute/diskEncryptionSets/falaj-disks"
)
CEPH = {
    "provisioner": "rook-ceph.rbd.csi.ceph.com",
    "parameters": {"clusterID": "rook-ceph", "pool": "disks", "encrypted": "true",
                   "encryptionKMSID": "openbao"},
    "snapshot_parameters": {"clusterID": "rook-ceph"},
}  # fmt: skip
CEPHFS = {**CEPH, "provisioner": "rook-ceph.cephfs.csi.ceph.com", "snapshot_parameters": {}}
OWN: dict[str, dict[str, Any]] = {
    "existing": {"classes": {"falaj-block": CEPH, "falaj-files": CEPHFS}},
    "eks": {
        "disk_encryption_id": KEY, "zones": ["me-central-1a", "me-central-1b"],
        "files": {"subnet_id": "subnet-1", "security_group_id": "sg-1"},
    },
    "aks": {
        "disk_encryption_id": SET, "zones": ["uaenorth-1"],
        "files": {"file_system_id": "fs", "mount_address": "10.0.0.4@tcp0:/lustrefs",
                  "size_gib": 4800, "namespaces": ["acme-training"]},
    },
}  # fmt: skip


def _classes(**changes: Any) -> dict[str, Any]:
    return {"classes": {"falaj-block": {**CEPH, **changes}}}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("eks", {"disk_encryption_id": None}, "no class is made without a key (on eks)"),
    ("aks", {"disk_encryption_id": None}, "no class is made without a key (on aks)"),
    ("existing", {"classes": None}, "no class is made without a key (on existing)"),
    ("existing", {"classes": {}}, "no class is made without a key (on existing)"),
    ("eks", {"disk_encryption_id": "alias/aws/ebs"}, "the full ARN of a key"),
    ("eks", {"disk_encryption_id": KEY.replace("key/", "alias/")}, "the full ARN of a key"),
    ("eks", {"disk_encryption_id": KEY.replace("me-central-1", "eu-west-1")}, "in me-central-1"),
    ("aks", {"disk_encryption_id": KEY}, "diskEncryptionSets/<name>"),
    ("eks", {"classes": {"x": CEPH}}, "is for existing, but distribution is 'eks'"),
    ("existing", {"disk_encryption_id": KEY}, "is for eks and aks"),
    ("existing", {"iops": 4000}, "is for eks, but distribution is 'existing'"),
    ("eks", {"disk_sku": "Premium_LRS"}, "is for aks"),
    ("aks", {"disk_sku": "Standard_GRS"}, "Premium_LRS, Premium_ZRS"),
    ("aks", {"disk_sku": "PremiumV2_LRS"}, "or set double_encryption to false"),
    ("eks", {"iops": 1}, "a whole number from 3000"),
    ("eks", {"reclaim": "Recycle"}, "Delete, Retain"),
    ("eks", {"file_system_type": "ntfs"}, "ext4, xfs"),
    ("eks", {"default_class": "gp2"}, "default_class: given 'gp2'; allowed: falaj-block"),
    ("eks", {"files": {}}, "files.subnet_id: missing; needed without file_system_id"),
    ("aks", {"files": {}}, "on AKS the driver makes none with a key of one's own"),
    ("aks", {"files": {"file_system_id": "x"}}, "files.mount_address: missing"),
    ("eks", {"files": {"subnet": "x"}}, "did you mean 'subnet_id'?"),
    ("existing", _classes(parameters={"encryptionKMSID": "x"}), 'the text "true"'),
    ("existing", _classes(parameters={"encrypted": "true"}), "encryptionKMSID: missing"),
    ("existing", _classes(provisioner="rancher.io/local-path"), "drivers that encrypt"),
    ("existing", _classes(provisioner="csi.weka.io"), "what proves that csi.weka.io encrypts"),
    ("existing", _classes(provisioner="csi.weka.io", key_parameter="kms"), "one of parameters"),
    ("existing", _classes(provisoner="x"), "did you mean 'provisioner'?"),
]  # fmt: skip


def arguments(place: str, **changes: Any) -> dict[str, Any]:
    return {**COMMON, "tenant": "platform", **PLACES[place], **OWN[place], **changes}


def classes(place: str, **changes: Any) -> dict[str, Any]:
    return by_key(manifests(check("storage", arguments(place, **changes))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "changes", "reason"), REFUSED, ids=[f"{each[0]}-{each[1]}" for each in REFUSED]
)
def test_what_cannot_be_is_refused_with_the_reason(
    place: str, changes: dict[str, Any], reason: str
) -> None:
    assert reason in refusal(check, arguments(place, **changes))


@pytest.mark.parametrize("place", PLACES)
def test_every_pack_passes_and_the_manifests_are_the_reviewed_ones(place: str) -> None:
    found = list(classes(place).values())
    assert findings(found) == []
    same_as_golden(f"storage-{place}.yaml", shown(found))


@pytest.mark.parametrize("place", PLACES)
def test_disks_are_where_their_pod_is_and_claims_without_a_class_get_them(place: str) -> None:
    block = classes(place)["StorageClass/falaj-block"]
    assert block["volumeBindingMode"] == "WaitForFirstConsumer"
    defaults = [
        key
        for key, each in classes(place).items()
        if each["metadata"]["annotations"].get("storageclass.kubernetes.io/is-default-class")
        == "true"
    ]
    assert defaults == ["StorageClass/falaj-block"]


def test_what_was_claimed_stays_in_production_only() -> None:
    assert classes("eks")["StorageClass/falaj-block"]["reclaimPolicy"] == "Retain"
    tried = classes("eks", environment="development")
    assert tried["StorageClass/falaj-block"]["reclaimPolicy"] == "Delete"
    assert tried["VolumeSnapshotClass/falaj-block"]["deletionPolicy"] == "Delete"


def test_an_appliance_that_encrypts_is_taken_by_its_evidence() -> None:
    given = {"provisioner": "csi.weka.io", "parameters": {}, "evidence": "SEC-114, chapter 3"}
    found = classes("existing", classes={"falaj-block": given})
    about = found["StorageClass/falaj-block"]["metadata"]
    assert about["annotations"]["falaj.io/encryption-evidence"] == "SEC-114, chapter 3"


def test_numbers_of_other_languages_are_whole_ones() -> None:
    """They arrive as floats."""
    files = {**OWN["eks"]["files"], "throughput_mb_s_per_tib": 500.0}
    parameters = classes("eks", files=files)["StorageClass/falaj-files"]["parameters"]
    assert parameters["perUnitStorageThroughput"] == "500"
    files = {**OWN["aks"]["files"], "size_gib": 4800.0}
    volume = classes("aks", files=files)["PersistentVolume/acme-training-files"]
    assert volume["spec"]["capacity"] == {"storage": "4800Gi"}


def test_a_file_system_that_exists_is_a_volume_of_each_namespace() -> None:
    files = {
        "file_system_id": "fs-1", "mount_address": "fs-1.fsx.me-central-1.amazonaws.com@tcp:/abc",
        "size_gib": 4800, "namespaces": ["acme-training", "globex-training"],
    }  # fmt: skip
    found = classes("eks", files=files)
    volume = found["PersistentVolume/globex-training-files"]["spec"]
    assert volume["csi"]["volumeAttributes"] == {
        "dnsname": "fs-1.fsx.me-central-1.amazonaws.com", "mountname": "abc",
    }  # fmt: skip
    assert volume["claimRef"]["namespace"] == "globex-training"
    claim = found["PersistentVolumeClaim/globex-training/falaj-files"]["spec"]
    assert claim["volumeName"] == "globex-training-files"
    nfs = {**files, "protocol": "nfs", "mount_address": "10.0.0.9:/fast/data"}
    shared = classes("aks", files=nfs)["PersistentVolume/acme-training-files"]["spec"]
    assert shared["nfs"] == {"server": "10.0.0.9", "path": "/fast/data"}
