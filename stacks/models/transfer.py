"""One package on its way back from a registry into a folder, verified there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane
from falaj.workloads.files import make_private_folder, storage_errors
from falaj.workloads.registry.oci_layout import ImageManifest, read_package
from falaj.workloads.registry.package import Package, open_package
from falaj.workloads.registry.sending import Say, Trust
from falaj.workloads.registry.shelf import Shelf

_MIB = 1 << 20
_SPARE_BYTES = 16 * _MIB


@contextmanager
def fetched(
    shelf: Shelf[Crane],
    image: ImageManifest,
    trust: Trust,
    *,
    say: Say,
    beside: Path | None = None,
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
        shelf.client.pull(f"{repository}@{image.itself.digest}", layout)
        shelf.client.pull(f"{repository}@{keys.itself.digest}", keys_layout)
        say(f"verifying it with the keys {tag}")
        yield read_package(
            layout, keys_layout, make_private_folder(folder / "package"),
            keys=trust.keyring, verify_key=trust.verify_key, digest=image.itself.digest,
        )  # fmt: skip


def pull(
    shelf: Shelf[Crane], image: ImageManifest, target: Path, trust: Trust, *, say: Say
) -> Package:
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
        trust.check(package)
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
