"""The provider of one AWS region of the country."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from components import catalogue


class RegionProvider(aws.Provider):
    """A provider that deploys into one region of the country, and into none abroad.

    It leaves every check of the vendor's provider on, talks to the region's own STS, and may be
    limited to accounts. Pass it to components: ``providers=[RegionProvider(…)]``.

    >>> provider = RegionProvider("uae", "me-central-1", allowed_account_ids=["000000000000"])
    """

    def __init__(
        self,
        name: str,
        region: str,
        allowed_account_ids: Sequence[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Make the provider.

        Args:
            name: its name in the stack.
            region: ``me-central-1``.
            allowed_account_ids: accounts that may be deployed into, 12 digits each. Default: that
                of the credentials, whichever it is.
            opts: options of the resource.

        Raises:
            pulumi.InputPropertyError: the region isn't in the country, or an account's number
                isn't one.
        """
        try:
            place = catalogue.place("aws", region)
        except catalogue.CatalogueError as error:
            raise pulumi.InputPropertyError("region", str(error)) from None
        for account in allowed_account_ids:
            if len(account) != 12 or not account.isdecimal():
                raise pulumi.InputPropertyError(
                    "allowed_account_ids",
                    f"given {account!r}; allowed: 12 digits, such as '000000000000'",
                )
        super().__init__(
            name,
            region=place.region,
            sts_region=place.region,
            allowed_account_ids=list(allowed_account_ids) or None,
            opts=opts,
        )
