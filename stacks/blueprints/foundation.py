"""What everything else stands on: keys, network, storage, registry, audit trail and identities."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pulumi

from falaj.components.specification.property_names import camel
from falaj.stacks.blueprints.cloud import Cloud, first
from falaj.stacks.settings.foundation import OwnFoundation

_OPTIONAL = ("key_identity_id", "boundary_id")


@dataclass(frozen=True)
class Foundation:
    """What other blueprints need of a foundation, made in this stack or in another."""

    key_ring_id: pulumi.Output[str]
    key_ids: pulumi.Output[dict[str, str]]
    key_identity_id: pulumi.Output[str | None]
    disk_encryption_id: pulumi.Output[str]
    network_id: pulumi.Output[str]
    node_subnet_ids: pulumi.Output[dict[str, str]]
    endpoint_subnet_ids: pulumi.Output[dict[str, str]]
    storage_subnet_ids: pulumi.Output[dict[str, str]]
    serving_subnet_ids: pulumi.Output[dict[str, str]]
    security_group_ids: pulumi.Output[dict[str, str]]
    bucket_names: pulumi.Output[dict[str, str]]
    bucket_ids: pulumi.Output[dict[str, str]]
    store_ids: pulumi.Output[dict[str, str]]
    registry_id: pulumi.Output[str]
    registry_host: pulumi.Output[str]
    repository_urls: pulumi.Output[dict[str, str]]
    repository_ids: pulumi.Output[dict[str, str]]
    log_destination_id: pulumi.Output[str]
    boundary_id: pulumi.Output[str | None]

    def export(self, cloud: Cloud) -> None:
        """Make everything an output of the stack, for stacks that refer to it."""
        for field in fields(self):
            cloud.export(camel(field.name), getattr(self, field.name))


def make(settings: OwnFoundation, cloud: Cloud) -> Foundation:
    """Make a foundation in this stack."""
    parts, options = cloud.components, cloud.options
    keys = parts.KeyRing("keys", cloud.args(settings.keys), options)
    network = parts.Network(
        "network",
        cloud.args(
            settings.network,
            log_key_id=keys.key_ids["logs"],
            key_identity_id=keys.key_identity_id,
            key_ring_id=keys.key_ring_id,
        ),
        options,
    )
    reached_from = {
        "network_id": network.network_id,
        "endpoint_subnet_id": first(network.endpoint_subnet_ids),
    }
    store = parts.ObjectStore(
        "store",
        cloud.args(
            settings.storage,
            data_key_id=keys.key_ids["data"],
            log_key_id=keys.key_ids["logs"],
            state_key_id=keys.key_ids["state"],
            key_identity_id=keys.key_identity_id,
            **reached_from,
        ),
        options,
    )
    trail = parts.AuditTrail(
        "audit",
        cloud.args(
            settings.audit,
            log_key_id=keys.key_ids["logs"],
            key_identity_id=keys.key_identity_id,
            key_ring_id=keys.key_ring_id,
            audit_bucket_name=store.bucket_names["audit"],
            audit_store_id=store.store_ids["audit"],
            data_store_id=cloud.on("azure", store.store_ids["datasets"]),
            **reached_from,
        ),
        options,
    )
    registry = parts.Registry(
        "registry",
        cloud.args(
            settings.registry,
            registry_key_id=keys.key_ids["registry"],
            key_identity_id=keys.key_identity_id,
            log_destination_id=trail.log_destination_id,
            **reached_from,
        ),
        options,
    )
    identity = parts.Identity(
        "identity",
        cloud.args(
            settings.identity,
            bucket_ids=store.bucket_ids,
            repository_ids=registry.repository_ids,
            key_ids=keys.key_ids,
            key_ring_id=cloud.on("azure", keys.key_ring_id),
        ),
        options,
    )
    if settings.budget is not None:
        told = {"emails": [settings.owner], **cloud.args(settings.budget)}
        parts.Budget("budget", told, options)
    return Foundation(
        key_ring_id=keys.key_ring_id,
        key_ids=keys.key_ids,
        key_identity_id=keys.key_identity_id,
        disk_encryption_id=keys.disk_encryption_id,
        network_id=network.network_id,
        node_subnet_ids=network.node_subnet_ids,
        endpoint_subnet_ids=network.endpoint_subnet_ids,
        storage_subnet_ids=network.storage_subnet_ids,
        serving_subnet_ids=network.serving_subnet_ids,
        security_group_ids=network.security_group_ids,
        bucket_names=store.bucket_names,
        bucket_ids=store.bucket_ids,
        store_ids=store.store_ids,
        registry_id=registry.registry_id,
        registry_host=registry.registry_host,
        repository_urls=registry.repository_urls,
        repository_ids=registry.repository_ids,
        log_destination_id=trail.log_destination_id,
        boundary_id=identity.boundary_id,
    )


def refer(stack: str, cloud: Cloud) -> Foundation:
    """Take the foundation of another stack of this project, which must be in the same place.

    Raises:
        pulumi.RunError: (in an output) the other stack is elsewhere.
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"
    other = pulumi.StackReference(name)
    here = cloud.place.name
    elsewhere = other.require_output("place").apply(lambda there: _same_place(stack, there, here))

    def output(key: str) -> pulumi.Output[Any]:
        found = other.get_output(key) if key in optional else other.require_output(key)
        return pulumi.Output.all(found, elsewhere).apply(lambda both: both[0])

    optional = {camel(key) for key in _OPTIONAL}
    return Foundation(**{field.name: output(camel(field.name)) for field in fields(Foundation)})


def of(settings: OwnFoundation, stack: str | None, cloud: Cloud) -> Foundation:
    """The foundation that a stack stands on: another stack's where it names one, else its own."""
    if stack and cloud.unknown is not None:
        return Foundation(**{field.name: cloud.unknown for field in fields(Foundation)})
    return refer(stack, cloud) if stack else make(settings, cloud)


def declare(settings: OwnFoundation, cloud: Cloud) -> None:
    """Register the resources of a foundation stack and export what others need."""
    make(settings, cloud).export(cloud)


def _same_place(stack: str, there: str, here: str) -> str:
    if there != here:
        raise pulumi.RunError(
            f"falaj:foundation: stack {stack} is in {there}, this one in {here}; allowed: a "
            "foundation in the same place\n  choose another foundation, or the same region"
        )
    return there
