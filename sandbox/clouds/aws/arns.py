"""Where a resource is: its account, region and partition, and ARNs made from them."""

from __future__ import annotations

from typing import Final

from falaj.sandbox.clouds.aws.regions import partition_of
from falaj.sandbox.clouds.inputs import Inputs
from falaj.wire import Unknown

ACCOUNT: Final = "000000000000"
"""The sandbox's account: twelve digits as AWS has them, and nobody's."""


def region_of(inputs: Inputs) -> str:
    """The resource's own region, else the provider's; empty when neither is known."""
    for source in (inputs.values, inputs.config):
        region = source.get("region")
        if isinstance(region, str):
            return region
        if isinstance(region, Unknown):
            return ""
    return ""


def partition(inputs: Inputs) -> str:
    """``aws``, ``aws-cn`` and so on, by the region."""
    return partition_of(region_of(inputs))


def arn_of(
    inputs: Inputs, service: str, resource: str, *, regional: bool = True, owned: bool = True
) -> str:
    """The ARN of something in the sandbox's account."""
    region = region_of(inputs) if regional else ""
    account = ACCOUNT if owned else ""
    return f"arn:{partition(inputs)}:{service}:{region}:{account}:{resource}"
