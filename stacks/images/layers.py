"""The layer of an image's wheels, taken from the image that was built before.

Wheels stay the same while our code changes, and are most of an image: of one that was built with
the same wheels, the layer is put in the place of an empty one. Manifest and configuration name a
layer each, in the same order: https://github.com/opencontainers/image-spec/blob/main/config.md
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import blob_digest, blob_path, layout_digest

#: As our Containerfiles copy the wheels; a builder's history ends in the folder it copied to.
FOLDER: Final = "/opt/falaj/lib"


@dataclass(frozen=True)
class WheelsLayer:
    """A layer of wheels in an OCI layout."""

    blob: Path
    entry: Mapping[str, Any]
    """As manifests name it: media type, digest and size of what is packed."""
    unpacked: str
    """Digest of what is unpacked, as configurations name it."""
    step: str
    """What made it, as their history says it."""


@dataclass(frozen=True)
class _Image:
    """The one image of a layout, and where its wheels are."""

    layout: Path
    manifest: dict[str, Any]
    config: dict[str, Any]
    place: int
    """Of the layer among all."""
    step: dict[str, Any]
    """Of the configuration's history."""

    @classmethod
    def read(cls, layout: Path) -> _Image:
        """Raises StackError where it is no such image."""
        try:
            manifest: Any = json.loads(blob_path(layout, layout_digest(layout)).read_bytes())
            config: Any = json.loads(blob_path(layout, manifest["config"]["digest"]).read_bytes())
            steps = [each for each in config["history"] if not each.get("empty_layer")]
            [place] = [
                number
                for number, each in enumerate(steps)
                if str(each.get("created_by", "")).rstrip().endswith(f" in {FOLDER}")
            ]
            if not len(steps) == len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]):
                raise ValueError("layers don't match their history")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StackError(f"{layout} has no layer of wheels of its own: {error}") from None
        return cls(layout, manifest, config, place, steps[place])


def wheels_of(layout: Path) -> WheelsLayer | None:
    """The layer of wheels of an image that was built before; None where it can't be used."""
    try:
        image = _Image.read(layout)
        entry = image.manifest["layers"][image.place]
        if blob_digest(layout, entry["digest"]) != entry["digest"]:
            return None
    except StackError:
        return None
    unpacked = image.config["rootfs"]["diff_ids"][image.place]
    return WheelsLayer(
        blob_path(layout, entry["digest"]), entry, unpacked, image.step["created_by"]
    )


def put_wheels(layout: Path, layer: WheelsLayer) -> None:
    """Put a layer of wheels where an image has an empty one.

    Raises:
        StackError: the image has none of its own.
        OSError: the layout can't be written, or lies on another disk than the layer.
    """
    image = _Image.read(layout)
    before = {layout_digest(layout), *_blobs(image.manifest)}
    image.manifest["layers"][image.place] = dict(layer.entry)
    image.config["rootfs"]["diff_ids"][image.place] = layer.unpacked
    image.step["created_by"] = layer.step
    os.link(layer.blob, blob_path(layout, layer.entry["digest"]))
    image.manifest["config"] |= _written(layout, image.config)
    index = json.loads((layout / "index.json").read_bytes())
    index["manifests"][0] |= _written(layout, image.manifest)
    (layout / "index.json").write_text(json.dumps(index), encoding="utf-8")
    for each in before - {*_blobs(image.manifest)}:
        blob_path(layout, each).unlink()


def _blobs(manifest: Mapping[str, Any]) -> list[str]:
    return [each["digest"] for each in (manifest["config"], *manifest["layers"])]


def _written(layout: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Digest and size of what is written."""
    data = json.dumps(content, separators=(",", ":")).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blob_path(layout, digest).write_bytes(data)
    return {"digest": digest, "size": len(data)}
