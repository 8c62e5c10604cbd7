"""Images that stay what they were: named by digest, under tags that nobody moves, and scanned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    indeterminate,
    is_true,
    is_unknown,
    rule,
    unmet,
    violation,
)
from falaj.policies.reading.images import PIN, PINNING, parse
from falaj.policies.reading.service_images import service_images
from falaj.policies.reading.types import aws, aws_type

_CONTROLS: Final = ("iso27001:A.8.9", "iso27001:A.8.32", "nist-800-207:5")


@rule(
    "zero-trust-service-image-digest",
    "Services and builds name the images that they run by digest",
    Severity.MEDIUM,
    {"aws:*", "azure-native:*", "docker-build:*"},
    _CONTROLS,
    PIN,
)
def service_image_digest(resource: Resource, context: Context) -> Iterator[Finding]:
    """A tag may be moved to another image at any time; a digest is the image."""
    for leaf, reference in service_images(resource):
        path = format_path(leaf.path)
        if is_unknown(reference):
            if not any(each.kind in PINNING for each in context.referred(resource, path)):
                yield indeterminate(path, "the image's digest can't be known")
        elif not (found := parse(reference)).is_pinned:
            named = (
                f"by the tag {format_value(found.tag)}, which may be moved"
                if found.tag
                else ("by no digest, so that it may be another tomorrow")
            )
            yield violation(path, f"{format_value(reference)} is named {named}")


_REPOSITORY: Final = aws_type("ecr/repository")
_SCANNING: Final = aws_type("ecr/registryScanningConfiguration")
_TAGS: Final = (
    Requirement(
        "imageTagMutability",
        ("IMMUTABLE", "IMMUTABLE_WITH_EXCLUSION"),
        "MUTABLE",
        "https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-tag-mutability.html",
    ),
)


@rule(
    "zero-trust-aws-repository",
    "Repositories keep their tags, and scan what is pushed",
    Severity.MEDIUM,
    aws("ecr/repository"),
    (*_CONTROLS, "iso27001:A.5.21"),
    "Set imageTagMutability to IMMUTABLE and imageScanningConfiguration.scanOnPush to true, or "
    "scan the whole registry (aws.ecr.RegistryScanningConfiguration).",
)
def repository(resource: Resource, context: Context) -> Iterator[Finding]:
    """Both are off by default."""
    yield from unmet(resource, _TAGS)
    path = "imageScanningConfiguration.scanOnPush"
    scans = resource.get(path)
    if is_true(scans):
        return
    if is_unknown(scans):
        yield indeterminate(path, "whether images are scanned can't be known")
    elif context.stack is None:
        yield indeterminate(path, "whether the registry scans images, the whole stack says")
    elif not context.stack.of_kind(_SCANNING):
        yield violation(path, "images aren't scanned when they are pushed; it has to be true")


RULES: tuple[Rule, ...] = (service_image_digest, repository)
