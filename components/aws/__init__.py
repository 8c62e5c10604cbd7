"""Components for AWS; the only package of Falaj that needs its SDK."""

from components.aws.key_ring import KeyRing, KeyRingArgs
from components.aws.provider import RegionProvider

__all__ = ["KeyRing", "KeyRingArgs", "RegionProvider"]
