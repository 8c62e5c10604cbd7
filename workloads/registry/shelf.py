"""The packages that a registry has: a repository a model, a tag a version and what goes with it.

``models/NAME:v7`` is version 7, sealed; ``v7.keys.1``, ``v7.keys.2`` … are its wrapped keys, a
further one after each rotation. A tag is never moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from falaj.workloads.bounds import FORMS, VERSION_NUMBER
from falaj.workloads.errors import IntegrityError, NotThereError, RegistryError, WorkloadError
from falaj.workloads.registry.keyring import Trusted, verify
from falaj.workloads.registry.oci_layout import (
    KEYS_TYPE,
    MAX_DOCUMENT_BYTES,
    PACKAGE_TYPE,
    ImageManifest,
    described,
    parse_image_manifest,
    read_sealed_manifest,
)
from falaj.workloads.registry.package import (
    PAYLOAD_TYPE,
    Manifest,
    check_model_name,
    is_model,
)

AT_ONCE: Final = 6
"""Questions to one registry at the same time. Registries limit how fast they are asked; a handful
at once is what browsers do."""


class Client(Protocol):
    """Who asks registries, and sends to them. All raise RegistryError."""

    def digest(self, reference: str) -> str | None:
        """The digest that a reference stands for; None where there is no such image."""
        ...

    def manifest_bytes(self, reference: str, most: int) -> bytes:
        """The manifest of an image, byte for byte; one of more than ``most`` is refused."""
        ...

    def blob(self, reference: str, size: int) -> bytes:
        """A layer of ``size`` bytes by its digest, ``repository@sha256:…``."""
        ...

    def tags(self, repository: str) -> list[str]:
        """The tags of a repository; none where there is no such repository."""
        ...

    def repositories(self, host: str) -> list[str]:
        """The repositories of a registry. NotThereError: it keeps its catalogue to itself."""
        ...

    def push(self, folder: Path, reference: str) -> None:
        """Send the one image of an OCI layout."""
        ...


_TAG: Final = re.compile(rf"v({VERSION_NUMBER})(\.[A-Za-z0-9_.-]{{1,100}})?")
_KEYS: Final = re.compile(rf"v{VERSION_NUMBER}\.keys\.({VERSION_NUMBER})")
_REPOSITORY: Final = FORMS["registry"]["published"]


def tag_of(version: int) -> str:
    """The tag of a version's package."""
    return f"v{version}"


def version_of(tag: str) -> int | None:
    """The version that a tag is of, or goes with; None for any other tag."""
    found = _TAG.fullmatch(tag)
    return int(found[1]) if found else None


def keys_tag(version: int, number: int) -> str:
    """The tag of a version's wrapped keys."""
    return f"{tag_of(version)}.keys.{number}"


def keys_number(tag: str) -> int:
    """Which keys of its version a tag is of; 0 for any other tag."""
    found = _KEYS.fullmatch(tag)
    return int(found[1]) if found else 0


def check_repository(model: str) -> str:
    """Return a model's name if registries take it for a repository's, too.

    Raises:
        WorkloadError: they don't.
        WorkloadError: it is no model's.
    """
    if not _REPOSITORY.allows(check_model_name(model)):
        raise WorkloadError(
            f"model: given {model!r}; registries allow {_REPOSITORY.rule}: publish it under "
            "such a name"
        )
    return model


def tags_beside(version: int, tags: Iterable[str]) -> list[str]:
    """Of a version's tags, those of what goes with its package."""
    return [tag for tag in tags if tag != tag_of(version)]


ClientT_co = TypeVar("ClientT_co", bound=Client, covariant=True)


@dataclass(frozen=True)
class Shelf(Generic[ClientT_co]):
    """The packages of one registry, whose address somebody has let through."""

    address: str
    """Host with port and path."""
    folder: str
    """Of all models, below ``address``."""
    client: ClientT_co

    def repository(self, model: str) -> str:
        """Where a model's versions are."""
        return f"{self.address}/{self.folder}/{model}"

    def at(self, model: str, tag: str) -> str:
        """The reference of a tag."""
        return f"{self.repository(model)}:{tag}"

    def models(self) -> list[str]:
        """The models that the registry says it has, sorted.

        Raises:
            WorkloadError: it can't be reached, or doesn't say what it has.
        """
        host, _, path = self.address.partition("/")
        folder = f"{path}/{self.folder}/" if path else f"{self.folder}/"
        try:
            found = self.client.repositories(host)
        except NotThereError as error:
            raise RegistryError(
                f"{host} doesn't say which repositories it has; name the models\n  {error}"
            ) from None
        names = (each.removeprefix(folder) for each in found if each.startswith(folder))
        return sorted(each for each in names if _REPOSITORY.allows(each) and is_model(each))

    def tags(self, model: str) -> dict[int, list[str]]:
        """A model's tags by version, both in order, the package before what goes with it.

        Raises:
            RegistryError: the registry can't be asked.
        """
        found: dict[int, list[str]] = {}
        for tag in self.client.tags(self.repository(model)):
            if version := version_of(tag):
                found.setdefault(version, []).append(tag)
        return {
            version: sorted(found[version], key=lambda tag: (len(tag), tag))
            for version in sorted(found)
        }

    def known(self, model: str) -> dict[int, list[str]]:
        """As `tags`, of a model that has to be there.

        Raises:
            WorkloadError: it isn't; the registry's models are named, if it says them.
        """
        if found := self.tags(check_repository(model)):
            return found
        try:
            have = ", ".join(self.models()) or "none"
        except RegistryError:
            have = "it doesn't say"
        raise WorkloadError(f"{self.address} has no model {model!r}; it has: {have}")

    def digests(self, model: str, tags: Iterable[str]) -> dict[str, str | None]:
        """What each tag stands for; None for one that isn't there.

        Raises:
            RegistryError: the registry can't be asked.
        """
        asked = list(tags)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(self.client.digest, [self.at(model, each) for each in asked])
            return dict(zip(asked, answers, strict=True))

    def image(self, model: str, which: str, kind: str) -> ImageManifest:
        """The manifest of a tag or a digest, held against the model's name and the digest.

        Raises:
            WorkloadError: it isn't there, or the registry can't be asked.
            IntegrityError: it isn't of that kind or model, or of another digest.
        """
        is_digest = which.startswith("sha256:")
        reference = f"{self.repository(model)}@{which}" if is_digest else self.at(model, which)
        data = self.client.manifest_bytes(reference, MAX_DOCUMENT_BYTES)
        if is_digest and described(data).digest != which:
            raise IntegrityError(f"{self.address} gave {described(data).digest} for {reference}")
        found = parse_image_manifest(data, reference)
        if found.kind != kind:
            raise IntegrityError(f"{reference} is {found.kind!r}; needed: {kind!r}")
        # The tag of an alias's record names no version.
        named = None if is_digest else version_of(which)
        if found.model != model or named not in (None, found.version):
            raise IntegrityError(
                f"{reference} holds {found.model} version {found.version}: it was moved there"
            )
        return found

    def package(
        self, model: str, version: int | None = None, digest: str | None = None
    ) -> ImageManifest:
        """The image of a package: by its digest, its version, or the newest.

        Raises:
            WorkloadError: there is none such, or the registry can't be asked.
            IntegrityError: it is no package, or another's.
        """
        if digest is not None:
            found = self.image(check_repository(model), digest, PACKAGE_TYPE)
            if version not in (None, found.version):
                raise WorkloadError(
                    f"--digest: {digest} is version {found.version} of {model}, not {version}; "
                    "give one of both"
                )
            return found
        tags = self.known(model)
        number = max(tags) if version is None else version
        if tag_of(number) not in tags.get(number, []):
            have = ", ".join(str(each) for each in tags)
            raise WorkloadError(
                f"{self.repository(model)} has no version {number}; it has: {have}"
            )
        return self.image(model, tag_of(number), PACKAGE_TYPE)

    def contents(self, package: ImageManifest, key: Trusted | None) -> Manifest:
        """What a package's own manifest says, which is fetched without its files.

        Args:
            package: its image.
            key: the trusted public key, which has to have signed it; None to read it unchecked.

        Raises:
            WorkloadError: the registry can't be asked.
            IntegrityError: it isn't what the trusted key signed, or no manifest.
        """
        first = package.layers[0]
        layer = self.client.blob(f"{self.repository(package.model)}@{first.digest}", first.size)
        payload, signature = read_sealed_manifest(layer, package)
        what = f"the manifest of {package.model} version {package.version}"
        if key is not None:
            verify(payload, PAYLOAD_TYPE, signature, key, what)
        return Manifest.from_bytes(payload, what)

    def keys(self, package: ImageManifest) -> tuple[str, ImageManifest]:
        """The newest wrapped keys of a package, and their tag.

        Raises:
            WorkloadError: there are none.
            IntegrityError: they are another package's.
        """
        model, version = package.model, package.version
        tags = [tag for tag in self.tags(model).get(version, []) if keys_number(tag)]
        if not tags:
            raise WorkloadError(
                f"{self.repository(model)} has no keys of version {version} "
                f"({keys_tag(version, 1)} …): push them with `falaj models push`, or copy them "
                "with `falaj models copy`"
            )
        tag = max(tags, key=keys_number)
        return tag, self.keys_at(tag, package)

    def keys_at(self, tag: str, package: ImageManifest) -> ImageManifest:
        """The wrapped keys of a package that a tag stands for.

        Raises:
            WorkloadError: they aren't there, or the registry can't be asked.
            IntegrityError: they are another package's.
        """
        found = self.image(package.model, tag, KEYS_TYPE)
        if found.subject != package.itself:
            raise IntegrityError(
                f"{self.at(package.model, tag)} are keys of another image than "
                f"{package.itself.digest}"
            )
        return found

    def require(self, model: str, tag: str, digest: str) -> None:
        """Make sure that a tag stands for what was just sent.

        Raises:
            RegistryError: it doesn't.
        """
        have = self.client.digest(self.at(model, tag))
        if have != digest:
            raise RegistryError(
                f"{self.at(model, tag)} is {have or 'missing'} after it was sent, not {digest}: "
                "the registry changes what it is sent, or somebody else pushes there; don't use it"
            )
