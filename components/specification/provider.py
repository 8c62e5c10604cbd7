"""Arguments of `RegionProvider`: one region of the country, and the account that may be used."""

import re
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi

from falaj.components import catalogue
from falaj.components.specification.described import described
from falaj.components.specification.limits import UUID

#: What an account is called and looks like, by cloud.
_ACCOUNTS = {
    "aws": (r"^\d{12}$", "an account's 12 digits, such as '111122223333'"),
    "azure": (UUID.pattern, "a subscription's id, a UUID"),
}


@described
class RegionProviderArgs(TypedDict):
    """Arguments of `RegionProvider`."""

    region: str
    """Region in the country: ``me-central-1``, ``uaenorth`` or ``uaecentral``."""
    account_id: NotRequired[str]
    """Account (AWS) or subscription (Azure) that alone may be deployed into. Default: the one
    that the credentials lead to, whichever it is."""


@dataclass(frozen=True)
class RegionProviderSpec:
    """The arguments, checked."""

    region: str
    account_id: str | None


def check(cloud: str, args: RegionProviderArgs) -> RegionProviderSpec:
    """Check a provider's arguments.

    Raises:
        pulumi.InputPropertyError: the region isn't in the country, or the account's id isn't one.
    """
    try:
        place = catalogue.place(cloud, args["region"])
    except catalogue.CatalogueError as error:
        raise pulumi.InputPropertyError("region", str(error)) from None
    account = args.get("account_id")
    pattern, allowed = _ACCOUNTS[cloud]
    if account is not None and not re.match(pattern, account):
        raise pulumi.InputPropertyError(
            "account_id", f"given {account!r}; allowed: {allowed}; or leave it out"
        )
    return RegionProviderSpec(place.region, account)
