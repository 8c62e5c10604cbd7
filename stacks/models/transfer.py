"""One package on its way: from a folder into a registry, and back, verified at both ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from falaj.stacks.errors import StackError
from falaj.stacks.models.shelf import Shelf, check_repository, keys_number, keys_tag, tag_of
from falaj.workloads.files import make_private_folder, storage_errors
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.oci_layout import (
    ImageManifest,
    read_package,
    write_keys_image,
    write_package_image,
)
from falaj.workloads.registry.package import Package, open_package
from falaj.workloads.registry.store import Store

Say = Callable[[str], None]
_MIB = 1 << 20
_SPARE_BYTES = 16 * _MIB


@dataclass(frozen=True)
class Trust:
    """Who is trusted to have signed, and what opens packages."""

    verify_key: Ed25519PublicKey
    keyring: KeyRing | None
    """None: packages are verified as they are encrypted, and not opened."""


@dataclass(frozen=True)
class Pushed:
    """What stands in the registry now."""

    package: ImageManifest
    keys: ImageManifest
    keys_tag: str
    sent: tuple[str, ...]
    """Tags that weren't there before."""


def push(
    shelf: Shelf, store: Store, model: str, which: int | str, trust: Trust, *, say: Say
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
        StackError: the tag is taken by another package, or the registry refused it.
        IntegrityError: it isn't what was signed.
    """
    number = store.resolve(check_repository(model), which) if isinstance(which, str) else which
    package = open_package(
        store.path(model, number), model, number, trust.keyring, trust.verify_key
    )
    _verify(package, trust)
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
            raise StackError(
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


def _send(shelf: Shelf, tag: str, image: ImageManifest, layout: Path, say: Say) -> None:
    reference = shelf.at(image.model, tag)
    say(f"sending {reference} ({image.size / _MIB:.1f} MiB)")
    shelf.crane.push(layout, reference)
    shelf.require(image.model, tag, image.itself.digest)


@contextmanager
def fetched(
    shelf: Shelf, image: ImageManifest, trust: Trust, *, say: Say, beside: Path | None = None
) -> Generator[Package]:
    """Fetch a package and verify it; it is gone afterwards.

    Args:
        shelf: where from.
        image: the package's image, as the registry described it.
        trust: who signed it.
        say: gets a line about what is fetched.
        beside: a folder on the file system to use. Default: where temporary files are.

    Raises:
        StackError: it can't be fetched, or there is no space for it.
        IntegrityError: it isn't what was signed.
    """
    tag, keys = shelf.keys(image)
    with tempfile.TemporaryDirectory(prefix=".falaj-package-", dir=beside) as name:
        folder = Path(name)
        # As sent, and laid out.
        needed, free = 2 * (image.size + keys.size) + _SPARE_BYTES, shutil.disk_usage(folder).free
        if free < needed:
            raise StackError(
                f"{folder.parent}: no space left for {image.model} version {image.version}: "
                f"{needed / _MIB:.0f} MiB are needed, {free / _MIB:.0f} MiB are free"
            )
        repository = shelf.repository(image.model)
        say(f"fetching {repository}@{image.itself.digest} ({image.size / _MIB:.1f} MiB)")
        layout, keys_layout = folder / "image", folder / "keys"
        shelf.crane.pull(f"{repository}@{image.itself.digest}", layout)
        shelf.crane.pull(f"{repository}@{keys.itself.digest}", keys_layout)
        say(f"verifying it with the keys {tag}")
        yield read_package(
            layout, keys_layout, make_private_folder(folder / "package"),
            keys=trust.keyring, verify_key=trust.verify_key, digest=image.itself.digest,
        )  # fmt: skip


def pull(shelf: Shelf, image: ImageManifest, target: Path, trust: Trust, *, say: Say) -> Package:
    """Fetch a package into ``target``, which is there afterwards with a verified package or not.

    A folder that has the same package already is verified again and kept.

    Raises:
        StackError: the folder holds something else, or see `fetched`.
        IntegrityError: see `fetched`.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        package = open_package(target, image.model, image.version, trust.keyring, trust.verify_key)
        if package.digest != image.package_digest:
            raise StackError(
                f"--to: {target} holds {package.digest}, not {image.package_digest}: another "
                "package; give a folder that doesn't exist"
            )
        _verify(package, trust)
        say(f"{target} has it already")
        return package
    parent = make_parent(target)
    with fetched(shelf, image, trust, say=say, beside=parent) as package, storage_errors(target):
        package.path.rename(target)
    return open_package(target, image.model, image.version, trust.keyring, trust.verify_key)


def make_parent(target: Path) -> Path:
    """Make the folder that a folder is in, if it isn't there."""
    parent = target.absolute().parent
    with storage_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
    return parent


def _verify(package: Package, trust: Trust) -> None:
    if trust.keyring is None:
        package.verify_sealed()
    else:
        package.verify()
