"""The small business's tier: a model package served from CPU machines or containers."""

from __future__ import annotations

from collections.abc import Mapping

from falaj.stacks.blueprints import foundation
from falaj.stacks.blueprints.cloud import Cloud
from falaj.stacks.settings import SmbSettings

_REPOSITORY = "inference"


def declare(settings: SmbSettings, cloud: Cloud, made_up: Mapping[str, str]) -> None:
    """Register the resources of an inference tier and export its endpoint.

    Args:
        settings: the stack's settings.
        cloud: where it is made.
        made_up: what the sandbox stands in with for things that only a real account has.
    """
    base = foundation.of(settings, settings.foundation, cloud)
    given = {**settings.inference.model_dump(exclude_none=True), **made_up}
    digest = given.pop("image_digest")
    tier = cloud.components.CpuInferenceTier(
        "inference",
        cloud.args(
            **given,
            network_id=base.network_id,
            serving_subnet_ids=base.serving_subnet_ids,
            security_group_id=base.security_group_ids["serving"],
            disk_encryption_id=base.disk_encryption_id,
            data_key_id=base.key_ids["data"],
            log_key_id=base.key_ids["logs"],
            key_identity_id=base.key_identity_id,
            model_bucket_id=base.bucket_ids["models"],
            registry_id=base.registry_id,
            repository_id=base.repository_ids[_REPOSITORY],
            log_destination_id=base.log_destination_id,
            boundary_id=cloud.on("aws", base.boundary_id),
            image=base.repository_urls[_REPOSITORY].apply(lambda url: f"{url}@{digest}"),
        ),
        cloud.options,
    )
    if settings.foundation is None:
        base.export(cloud)
    cloud.export("endpoint", tier.endpoint)
    cloud.export("identityId", tier.identity_id)
    cloud.export("machine", tier.machine)
    cloud.export("costAtMinimum", tier.cost_at_minimum)
    cloud.export("costAtMaximum", tier.cost_at_maximum)
