"""Taking over a package that was published elsewhere, once every byte of it is what was signed."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import make_private_folder, storage_errors, sync_folder
from falaj.workloads.registry import audit, numbering
from falaj.workloads.registry.keyservice import KeyService
from falaj.workloads.registry.locking import locked
from falaj.workloads.registry.names import check_model_name
from falaj.workloads.registry.package import (
    FILES,
    KEYS,
    MANIFEST,
    SIGNATURE,
    Package,
    open_package,
)
from falaj.workloads.registry.store import Store

MAX_FILES = 256


def adopt(
    store: Store,
    model: str,
    version: int,
    source: Path,
    *,
    keys: KeyService,
    verify_key: Ed25519PublicKey,
) -> Package:
    """Copy the sealed package in ``source`` into the registry as ``version`` of ``model``.

    The copy is what is checked, so that nobody can change it in between. A version that is there
    already is checked again and kept.

    Raises:
        IntegrityError: it isn't what the trusted key signed, or another model or version.
        WorkloadError: ``source`` holds no package.
        StorageFullError: no space; the registry is as it was.
    """
    folder = store.root / check_model_name(model)
    if version in store.versions(model):
        return store.verify(model, version, keys, verify_key)
    for path in (store.root, folder, folder / "versions"):
        make_private_folder(path)
    with locked(folder / ".lock"), keys.steady():
        numbering.remove_leftovers(folder)
        stage = numbering.make_staging(folder)
        try:
            _copy(source, stage)
            package = open_package(stage, model, version, keys, verify_key)
            package.verify()
            details = {"model": model, "version": version, "digest": package.digest}
            audit.append(store.root, "import", details)
            target = folder / "versions" / str(version)
            with storage_errors(target):
                stage.rename(target)
                sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
        numbering.note_used(folder, version)
    return store.load(model, version, keys, verify_key)


def _copy(source: Path, target: Path) -> None:
    """Copy a package's ordinary files, and nothing that isn't part of one."""
    if not (source / MANIFEST).is_file():
        raise WorkloadError(f"there is no package in {source}: {MANIFEST} is missing")
    make_private_folder(target / FILES)
    sealed = sorted((source / FILES).iterdir()) if (source / FILES).is_dir() else []
    if len(sealed) > MAX_FILES:
        raise IntegrityError(f"{source / FILES} has {len(sealed)} files; allowed: {MAX_FILES}")
    for name in (MANIFEST, SIGNATURE, KEYS):
        _copy_file(source / name, target / name)
    for path in sealed:
        _copy_file(path, target / FILES / path.name)


def _copy_file(source: Path, target: Path) -> None:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise IntegrityError(f"can't read {source}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IntegrityError(f"{source} isn't an ordinary file")
        with storage_errors(target), target.open("xb") as copy:
            os.fchmod(copy.fileno(), 0o600)
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
