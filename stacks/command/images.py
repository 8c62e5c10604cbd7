"""``falaj images``: what a cluster runs, pinned and copied into the closed network's registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from falaj.stacks.command.console import complain, say, table
from falaj.stacks.command.images_build import build
from falaj.stacks.command.options import project_option, stacks_here, the_project
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import Archive
from falaj.stacks.images.chart_archives import Helm
from falaj.stacks.images.crane import Crane
from falaj.stacks.images.items import Item, items
from falaj.stacks.images.lock import EMPTY, Lock, load, save
from falaj.stacks.images.mirror import Mirror, Outcome
from falaj.stacks.images.pin import pin as pin_items
from falaj.stacks.images.rewrite import rewrite as rewritten
from falaj.stacks.images.target import packs_settings, require_in_country
from falaj.stacks.settings.cloud import InClusterSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])

LOCK_FILE: Final = "images.lock.yaml"

_names = click.argument("names", metavar="[NAME]...", nargs=-1)
_stack = click.option(
    "-s",
    "--stack",
    metavar="NAME",
    shell_complete=stacks_here,
    help="The stack whose policies say which registries are in the country (default: ECR in "
    "me-central-1, and this machine), and whose lock file is used.",
)
_lock_file = click.option(
    "--lock",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Default: the stack's, else images.lock.yaml in the project's folder if it is there.",
)
_used_by = click.option(
    "--used-by", metavar="ADD-ON", multiple=True, help="What that add-on needs alone."
)


def _to(command: _Command) -> _Command:
    return click.option(
        "--to", "registry", metavar="REGISTRY", required=True, help="Host with port and path."
    )(command)


@click.group()
def images() -> None:
    """What clusters run: list it, pin it by digest, copy it into the country, build our own."""


images.add_command(build)


@images.command("list")
@_names
@_used_by
@_lock_file
@_stack
@project_option
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.option(
    "--repositories",
    is_flag=True,
    help="Print the repositories that a mirror has, for registries that make none themselves.",
)
def list_items(
    *,
    names: tuple[str, ...],
    used_by: tuple[str, ...],
    lock: Path | None,
    stack: str | None,
    project: Path | None,
    form: str,
    repositories: bool,
) -> int:
    """List every image and chart with its digest."""
    found = items(_lock(the_project(project), lock, stack), only=names, used_by=used_by)
    if repositories:
        say("\n".join(sorted({each.mirror for each in found})))
    elif form == "json":
        say(json.dumps([_shown(each) for each in found], indent=2, ensure_ascii=False))
    else:
        rows = [("kind", "name", "version", "digest", "licence", "used by", "from")]
        rows += [
            (
                each.kind.removesuffix("s"), each.name, each.tag,
                (each.digest or "unknown")[:19], each.licence, ", ".join(each.used_by),
                each.source or "built here",
            )
            for each in found
        ]  # fmt: skip
        say(table(rows))
        unknown = sum(each.digest is None for each in found)
        say(
            f"\n{len(found)} images and charts, {unknown} without a known digest; sizes are known "
            "to registries alone"
        )
    return 0


def _shown(item: Item) -> dict[str, object]:
    return {
        "kind": item.kind.removesuffix("s"), "name": item.name, "source": item.source or None,
        "tag": item.tag, "digest": item.digest, "licence": item.licence,
        "usedBy": list(item.used_by), "mirror": item.mirror, "bytes": None,
    }  # fmt: skip


@images.command()
@_names
@_used_by
@_lock_file
@_stack
@project_option
@click.option("--registry", help="The mirror to ask (default: each image's registry upstream).")
@click.option("--accept", metavar="NAME", multiple=True, help="Its tag may have been moved.")
def pin(
    *,
    names: tuple[str, ...],
    used_by: tuple[str, ...],
    lock: Path | None,
    stack: str | None,
    project: Path | None,
    registry: str | None,
    accept: tuple[str, ...],
) -> int:
    """Ask registries for digests and write them to a lock file."""
    here = the_project(project)
    path, _ = _lock_path(here, lock, stack)
    old = load(path) if path.exists() else EMPTY
    wanted = items(old, only=names, used_by=used_by)
    asked = None
    if registry:
        asked = require_in_country(registry, *packs_settings(here, stack))
    elif not names:
        wanted = [each for each in wanted if not each.is_ours]
    items(old, only=accept)
    result = pin_items(
        wanted, old, registry=asked, today=_today(), crane=Crane(), helm=Helm(), accept=accept,
        progress=say,
    )  # fmt: skip
    save(path, result.lock)
    say(f"\n{len(result.found)} pinned in {path}")
    if result.moved:
        complain(
            f"{len(result.moved)} tags stand for something else than what was pinned: "
            f"{', '.join(result.moved)}; nobody moves a release's tag for a good reason. Once you "
            "know why, take them with --accept NAME"
        )
    if result.failed:
        complain(f"{len(result.failed)} could not be pinned: {', '.join(result.failed)}")
    return 1 if result.moved or result.failed else 0


@images.command()
@_names
@_used_by
@_lock_file
@_stack
@project_option
@click.option("--to", "registry", metavar="REGISTRY", help="Host with port and path.")
@click.option(
    "--archive",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write them to a disk instead, for `falaj images load`.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be copied.")
def mirror(
    *,
    names: tuple[str, ...],
    used_by: tuple[str, ...],
    lock: Path | None,
    stack: str | None,
    project: Path | None,
    registry: str | None,
    archive: Path | None,
    dry_run: bool,
) -> int:
    """Copy images and charts into a registry, by digest, or to a disk."""
    if (registry is None) == (archive is None):
        raise StackError("give one of --to REGISTRY and --archive FOLDER")
    here = the_project(project)
    found = items(_lock(here, lock, stack), only=names, used_by=used_by)
    wanted = found if names else [each for each in found if not each.is_ours]
    if archive is not None:
        return _told(
            Archive(archive, Crane(), Helm(), say).fill(wanted, today=_today()), "written"
        )
    target = require_in_country(str(registry), *packs_settings(here, stack))
    return _told(Mirror(target, Crane(), Helm(), say, dry_run=dry_run).fill(wanted), "copied")


@images.command("load")
@_names
@_stack
@project_option
@click.option(
    "--archive", metavar="FOLDER", type=click.Path(path_type=Path), required=True,
    help="What `falaj images mirror --archive` wrote.",
)  # fmt: skip
@_to
def load_archive(
    names: tuple[str, ...],
    stack: str | None,
    project: Path | None,
    archive: Path,
    registry: str,
) -> int:
    """Send what is on a disk to a registry."""
    target = require_in_country(registry, *packs_settings(the_project(project), stack))
    disk = Archive(archive, Crane(), Helm(), say)
    contents = disk.contents()
    known = {*contents.images, *contents.charts}
    found = items(contents, only=names)
    wanted = [each for each in found if each.name in contents.of(each.kind)]
    for each in names:
        if each not in known:
            raise StackError(f"name: given {each!r}; in the archive: {', '.join(sorted(known))}")
    return _told(disk.send(wanted, target), "sent")


@images.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@_lock_file
@_stack
@project_option
@_to
@click.option("--in-place", is_flag=True, help="Write the files (default: print the result).")
def rewrite(
    *,
    files: tuple[Path, ...],
    lock: Path | None,
    stack: str | None,
    project: Path | None,
    registry: str,
    in_place: bool,
) -> int:
    """Rewrite references in YAML files to the mirror."""
    here = the_project(project)
    target = require_in_country(registry, *packs_settings(here, stack))
    known = items(_lock(here, lock, stack))
    status = 0
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StackError(f"{path} cannot be read: {error}") from None
        try:
            result = rewritten(text, known, target)
        except StackError as error:
            raise StackError(f"{path}: {error}") from None
        for change in result.changes:
            if in_place:
                say(f"{path}:{change.line}: {change.old} -> {change.new}")
        for each in result.unknown:
            complain(f"{path}: {each}")
            status = 1
        if in_place:
            path.write_text(result.text, encoding="utf-8")
        else:
            say(result.text.rstrip("\n"))
    return status


def _told(outcome: Outcome, done: str) -> int:
    parts = [f"{len(outcome.copied)} {done}", f"{len(outcome.there)} were there"]
    if outcome.missing:
        parts.append(f"{len(outcome.missing)} would be {done}")
    say("\n" + ", ".join(parts))
    if outcome.moved:
        complain(f"tags were moved upstream since they were pinned: {', '.join(outcome.moved)}")
    if outcome.failed:
        complain(
            f"{len(outcome.failed)} failed: {', '.join(outcome.failed)}; run again for "
            f"these: what was {done} stays"
        )
    return outcome.exit_status


def _lock_path(project: Project, lock: Path | None, stack: str | None) -> tuple[Path, bool]:
    """The lock file, and whether somebody asked for just that one."""
    if lock is not None:
        return lock, True
    settings = StackFile(stack, project).settings() if stack else None
    if isinstance(settings, InClusterSettings) and settings.images:
        return project.root / settings.images, True
    return project.root / LOCK_FILE, False


def _lock(project: Project, lock: Path | None, stack: str | None) -> Lock:
    path, asked = _lock_path(project, lock, stack)
    return load(path) if asked or path.exists() else EMPTY


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
