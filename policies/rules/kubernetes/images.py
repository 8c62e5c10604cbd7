"""Images: from registries inside the country, and by digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.image_uses import ImageUse, image_uses
from falaj.policies.reading.images import Image, is_allowed, parse
from falaj.policies.reading.kubernetes import ANY_OBJECT, Manifest, manifests

_REGISTRIES: Final = (
    "aws:ecr/repository:Repository",
    "awsx:ecr:Repository",
    "azure-native:containerregistry:Registry",
)
#: Builds of images, by programs that deploy them.
_BUILDS: Final = ("docker-build:index:Image", "docker:index/image:Image", "awsx:ecr:Image")
#: Those whose answer is a reference with its digest
#: (https://www.pulumi.com/registry/packages/docker-build/api-docs/image/#outputs).
_PINNING: Final = ("docker-build:index:Image", "awsx:ecr:Image")


@rule(
    "kubernetes-image-registry",
    "Images come from registries of the allowed regions",
    Severity.HIGH,
    ANY_OBJECT,
    ("cis-eks:5.1.4", "cis-aks:5.1.4", "iso27001:A.5.21", "iso27001:A.8.9", "uae-ia:T6.3.1"),
    "Copy the image into a registry of an allowed region, or name its registry in "
    "allowedRegistries.",
)
def image_registry(resource: Resource, context: Context) -> Iterator[Finding]:
    """Every image, of every list of containers, volume, chart and operator."""
    uses = image_uses(resource)
    hidden = [each for each in uses if is_unknown(each.reference)]
    made_here = [each for each in _made_of(resource, context) if _holds_images(each, context)]
    for use in uses:
        if is_unknown(use.reference):
            # The engine records what all of the spec was made from, not which image: as many
            # repositories as images are needed for all of them to be accounted for.
            if len(hidden) > len(made_here):
                yield use.indeterminate(f"the image {use.reference.reason}")
            continue
        if not text(use.reference):
            yield use.violation("the image is empty or no text; an allowed registry is needed")
            continue
        yield from _judge(use, parse(use.reference), resource, context)
    for manifest in manifests(resource):
        yield from _kaito(manifest)


def _judge(use: ImageUse, image: Image, resource: Resource, context: Context) -> Iterator[Finding]:
    if is_allowed(image, context.settings):
        return
    allowed = ", ".join(
        [f"*.dkr.ecr.{each}.amazonaws.com" for each in context.settings.regions("aws")]
        + list(context.settings.allowed_registries)
    )
    if image.acr_name:
        if context.stack is None:
            yield use.indeterminate(f"where {image.host} is isn't said by its name")
        elif not _is_of_stack(image, context):
            yield use.violation(
                f"where {image.host} is can't be told: this stack doesn't make it, and it isn't "
                "one of allowedRegistries"
            )
        return
    host = image.host
    where = f" in {image.ecr_region}" if image.ecr_region else ""
    yield use.violation(
        f"the image {format_value(use.reference)} comes from {host}{where}; allowed are {allowed}"
    )


def _is_of_stack(image: Image, context: Context) -> bool:
    registries = (
        context.stack.of_kind("azure-native:containerregistry:Registry") if context.stack else []
    )
    return any(
        image.host == text(get(each.outputs, "loginServer")).lower()
        or image.acr_name
        in (text(each.get("registryName")).lower(), text(get(each.outputs, "name")).lower())
        for each in registries
    )


def _made_of(resource: Resource, context: Context) -> list[Resource]:
    """The resources of this stack that unknown values were made from."""
    if context.stack is None:
        return []
    urns = {urn for found in resource.dependencies.values() for urn in found}
    return [context.stack.by_urn[urn] for urn in sorted(urns) if urn in context.stack.by_urn]


def _holds_images(resource: Resource, context: Context) -> bool:
    """Whether it is a registry, which has rules of its own, or a build that goes to an allowed
    one."""
    names = [
        text(each)
        for key in ("tags", "imageName", "repositoryUrl")
        for each in items(resource.get(key))
        if resource.kind in _BUILDS
    ]
    return resource.kind in _REGISTRIES or (
        bool(names) and all(is_allowed(parse(each), context.settings) for each in names)
    )


def _kaito(manifest: Manifest) -> Iterator[Finding]:
    if not manifest.group.endswith("kaito.sh"):
        return
    for task in ("inference", "tuning"):
        path = f"{task}.preset.name"
        name = manifest.get(path)
        if is_unknown(name):
            yield manifest.indeterminate(path, f"the preset, and with it its image, {name.reason}")
        elif text(name):
            yield manifest.violation(
                path,
                f"the preset {format_value(name)} is pulled from mcr.microsoft.com; use a "
                "template with "
                "an image of an allowed registry",
            )


@rule(
    "kubernetes-image-digest",
    "Images are named by their digest",
    Severity.MEDIUM,
    ANY_OBJECT,
    ("iso27001:A.8.9", "iso27001:A.8.32", "cis-eks:5.1.4", "cis-aks:5.1.4", "nist-800-207:5"),
    "Append the digest of the image: REGISTRY/NAME@sha256:…; a tag before it is for people only.",
)
def image_digest(resource: Resource, context: Context) -> Iterator[Finding]:
    """A tag may be moved to another image at any time; a digest is the image."""
    uses = [each for each in image_uses(resource) if not each.is_registry]
    hidden = [each for each in uses if is_unknown(each.reference)]
    pinned = [each for each in _made_of(resource, context) if each.kind in _PINNING]
    for use in uses:
        if is_unknown(use.reference) and len(hidden) <= len(pinned):
            continue
        if is_unknown(use.reference):
            yield use.indeterminate(f"the image {use.reference.reason}, its digest included")
            continue
        image = parse(text(use.reference))
        if image.is_pinned:
            continue
        if image.digest:
            what = "its digest isn't one: sha256: and 64 hexadecimal digits are needed"
        elif image.tag:
            what = f"it is named by the tag {format_value(image.tag)}, which may be moved"
        else:
            what = "it is named by no digest, so that it may be another tomorrow"
        yield use.violation(f"{format_value(use.reference)}: {what}", digest=True)


RULES: tuple[Rule, ...] = (image_registry, image_digest)
