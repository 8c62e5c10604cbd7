"""The layer of wheels: taken from the image before, put into the next, never a damaged one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import blob_path, layout_digest
from falaj.stacks.images.layers import FOLDER, put_wheels, wheels_of

COPY = f"/bin/sh -c #(nop) COPY dir:{'1' * 64} in "


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def layout(folder: Path, wheels: bytes, code: bytes, **changed: Any) -> Path:
    """An image of four layers, as a builder leaves it."""
    (folder / "blobs" / "sha256").mkdir(parents=True)

    def blob(data: bytes) -> dict[str, Any]:
        blob_path(folder, sha(data)).write_bytes(data)
        return {"digest": sha(data), "size": len(data)}

    layers = [b"base", wheels, b"interpreter", code]
    config = {
        "config": {"User": "65532:65532"},
        "rootfs": {"type": "layers", "diff_ids": [sha(b"unpacked " + each) for each in layers]},
        "history": [
            {"created_by": "base"},
            {"created_by": "ENV", "empty_layer": True},
            {"created_by": f"COPY dir:{wheels.hex()} in {FOLDER} "},
            {"created_by": f"{COPY}/opt/falaj/bin "},
            {"created_by": f"{COPY}/opt/falaj/app "},
        ],
        **changed,
    }
    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(config).encode()),
        "layers": [blob(each) for each in layers],
    }
    index = {"manifests": [{"mediaType": "m", **blob(json.dumps(manifest).encode())}]}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def whole(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and configuration, all of whose digests and sizes were checked."""

    def read(entry: dict[str, Any]) -> bytes:
        data = blob_path(folder, entry["digest"]).read_bytes()
        assert (sha(data), len(data)) == (entry["digest"], entry["size"])
        return data

    [entry] = json.loads((folder / "index.json").read_text())["manifests"]
    manifest = json.loads(read(entry))
    for each in manifest["layers"]:
        read(each)
    config = json.loads(read(manifest["config"]))
    named = [entry, manifest["config"], *manifest["layers"]]
    there = {each.name for each in (folder / "blobs" / "sha256").iterdir()}
    assert there == {each["digest"].removeprefix("sha256:") for each in named}
    return manifest, config


def test_the_image_is_as_one_that_was_built_whole(tmp_path: Path) -> None:
    before = layout(tmp_path / "before", b"wheels", b"code 1")
    built = layout(tmp_path / "built", b"", b"code 2")
    expected = whole(layout(tmp_path / "expected", b"wheels", b"code 2"))
    digest = layout_digest(built)
    layer = wheels_of(before)
    assert layer is not None
    put_wheels(built, layer)
    manifest, config = whole(built)
    assert manifest["layers"] == expected[0]["layers"]
    assert config == expected[1]
    assert layout_digest(built) != digest
    assert whole(before)[0]["layers"][1] == manifest["layers"][1]


def test_a_layer_that_two_share_stays(tmp_path: Path) -> None:
    """As where the code's is empty, too."""
    before = layout(tmp_path / "before", b"wheels", b"code")
    built = layout(tmp_path / "built", b"interpreter", b"code")
    layer = wheels_of(before)
    assert layer is not None
    put_wheels(built, layer)
    assert len(whole(built)[0]["layers"]) == 4


def gone(folder: Path) -> None:
    blob_path(folder, sha(b"wheels")).unlink()


def changed(folder: Path) -> None:
    blob_path(folder, sha(b"wheels")).write_bytes(b"wheelz")


def cut(folder: Path) -> None:
    (folder / "index.json").write_text('{"manifests": [')


def other(folder: Path) -> None:
    (folder / "index.json").write_text('{"manifests": [[]]}')


@pytest.mark.parametrize("damage", [gone, changed, cut, other])
def test_a_damaged_one_is_built_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    before = layout(tmp_path / "before", b"wheels", b"code")
    damage(before)
    assert wheels_of(before) is None


@pytest.mark.parametrize(
    "history",
    [
        [],
        None,
        [{}] * 4,
        ["COPY"] * 4,
        [{"created_by": f"{COPY}{FOLDER}"}] * 4,
        [{"created_by": f"{COPY}{FOLDER}"}],
        [{"created_by": f"{COPY}{FOLDER}/more"}, {}, {}, {}],
        [{"created_by": f"{COPY}{FOLDER}", "empty_layer": True}, {}, {}, {}, {}],
    ],
)
def test_an_image_with_no_layer_of_its_own_for_them(tmp_path: Path, history: Any) -> None:
    """As of a builder that makes one layer of all."""
    before = layout(tmp_path / "before", b"wheels", b"code", history=history)
    assert wheels_of(before) is None
    layer = wheels_of(layout(tmp_path / "other", b"wheels", b"code"))
    assert layer is not None
    digest = layout_digest(before)
    with pytest.raises(StackError, match="has no layer of wheels of its own"):
        put_wheels(before, layer)
    assert layout_digest(before) == digest


def test_nothing_that_is_there(tmp_path: Path) -> None:
    assert wheels_of(tmp_path) is None
