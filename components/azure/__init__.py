"""The components on Azure, in the region UAE North (and UAE Central for recovery)."""

from components.azure.cluster import Cluster
from components.azure.key_ring import KeyRing
from components.azure.provider import RegionProvider

__all__ = ["Cluster", "KeyRing", "RegionProvider"]
