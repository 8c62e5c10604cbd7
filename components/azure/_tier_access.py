"""What an inference tier may read, where it finds it, and the private name it is called by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.azure._ids import resource_id
from falaj.components.azure._roles import Grant, grant
from falaj.components.azure.serving.cloud_init import FOLDER, SECRETS
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
    is_by_digest,
)

_CONTAINER = "Microsoft.Storage/storageAccounts/blobServices/containers"
_SECRET = "Microsoft.KeyVault/vaults/secrets"  # noqa: S105 - a kind of resource
_REGISTRY = "Microsoft.ContainerRegistry/registries"


@dataclass(frozen=True)
class Access:
    """The tier's identity, and what it was given."""

    identity: azure_native.managedidentity.UserAssignedIdentity
    grants: list[pulumi.Resource]


def give_access(
    name: str,
    args: CpuInferenceTierArgs,
    group: azure_native.resources.ResourceGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Access:
    """Make the tier's identity: it pulls images, reads the models' container and two secrets."""
    identity = azure_native.managedidentity.UserAssignedIdentity(
        name,
        resource_group_name=group.name,
        resource_name_=group.name,
        location=group.location,
        tags=dict(tags),
        opts=opts,
    )
    who = identity.principal_id
    wanted = {
        "images": Grant("AcrPull", args["registry_id"], who),
        "models": Grant("Storage Blob Data Reader", args["model_bucket_id"], who),
        "keyring": Grant("Key Vault Secrets User", args.get("keyring_secret_id", ""), who),
        "certificate": Grant("Key Vault Secrets User", args.get("certificate_id", ""), who),
    }
    return Access(
        identity, [grant(f"{name}-{purpose}", what, opts) for purpose, what in wanted.items()]
    )


def serving_settings(
    args: CpuInferenceTierArgs,
    spec: CpuInferenceTierSpec,
    client: pulumi.Input[str],
    *,
    workers: int,
) -> pulumi.Output[dict[str, Any]]:
    """What `start_server.py` reads; no secrets, only where they are."""
    found = pulumi.Output.all(
        client=client,
        package=pulumi.Output.from_input(args["model_bucket_id"]).apply(
            lambda text: f"{container_url(text)}/{spec.args['model_package']}"
        ),
        keyring=pulumi.Output.from_input(args.get("keyring_secret_id", "")).apply(secret_url),
        certificate=pulumi.Output.from_input(args.get("certificate_id", "")).apply(secret_url),
    )
    return found.apply(
        lambda known: {
            **known,
            "model": spec.model,
            "version": spec.version,
            "folder": FOLDER,
            "secrets": SECRETS[spec.args["mode"]],
            "port": spec.port,
            "host_name": spec.host_name,
            "workers": workers,
        }
    )


def container_url(text: str) -> str:
    """Address of a container, out of its resource id."""
    found = resource_id(text, _CONTAINER)
    return f"https://{found.names[0]}.blob.core.windows.net/{found.name}"


def secret_url(text: str) -> str:
    """Address of a secret's current version, out of its resource id."""
    found = resource_id(text, _SECRET)
    return f"https://{found.names[0]}.vault.azure.net/secrets/{found.name}"


def image_by_digest(image: pulumi.Input[str]) -> pulumi.Output[str]:
    """The image, which must be named by its digest also where that is known only now."""
    return pulumi.Output.from_input(image).apply(_by_digest)


def _by_digest(image: str) -> str:
    if not is_by_digest(image):
        raise ValueError(
            f"image: given {image!r}; allowed: an image of the registry by digest, "
            "host/name@sha256:…; a tag can be moved to another image"
        )
    return image


def registry_host(args: CpuInferenceTierArgs) -> pulumi.Output[str]:
    """Address of the registry, out of its resource id."""
    return pulumi.Output.from_input(args["registry_id"]).apply(
        lambda text: f"{resource_id(text, _REGISTRY).name.lower()}.azurecr.io"
    )


def give_name(
    name: str,
    args: CpuInferenceTierArgs,
    host_name: str,
    address: pulumi.Input[str],
    *,
    group: azure_native.resources.ResourceGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Let the network find the tier by its name: a zone of that one name, so that no other name
    below the same domain is touched. Private zones have no region; their content stays the
    tenant's."""
    zone = azure_native.privatedns.PrivateZone(
        name,
        resource_group_name=group.name,
        private_zone_name=host_name,
        location="global",
        tags=dict(tags),
        opts=opts,
    )
    azure_native.privatedns.VirtualNetworkLink(
        name,
        resource_group_name=group.name,
        private_zone_name=zone.name,
        virtual_network_link_name="network",
        location="global",
        registration_enabled=False,
        virtual_network=azure_native.privatedns.SubResourceArgs(id=args["network_id"]),
        tags=dict(tags),
        opts=opts,
    )
    azure_native.privatedns.PrivateRecordSet(
        name,
        resource_group_name=group.name,
        private_zone_name=zone.name,
        record_type="A",
        relative_record_set_name="@",
        ttl=60,
        a_records=[azure_native.privatedns.ARecordArgs(ipv4_address=address)],
        opts=opts,
    )
