"""The folder that an image is built from: sources, wheels, list of contents, all with one time.

Nothing else gets into a build, and a build needs no network: wheels are fetched before, by pip,
each checked against its hash in the requirement file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.guard import guarded
from stacks.errors import StackError
from stacks.images.recipes import FOLDER, ROOT, Recipe

PYTHON: Final = "3.11"
"""The interpreter's minor version in all bases: Debian 12's, and the requirement files'."""
#: Tags of the manylinux platforms that Debian 12's glibc 2.36 satisfies: PEP 600.
GLIBC: Final = (34, 31, 28, 27, 26, 24, 17, 12, 5)
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_WHEEL_SECONDS: Final = 3600
_SUFFIXES: Final = frozenset({".py", ".json", ".yaml"})


def stage(
    recipe: Recipe, folder: Path, *, epoch: int, bom: str, machine: str, wheels: Path | None,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Put together what an image is built from.

    Args:
        recipe: the image.
        folder: an empty folder.
        epoch: time of all files, seconds since 1970.
        bom: list of contents, CycloneDX JSON.
        machine: ``amd64`` or ``arm64``.
        wheels: a folder with wheels, for networks without an index. Default: pip's own index.
        say: gets lines of progress.

    Raises:
        StackError: wheels can't be had, or a source is missing.
    """
    shutil.copyfile(FOLDER / recipe.containerfile, folder / "Containerfile")
    shutil.copyfile(FOLDER / "finish.py", folder / "finish.py")
    shutil.copyfile(ROOT / "requirements" / recipe.requirements, folder / "requirements.txt")
    (folder / "sbom.cdx.json").write_text(bom, encoding="utf-8")
    _copy_sources(recipe, folder / "workloads")
    say(f"{recipe.name}: getting wheels of {recipe.requirements}")
    _get_wheels(folder / "requirements.txt", folder / "wheels", machine, wheels)
    _same_times(folder, epoch)


def _copy_sources(recipe: Recipe, target: Path) -> None:
    """Copy what the image runs; tests, caches and other packages stay out."""
    source = ROOT / "workloads"
    target.mkdir()
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


def _get_wheels(requirements: Path, target: Path, machine: str, wheels: Path | None) -> None:
    target.mkdir()
    platforms = [f"manylinux_2_{minor}_{MACHINES[machine]}" for minor in GLIBC]
    platforms.append(f"manylinux2014_{MACHINES[machine]}")
    options = [part for each in platforms for part in ("--platform", each)]
    for abi in ("cp311", "abi3", "none"):
        options += ["--abi", abi]
    if wheels is not None:
        options += ["--no-index", "--find-links", str(wheels.resolve())]
    with tempfile.TemporaryDirectory(prefix="falaj-pip-") as folder:
        pip = Path(folder) / "bin" / "python"
        _run([sys.executable, "-m", "venv", folder], "making an environment for pip")
        command = [
            *(str(pip), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--require-hashes", "--no-deps", "--only-binary=:all:"),
            *("--python-version", PYTHON, "--implementation", "cp", *options),
            *("--dest", str(target), "--requirement", str(requirements)),
        ]
        _run(command, "getting wheels")


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            guarded(command), capture_output=True, text=True, timeout=_WHEEL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"{what} took longer than {_WHEEL_SECONDS // 60} minutes") from None
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-6:])
        raise StackError(
            f"{what} failed:\n{said}\n"
            "without an index in reach, give a folder with the wheels: --wheels FOLDER"
        )


def _same_times(folder: Path, epoch: int) -> None:
    """One time and one mode for all: builders copy both."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (epoch, epoch))
    os.utime(folder, (epoch, epoch))
