"""The folder that an image is built from: sources, wheels, list of contents, all with one time.

Nothing else gets into a build, and a build needs no network.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import falaj
from falaj.stacks.errors import StackError
from falaj.stacks.images.recipes import FOLDER, ROOT, Recipe
from falaj.stacks.images.wheels import Wheel, as_requirements, fetch

_SUFFIXES: Final = frozenset({".py", ".json", ".yaml"})


def stage(
    recipe: Recipe, folder: Path, wheels: Sequence[Wheel], *, epoch: int, bom: str, machine: str,
    source: Path | None,
) -> None:  # fmt: skip
    """Put together what an image is built from.

    Args:
        recipe: the image.
        folder: an empty folder.
        wheels: what is installed.
        epoch: time of all files, seconds since 1970.
        bom: list of contents, CycloneDX JSON.
        machine: ``amd64`` or ``arm64``.
        source: a folder with wheels. Default: pip's own index.

    Raises:
        StackError: wheels can't be had, or a source is missing.
    """
    shutil.copyfile(FOLDER / recipe.containerfile, folder / "Containerfile")
    shutil.copyfile(FOLDER / "finish.py", folder / "finish.py")
    (folder / "requirements.txt").write_text(as_requirements(wheels), encoding="utf-8")
    (folder / "sbom.cdx.json").write_text(bom, encoding="utf-8")
    copy_sources(recipe, folder)
    fetch(folder / "requirements.txt", folder / "wheels", machine, source)
    # One time and one mode for all: builders copy both.
    for path in (folder, *sorted(folder.rglob("*"))):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (epoch, epoch))


def copy_sources(recipe: Recipe, folder: Path) -> None:
    """Copy what the image runs to ``falaj`` in a folder; caches and other packages stay out.

    Raises:
        StackError: a source is missing.
    """
    source, target = ROOT / "workloads", folder / "falaj" / "workloads"
    target.mkdir(parents=True)
    shutil.copyfile(falaj.__file__, target.parent / "__init__.py")
    for name in recipe.packages:
        path = source / name
        if path.is_file():
            shutil.copyfile(path, target / name)
            continue
        if not path.is_dir():
            raise StackError(f"{path} is missing; {recipe.name} can't be built without it")
        for file in sorted(path.rglob("*")):
            if file.suffix in _SUFFIXES and "__pycache__" not in file.parts:
                copy = target / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
