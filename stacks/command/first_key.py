"""The update before others in which Azure's registry is made with a key of its own first.

Azure makes a registry with a key of a vault that is open to the network alone, and lets one that
exists through the firewall of another as itself (`components/azure/registry.py`). So the update
that makes it comes first, with an open vault that holds nothing else, and the next moves it to
the stack's key and takes that vault away: what a preview shows, and what the packs judge, is
that. In the first they judge all but this vault's openness.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from typing import Any, Final

from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.placement import choose
from falaj.stacks.sandbox_guard import FIRST_KEY, STORES
from falaj.stacks.settings import CloudSettings
from falaj.stacks.settings.cloud import FoundationSettings, OwnFoundation
from falaj.wire.documents import mapping

TITLE: Final = "[3/3] the registry, with a key of its own first"
_COMPONENT: Final = "falaj-azure:index:Registry"
_REGISTRY: Final = f"{_COMPONENT}$azure-native:containerregistry:Registry::"
#: What stands on a foundation, by the last part of its type: what stands is never taken down.
_STANDING: Final = frozenset({"Cluster", "CpuInferenceTier"})
#: Rules that are about who reaches a vault.
_RULES: Final = ("zero-trust-azure-public-access",)
_VAULT: Final = f"urn:pulumi:*::*{_COMPONENT}$azure-native:keyvault:Vault::registry-first"


def phase(settings: CloudSettings, pulumi: Pulumi) -> str | None:
    """What the update before others is asked for; None where there is none.

    Args:
        settings: what the stack's file says.
        pulumi: its engine.
    """
    if not _has_its_own(settings) or choose(settings).place.cloud != "azure":
        return None
    resources = pulumi.resources()
    if any(map(_is_moved, resources)):
        return None
    kinds = {str(each.get("type")).rpartition(":")[2] for each in resources}
    return FIRST_KEY if kinds & _STANDING else f"{STORES},{FIRST_KEY}"


def _has_its_own(settings: CloudSettings) -> bool:
    """Whether a stack makes a foundation, and so a registry."""
    if isinstance(settings, FoundationSettings):
        return True
    return isinstance(settings, OwnFoundation) and settings.upstream is None


def _is_moved(resource: Mapping[str, Any]) -> bool:
    """Whether it is the registry, and reads its key as itself.

    The first key is read as an identity that has a client id. Of its own identity it is not
    documented what Azure answers, so that what was asked for counts as well, and a registry that
    holds images never goes back to an open vault because of another word.
    """
    if _REGISTRY not in str(resource.get("urn")) or resource.get("delete"):
        return False
    return any(map(_reads_as_itself, (resource.get("inputs"), resource.get("outputs"))))


def _reads_as_itself(account: Any) -> bool:
    key = mapping(mapping(mapping(account).get("encryption")).get("keyVaultProperties"))
    return bool(key) and not _is_client_id(str(key.get("identity")))


def _is_client_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def waivers(today: datetime.date | None = None) -> list[dict[str, Any]]:
    """What the first update is allowed beside what the project's own waivers allow.

    Args:
        today: the day of the update. Default: today, in UTC.
    """
    day = today or datetime.datetime.now(datetime.UTC).date()
    return [
        {
            "id": f"first-key-{number}",
            "rule": rule,
            "urn": _VAULT,
            "reason": "Azure makes a registry with a key of an open vault only; this one holds "
            "nothing else, and goes with the next update",
            "approver": "falaj up",
            "expires": day + datetime.timedelta(days=1),
        }
        for number, rule in enumerate(_RULES, start=1)
    ]
