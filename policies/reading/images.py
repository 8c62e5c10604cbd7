"""References to container images, as container runtimes read them, and who may serve them.

https://github.com/distribution/reference/blob/main/reference.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from falaj.policies.model import Settings, Stack, get, text

_SCHEMES: Final = re.compile(r"^(?:docker|oci|oci\+native|docker-pullable|containerd)://", re.I)
PIN: Final = (
    "Append the digest of the image: REGISTRY/NAME@sha256:…; a tag before it is for people only."
)
"""What to do where an image is named by its tag."""
PINNING: Final = ("docker-build:index:Image", "awsx:ecr:Image")
"""Types whose answer is a reference with its digest:
https://www.pulumi.com/registry/packages/docker-build/api-docs/image/#outputs"""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_TAG: Final = re.compile(r":[\w][\w.-]{0,127}$")
_PLAUSIBLE: Final = re.compile(r"[\w.\-:/@+\[\]]+")
_DOCKER_HUB: Final = frozenset({
    "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "hub.docker.com",
    "registry.docker.io", "www.docker.io",
})  # fmt: skip
_ECR: Final = re.compile(
    r"\d{12}\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com|"
    r"\d{12}\.dkr-ecr(?:-fips)?\.([a-z0-9-]+)\.on\.aws"
)
_ACR: Final = re.compile(r"([a-z0-9-]+)\.azurecr\.io")


@dataclass(frozen=True)
class Image:
    """A reference to an image, taken apart."""

    host: str
    """Registry with its port, in small letters; ``docker.io`` where none is written."""
    repository: str
    """As ``library/nginx``; without tag and digest."""
    tag: str = ""
    digest: str = ""
    """As written, ``sha256:…``; empty where there is none."""

    @property
    def is_pinned(self) -> bool:
        """Whether its digest is one, so that it is the same image wherever it is pulled."""
        return _DIGEST.fullmatch(self.digest) is not None

    @property
    def ecr_region(self) -> str:
        """The AWS region of its registry; empty where that isn't a private one of AWS."""
        match = _ECR.fullmatch(self.host)
        return (match[1] or match[2]) if match else ""

    @property
    def acr_name(self) -> str:
        """The name of its Azure registry; empty where it isn't one."""
        match = _ACR.fullmatch(self.host)
        return match[1] if match else ""


def parse(reference: str) -> Image:
    """Take a reference apart. Never raises: what can't be one has a host that nobody allows."""
    given = _SCHEMES.sub("", reference.strip())
    name, _, digest = given.partition("@")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first.lower() == "localhost"):
        host, repository = first.lower().removesuffix(":443").rstrip("."), rest
    else:
        host, repository = "docker.io", name
    tag = ""
    if match := _TAG.search(repository):
        tag, repository = match[0][1:], repository[: match.start()]
    if host in _DOCKER_HUB:
        host = "docker.io"
    if host == "docker.io" and "/" not in repository:
        repository = "library/" + repository
    return Image(host, repository, tag, digest)


def is_plausible(reference: str) -> bool:
    """Whether a text could be an image's reference, and isn't a link or a sentence."""
    bare = _SCHEMES.sub("", reference.strip())
    return bool(_PLAUSIBLE.fullmatch(bare)) and "://" not in bare and not bare.startswith("/")


def is_allowed(image: Image, settings: Settings) -> bool:
    """Whether its registry is one of the allowed regions' own, or on the list."""
    if image.ecr_region and image.ecr_region in settings.regions("aws"):
        return True
    return any(is_below(image, each) for each in settings.allowed_registries)


def is_below(image: Image, allowed: str) -> bool:
    """Whether an entry of the list (``host``, ``*.host``, ``host:port/path``) covers it."""
    host, _, path = allowed.lower().partition("/")
    host = host.removesuffix(":443")
    if host.startswith("*."):
        if not image.host.endswith(host[1:]) or image.host == host[1:]:
            return False
    elif image.host != host:
        return False
    path = path.strip("/")
    repository = image.repository.lower()
    return not path or repository == path or repository.startswith(path + "/")


def is_of_stack(image: Image, stack: Stack | None) -> bool:
    """Whether a registry of Azure is one that the stack makes, which is judged with it."""
    registries = stack.of_kind("azure-native:containerregistry:Registry") if stack else []
    return any(
        image.host == text(get(each.outputs, "loginServer")).lower()
        or image.acr_name
        in (text(each.get("registryName")).lower(), text(get(each.outputs, "name")).lower())
        for each in registries
    )
