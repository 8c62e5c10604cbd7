"""What a publisher hands in: files with fields, or a package that was published elsewhere."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import (
    locked,
    make_private_folder,
    read_bytes,
    read_json,
    storage_errors,
    sync_folder,
)
from falaj.workloads.registry.keyring import KeyRing, KeyService, Trusted
from falaj.workloads.registry.layout import MANIFEST, version_of, versions_of
from falaj.workloads.registry.oci_layout import PACKAGE_TYPE, Image, lay_out
from falaj.workloads.registry.package import (
    FILES,
    KEYS,
    SIGNATURE,
    Package,
    check_fields,
    check_file_name,
    check_model_name,
    open_package,
)
from falaj.workloads.registry.sealed import SUFFIX, unseal
from falaj.workloads.registry.store import (
    Store,
    append_event,
    make_staging,
    note_used,
    remove_leftovers,
)

DEFAULT_FILES = ("model.onnx",)
DEFAULT_CONTEXT = "optimization:{run}:{name}"
"""The role that falaj.workloads.optimization seals its models under."""


def read_fields(path: Path) -> dict[str, Any]:
    """Read what the publisher says of the model (``fields.json``).

    Raises:
        WorkloadError: missing, not a JSON object, or a field is unknown, missing or wrong.
    """
    document: Any = read_json(path, "the file of the package's fields")
    if not isinstance(document, dict):
        raise WorkloadError(f"{path} must hold a JSON object")
    fields = cast(dict[str, Any], document)
    check_fields(fields, str(path))
    return fields


def read_files(
    folder: Path,
    names: Sequence[str],
    fields: Mapping[str, Any],
    keyring: KeyRing,
    context: str = DEFAULT_CONTEXT,
) -> dict[str, bytes]:
    """Read files to publish, decrypting in memory those that are sealed (``NAME.sealed``).

    Args:
        folder: where they lie.
        names: without ``.sealed``.
        fields: the package's fields, for ``{run}``.
        keyring: unseals.
        context: the role of sealed files; ``{run}`` stands for lineage.run, ``{name}`` for the
            file's name.

    Raises:
        IntegrityError: a sealed file was changed, or sealed for something else.
        WorkloadError: a file is missing, or there as both plain and sealed.
    """
    files: dict[str, bytes] = {}
    for name in names:
        plain = folder / check_file_name(name)
        sealed = plain.with_name(name + SUFFIX)
        if plain.exists() and sealed.exists():
            raise WorkloadError(f"{folder} has both {name} and {sealed.name}: remove one of them")
        if sealed.exists():
            role = context.replace("{run}", str(fields["lineage"].get("run", "")))
            try:
                files[name] = unseal(sealed, keyring, role.replace("{name}", name).encode())
            except IntegrityError as error:
                hint = "the run in the fields, --context and the key ring must be those of"
                raise IntegrityError(f"{error}\n{hint} {sealed}") from error
        else:
            files[name] = read_bytes(plain, "a file to publish")
    return files


MAX_FILES = 256


def import_package(
    store: Store,
    model: str,
    version: int,
    source: Path,
    *,
    keys: KeyService,
    verify_key: Trusted,
    wrapped_keys: Path | None = None,
) -> Package:
    """Copy the sealed package in ``source`` into the registry as ``version`` of ``model``.

    The copy is what is checked, so that nobody can change it in between. A version that is there
    already is checked again and kept.

    Args:
        store: the registry.
        model: name of the model.
        version: the version that it is.
        source: the package's folder.
        keys: unwraps its data keys.
        verify_key: the trusted public key.
        wrapped_keys: the package's ``keys.json``. Default: the one in ``source``.

    Raises:
        IntegrityError: it isn't what the trusted key signed, or another model or version.
        WorkloadError: ``source`` holds no package.
        StorageFullError: no space; the registry is as it was.
    """

    def copy(stage: Path) -> None:
        _copy(source, wrapped_keys or source / KEYS, stage)

    return _take_over(store, (model, version), copy, keys, verify_key)


def import_images(
    store: Store,
    model: str,
    version: int,
    images: tuple[Image, Image],
    *,
    keys: KeyService,
    verify_key: Trusted,
) -> Package:
    """Fetch a sealed package into the registry as ``version`` of ``model``.

    A version that is there already is checked again and kept, where it is the image's.

    Args:
        store: the registry.
        model: name of the model.
        version: the version that it is.
        images: the package's image, and that of its wrapped keys.
        keys: unwraps its data keys.
        verify_key: the trusted public key.

    Raises:
        IntegrityError: it isn't what the trusted key signed, or another model or version.
        WorkloadError: the images can't be had.
        StorageFullError: no space; the registry is as it was.
    """
    package, wrapped = images
    wanted = package.manifest(PACKAGE_TYPE)
    if (wanted.model, wanted.version) != (check_model_name(model), version):
        raise IntegrityError(
            f"{package} is version {wanted.version} of {wanted.model}, not version {version} of "
            f"{model}: give the digest of that one"
        )

    def fetch(stage: Path) -> None:
        lay_out(package, wrapped, stage)

    found = _take_over(store, (model, version), fetch, keys, verify_key)
    if found.digest != wanted.package_digest:
        raise IntegrityError(
            f"version {version} of {model} is there as {found.digest}, and {package} is "
            f"{wanted.package_digest}: a version is never replaced; take another folder"
        )
    return found


def _take_over(
    store: Store,
    which: tuple[str, int],
    fill: Callable[[Path], None],
    keys: KeyService,
    verify_key: Trusted,
) -> Package:
    """Add a version whose files ``fill`` puts into an empty folder, once they are verified."""
    model, version = which
    folder = store.root / check_model_name(model)
    if version in store.versions(model):
        return store.verify(model, version, keys, verify_key)
    for path in (store.root, folder, versions_of(folder)):
        make_private_folder(path)
    with locked(folder / ".lock"), keys.steady():
        remove_leftovers(folder)
        stage = make_staging(folder)
        try:
            fill(stage)
            package = open_package(stage, model, version, keys, verify_key)
            package.verify()
            details = {"model": model, "version": version, "digest": package.digest}
            append_event(store.root, "import", details)
            target = version_of(folder, version)
            with storage_errors(target):
                stage.rename(target)
                sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
        note_used(folder, version)
    return store.load(model, version, keys, verify_key)


def _copy(source: Path, wrapped_keys: Path, target: Path) -> None:
    """Copy a package's ordinary files, and nothing that isn't part of one.

    Raises:
        WorkloadError: there is no package, or no keys of it.
    """
    if not (source / MANIFEST).is_file():
        raise WorkloadError(f"there is no package in {source}: {MANIFEST} is missing")
    make_private_folder(target / FILES)
    sealed = sorted((source / FILES).iterdir()) if (source / FILES).is_dir() else []
    if len(sealed) > MAX_FILES:
        raise IntegrityError(f"{source / FILES} has {len(sealed)} files; allowed: {MAX_FILES}")
    if not wrapped_keys.exists():
        raise WorkloadError(
            f"the package's wrapped keys are missing: there is no {wrapped_keys}; name them with "
            "--keys (an image that `falaj models push` made has them in an image of their own, "
            "`keysDigest` of an inference service)"
        )
    for name in (MANIFEST, SIGNATURE):
        _copy_file(source / name, target / name)
    _copy_file(wrapped_keys, target / KEYS)
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
