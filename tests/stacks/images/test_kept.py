"""Our own images in the user's cache: one for all that goes into it, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.errors import EngineError
from falaj.engine.progress import silent
from falaj.stacks.errors import StackError
from falaj.stacks.images import build, kept
from falaj.stacks.images.build import RECIPES
from falaj.stacks.images.items import EMPTY, items
from falaj.stacks.images.kept import Kept

NAME = "falaj-inference"
BASES = {
    name: f"registry.example.ae/falaj/{name}@sha256:{'b' * 64}"
    for name in ("base-build", "base-distroless")
}
DIGEST = "sha256:" + "c" * 64


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    [item] = items(EMPTY, only=[NAME])
    return Kept(RECIPES[NAME], item, BASES, "amd64")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of its own, in place of the repository's."""
    root = tmp_path / "root"
    (root / "requirements").mkdir(parents=True)
    (root / "workloads" / "images").mkdir(parents=True)
    for name in ("inference.Containerfile", "finish.py"):
        (root / "workloads/images" / name).write_text(name)
    (root / "workloads" / "server.py").write_text("VALUE = 1\n")
    (root / "requirements" / "r.txt").write_text(f"demo==1.0 --hash=sha256:{'a' * 64}\n")
    monkeypatch.setattr(build, "ROOT", root)
    monkeypatch.setattr(build, "FOLDER", root / "workloads" / "images")
    return root


def of(whole: Kept, **changed: Any) -> Kept:
    recipe = replace(whole.recipe, requirements="r.txt", packages=("server.py",))
    return replace(whole, recipe=recipe, **changed)


def test_the_same_is_kept_once_and_another_elsewhere(image: Kept, sources: Path) -> None:
    first = of(image).folder
    assert of(image).folder == first
    assert first.name.startswith(f"{NAME}-{image.image.tag}-")
    others = {
        of(image, machine="arm64").folder,
        of(image, bases={**BASES, "base-build": f"x@sha256:{'d' * 64}"}).folder,
        of(image, image=replace(image.image, licence="MIT")).folder,
    }
    for name, text in (
        ("workloads/server.py", "VALUE = 2\n"),
        ("workloads/images/finish.py", "another"),
        ("workloads/images/inference.Containerfile", "another"),
        ("requirements/r.txt", f"demo==1.0 --hash=sha256:{'d' * 64}\n"),
    ):
        (sources / name).write_text(text)
        others.add(of(image).folder)
    assert len(others - {first}) == 7


def test_what_a_commit_leaves_alone_stays_the_same(
    image: Kept, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = of(image).folder
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (sources / "workloads" / "other.py").write_text("VALUE = 1\n")
    (sources / "workloads" / "server.py").touch()
    assert of(image).folder == first


def test_a_missing_source_is_said(image: Kept, sources: Path) -> None:
    (sources / "workloads" / "server.py").unlink()
    with pytest.raises(StackError, match=r"server\.py is missing; falaj-inference can't be built"):
        assert of(image).folder


def test_a_cache_that_cant_be_written_is_said(
    image: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "file"))
    with (
        pytest.raises(EngineError, match=r"making the folder .*file/images failed"),
        image.held(no_variables, None, silent),
    ):
        pass


def no_variables(folder: Path) -> Mapping[str, str]:
    return {}


def building(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool = False, layers: list[object] | None = None
) -> list[Path]:
    """Puts a builder in its place; the folders that it was called with, and layers of wheels."""
    asked: list[Path] = []

    def build_image(recipe: object, image: object, bases: object, out: Path, **more: Any) -> None:
        asked.append(out)
        assert more["compression"] == "zstd", "these machines unpack it fastest"
        if layers is not None:
            layers.append(more["layer"])
        layout = out / NAME / "layout"
        layout.mkdir(parents=True)
        if fails:
            raise StackError("`buildah bud` failed")
        (layout / "index.json").write_text(json.dumps({"manifests": [{"digest": DIGEST}]}))

    monkeypatch.setattr(kept, "build_image", build_image)
    return asked


def test_it_is_built_once(image: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = building(monkeypatch)
    assert not image.is_there
    assert not Kept.any_of(image.image)
    for _ in range(2):
        with image.held(no_variables, None, silent) as built:
            assert built.digest == DIGEST
            assert built.layout.is_dir()
    assert len(asked) == 1
    assert image.is_there
    assert Kept.any_of(image.image)


def test_one_that_failed_is_begun_anew(image: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    building(monkeypatch, fails=True)
    with pytest.raises(StackError, match="failed"), image.held(no_variables, None, silent):
        pass
    assert not image.is_there
    (kept.home() / f"unfinished-{NAME}-of-a-killed-run").mkdir()
    building(monkeypatch)
    with image.held(no_variables, None, silent):
        pass
    assert [each.name for each in kept.home().iterdir() if each.is_dir()] == [image.folder.name]


def test_the_one_before_is_removed(
    image: Kept, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building(monkeypatch)
    before = of(image)
    with before.held(no_variables, None, silent):
        pass
    (sources / "workloads" / "server.py").write_text("VALUE = 2\n")
    with of(image).held(no_variables, None, silent) as built:
        assert built.layout.is_dir()
    assert not before.folder.exists()


def test_files_of_the_builder_go_with_the_build(
    image: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    building(monkeypatch)
    seen: list[Path] = []

    def variables(folder: Path) -> Mapping[str, str]:
        (folder / "storage.conf").write_text("")
        seen.append(folder)
        return {}

    with image.held(variables, None, silent):
        pass
    assert not seen[0].exists()


def test_wheels_are_taken_from_the_one_before_while_they_are_the_same(
    image: Kept, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose layer that is, `tests/cluster/test_images_in_layers.py` sees of a real builder."""
    layers: list[object] = []
    monkeypatch.setattr(kept, "wheels_of", lambda layout: layout.parent)
    building(monkeypatch, layers=layers)
    folders: list[Path] = []
    for name, text in (
        ("workloads/server.py", "VALUE = 1\n"),
        ("workloads/server.py", "VALUE = 2\n"),
        ("workloads/images/finish.py", "another"),
        ("workloads/server.py", "VALUE = 3\n"),
        ("requirements/r.txt", f"demo==2.0 --hash=sha256:{'a' * 64}\n"),
    ):
        (sources / name).write_text(text)
        with of(image).held(no_variables, None, silent):
            folders.append(of(image).folder)
    assert layers == [None, folders[0], None, folders[2], None]


def test_a_layer_that_cant_be_used_is_built_anew(
    image: Kept, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers: list[object] = []
    building(monkeypatch, layers=layers)
    for number in range(2):
        (sources / "workloads" / "server.py").write_text(f"VALUE = {number}\n")
        with of(image).held(no_variables, None, silent):
            pass
    assert layers == [None, None]
