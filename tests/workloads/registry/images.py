"""Images of packages for tests: written, and forged by whoever can write to a registry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.oci_layout import (
    ImageManifest,
    read_package,
    write_keys_image,
    write_package_image,
)
from falaj.workloads.registry.package import Package


@dataclass(frozen=True)
class Sent:
    """A package's two images, in folders of their own."""

    image: Path
    keys: Path
    package: ImageManifest

    def read(self, target: Path, keyring: KeyRing, digest: str | None = None) -> Package:
        """Read them back with the key ring's keys."""
        return read_package(
            self.image, self.keys, target, keys=keyring, verify_key=keyring.verify_key(),
            digest=digest,
        )  # fmt: skip


def send(package: Package, folder: Path) -> Sent:
    image = write_package_image(package.path, folder / "image")
    write_keys_image(package.path, image, folder / "keys")
    return Sent(folder / "image", folder / "keys", image)


def manifest_of(layout: Path) -> dict[str, Any]:
    return json.loads(blob(layout, index_of(layout)["manifests"][0]["digest"]).read_bytes())


def index_of(layout: Path) -> dict[str, Any]:
    return json.loads((layout / "index.json").read_bytes())


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def put(layout: Path, data: bytes) -> dict[str, Any]:
    """Add a blob; what describes it, but its type."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blob(layout, digest).write_bytes(data)
    return {"digest": digest, "size": len(data)}


def compact(document: Any) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def forge(layout: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, and make everything that follows from it fit."""
    document = manifest_of(layout)
    change(document)
    replace_manifest(layout, compact(document))


def replace_manifest(layout: Path, data: bytes) -> None:
    index = index_of(layout)
    index["manifests"][0] |= put(layout, data)
    (layout / "index.json").write_bytes(compact(index))


def forge_layers(layout: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the layers, with a manifest and a configuration that fit them."""

    def refit(document: dict[str, Any]) -> None:
        old = [blob(layout, each["digest"]).read_bytes() for each in document["layers"]]
        kind = document["layers"][0]["mediaType"]
        layers = [{"mediaType": kind, **put(layout, data)} for data in change(old)]
        config = json.loads(blob(layout, document["config"]["digest"]).read_bytes())
        config["rootfs"]["diff_ids"] = [each["digest"] for each in layers]
        document["config"] |= put(layout, compact(config))
        document["layers"] = layers

    forge(layout, refit)


def archive(*members: tuple[str, bytes], **about: Any) -> bytes:
    """A layer in the right form; ``about`` changes the fields of its last member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for number, (name, data) in enumerate(members):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o444
            if name.endswith("/"):
                member.type, member.mode = tarfile.DIRTYPE, 0o555
            if number == len(members) - 1:
                for field, value in about.items():
                    setattr(member, field, value)
            made.addfile(member, io.BytesIO(data))
    # Python pads archives to records; a layer ends with its two empty blocks.
    whole = buffer.getvalue().rstrip(b"\0")
    return whole + bytes(-len(whole) % 512) + bytes(1024)


def mounted(layouts: list[Path], target: Path) -> Path:
    """What a container finds where the images are mounted: layers one over the other, unpacked."""
    target.mkdir()
    for layout in layouts:
        for layer in manifest_of(layout)["layers"]:
            with tarfile.open(blob(layout, layer["digest"])) as opened:
                opened.extractall(target, filter="tar")
    return target
