"""Builds our images with the builder that the machine has: buildah, podman, or docker's buildx.

Each writes an OCI layout, so that signing and pushing are the same whatever built it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from falaj.engine.guard import guarded
from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import layout_digest
from falaj.stacks.images.items import Item
from falaj.stacks.images.recipes import BUILD_BASE, ROOT, Recipe
from falaj.stacks.images.sbom import sbom
from falaj.stacks.images.staging import stage
from falaj.stacks.images.wheels import pinned

TOOLS: Final = ("buildah", "podman", "docker")
SECONDS: Final = 2 * 3600
#: 1980-01-01, the earliest time that zip files hold; where neither git nor the caller has a time.
EARLIEST: Final = 315532800
NON_ROOT: Final = 65532
"""User and group of the images, as in distroless ones."""


@dataclass(frozen=True)
class Built:
    """An image that was built."""

    name: str
    layout: Path
    """Folder with its OCI layout."""
    digest: str
    bom: Path
    """Its list of contents, CycloneDX JSON."""


def find_tool(wanted: str | None) -> str:
    """The builder to use.

    Raises:
        StackError: the wanted one, or any, isn't on the PATH.
    """
    for tool in [wanted] if wanted else TOOLS:
        if shutil.which(tool) and (tool != "docker" or _answers(["docker", "buildx", "version"])):
            return tool
    missing = f"{wanted} is not" if wanted else "none of buildah, podman and docker with buildx is"
    raise StackError(
        f"{missing} on the PATH, and images are built by one of these: install buildah, which "
        "needs no service and no root, or build on another machine"
    )


def source_date_epoch() -> int:
    """Time of everything in the image, seconds since 1970.

    $SOURCE_DATE_EPOCH, else the time of the last commit, else a fixed one:
    https://reproducible-builds.org/docs/source-date-epoch/
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        if not given.isdigit():
            raise StackError(
                f"SOURCE_DATE_EPOCH: given {given!r}; allowed: seconds since 1970, whole"
            )
        return int(given)
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return EARLIEST


def build(
    recipe: Recipe, image: Item, bases: Mapping[str, str], out: Path, *,
    tool: str, machine: str, epoch: int, wheels: Path | None, say: Callable[[str], None],
) -> Built:  # fmt: skip
    """Build one image into ``out/<name>``.

    Args:
        recipe: how.
        image: its entry in the bill of materials.
        bases: references of the bases by short name, with digests.
        out: folder of the results.
        tool: ``buildah``, ``podman`` or ``docker``.
        machine: ``amd64`` or ``arm64``.
        epoch: time of everything in it, seconds since 1970.
        wheels: a folder with wheels. Default: pip's own index.
        say: gets lines of progress.

    Raises:
        StackError: something is missing, or the builder failed.
    """
    target = out / recipe.name
    target.mkdir(parents=True, exist_ok=True)
    installed = pinned(ROOT / "requirements" / recipe.requirements, machine)
    bom = sbom(image, bases[recipe.run_base], installed, epoch=epoch)
    (target / "sbom.cdx.json").write_text(bom, encoding="utf-8")
    layout = target / "layout"
    shutil.rmtree(layout, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="falaj-build-") as folder:
        context = Path(folder)
        say(f"{recipe.name}: getting {len(installed)} wheels of {recipe.requirements}")
        stage(recipe, context, installed, epoch=epoch, bom=bom, machine=machine, source=wheels)
        say(f"{recipe.name}: building with {tool}")
        tag = f"localhost/{image.mirror}:{image.tag}"
        arguments = {"BUILD_BASE": bases[BUILD_BASE], "RUN_BASE": bases[recipe.run_base]}
        labels = _labels(image, bases[recipe.run_base])
        options = ["--platform", f"linux/{machine}"]
        for flag, values in (("--build-arg", arguments), ("--label", labels)):
            options += [
                part for name, value in values.items() for part in (flag, f"{name}={value}")
            ]
        for command in _commands(tool, context, tag, layout, options=options, epoch=epoch):
            _run(command, epoch)
    return Built(recipe.name, layout, layout_digest(layout), target / "sbom.cdx.json")


def _labels(image: Item, base: str) -> dict[str, str]:
    """https://github.com/opencontainers/image-spec/blob/main/annotations.md"""
    name, _, digest = base.partition("@")
    about = {
        "title": image.name,
        "version": image.tag,
        "licenses": image.licence,
        "base.name": name,
        "base.digest": digest,
    }
    return {f"org.opencontainers.image.{key}": value for key, value in about.items() if value}


def _commands(
    tool: str, context: Path, tag: str, layout: Path, *, options: Sequence[str], epoch: int
) -> list[list[str]]:
    options = ["--file", str(context / "Containerfile"), *options]
    if tool == "docker":
        output = f"type=oci,dest={layout},tar=false,rewrite-timestamp=true"
        return [
            ["docker", "buildx", "build", *options, "--network=none", "--provenance=false",
             "--output", output, str(context)],
        ]  # fmt: skip
    # In a container that may make no networks of its own buildah isolates by chroot; nothing in
    # the build asks for the network anyway.
    network = [] if os.environ.get("BUILDAH_ISOLATION") == "chroot" else ["--network=none"]
    verb = "build" if tool == "podman" else "bud"
    build_command = [tool, verb, *options, *network, "--layers=false", "--no-cache",
                     "--timestamp", str(epoch), "--tag", tag, str(context)]  # fmt: skip
    return [build_command, [tool, "push", "--quiet", tag, f"oci:{layout}"]]


def _run(command: list[str], epoch: int) -> None:
    try:
        done = subprocess.run(
            guarded([shutil.which(command[0]) or command[0], *command[1:]]),
            capture_output=True, text=True, timeout=SECONDS, check=False,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise StackError(f"{command[0]} took longer than {SECONDS // 3600} hours") from None
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise StackError(f"`{' '.join(command[:2])}` failed:\n{said}")


def _answers(command: list[str]) -> bool:
    try:
        return (
            subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
        )
    except (OSError, subprocess.SubprocessError):
        return False
