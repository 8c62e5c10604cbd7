"""What a storage class must say for its volumes to be encrypted with a key of one's own.

https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
https://github.com/kubernetes-sigs/azuredisk-csi-driver/blob/master/docs/driver-parameters.md
https://github.com/kubernetes-sigs/aws-fsx-csi-driver
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Driver:
    """What a driver's storage class must say for its volumes to have a key of one's own."""

    key: str
    """Parameter that names the key, in small letters."""
    switch: str = ""
    """Parameter that must be true for the key to be used; empty where none is."""
    instead: tuple[str, ...] = ()
    """Parameters that name something that exists, whose own key counts."""


_EBS: Final = Driver("kmskeyid", "encrypted")
_AZURE_DISK: Final = Driver("diskencryptionsetid")
_AZURE_FILES: Final = Driver("", instead=("storageaccount",))
#: Drivers of the clouds; all others keep their volumes on one's own machines, whose disks are
#: encrypted where they are made.
DRIVERS: Final[Mapping[str, Driver]] = {
    "ebs.csi.aws.com": _EBS,
    "ebs.csi.eks.amazonaws.com": _EBS,
    "kubernetes.io/aws-ebs": _EBS,
    "disk.csi.azure.com": _AZURE_DISK,
    "kubernetes.io/azure-disk": _AZURE_DISK,
    "file.csi.azure.com": _AZURE_FILES,
    "kubernetes.io/azure-file": _AZURE_FILES,
    "blob.csi.azure.com": _AZURE_FILES,
    "efs.csi.aws.com": Driver("", instead=("filesystemid",)),
    "fsx.csi.aws.com": Driver("kmskeyid"),
    "fsx.openzfs.csi.aws.com": Driver("kmskeyid", instead=("parentvolumeid",)),
    "pd.csi.storage.gke.io": Driver("disk-encryption-kms-key"),
}
#: Names of keys that the provider owns.
PROVIDERS_OWN: Final = ("alias/aws/",)
#: Parameters, in small letters, that name a place, and those that name a kind of copies.
PLACES: Final = frozenset({"location", "region", "zone", "availabilityzone", "zones", "az"})
COPIES: Final = frozenset({"skuname", "storageaccounttype", "sku"})
#: Azure's kinds of copies that go to another region.
GEO: Final = frozenset({"GRS", "RAGRS", "GZRS", "RAGZRS"})
