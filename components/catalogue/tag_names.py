"""Names and values of Falaj's tags, as each cloud takes them.

Azure's resource manager takes a colon in a name, and private DNS zones, their links and records
drop such tags without a word, so that every update would set them again
(https://github.com/Azure/azure-rest-api-specs/issues/11748). They take no spaces, parentheses or
leading digits either: https://learn.microsoft.com/azure/azure-resource-manager/management/
tag-resources#limitations
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DATA_CLASSES: Final = ("public", "internal", "confidential", "restricted")
"""How much harm it does if somebody else reads the data, from none upwards."""
ENVIRONMENTS: Final = ("development", "test", "production")
TAGS: Final[Mapping[str, str]] = {
    "owner": "owner",
    "tenant": "tenant",
    "data-class": "dataClass",
    "cost-center": "costCenter",
    "environment": "environment",
}
"""Falaj's tags, without its name, that everything carries; and the stack's key of each."""
#: Between ``falaj`` and the rest of the name.
_SIGNS: Final = {"aws": ":", "azure": "-"}


def tag_name(cloud: str, name: str) -> str:
    """The name of a tag of Falaj's own: ``falaj:owner`` on AWS, ``falaj-owner`` on Azure.

    Args:
        cloud: ``aws`` or ``azure``.
        name: what follows ``falaj``, such as ``owner``.
    """
    return f"falaj{_SIGNS[cloud]}{name}"


def tag_names(name: str) -> tuple[str, ...]:
    """The names of a tag in every cloud, for who reads tags of any."""
    return tuple(tag_name(cloud, name) for cloud in _SIGNS)
