"""The provider that every component of a stack uses: pinned to one region of the country."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_azure_native as azure_native

from components import catalogue


class RegionProviderArgs(TypedDict):
    """Arguments of `RegionProvider`."""

    region: str
    """Region in the country: ``uaenorth`` or ``uaecentral``."""
    account_id: NotRequired[str]
    """Subscription that alone may be used. Default: the one that the credentials lead to."""


class RegionProvider(azure_native.Provider):
    """The Azure provider, pinned to a region of the country.

    Components hand it to their resources; default providers are switched off in the stacks, so
    nothing is made by another. Each resource names its location besides, where rules can see it.

    Example:
        ``provider = RegionProvider("azure", {"region": "uaenorth"})``
    """

    def __init__(
        self, name: str, args: RegionProviderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Make the provider.

        Raises:
            components.catalogue.PlaceError: the region isn't one of the country's.
        """
        place = catalogue.place("azure", args["region"])
        super().__init__(
            name,
            location=place.region,
            subscription_id=args.get("account_id"),
            environment="public",
            # Usage reports to the vendor's partner centre: nothing leaves without being asked for.
            disable_pulumi_partner_id=True,
            opts=opts,
        )
