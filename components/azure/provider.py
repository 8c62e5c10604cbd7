"""The provider that every component of a stack uses: pinned to one region of the country."""

from typing import Any, cast

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.specification.provider import RegionProviderArgs, check

__all__ = ["RegionProvider", "RegionProviderArgs"]


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
            pulumi.InputPropertyError: the region isn't in the country, or the subscription's id
                isn't one.
        """
        spec = check("azure", args)
        args_of_sdk = azure_native.ProviderArgs(
            location=spec.region,
            subscription_id=spec.account_id,
            environment="public",
            # Usage reports to the vendor's partner centre: nothing leaves without being asked for.
            disable_pulumi_partner_id=True,
        )
        # The SDK's constructor has a parameter without a type.
        cast("Any", super()).__init__(name, args_of_sdk, opts)
