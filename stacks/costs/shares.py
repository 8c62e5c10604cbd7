"""Shares of Azure's storage accounts: premium ones are billed by their size, others by use.

https://learn.microsoft.com/azure/storage/files/understanding-billing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import Resource, Stack, text
from falaj.policies.reading.types import azure
from falaj.stacks.costs.amounts import Amount, by_use, exactly, known, number
from falaj.stacks.costs.billing import Charge
from falaj.stacks.costs.machines import GIB_MONTH, Reader

_ACCOUNTS: Final = "azure-native:storage:StorageAccount"
_SERVICE: Final = "Azure Files"


def _share(resource: Resource, stack: Stack) -> Iterator[Charge]:
    name = text(resource.get("accountName")).lower()
    accounts = [
        each
        for each in stack.of_kind(_ACCOUNTS)
        if name and text(each.get("accountName")).lower() == name
    ] or [each for each in stack.referred(resource, "accountName") if each.kind == _ACCOUNTS]
    kind = text(accounts[0].get("kind")) if accounts else ""
    variant = tuple(filter(None, (text(resource.get("enabledProtocols")), kind)))
    quota = number(resource.get("shareQuota"))
    if not kind:
        # Of an account that isn't in the stack: nothing is sure but what it can't exceed.
        amount = Amount(known(0), quota)
    else:
        amount = exactly(quota) if kind == "FileStorage" else by_use()
    yield Charge(resource, _SERVICE, "share", GIB_MONTH, amount, variant)


READERS: Final[Mapping[str, Reader]] = dict.fromkeys(azure("storage:FileShare"), _share)
