"""Arguments of `Registry`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi
from annotated_types import Len

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, ByCloud, TextRule
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed

REPOSITORIES = ("training", "inference", "platform")
PREFIXES = {"public.ecr.aws": "ecr-public", "quay.io": "quay", "registry.k8s.io": "k8s"}
"""Registries that both clouds' can pull through, and what repositories of their images begin with
on AWS; ECR takes 30 characters."""
#: Registries that each cloud's registry can pull through without credentials of ours:
#: https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache.html;
#: https://learn.microsoft.com/azure/container-registry/artifact-cache-overview
UPSTREAMS = ByCloud.of(
    {
        "aws": tuple(PREFIXES),
        "azure": ("mcr.microsoft.com", "gcr.io", "ghcr.io", *PREFIXES),
    },
    otherwise="others need credentials or can't be pulled through: copy their images into a "
    "repository of your own",
)
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
#: The stricter of both clouds' rules is ECR's: https://docs.aws.amazon.com/AmazonECR/latest/
#: APIReference/API_CreateRepository.html
REPOSITORY = TextRule(
    rf"^(?=.{{2,128}}$){_PART}(?:/{_PART})*$",
    "2 to 128 lower-case letters and digits, with single '.', '_', '-' and '/' between them",
    "training",
)
KEEP_IMAGES = Between(1, 10_000)


@described
class RegistryArgs(PlacedArgs):
    """Arguments of `Registry`."""

    registry_key_id: pulumi.Input[str]
    """Key of the images: ``KeyRing.key_ids["registry"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``. Needed on Azure."""
    first_key: NotRequired[Annotated[bool, Default(value=False)]]
    """Make the registry with a key in a vault of its own that is open to the network: Azure takes
    ``registry_key_id`` only for a registry that is there. The next update, without this, moves it
    to ``registry_key_id`` and takes that vault away. `falaj up` does both. Azure only."""
    network_id: NotRequired[pulumi.Input[str]]
    """``Network.network_id``. Needed on Azure."""
    endpoint_subnet_id: NotRequired[pulumi.Input[str]]
    """Subnet of the registry's private endpoint. Needed on Azure; AWS reaches it through the
    network's endpoints."""
    repositories: NotRequired[
        Annotated[list[Annotated[str, REPOSITORY]], Len(1), Default(REPOSITORIES)]
    ]
    """Repositories to make."""
    upstreams: NotRequired[list[Annotated[str, UPSTREAMS]]]
    """Registries that may be pulled through. Default: none."""
    keep_images: NotRequired[Annotated[int, KEEP_IMAGES, Default(100)]]
    """Newest images that are kept in each repository; of models (``models/…``) all are. AWS only:
    Azure removes what has had no tag for 30 days."""
    quarantine: NotRequired[Annotated[bool, Default(value=False)]]
    """Images can't be pulled until a scanner has released them; nodes start from images that come
    through the cache, which no scanner releases. Azure only; AWS scans on push."""
    log_destination_id: NotRequired[pulumi.Input[str]]
    """``AuditTrail.log_destination_id``, for the registry's own log. Azure only. Default: none."""


@dataclass(frozen=True, kw_only=True)
class RegistrySpec:
    """The plain arguments of `Registry`, checked."""

    placed: Placed
    repositories: tuple[str, ...]
    upstreams: tuple[str, ...]
    keep_images: int
    """AWS only."""
    quarantine: bool
    """Azure only."""
    first_key: bool
    """Azure only."""


def check(cloud: str, name: str, args: RegistryArgs) -> RegistrySpec:
    """Check what is plain in the arguments of `Registry`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Registry {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, RegistryArgs, cloud)
    placed = check_placed(cloud, given, errors)
    keep: int = checked["keep_images"]
    if checked["quarantine"] and cloud == "aws":
        errors.say("quarantine", "given True; ECR has none: leave it out, or choose Azure")
    if checked["first_key"] and cloud == "aws":
        errors.say("first_key", "given True; ECR takes the key at once: leave it out on AWS")
    if cloud == "azure":
        if given.get("keep_images") is not None:
            errors.say(
                "keep_images",
                f"given {keep}; Azure's registry counts no images, and removes what has had no "
                "tag for 30 days: leave it out on Azure",
            )
        needed = ("key_identity_id", "key_ring_id", "network_id", "endpoint_subnet_id")
        errors.needed(given, needed, "on Azure")
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return RegistrySpec(
        placed=placed,
        repositories=checked["repositories"],
        upstreams=checked["upstreams"] or (),
        keep_images=keep,
        quarantine=checked["quarantine"],
        first_key=checked["first_key"],
    )
