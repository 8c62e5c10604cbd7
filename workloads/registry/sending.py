"""One package on its way from a folder into a registry, verified before it goes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing, Trusted
from falaj.workloads.registry.oci_layout import (
    ImageManifest,
    write_keys_image,
    write_package_image,
)
from falaj.workloads.registry.package import Package, open_package
from falaj.workloads.registry.shelf import (
    Client,
    Shelf,
    check_repository,
    keys_number,
    keys_tag,
    tag_of,
)
from falaj.workloads.registry.store import Store

Say = Callable[[str], None]
_MIB = 1 << 20


class TakenError(WorkloadError):
    """Another package is the version in the registry."""


@dataclass(frozen=True)
class Trust:
    """Who is trusted to have signed, and what opens packages."""

    verify_key: Trusted
    keyring: KeyRing | None
    """None: packages are verified as they are encrypted, and not opened."""

    def check(self, package: Package) -> None:
        """Read every file of a package. Raises IntegrityError: it isn't what was signed."""
        if self.keyring is None:
            package.verify_sealed()
        else:
            package.verify()


@dataclass(frozen=True)
class Pushed:
    """What stands in the registry now."""

    package: ImageManifest
    keys: ImageManifest
    keys_tag: str
    sent: tuple[str, ...]
    """Tags that weren't there before."""


def push(
    shelf: Shelf[Client], store: Store, model: str, which: int | str, trust: Trust, *, say: Say
) -> Pushed:
    """Verify a version of a registry's folder and send what the other registry hasn't.

    Args:
        shelf: where to.
        store: the registry's folder.
        model: name of the model.
        which: a version, or an alias.
        trust: who signed it.
        say: gets lines about what is sent.

    Raises:
        TakenError: the tag is taken by another package.
        RegistryError: the registry can't be asked, or refused it.
        IntegrityError: it isn't what was signed.
    """
    number = (
        which if isinstance(which, int) else _pointed(store, check_repository(model), which, trust)
    )
    package = open_package(
        store.path(model, number), model, number, trust.keyring, trust.verify_key
    )
    trust.check(package)
    sent: list[str] = []
    with tempfile.TemporaryDirectory(prefix="falaj-package-") as folder:
        layout, keys_layout = Path(folder, "package"), Path(folder, "keys")
        image = write_package_image(package.path, layout)
        keys = write_keys_image(package.path, image, keys_layout)
        tags = shelf.tags(model).get(number, [])
        tag = tag_of(number)
        taken = shelf.digests(model, [each for each in tags if each == tag or keys_number(each)])
        have = taken.get(tag)
        if have not in (None, image.itself.digest):
            raise TakenError(
                f"{shelf.at(model, tag)} is {have}, not {image.itself.digest}: another package is "
                f"version {number} there, and a version is never replaced; publish it anew"
            )
        if have is None:
            _send(shelf, tag, image, layout, say)
            sent.append(tag)
        last = max((keys_number(each) for each in taken), default=0)
        keys_name = keys_tag(number, last)
        if last == 0 or taken[keys_name] != keys.itself.digest:
            keys_name = keys_tag(number, last + 1)
            _send(shelf, keys_name, keys, keys_layout, say)
            sent.append(keys_name)
    return Pushed(image, keys, keys_name, tuple(sent))


def _pointed(store: Store, model: str, alias: str, trust: Trust) -> int:
    if trust.keyring is None:
        return store.resolve(model, alias)
    return store.trusted(model, alias, trust.keyring).version


def _send(shelf: Shelf[Client], tag: str, image: ImageManifest, layout: Path, say: Say) -> None:
    reference = shelf.at(image.model, tag)
    say(f"sending {reference} ({image.size / _MIB:.1f} MiB)")
    shelf.client.push(layout, reference)
    shelf.require(image.model, tag, image.itself.digest)
