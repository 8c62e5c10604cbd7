"""Registries, and the images that machines and tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading import images
from falaj.policies.reading.hosts import host_of, may_talk_to
from falaj.policies.reading.place import format_places, is_allowed, place_of
from falaj.policies.reading.service_images import service_images
from falaj.policies.reading.walk import is_document, walk
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.everywhere import CONTROLS

# Container images that leave the region, or are fetched from abroad while workloads run.

_PUBLIC = "aws:ecrpublic/repository:Repository"


@rule(
    "residency-aws-image-replication",
    "Images are replicated within allowed regions",
    Severity.CRITICAL,
    {"aws:ecr/replicationConfiguration:ReplicationConfiguration"},
    CONTROLS,
    "Remove the destination, or give it an allowed region.",
)
def image_replication(resource: Resource, context: Context) -> Iterator[Finding]:
    """The region of every destination."""
    path = "replicationConfiguration.rules.destinations.region"
    yield from destinations.region(resource, context, path, "the destination")


@rule(
    "residency-aws-pull-through-cache",
    "The registry fetches images from allowed registries only",
    Severity.HIGH,
    {"aws:ecr/pullThroughCacheRule:PullThroughCacheRule"},
    ("iso27001:A.5.21", "iso27001:A.5.23", "uae-ia:T6.3.1", "cis-eks:5.1.4"),
    "Mirror the images that are needed into a repository of the region, by digest, or add the "
    "registry to the setting allowedRegistries. A cache tells the registry abroad what runs here, "
    "and lets it decide what runs here.",
)
def pull_through_cache(resource: Resource, context: Context) -> Iterator[Finding]:
    """The registry behind a cache."""
    path = "upstreamRegistryUrl"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "the registry that images come from can't be known")
        return
    host = host_of(value) or text(value).lower()
    listed = any(host == each.partition("/")[0] for each in context.settings.allowed_registries)
    if host and not listed and not may_talk_to(host, context.settings):
        yield violation(path, f"images come from {host}, which is no allowed registry")


@rule(
    "residency-aws-public-registry",
    "No images are published in ECR Public",
    Severity.CRITICAL,
    {_PUBLIC, "aws:ecr/repository:Repository"},
    CONTROLS,
    "Use a private repository (aws.ecr.Repository) of an allowed region.",
)
def public_registry(resource: Resource, context: Context) -> Iterator[Finding]:
    """ECR Public keeps images in us-east-1 and spreads them to edges.

    https://docs.aws.amazon.com/AmazonECR/latest/public/public-registries.html
    """
    if resource.kind == _PUBLIC and resource.custom:
        yield violation("", f"ECR Public is in us-east-1 and at edges; {format_places(context)}")


# Container images outside of Kubernetes: what services run, and where builds are pushed.

_CONTROLS: Final = (*CONTROLS, "iso27001:A.5.21", "cis-eks:5.1.4")
_KEYS: Final = frozenset(("image", "imageuri", "imageidentifier"))
#: Properties that hold containers, by type: where they can't be seen nothing else can.
_RUNS: Final[dict[str, tuple[str, ...]]] = {
    "aws:ecs/taskDefinition:TaskDefinition": ("containerDefinitions",),
    "aws:lambda/function:Function": ("imageUri",),
    "aws:apprunner/service:Service": ("sourceConfiguration",),
    "aws:batch/jobDefinition:JobDefinition": (
        "containerProperties", "ecsProperties", "nodeProperties", "eksProperties",
    ),
    "aws:sagemaker/model:Model": ("primaryContainer", "containers"),
    "aws:codebuild/project:Project": ("environment",),
}  # fmt: skip


#: What makes an image's name, or builds it.
_REGISTRIES: Final = ("aws:ecr/", "azure-native:containerregistry:", "docker:", "docker-build:")


def _where_allowed(context: Context) -> str:
    regions = ", ".join(context.settings.regions("aws"))
    return f"allowed are ECR in {regions} and the setting allowedRegistries"


def _from_own_registry(resource: Resource, context: Context, path: str) -> bool:
    """Whether a value was made from a repository in an allowed region."""
    return any(
        is_allowed(place_of(each, context.stack), context)
        for each in context.referred(resource, path)
        if each.kind.startswith(_REGISTRIES)
    )


@rule(
    "residency-aws-image",
    "Services run images from allowed registries only",
    Severity.HIGH,
    {"aws:*"},
    _CONTROLS,
    "Push the image to a repository (aws.ecr.Repository) of an allowed region and run it from "
    "there, or add the registry to the setting allowedRegistries.",
)
def image(resource: Resource, context: Context) -> Iterator[Finding]:
    """Images in properties and in documents of any service; one without a registry is Docker
    Hub's."""
    tops = _RUNS.get(resource.kind)
    if tops is None:
        for leaf, reference in service_images(resource):
            path = format_path(leaf.path)
            if not is_unknown(reference):
                yield from _judge(reference, path, context)
            elif not _from_own_registry(resource, context, path):
                yield indeterminate(path, f"the image can't be known; {_where_allowed(context)}")
        return
    for leaf in walk(resource):
        if not leaf.path or leaf.path[0] not in tops:
            continue
        path = format_path(leaf.path)
        if is_unknown(leaf.value) and (leaf.key.lower() in _KEYS or leaf.key in tops):
            if not _from_own_registry(resource, context, path):
                yield indeterminate(path, f"the image can't be known; {_where_allowed(context)}")
        elif leaf.key.lower() in _KEYS and not is_document(leaf.value):
            yield from _judge(text(leaf.value), path, context)


#: Microsoft's own registry, of which each region has its copy; it is read only
#: (https://learn.microsoft.com/azure/container-registry/container-registry-client-firewall-rules).
SYSTEM: Final = frozenset(("mcr.microsoft.com",))


@rule(
    "residency-azure-image",
    "Services of Azure run images from allowed registries only",
    Severity.HIGH,
    {"azure-native:*"},
    _CONTROLS,
    "Push the image to a registry of this stack (azure_native.containerregistry.Registry) and run "
    "it from there, or add the registry to the setting allowedRegistries.",
)
def azure_image(resource: Resource, context: Context) -> Iterator[Finding]:
    """Images of container apps and groups, sites, batch pools and machine learning."""
    for leaf, reference in service_images(resource):
        path = format_path(leaf.path)
        if is_unknown(reference):
            if not _from_own_registry(resource, context, path):
                yield indeterminate(path, "the image can't be known")
            continue
        found = images.parse(reference)
        if found.host in SYSTEM or images.is_allowed(found, context.settings):
            continue
        reason = f"the image comes from {found.host}, which is none of allowedRegistries"
        if not found.acr_name:
            yield violation(path, reason)
        elif context.stack is None:
            yield indeterminate(path, f"{reason}, unless this stack makes it")
        elif not images.is_of_stack(found, context.stack):
            yield violation(path, f"{reason}, and this stack doesn't make it")


def _judge(reference: str, path: str, context: Context) -> Iterator[Finding]:
    # CodeBuild's own images, which each region has.
    if (
        not reference
        or reference.startswith("aws/codebuild/")
        or not images.is_plausible(reference)
    ):
        return
    parsed = images.parse(reference)
    if not images.is_allowed(parsed, context.settings):
        yield violation(path, f"the image comes from {parsed.host}; {_where_allowed(context)}")


#: Names that images are pushed under, by type.
_PUSHES: Final[dict[str, tuple[str, ...]]] = {
    "docker:index/image:Image": ("imageName",),
    "docker:index/registryImage:RegistryImage": ("name",),
    "docker-build:index:Image": ("tags", "exports.registry.names", "cacheTo.registry.ref"),
    "docker-build:index:Index": ("tag",),
}


def _is_kept(resource: Resource) -> bool:
    """Whether the image only stays where it is built."""
    if resource.kind == "docker:index/image:Image":
        return is_true(resource.get("skipPush"))
    if resource.kind == "docker-build:index:Index":
        return is_false(resource.get("push"))
    if resource.kind == "docker-build:index:Image":
        push = resource.get("push")
        return (
            not is_unknown(push)
            and not is_true(push)
            and not list(select(resource.properties, "exports"))
        )
    return False


@rule(
    "residency-image-push",
    "Images that are built are pushed to allowed registries only",
    Severity.CRITICAL,
    frozenset(_PUSHES),
    _CONTROLS,
    "Push to a repository of an allowed region: images hold code, and often models and data.",
)
def push(resource: Resource, context: Context) -> Iterator[Finding]:
    """Tags of images that Docker's providers build."""
    if _is_kept(resource):
        return
    for path in _PUSHES[resource.kind]:
        for at, value in select(resource.properties, path):
            if is_unknown(value):
                if not _from_own_registry(resource, context, at):
                    yield indeterminate(at, f"the registry isn't known; {_where_allowed(context)}")
            elif text(value):
                parsed = images.parse(text(value))
                if not images.is_allowed(parsed, context.settings):
                    yield violation(
                        at, f"the image is pushed to {parsed.host}; {_where_allowed(context)}"
                    )


RULES: tuple[Rule, ...] = (
    image_replication,
    pull_through_cache,
    public_registry,
    image,
    azure_image,
    push,
)
