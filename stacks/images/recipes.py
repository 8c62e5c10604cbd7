"""Which images are built here, and of what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from falaj.components.nearest import nearest
from falaj.stacks.errors import StackError

ROOT: Final = Path(__file__).resolve().parents[2]
"""What holds our packages: the project's folder in a clone, ``falaj`` in an installation."""
FOLDER: Final = ROOT / "workloads" / "images"
BUILD_BASE: Final = "base-build"
"""Short name of the image that wheels are installed in."""


@dataclass(frozen=True)
class Recipe:
    """How one image is built."""

    name: str
    """Its short name in the bill of materials."""
    containerfile: str
    """File below ``workloads/images``."""
    requirements: str
    """Hashed requirements, file below ``requirements``."""
    packages: tuple[str, ...]
    """Packages and modules below ``workloads`` that are copied."""
    run_base: str
    """Short name of the image that it runs on."""


_COMMON: Final = ("__init__.py", "bounds.py", "errors.py", "files.py", "statuses.py", "registry")
#: Horovod's launcher is taken from the smallest image, for pods of a team's own.
_SERVING: Final = (*_COMMON, "inference", "horovod")
_TRAINING: Final = (*_SERVING, "federation", "optimization", "training")
RECIPES: Final[Mapping[str, Recipe]] = {
    each.name: each
    for each in (
        Recipe(
            "falaj-inference", "inference.Containerfile", "image-inference.txt", _SERVING,
            "base-distroless",
        ),
        Recipe(
            "falaj-training", "training.Containerfile", "image-training.txt", _TRAINING,
            "base-training",
        ),
        Recipe(
            "falaj-training-cpu", "training-cpu.Containerfile", "image-training.txt", _TRAINING,
            "base-distroless",
        ),
    )
}  # fmt: skip


def recipes(names: Sequence[str]) -> list[Recipe]:
    """Recipes by name; all where no name is given.

    Raises:
        StackError: there is none of such a name.
    """
    for each in names:
        if each not in RECIPES:
            near = nearest(each, RECIPES)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise StackError(
                f"name: given {each!r}, which isn't built here; allowed: "
                f"{', '.join(RECIPES)}{hint}"
            )
    return [RECIPES[each] for each in names or RECIPES]
