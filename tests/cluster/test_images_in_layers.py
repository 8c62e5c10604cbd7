"""Images that buildah builds: a layer for the wheels, which a change of the code leaves alone.

Built whole, or with the wheels of the one before it, an image is the same.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.controlplane import bases, prerequisites
from falaj.engine.controlplane.registry import Image
from falaj.engine.progress import to_stderr
from falaj.stacks.images import build
from falaj.stacks.images.archive import blob_path, layout_digest
from falaj.stacks.images.build import BUILD_BASE, RECIPES, Built, own_storage
from falaj.stacks.images.items import EMPTY, items
from falaj.stacks.images.kept import BUILDER, Kept, home
from tests.stacks.images.test_build import wheel_and_pin
from tests.stacks.images.test_layers import sha

RECIPE = RECIPES["falaj-inference"]


@pytest.fixture(autouse=True)
def builder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed where tests with real machines would, whose images are built by it."""
    lacking = prerequisites.lacking()
    if lacking and not os.environ.get("CI"):
        pytest.skip("no images are built here: " + "; ".join(lacking))
    prerequisites.install_missing(BUILDER)
    assert shutil.which(BUILDER)


def written(image: Image, folder: Path) -> str:
    """A base where a builder reads it; what it is called."""
    for data in (image.layer, image.config, image.manifest):
        path = blob_path(folder, sha(data))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": image.digest,
        "size": len(image.manifest),
    }
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return f"oci:{folder}"


@dataclass(frozen=True)
class Workshop:
    """Where images are built of sources of its own."""

    folder: Path
    wheels: Path
    bases: Mapping[str, str]
    monkeypatch: pytest.MonkeyPatch

    def built(self, cache: str, code: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Build into a cache; the digest, and what manifest and configuration say."""
        self.monkeypatch.setenv("FALAJ_CACHE", str(self.folder / cache))
        (build.ROOT / "workloads" / "server.py").write_text(code)
        recipe = replace(RECIPE, requirements="r.txt", packages=("server.py",))
        [item] = items(EMPTY, only=[RECIPE.name])
        kept = Kept(recipe, item, self.bases, "amd64")
        with kept.held(own_storage, self.wheels, to_stderr) as found:
            assert [each for each in home().iterdir() if each.is_dir()] == [kept.folder]
            return found.digest, *read(found)


def read(built: Built) -> tuple[dict[str, Any], dict[str, Any]]:
    manifest = json.loads(blob_path(built.layout, layout_digest(built.layout)).read_bytes())
    config = json.loads(blob_path(built.layout, manifest["config"]["digest"]).read_bytes())
    for each in manifest["layers"]:
        assert sha(blob_path(built.layout, each["digest"]).read_bytes()) == each["digest"]
    return manifest, config


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    wheels, requirements = wheel_and_pin(tmp_path)
    names = (BUILD_BASE, RECIPE.run_base)
    found = {each: written(bases.image(each), tmp_path / each) for each in names}
    root = tmp_path / "root"
    shutil.copytree(build.FOLDER, root / "workloads" / "images")
    (root / "requirements").mkdir()
    shutil.copy(requirements, root / "requirements" / "r.txt")
    monkeypatch.setattr(build, "ROOT", root)
    monkeypatch.setattr(build, "FOLDER", root / "workloads" / "images")
    return Workshop(tmp_path, wheels, found, monkeypatch)


def test_a_change_of_the_code_leaves_the_wheels_alone(workshop: Workshop) -> None:
    first, before, _ = workshop.built("one", "VALUE = 1\n")
    second, partly, of_partly = workshop.built("one", "VALUE = 2\n")
    assert workshop.built("one", "VALUE = 2\n")[0] == second
    _, whole, of_whole = workshop.built("two", "VALUE = 2\n")
    assert first != second
    # The base, wheels, the interpreter's name, our code, the list of contents.
    assert len(whole["layers"]) == 5
    assert partly["layers"] == whole["layers"]
    changed = [
        number
        for number, (old, new) in enumerate(zip(before["layers"], whole["layers"], strict=True))
        if old != new
    ]
    assert changed == [3]
    # What differs is the builder's number for the layers below.
    for each in (*of_partly["history"], *of_whole["history"]):
        each.pop("comment", None)
    assert of_partly == of_whole
