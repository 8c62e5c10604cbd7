"""A sealed package as an image that registries keep and clusters mount, and back again.

A package is one OCI image in a folder (an OCI image layout)::

    oci-layout, index.json      https://github.com/opencontainers/image-spec/blob/main/image-layout.md
    blobs/sha256/…              the manifest, its configuration, and a layer for each part

Its layers are uncompressed archives with the package's own files in them, so that a cluster that
mounts the image has them at the mount's root. ``keys.json``, which a rotation replaces, is in none
of them: it is an image of its own whose ``subject`` is the package's. Archives, configuration and
manifest follow from the package's bytes alone, so that a package is the same image wherever and
whenever it is written; what is read has to be exactly that.

A configuration of another type than an image's makes containerd mount an empty folder, and one
that names a processor keeps other processors from unpacking it. So it is an image's, and names
none. https://github.com/containerd/containerd/blob/main/core/unpack/unpacker.go
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

from falaj.workloads.documents import mapping
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import make_private_folder, storage_errors, write_atomic
from falaj.workloads.registry.keyring import KeyService, Trusted
from falaj.workloads.registry.layout import MANIFEST
from falaj.workloads.registry.package import (
    FILES,
    KEYS,
    MAX_MANIFEST_BYTES,
    SEALED_SUFFIX,
    SIGNATURE,
    Manifest,
    Package,
    canonical,
    check_model_name,
    is_version,
    open_package,
)

PACKAGE_TYPE: Final = "application/vnd.falaj.package.v1+json"
KEYS_TYPE: Final = "application/vnd.falaj.keys.v1+json"
ALIAS_TYPE: Final = "application/vnd.falaj.alias.v1+json"
_KINDS: Final = (PACKAGE_TYPE, KEYS_TYPE, ALIAS_TYPE)
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
CREATED: Final = "org.opencontainers.image.created"
"""When the package was published, ISO 8601, UTC."""
TITLE: Final = "org.opencontainers.image.title"
"""Name of the model."""
VERSION: Final = "org.opencontainers.image.version"
PACKAGE_DIGEST: Final = "io.falaj.package.digest"
"""SHA-256 of the package's own manifest, which is what its signature is of."""

MAX_DOCUMENT_BYTES: Final = 4 << 20
"""Bytes of an image's manifest, configuration or index, and of ``keys.json``: what registries
take. https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pushing-manifests"""
MAX_FILES: Final = 126
"""Files of a package in an image: with its manifest's, as many layers as Docker takes."""
MAX_FILE_BYTES: Final = (8 << 30) - 1
"""Encrypted bytes of one file: what a header of the plain form of an archive (USTAR) can say."""
MAX_NAME: Final = 96
"""Characters of a file's name in an image, by the same form: 100 with what is added to it."""

_ALIAS_FILES: Final = ("alias.json", "alias.json.sig")
_LAYOUT: Final = "oci-layout"
_LAYOUT_CONTENT: Final = b'{"imageLayoutVersion":"1.0.0"}'
_INDEX: Final = "index.json"
_INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_BLOCK: Final = tarfile.BLOCKSIZE
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a manifest says of content: ``sha256:…`` and bytes."""

    digest: str
    size: int

    def to_json(self, kind: str) -> dict[str, str | int]:
        """Return it as it stands in a manifest; ``kind`` is the media type."""
        return {"mediaType": kind, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """The manifest of an image: a package's, that of its wrapped keys, or of an alias's record.

    Attributes:
        itself: digest and size of the manifest.
        kind: `PACKAGE_TYPE`, `KEYS_TYPE` or `ALIAS_TYPE`.
        model: name of the model.
        version: its version; of an alias, what it stands for.
        created: when the package was published, or the record issued.
        package_digest: SHA-256 of the package's own manifest.
        config: of the image.
        layers: of the image.
        subject: of keys, the package's image that they belong to.
    """

    itself: Descriptor
    kind: str
    model: str
    version: int
    created: str
    package_digest: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None

    @property
    def size(self) -> int:
        """Bytes of the whole image."""
        return self.itself.size + self.config.size + sum(each.size for each in self.layers)

    @property
    def created_at(self) -> datetime:
        """When it was published, with its time zone."""
        return datetime.fromisoformat(self.created)


def parse_image_manifest(data: bytes, what: str) -> ImageManifest:
    """Parse an image's manifest; nothing of it is trusted, but that it is one of ours.

    Raises:
        IntegrityError: too large, of another type, or not in the form that this module writes.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise IntegrityError(
            f"{what}: its manifest has {len(data)} bytes; allowed: {MAX_DOCUMENT_BYTES}"
        )
    values = _document(data, f"the manifest of {what}")
    kind = values.get("artifactType")
    if kind not in _KINDS:
        raise IntegrityError(
            f"{what} is no package: its artifactType is {kind!r}; allowed: {PACKAGE_TYPE!r}, "
            f"{KEYS_TYPE!r} for keys, and {ALIAS_TYPE!r} for records of aliases"
        )
    try:
        config = _descriptor(values["config"], CONFIG_TYPE)
        layers = tuple(_descriptor(each, LAYER_TYPE) for each in cast(list[Any], values["layers"]))
        subject = _descriptor(values["subject"], MANIFEST_TYPE) if kind == KEYS_TYPE else None
        notes = cast(dict[str, Any], values["annotations"])
        model = check_model_name(str(notes[TITLE]))
        version = str(notes[VERSION])
        created = str(notes[CREATED])
        digest = str(notes[PACKAGE_DIGEST])
        if datetime.fromisoformat(created).tzinfo is None or not is_version(version):
            raise ValueError("its time or version is none")
        found = ImageManifest(
            described(data), kind, model, int(version), created, digest, config, layers, subject
        )
        again = _manifest_bytes(found)
    except (KeyError, TypeError, ValueError, WorkloadError) as error:
        raise IntegrityError(f"the manifest of {what} is malformed: {error}") from error
    if again != data:
        raise IntegrityError(
            f"the manifest of {what} isn't in the form that packages are written in: it was "
            "changed, or made by something else"
        )
    most = MAX_FILES + 1 if kind == PACKAGE_TYPE else 1
    if not 1 <= len(layers) <= most:
        raise IntegrityError(f"{what} has {len(layers)} layers; allowed: 1 to {most}")
    return found


def described(data: bytes) -> Descriptor:
    """Digest and size of some bytes."""
    return Descriptor(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


def _document(data: bytes, what: str) -> dict[str, Any]:
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{what} isn't valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise IntegrityError(f"{what} isn't a JSON object")
    return cast(dict[str, Any], document)


def _descriptor(value: object, kind: str) -> Descriptor:
    match mapping(value):
        case {"mediaType": found, "digest": str(digest), "size": int(size), **rest} if (
            not rest
            and found == kind
            and type(size) is int
            and size >= 0
            and DIGEST.fullmatch(digest)
        ):
            return Descriptor(digest, size)
        case _:
            raise ValueError(f"{value!r} doesn't describe content of type {kind}")


def _manifest_bytes(image: ImageManifest) -> bytes:
    """The one form of a manifest: everything in it follows from what it describes."""
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": image.kind,
        "config": image.config.to_json(CONFIG_TYPE),
        "layers": [each.to_json(LAYER_TYPE) for each in image.layers],
        "annotations": {
            CREATED: image.created,
            TITLE: image.model,
            VERSION: str(image.version),
            PACKAGE_DIGEST: image.package_digest,
        },
    }
    if image.subject is not None:
        document["subject"] = image.subject.to_json(MANIFEST_TYPE)
    return canonical(document)


def _config_bytes(layers: Sequence[Descriptor]) -> bytes:
    """The configuration: an uncompressed layer's digest is the digest of its difference."""
    digests = [each.digest for each in layers]
    return canonical({"config": {}, "rootfs": {"type": "layers", "diff_ids": digests}})


# Archives: plain headers (USTAR) that say nothing but names and sizes, in one order.


@dataclass(frozen=True, slots=True)
class _Member:
    """An entry of a layer; a folder has no size."""

    name: str
    size: int = 0
    is_folder: bool = False

    def header(self) -> bytes:
        """The 512 bytes before its content."""
        about = tarfile.TarInfo(self.name)
        about.size = self.size
        about.type = tarfile.DIRTYPE if self.is_folder else tarfile.REGTYPE
        about.mode = 0o555 if self.is_folder else 0o444
        return about.tobuf(tarfile.USTAR_FORMAT)


_FOLDER: Final = _Member(FILES, is_folder=True)
_END: Final = bytes(2 * _BLOCK)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def _sealed_name(name: str) -> str:
    return f"{FILES}/{name}{SEALED_SUFFIX}"


# Writing.


def write_package_image(folder: Path, target: Path) -> ImageManifest:
    """Write the sealed package in ``folder``, without its keys, as an OCI layout.

    The package isn't verified here; who sends one opens it first.

    Args:
        folder: the package's.
        target: a folder that doesn't exist, or is empty.

    Raises:
        IntegrityError: the folder holds no package.
        StorageFullError: no space for the layers, which take as much as the package.
        WorkloadError: it has more, or larger, files than an image can have.
    """
    with _open(folder / MANIFEST) as file:
        payload = file.read(MAX_MANIFEST_BYTES + 1)
    contents = Manifest.from_bytes(payload, str(folder / MANIFEST))
    if len(contents.files) > MAX_FILES:
        raise WorkloadError(
            f"{contents.model} version {contents.version} has {len(contents.files)} files; an "
            f"image may have {MAX_FILES}: publish fewer, larger ones"
        )
    for name, entry in contents.files.items():
        if len(name) > MAX_NAME:
            raise WorkloadError(
                f"{name} of {contents.model} version {contents.version} has a name of {len(name)} "
                f"characters; an image may have {MAX_NAME}: publish it under a shorter one"
            )
        if entry.encrypted_size > MAX_FILE_BYTES:
            raise WorkloadError(
                f"{name} of {contents.model} version {contents.version} has "
                f"{entry.encrypted_size} encrypted bytes; an image may have {MAX_FILE_BYTES} in "
                "one file: publish it in parts"
            )
    parts = [[MANIFEST, SIGNATURE], *([_sealed_name(name)] for name in sorted(contents.files))]
    blobs = _begin(target)
    layers = tuple(_write_layer(folder, names, blobs) for names in parts)
    return _finish(target, blobs, _package_image(contents, payload, layers))


def write_keys_image(folder: Path, package: ImageManifest, target: Path) -> ImageManifest:
    """Write the wrapped keys of the package in ``folder`` as an OCI layout of their own.

    Args:
        folder: the package's.
        package: its image, which the keys' names as its subject.
        target: a folder that doesn't exist, or is empty.

    Raises:
        IntegrityError: there is no list of keys.
        StorageFullError: no space.
    """
    blobs = _begin(target)
    layers = (_write_layer(folder, [KEYS], blobs),)
    return _finish(target, blobs, _keys_image(package, layers))


def write_alias_image(
    record: bytes, signature: bytes, package: ImageManifest, issued: str, target: Path
) -> ImageManifest:
    """Write an alias's record as an OCI layout; `alias_record` makes and reads it.

    It has no subject: it outlives versions that are removed.

    Args:
        record: what is signed.
        signature: of it.
        package: the image that the alias stands for.
        issued: when the record was made, ISO 8601, UTC.
        target: a folder that doesn't exist, or is empty.

    Raises:
        StorageFullError: no space.
    """
    blobs = _begin(target)
    with tempfile.TemporaryDirectory(prefix="falaj-alias-") as folder:
        for name, content in zip(_ALIAS_FILES, (record, signature), strict=True):
            write_atomic(Path(folder, name), content)
        layers = (_write_layer(Path(folder), _ALIAS_FILES, blobs),)
    about = (package.model, package.version, issued, package.package_digest)
    return _finish(target, blobs, _image(ALIAS_TYPE, about, layers, None))


def _package_image(
    contents: Manifest, payload: bytes, layers: tuple[Descriptor, ...]
) -> ImageManifest:
    digest = hashlib.sha256(payload).hexdigest()
    about = (contents.model, contents.version, contents.created, digest)
    return _image(PACKAGE_TYPE, about, layers, None)


def _keys_image(package: ImageManifest, layers: tuple[Descriptor, ...]) -> ImageManifest:
    about = (package.model, package.version, package.created, package.package_digest)
    return _image(KEYS_TYPE, about, layers, package.itself)


def _image(
    kind: str,
    about: tuple[str, int, str, str],
    layers: tuple[Descriptor, ...],
    subject: Descriptor | None,
) -> ImageManifest:
    config = described(_config_bytes(layers))
    draft = ImageManifest(Descriptor("", 0), kind, *about, config, layers, subject)
    itself = described(_manifest_bytes(draft))
    return ImageManifest(itself, kind, *about, config, layers, subject)


def _begin(target: Path) -> Path:
    make_private_folder(target)
    return make_private_folder(target / "blobs" / "sha256")


def _write_layer(folder: Path, names: Sequence[str], blobs: Path) -> Descriptor:
    """Write one layer under its digest, which is known once it is written."""
    hashed, size = hashlib.sha256(), 0
    with storage_errors(blobs), tempfile.NamedTemporaryFile(dir=blobs, delete=False) as blob:

        def put(data: bytes) -> None:
            nonlocal size
            hashed.update(data)
            blob.write(data)
            size += len(data)

        if names[0].startswith(f"{FILES}/"):
            put(_FOLDER.header())
        for name in names:
            with _open(folder / name) as file:
                length = os.fstat(file.fileno()).st_size
                put(_Member(name, length).header())
                _copy_exactly(file, length, put, str(folder / name))
            put(_padding(length))
        put(_END)
    digest = hashed.hexdigest()
    Path(blob.name).replace(blobs / digest)
    return Descriptor(f"sha256:{digest}", size)


def _copy_exactly(file: IO[bytes], size: int, put: Callable[[bytes], Any], what: str) -> None:
    left = size
    while left:
        data = file.read(min(left, _CHUNK))
        if not data:
            raise IntegrityError(f"{what} ends {left} bytes before it should: it was cut short")
        put(data)
        left -= len(data)


def _finish(target: Path, blobs: Path, image: ImageManifest) -> ImageManifest:
    index = canonical({
        "schemaVersion": 2,
        "mediaType": _INDEX_TYPE,
        "manifests": [image.itself.to_json(MANIFEST_TYPE)],
    })  # fmt: skip
    manifest = _manifest_bytes(image)
    for content in (_config_bytes(image.layers), manifest):
        write_atomic(blobs / hashlib.sha256(content).hexdigest(), content)
    write_atomic(target / _LAYOUT, _LAYOUT_CONTENT)
    write_atomic(target / _INDEX, index)
    # What a reader would refuse is never written.
    return parse_image_manifest(manifest, str(target))


# Reading: nothing that stands in a layout is trusted, and nothing in it chooses where it is put.


class Reader(Protocol):
    """Content that is read once, from its beginning to its end."""

    def read(self, count: int, /) -> bytes:
        """The next ``count`` bytes, or fewer where it ends."""
        ...


class Image(Protocol):
    """One image where it is kept: a folder, or a registry. Its text form names it in errors."""

    def manifest(self, kind: str) -> ImageManifest:
        """Its manifest, of `PACKAGE_TYPE`, `KEYS_TYPE` or `ALIAS_TYPE`.

        Raises:
            IntegrityError: it is of another kind, or another image than what is named.
        """
        ...

    def open(self, blob: Descriptor) -> AbstractContextManager[Reader]:
        """One of its parts, whose digest whoever reads it compares.

        Raises:
            IntegrityError: it can't be what the manifest names.
        """
        ...


@dataclass(frozen=True)
class Layout:
    """The one image in a folder."""

    folder: Path
    digest: str | None = None
    """What it has to be, if that is known."""

    def __str__(self) -> str:
        """Return the folder."""
        return str(self.folder)

    def manifest(self, kind: str) -> ImageManifest:
        """See `read_image_manifest`."""
        return read_image_manifest(self.folder, kind, self.digest)

    @contextmanager
    def open(self, blob: Descriptor) -> Generator[Reader]:
        """A file of the folder, which has as many bytes as it should."""
        path = _blob_path(self.folder, blob)
        with _open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != blob.size:
                raise IntegrityError(f"{path} has {size} bytes; its image names {blob.size}")
            yield file


def read_package(
    image: Path,
    keys_image: Path,
    target: Path,
    *,
    keys: KeyService | None,
    verify_key: Trusted,
    digest: str | None = None,
) -> Package:
    """Lay a package out from its image and that of its keys, and verify it.

    Args:
        image: OCI layout of the package.
        keys_image: OCI layout of its wrapped keys.
        target: an empty folder, which the caller removes if this fails.
        keys: unwraps data keys, so that every file is opened. None: what is encrypted is held
            against the signed digests, and nothing is opened.
        verify_key: the trusted public key.
        digest: of the package's image, if the caller knows it from elsewhere.

    Raises:
        IntegrityError: anything isn't what the trusted key signed, or not in its one form.
        StorageFullError: no space.
    """
    found = lay_out(Layout(image, digest), Layout(keys_image), target)
    package = open_package(target, found.model, found.version, keys, verify_key)
    if keys is None:
        package.verify_sealed()
    else:
        package.verify()
    return package


def lay_out(image: Image, keys_image: Image, target: Path) -> ImageManifest:
    """Write the files of a package from its image and that of its keys; each is read once.

    Nobody's signature is verified here: who lays a package out opens it next.

    Args:
        image: of the package.
        keys_image: of its wrapped keys.
        target: an empty folder, which the caller removes if this fails.

    Returns:
        What the package's image says of itself.

    Raises:
        IntegrityError: one of both isn't in its one form, or the keys are another package's.
        StorageFullError: no space.
    """
    found = image.manifest(PACKAGE_TYPE)
    _check_config(image, found)
    wrapped = keys_image.manifest(KEYS_TYPE)
    _check_config(keys_image, wrapped)
    if wrapped.subject != found.itself:
        other = wrapped.subject.digest if wrapped.subject else "none"
        raise IntegrityError(
            f"the keys in {keys_image} belong to the image {other}, not to {found.itself.digest}: "
            "they are another package's"
        )
    if wrapped != _keys_image(found, wrapped.layers):
        raise IntegrityError(f"the keys in {keys_image} are named after another package")
    make_private_folder(make_private_folder(target) / FILES)
    _lay_out(image, found.layers[0], [MANIFEST, SIGNATURE], target, MAX_MANIFEST_BYTES)
    payload = (target / MANIFEST).read_bytes()
    contents = Manifest.from_bytes(payload, f"the manifest in {image}")
    names = sorted(contents.files)
    if len(names) != len(found.layers) - 1:
        raise IntegrityError(
            f"{image} has {len(found.layers) - 1} layers of files, its manifest has {len(names)}"
        )
    for name, layer in zip(names, found.layers[1:], strict=True):
        most = min(contents.files[name].encrypted_size, MAX_FILE_BYTES)
        _lay_out(image, layer, [_sealed_name(name)], target, most)
    _lay_out(keys_image, wrapped.layers[0], [KEYS], target, MAX_DOCUMENT_BYTES)
    if found != _package_image(contents, payload, found.layers):
        raise IntegrityError(
            f"{image} says of itself what isn't in its package: it was changed, or put together "
            "from others"
        )
    return found


def read_image_manifest(layout: Path, kind: str, digest: str | None = None) -> ImageManifest:
    """Read the manifest of the one image in an OCI layout.

    Args:
        layout: the folder.
        kind: `PACKAGE_TYPE`, `KEYS_TYPE` or `ALIAS_TYPE`.
        digest: what it has to be, if that is known.

    Raises:
        IntegrityError: no layout, several images, another image, or one that isn't ours.
    """
    if _document(_read(layout / _LAYOUT), str(layout / _LAYOUT)) != json.loads(_LAYOUT_CONTENT):
        raise IntegrityError(f"{layout} is no OCI layout of version 1.0.0")
    index = _document(_read(layout / _INDEX), str(layout / _INDEX))
    match index:
        case {"manifests": [{"digest": str(found), "size": int(size)}]} if DIGEST.fullmatch(found):
            itself = Descriptor(found, size)
        case _:
            raise IntegrityError(f"{layout / _INDEX} doesn't name exactly one image")
    if digest is not None and found != digest:
        raise IntegrityError(f"{layout} holds {found}, not {digest}: it is another image")
    image = parse_image_manifest(_blob(layout, itself), str(layout))
    if image.kind != kind:
        raise IntegrityError(f"{layout} holds {image.kind!r}; needed: {kind!r}")
    return image


def read_sealed_manifest(layer: bytes, image: ImageManifest) -> tuple[bytes, bytes]:
    """The package's own manifest and its signature, from the bytes of the image's first layer.

    Raises:
        IntegrityError: they aren't the layer that the image names, or not in its one form.
    """
    manifest, signature = _two_files(layer, image, (MANIFEST, SIGNATURE))
    if hashlib.sha256(manifest).hexdigest() != image.package_digest:
        raise IntegrityError(f"the first layer of {image.model} holds something else")
    return manifest, signature


def read_alias_layer(layer: bytes, image: ImageManifest) -> tuple[bytes, bytes]:
    """An alias's record and its signature, from the bytes of its image's layer.

    Raises:
        IntegrityError: they aren't the layer that the image names, or not in its one form.
    """
    return _two_files(layer, image, _ALIAS_FILES)


def _two_files(layer: bytes, image: ImageManifest, names: tuple[str, str]) -> tuple[bytes, bytes]:
    first = image.layers[0]
    if described(layer) != first:
        raise IntegrityError(f"the first layer of {image.model} isn't {first.digest}")
    found: list[bytes] = []
    rest = memoryview(layer)
    for name in names:
        member = _header(bytes(rest[:_BLOCK]), name, MAX_MANIFEST_BYTES)
        end = _BLOCK + member.size
        found.append(bytes(rest[_BLOCK:end]))
        padding = rest[end : end + len(_padding(member.size))]
        if bytes(padding).strip(b"\0"):
            raise IntegrityError(f"the first layer of {image.model} hides content after {name}")
        rest = rest[end + len(padding) :]
    if bytes(rest) != _END:
        raise IntegrityError(f"the first layer of {image.model} holds something else")
    return found[0], found[1]


def _check_config(kept: Image, image: ImageManifest) -> None:
    wanted = _config_bytes(image.layers)
    # One byte more than is wanted is as wrong as another one.
    if image.config == described(wanted):
        with kept.open(image.config) as blob:
            if blob.read(len(wanted) + 1) == wanted:
                return
    raise IntegrityError(
        f"the configuration in {kept} isn't of its layers: a cluster would refuse to mount "
        "it, or mount something else"
    )


def _lay_out(
    image: Image, layer: Descriptor, names: Sequence[str], target: Path, most: int
) -> None:
    """Write a layer's files to ``target``: these names, in this order, and nothing else.

    Every byte of the archive is given by names and sizes, so that there are no links, devices,
    other names, extended headers or content after the end.
    """
    hashed = hashlib.sha256()
    path = f"layer {layer.digest} of {image}"
    with image.open(layer) as blob:

        def take(count: int) -> bytes:
            data = blob.read(count)
            if len(data) != count:
                raise IntegrityError(f"{path} ends within an archive: it was cut short")
            hashed.update(data)
            return data

        if names[0].startswith(f"{FILES}/") and take(_BLOCK) != _FOLDER.header():
            raise IntegrityError(f"{path} doesn't begin with the folder {FILES}")
        for name in names:
            member = _header(take(_BLOCK), name, most)
            place = target / name
            with storage_errors(place), place.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                left = member.size
                while left:
                    data = take(min(left, _CHUNK))
                    file.write(data)
                    left -= len(data)
                file.flush()
                os.fsync(file.fileno())
            if take(len(_padding(member.size))).strip(b"\0"):
                raise IntegrityError(f"{path} hides content after {name}")
        if take(len(_END)) != _END or blob.read(1):
            raise IntegrityError(f"{path} has more in it than {', '.join(names)}")
    if hashed.hexdigest() != layer.digest.partition(":")[2]:
        raise IntegrityError(f"{path} holds something else: it was changed")


def _header(block: bytes, name: str, most: int) -> _Member:
    """Read the header of the one file that may stand here."""
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        raise IntegrityError(f"where {name} should be is no archive's header: {error}") from error
    if not found.isreg():
        raise IntegrityError(
            f"{found.name!r} is a link, device or folder where the file {name} should be"
        )
    if found.name != name:
        raise IntegrityError(f"{found.name!r} stands where {name} should be: it was put there")
    if not 0 <= found.size <= most:
        raise IntegrityError(f"{name} has {found.size} bytes; allowed: {most}")
    member = _Member(name, found.size)
    if block != member.header():
        raise IntegrityError(f"the header of {name} isn't in the form that packages have")
    return member


def _blob_path(layout: Path, wanted: Descriptor) -> Path:
    return layout / "blobs" / "sha256" / wanted.digest.partition(":")[2]


def _blob(layout: Path, wanted: Descriptor) -> bytes:
    """A small blob whose digest and size are what they should be."""
    path = _blob_path(layout, wanted)
    data = _read(path)
    if described(data) != wanted:
        raise IntegrityError(
            f"{path} isn't {wanted.digest} of {wanted.size} bytes: it was changed"
        )
    return data


def _read(path: Path) -> bytes:
    """A small document, never through a link."""
    with _open(path) as file:
        data = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise IntegrityError(f"{path} has more than {MAX_DOCUMENT_BYTES} bytes, which is allowed")
    return data


def _open(path: Path) -> IO[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise IntegrityError(f"can't read {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IntegrityError(f"{path} isn't an ordinary file")
    return os.fdopen(descriptor, "rb")
