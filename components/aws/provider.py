"""The provider of one AWS region of the country."""

from typing import Any, cast

import pulumi
import pulumi_aws as aws

from falaj.components.specification.provider import RegionProviderArgs, check

__all__ = ["RegionProvider", "RegionProviderArgs"]


class RegionProvider(aws.Provider):
    """A provider that deploys into one region of the country, and into none abroad.

    It leaves every check of the vendor's provider on, talks to the region's own STS, and may be
    limited to one account. Pass it to components: ``providers=[RegionProvider(…)]``.

    >>> provider = RegionProvider("uae", {"region": "me-central-1"})
    """

    def __init__(
        self, name: str, args: RegionProviderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Make the provider.

        Raises:
            pulumi.InputPropertyError: the region isn't in the country, or the account's number
                isn't one.
        """
        spec = check("aws", args)
        args_of_sdk = aws.ProviderArgs(
            region=spec.region,
            sts_region=spec.region,
            allowed_account_ids=[spec.account_id] if spec.account_id else None,
        )
        # The SDK's constructor has a parameter without a type.
        cast("Any", super()).__init__(name, args_of_sdk, opts)
