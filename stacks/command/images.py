"""``falaj images``: what a cluster runs, pinned and copied into the closed network's registry."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from falaj.stacks.command import images_build
from falaj.stacks.command.console import complain, say, table
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import Archive
from falaj.stacks.images.chart_archives import Helm
from falaj.stacks.images.crane import Crane
from falaj.stacks.images.items import Item, items
from falaj.stacks.images.lock import EMPTY, Lock, load, save
from falaj.stacks.images.mirror import Mirror, Outcome
from falaj.stacks.images.pin import pin
from falaj.stacks.images.rewrite import rewrite
from falaj.stacks.images.target import packs_settings, require_in_country
from falaj.stacks.settings.in_cluster import InClusterSettings

LOCK_FILE: Final = "images.lock.yaml"
_HERE: Final = "default: the stack's, else images.lock.yaml in the project's folder if it is there"


def images_command(arguments: Sequence[str]) -> int:
    """Run ``falaj images`` with its own arguments; returns the exit status.

    Raises:
        StackError: something was refused; the message says what to do.
    """
    options = _parser().parse_args(arguments)
    project = Project.find(Path(options.project) if options.project else None)
    run: Callable[[Project, argparse.Namespace], int] = options.run
    return run(project, options)


def _list(project: Project, options: argparse.Namespace) -> int:
    found = items(_lock(project, options), only=options.names, used_by=options.used_by or ())
    if options.repositories:
        say("\n".join(sorted({each.mirror for each in found})))
    elif options.format == "json":
        say(json.dumps([_shown(each) for each in found], indent=2))
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


def _pin(project: Project, options: argparse.Namespace) -> int:
    path, _ = _lock_path(project, options)
    old = load(path) if path.exists() else EMPTY
    wanted = items(old, only=options.names, used_by=options.used_by or ())
    registry = None
    if options.registry:
        registry = require_in_country(options.registry, *packs_settings(project, options.stack))
    elif not options.names:
        wanted = [each for each in wanted if not each.is_ours]
    accept = options.accept or ()
    items(old, only=accept)
    result = pin(
        wanted, old, registry=registry, today=_today(), crane=Crane(), helm=Helm(), accept=accept,
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


def _mirror(project: Project, options: argparse.Namespace) -> int:
    found = items(_lock(project, options), only=options.names, used_by=options.used_by or ())
    wanted = found if options.names else [each for each in found if not each.is_ours]
    if options.archive:
        archive = Archive(Path(options.archive), Crane(), Helm(), say)
        return _told(archive.fill(wanted, today=_today()), "written")
    registry = require_in_country(options.to, *packs_settings(project, options.stack))
    mirror = Mirror(registry, Crane(), Helm(), say, dry_run=options.dry_run)
    return _told(mirror.fill(wanted), "copied")


def _load(project: Project, options: argparse.Namespace) -> int:
    registry = require_in_country(options.to, *packs_settings(project, options.stack))
    archive = Archive(Path(options.archive), Crane(), Helm(), say)
    contents = archive.contents()
    names = {*contents.images, *contents.charts}
    found = items(contents, only=options.names)
    wanted = [each for each in found if each.name in contents.of(each.kind)]
    for each in options.names:
        if each not in names:
            raise StackError(f"name: given {each!r}; in the archive: {', '.join(sorted(names))}")
    return _told(archive.send(wanted, registry), "sent")


def _rewrite(project: Project, options: argparse.Namespace) -> int:
    registry = require_in_country(options.to, *packs_settings(project, options.stack))
    known = items(_lock(project, options))
    status = 0
    for name in options.files:
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StackError(f"{path} cannot be read: {error}") from None
        try:
            result = rewrite(text, known, registry)
        except StackError as error:
            raise StackError(f"{path}: {error}") from None
        for change in result.changes:
            line = f"{path}:{change.line}: {change.old} -> {change.new}"
            if options.in_place:
                say(line)
        for each in result.unknown:
            complain(f"{path}: {each}")
            status = 1
        if options.in_place:
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


def _lock_path(project: Project, options: argparse.Namespace) -> tuple[Path, bool]:
    """The lock file, and whether somebody asked for just that one."""
    if options.lock:
        return Path(options.lock), True
    settings = StackFile(options.stack, project).settings() if options.stack else None
    if isinstance(settings, InClusterSettings) and settings.images:
        return project.root / settings.images, True
    return project.root / LOCK_FILE, False


def _lock(project: Project, options: argparse.Namespace) -> Lock:
    path, asked = _lock_path(project, options)
    return load(path) if asked or path.exists() else EMPTY


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="falaj images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(
        name: str,
        text: str,
        run: Callable[[Project, argparse.Namespace], int],
        *,
        names: bool = True,
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument(
            "--project",
            metavar="FOLDER",
            help="folder with the Pulumi.yaml (default: the working folder's, else Falaj's own)",
        )
        if names:
            command.add_argument(
                "names", nargs="*", metavar="NAME", help="images and charts (default: all)"
            )
        command.add_argument(
            "--stack",
            help="the stack whose policies say which registries are in the country "
            "(default: ECR in me-central-1, and this machine), and whose lock file is used",
        )
        return command

    listing = add("list", "list every image and chart with its digest", _list)
    listing.add_argument("--format", choices=["table", "json"], default="table")
    listing.add_argument(
        "--repositories",
        action="store_true",
        help="print the repositories that a mirror has, for registries that make none themselves",
    )
    pinning = add("pin", "ask registries for digests and write them to a lock file", _pin)
    pinning.add_argument(
        "--registry", help="the mirror to ask (default: each image's registry upstream)"
    )
    pinning.add_argument(
        "--accept", action="append", metavar="NAME", help="its tag may have been moved"
    )
    copying = add("mirror", "copy images and charts into a registry, by digest", _mirror)
    where = copying.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="REGISTRY", help="host with port and path")
    where.add_argument(
        "--archive", metavar="FOLDER", help="write them to a disk instead, for `falaj images load`"
    )
    copying.add_argument("--dry-run", action="store_true", help="only say what would be copied")
    loading = add("load", "send what is on a disk to a registry", _load)
    loading.add_argument("--archive", metavar="FOLDER", required=True)
    loading.add_argument("--to", metavar="REGISTRY", required=True, help="host with port and path")
    rewriting = add(
        "rewrite", "rewrite references in YAML files to the mirror", _rewrite, names=False
    )
    rewriting.add_argument("files", nargs="+", metavar="FILE")
    rewriting.add_argument(
        "--to", metavar="REGISTRY", required=True, help="host with port and path"
    )
    rewriting.add_argument(
        "--in-place", action="store_true", help="write the files (default: print the result)"
    )
    for command in (listing, pinning, copying):
        command.add_argument(
            "--used-by", action="append", metavar="ADD-ON", help="what that add-on needs alone"
        )
    for command in (listing, pinning, copying, rewriting):
        command.add_argument("--lock", metavar="FILE", help=_HERE)
    images_build.add_options(add("build", images_build.__doc__ or "", images_build.build_command))
    return parser
