"""Container images that leave the region, or are fetched from abroad while workloads run."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.reading.hosts import host_of, may_talk_to
from falaj.policies.reading.place import places_said
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS

_PUBLIC = "aws:ecrpublic/repository:Repository"


@rule(
    "residency-aws-image-replication",
    "Images are replicated within allowed regions",
    Severity.CRITICAL,
    {"aws:ecr/replicationConfiguration:ReplicationConfiguration"},
    CONTROLS,
    "Remove the destination, or give it an allowed region.",
)
def image_replication(resource: Resource, view: View) -> Iterator[Finding]:
    """The region of every destination."""
    destinations = "replicationConfiguration.rules.destinations"
    yield from aws_targets.region(resource, view, f"{destinations}.region", "the destination")


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
def pull_through_cache(resource: Resource, view: View) -> Iterator[Finding]:
    """The registry behind a cache."""
    path = "upstreamRegistryUrl"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "the registry that images come from can't be known")
        return
    host = host_of(value) or text(value).lower()
    listed = any(host == each.partition("/")[0] for each in view.settings.allowed_registries)
    if host and not listed and not may_talk_to(host, view.settings):
        yield violation(path, f"images come from {host}, which is no allowed registry")


@rule(
    "residency-aws-public-registry",
    "No images are published in ECR Public",
    Severity.CRITICAL,
    {_PUBLIC, "aws:ecr/repository:Repository"},
    CONTROLS,
    "Use a private repository (aws.ecr.Repository) of an allowed region.",
)
def public_registry(resource: Resource, view: View) -> Iterator[Finding]:
    """ECR Public keeps images in us-east-1 and spreads them to edges.

    https://docs.aws.amazon.com/AmazonECR/latest/public/public-registries.html
    """
    if resource.kind == _PUBLIC and resource.custom:
        yield violation("", f"ECR Public is in us-east-1 and at edges; {places_said(view)}")


RULES: tuple[Rule, ...] = (image_replication, pull_through_cache, public_registry)
