"""What a cloud keeps of a stack that is taken down, since it takes no request to delete it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from falaj.wire.documents import mapping

_PLAN: Final = "azure-native:security:Pricing"
_KEYS: Final = re.compile(r"/(?:vaults|managedHSMs)/[^/]+/keys/[^/]+$", re.IGNORECASE)
_TELLS: Final = {
    "key": (
        "keys stay in their vault and go with it: Azure deletes none from outside of the vault's "
        "network. A deleted vault keeps its name and its keys for its window (az keyvault "
        "list-deleted), and gives both back: az keyvault recover --name VAULT"
    ),
    "plan": (
        "Defender's plans stay on, and are billed: Azure deletes none. Other stacks of the "
        "subscription may rely on them; where none does, for each of them: az security pricing "
        "create --name PLAN --tier free"
    ),
}


def remains(resource: Mapping[str, Any]) -> str | None:
    """Whether a resource can't be deleted by itself: ``key``, ``plan`` or None.

    Args:
        resource: as a stack's state holds it.
    """
    kind, id = str(resource.get("type", "")), str(resource.get("id", ""))
    if kind == _PLAN:
        return "plan"
    return "key" if kind.startswith("azure-native:") and _KEYS.search(id) else None


def notices(resources: Iterable[Mapping[str, Any]]) -> list[str]:
    """What to say of a destroyed stack: what is left, and what ends it.

    Args:
        resources: as the stack's state held them before.
    """
    found = {
        remains(each)
        for each in resources
        if mapping(each.get("inputs")).get("pricingTier") != "Free"
    }
    return [text for what, text in _TELLS.items() if what in found]
