"""Machines by the names of their types: which have GPUs, and which share them with strangers."""

from __future__ import annotations

import re
from typing import Final

#: Families with accelerators: GPUs (p, g), Trainium, Inferentia, Gaudi
#: (https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html).
_AWS: Final = re.compile(r"(?:ml\.)?(?:p\d|g\d|gr\d|trn\d|inf\d|dl\d)[a-z0-9-]*\.[a-z0-9-]+")
#: Azure's N series: NC, ND, NG, NP and NV
#: (https://learn.microsoft.com/azure/virtual-machines/sizes/overview).
_AZURE: Final = re.compile(r"(?:standard_)?n[cdgpv]\w*")
#: Machines with a part of an L4 (https://aws.amazon.com/ec2/instance-types/g6/).
_AWS_PARTS: Final = re.compile(r"(?:ml\.)?(?:g6f|gr6f)\.[a-z0-9]+")
#: Machines with a sixth, a third or half of an A10, or a part of an MI25 or V710:
#: https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/nvadsa10v5-series
_AZURE_PARTS: Final = re.compile(
    r"standard_(?:nv(?:6|12|18)adm?s_a10_v5|nv(?:4|8|16)as_v4|nv(?:4|8|12|24)a?dm?s_v710_v5|ng\w+)"
)


def has_gpu(name: str) -> bool:
    """Whether machines of a type have accelerators, by its name on AWS or Azure."""
    said = name.strip().lower()
    return bool(_AWS.fullmatch(said) or _AZURE.fullmatch(said))


def shares_gpu(name: str) -> bool:
    """Whether a machine of a type has a part of a GPU, whose rest is another customer's."""
    said = name.strip().lower()
    return bool(_AWS_PARTS.fullmatch(said) or _AZURE_PARTS.fullmatch(said))
