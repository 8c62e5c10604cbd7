"""Images: from registries inside the country, and by digest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    Context,
    Finding,
    Path,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    is_list,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.images import (
    PIN,
    PINNING,
    Image,
    is_allowed,
    is_of_stack,
    is_plausible,
    parse,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT, Manifest, is_bundle, is_object, manifests
from falaj.policies.reading.pods import NOT_SEARCHED, Pod, pods
from falaj.wire.documents import is_mapping

# Where objects and charts name container images: containers, volumes, values, custom fields.

_REGISTRY_KEYS: Final = frozenset({"repository", "registry", "imageRegistry", "imageRepository"})
#: Keys that end in "image" and mean pictures, disks or machines.
_OTHER_IMAGES: Final = re.compile(
    r"(?:os|vm|disk|machine|boot|cloud|node|logo|background|icon|golden|iso|kernel)_?image", re.I
)
_TAGGED: Final = re.compile(r":[\w][\w.-]*$")
_ARGUMENT: Final = re.compile(r"--?[\w.-]*image=(\S+)", re.I)


@dataclass(frozen=True)
class ImageUse:
    """One image that something would pull."""

    manifest: Manifest
    at: str
    """Path in the object."""
    reference: Any
    """The reference as a text, or an Unknown."""
    digest_at: str = ""
    """Where its digest belongs; empty where that is `at`."""
    is_registry: bool = False
    """Whether it is only where a chart's images come from, not an image."""

    def violation(self, reason: str, *, digest: bool = False) -> Finding:
        """A certain finding about the image, or about its digest."""
        return self.manifest.violation((digest and self.digest_at) or self.at, reason)

    def indeterminate(self, reason: str) -> Finding:
        """A finding about an image that can't be seen."""
        return self.manifest.indeterminate(self.at, reason)


@remembered(256)
def image_uses(resource: Resource) -> tuple[ImageUse, ...]:
    """Every image that a resource names."""
    return tuple(_uses(resource))


def _uses(resource: Resource) -> Iterator[ImageUse]:
    if resource.package == "kubernetes" and is_bundle(resource):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        values = get(resource.properties, "values")
        registry = text(get(values, "global.imageRegistry"))
        yield from _anywhere(chart, values, ("values",), registry)
    for manifest in manifests(resource):
        if manifest.is_searched and not manifest.group.endswith(".k8s.io"):
            yield from _anywhere(manifest, manifest.body, (), "")
        for pod in pods(manifest):
            yield from _of_pod(pod, in_custom=manifest.is_custom)


def _of_pod(pod: Pod, *, in_custom: bool) -> Iterator[ImageUse]:
    for container in pod.containers:
        at = container.at
        if container.hidden:
            yield ImageUse(pod.manifest, at, get(container.pod.spec, container.list))
            continue
        if not in_custom and (image := container.body.get("image")) is not None:
            yield ImageUse(pod.manifest, f"{at}.image", image)
        for index, each in enumerate(items(container.get("env"))):
            name, value = text(get(each, "name")), get(each, "value")
            operand = name.startswith("RELATED_IMAGE_") or name.endswith("_IMAGE")
            if operand and (is_unknown(value) or "/" in text(value)):
                yield ImageUse(pod.manifest, f"{at}.env[{index}].value", value)
        for key in ("args", "command"):
            for index, each in enumerate(items(container.get(key))):
                match = _ARGUMENT.fullmatch(text(each))
                if match and "/" in match[1] and is_plausible(match[1]):
                    yield ImageUse(pod.manifest, f"{at}.{key}[{index}]", match[1])
    if in_custom:
        return
    for index, volume in enumerate(items(pod.get("volumes"))):
        reference = get(volume, "image.reference") if is_mapping(volume) else None
        if is_unknown(reference) or text(reference):
            at = f"{pod.at}.volumes[{index}].image.reference"
            yield ImageUse(pod.manifest, at, reference)


def _anywhere(manifest: Manifest, value: Any, path: Path, registry: str) -> Iterator[ImageUse]:
    """Images under any key that names one, in values of charts and in custom objects."""
    if is_mapping(value):
        if path and path != ("values",) and is_object(value):
            return
        for key, each in value.items():
            name, at = str(key), (*path, str(key))
            if name in NOT_SEARCHED:
                continue
            if _names_image(name):
                found = _image(manifest, value, each, at, registry)
                if found is not None:
                    yield found
                    continue
            if name in _REGISTRY_KEYS and (found := _registry(manifest, value, each, at)):
                yield found
            yield from _anywhere(manifest, each, at, registry)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _anywhere(manifest, each, (*path, index), registry)


def _registry(
    manifest: Manifest, holder: Mapping[str, Any], value: Any, path: Path
) -> ImageUse | None:
    """A registry that a chart, or NVIDIA's operator, adds its own images' names to."""
    given = text(value)
    of_chart = manifest.group in {"helm.sh", "nvidia.com"}
    host = given.partition("/")[0]
    if not of_chart or "." not in host or not is_plausible(given) or text(holder.get("image")):
        return None
    reference = given if "/" in given else given + "/"
    return ImageUse(manifest, format_path(path), reference, is_registry=True)


def _names_image(key: str) -> bool:
    low = key.lower()
    return (low.endswith("image") or low == "imagename") and not _OTHER_IMAGES.fullmatch(key)


def _image(
    manifest: Manifest, holder: Mapping[str, Any], value: Any, path: Path, registry: str
) -> ImageUse | None:
    if is_unknown(value):
        return ImageUse(manifest, format_path(path), value)
    if is_mapping(value):
        return _in_parts(manifest, value, path, registry)
    given = text(value)
    if not given or not is_plausible(given):
        return None
    # NVIDIA's operator keeps registry, name and version beside one another.
    repository = text(holder.get("repository")) if path[-1] == "image" else ""
    if repository and "/" not in given:
        version = text(holder.get("version")) or text(holder.get("tag"))
        joined = f"{repository}/{given}"
        if version:
            joined += ("@" if version.startswith("sha256:") else ":") + version
        return ImageUse(
            manifest, format_path((*path[:-1], "repository")), joined, format_path(path)
        )
    # Charts append a tag that stands beside the name; it may hold the digest.
    tag = text(holder.get("tag")) if path[-1] == "image" and "/" in given else ""
    if tag and "@" not in given and not _TAGGED.search(given):
        return ImageUse(
            manifest, format_path(path), f"{given}:{tag}", format_path((*path[:-1], "tag"))
        )
    return ImageUse(manifest, format_path(path), given)


def _is_nothing(value: object) -> bool:
    return value is None or value == ""


def _in_parts(
    manifest: Manifest, value: Mapping[str, Any], path: Path, registry: str
) -> ImageUse | None:
    """An image of registry, repository, tag and digest, as charts write it."""
    name_key = next(
        (key for key in ("repository", "name", "reference") if not _is_nothing(value.get(key))),
        None,
    )
    own = value.get("registry")
    if name_key is None:
        return None
    name = value[name_key]
    for each, at in ((own, "registry"), (name, name_key)):
        if is_unknown(each):
            return ImageUse(manifest, format_path((*path, at)), each)
    if not text(name) or not is_plausible(text(name)):
        return None
    host = text(own) or registry
    reference = f"{host.rstrip('/')}/{text(name)}" if host else text(name)
    where = "registry" if text(own) else name_key
    digest_key = "digest"
    for key, sign in (("tag", ":"), ("version", ":"), ("digest", "@"), ("sha", "@")):
        part = value.get(key)
        if is_unknown(part):
            if sign == "@":
                return ImageUse(manifest, format_path((*path, key)), part)
            continue
        if given := text(part):
            prefix = "sha256:" if sign == "@" and ":" not in given else ""
            pinned = given.startswith("sha256:") and sign == ":"
            reference += ("@" if pinned else sign) + prefix + given
            digest_key = key if sign == "@" or pinned else digest_key
    return ImageUse(
        manifest, format_path((*path, where)), reference, format_path((*path, digest_key))
    )


_REGISTRIES: Final = (
    "aws:ecr/repository:Repository",
    "awsx:ecr:Repository",
    "azure-native:containerregistry:Registry",
)
#: Builds of images, by programs that deploy them.
_BUILDS: Final = ("docker-build:index:Image", "docker:index/image:Image", "awsx:ecr:Image")


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
        elif not is_of_stack(image, context.stack):
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
    PIN,
)
def image_digest(resource: Resource, context: Context) -> Iterator[Finding]:
    """A tag may be moved to another image at any time; a digest is the image."""
    uses = [each for each in image_uses(resource) if not each.is_registry]
    hidden = [each for each in uses if is_unknown(each.reference)]
    pinned = [each for each in _made_of(resource, context) if each.kind in PINNING]
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
