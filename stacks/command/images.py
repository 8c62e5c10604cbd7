"""``falaj images``: what a cluster runs, listed, pinned, copied into the country, and built."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from falaj.stacks.command.console import complain, say, table
from falaj.stacks.command.options import (
    JUDGING_STACK,
    WITHOUT_STACK,
    named_stack,
    project_option,
    the_project,
)
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import Archive
from falaj.stacks.images.build import (
    BUILD_BASE,
    TOOLS,
    Built,
    build_image,
    find_tool,
    payload,
    recipes,
    sign,
    source_date_epoch,
)
from falaj.stacks.images.crane import Crane, Helm, packs_settings, require_in_country
from falaj.stacks.images.items import EMPTY, Item, Lock, items, load, save
from falaj.stacks.images.mirror import Mirror, Outcome
from falaj.stacks.images.mirror import pin as pin_items
from falaj.stacks.images.rewrite import rewrite as rewritten
from falaj.stacks.images.wheels import MACHINES
from falaj.stacks.settings.cloud import InClusterSettings

# Build our own images, with a list of contents, reproducibly, and push and sign them.

_HERE: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--lock", metavar="FILE", type=click.Path(path_type=Path), help="Digests of bases.")
@click.option(
    "--tool", type=click.Choice(list(TOOLS)), help="The builder (default: the first found)."
)
@click.option(
    "--mirror", metavar="REGISTRY", help="Take bases from this mirror (default: upstream)."
)
@click.option(
    "--base",
    "bases",
    metavar="NAME=REFERENCE",
    multiple=True,
    help="Another base, with a digest or of this machine (localhost/…).",
)
@click.option(
    "--wheels",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Wheels, where no index is in reach.",
)
@click.option(
    "--machine",
    type=click.Choice(sorted(MACHINES)),
    help="Processor (default: this machine's).",
)
@click.option(
    "--out",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default="out/images",
    show_default=True,
    help="Results.",
)
@click.option(
    "--openvino",
    is_flag=True,
    help="Add OpenVINO to falaj-inference: 59 MB of a wheel, 180 MiB unpacked.",
)
@click.option("--push", metavar="REGISTRY", help="Host with port and path.")
@click.option(
    "--sign-key", metavar="FILE", help="Private key in PEM; cosign is used where there is one."
)
@named_stack(f"{JUDGING_STACK}.")
@project_option
def build(
    *,
    names: tuple[str, ...],
    lock: Path | None,
    tool: str | None,
    mirror: str | None,
    bases: tuple[str, ...],
    wheels: Path | None,
    machine: str | None,
    out: Path,
    openvino: bool,
    push: str | None,
    sign_key: str | None,
    stack: str | None,
    project: Path | None,
) -> int:
    """Build our own images, with a list of contents, reproducibly, and push and sign them."""
    known = {
        each.name: each for each in items(load(lock) if lock else EMPTY) if each.kind == "images"
    }
    wanted = recipes(names, openvino=openvino)
    builder = find_tool(tool)
    processor = machine or _HERE.get(platform.machine(), "amd64")
    given = _given_bases(bases, known)
    needed = sorted({BUILD_BASE, *(each.run_base for each in wanted)})
    on = {name: given.get(name) or _base(known[name], mirror) for name in needed}
    registry = None
    if push:
        registry = require_in_country(push, *packs_settings(the_project(project), stack))
    elif sign_key:
        raise StackError("--sign-key: needs --push: what is signed is an image in a registry")
    epoch = source_date_epoch()
    if wheels is not None and not wheels.is_dir():
        raise StackError(f"--wheels: there is no folder {wheels}")
    for recipe in wanted:
        built = build_image(
            recipe, known[recipe.name], on, out,
            tool=builder, machine=processor, epoch=epoch, wheels=wheels, say=say,
        )  # fmt: skip
        say(f"{built.name}: {built.digest}\n  in {built.layout}\n  contents in {built.bom}")
        if registry is not None:
            push_image(built, known[recipe.name], registry, sign_key)
    return 0


def _given_bases(given: Sequence[str], known: dict[str, Item]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, reference = each.partition("=")
        bases = [name for name in known if name.startswith("base-")]
        if not equals or name not in bases:
            raise StackError(
                f"--base: given {each!r}; allowed: NAME=REFERENCE, with NAME one of "
                f"{', '.join(bases)}"
            )
        if "@sha256:" not in reference and not reference.startswith("localhost/"):
            raise StackError(
                f"--base: given {each!r}; allowed: a reference with @sha256:…, or an image of "
                "this machine, localhost/…: a tag may be moved"
            )
        found[name] = reference
    return found


def _base(item: Item, mirror: str | None) -> str:
    if item.digest is None:
        raise StackError(
            f"no digest of {item.upstream} is known, which images are built on; let `falaj images "
            f"pin {item.name} --lock FILE` ask for it and name the file with --lock, or give "
            f"--base {item.name}=REFERENCE"
        )
    return f"{f'{mirror}/{item.mirror}' if mirror else item.source}@{item.digest}"


def push_image(
    built: Built, item: Item, registry: str, key: str | None, crane: Crane | None = None
) -> None:
    """Push an image, look whether it arrived unchanged, and sign it where there is a key.

    ``crane`` is who pushes it; by default one that trusts whom this machine trusts.

    Raises:
        StackError: the registry refused it or keeps something else, or the key can't be used.
    """
    target = item.at(registry)
    crane = crane or Crane()
    crane.push(built.layout, target)
    if crane.digest(target) != built.digest:
        raise StackError(f"{target} is not {built.digest} after pushing; don't use it")
    say(f"  pushed to {target}")
    if key is None:
        return
    repository = f"{registry}/{item.mirror}"
    if cosign := shutil.which("cosign"):
        _cosign(cosign, f"{repository}@{built.digest}", key)
        say("  signed by cosign, in the registry")
        return
    text = payload(repository, built.digest)
    signature = {"payload": text.decode(), "signature": sign(text, Path(key))}
    path = built.bom.with_name("signature.json")
    path.write_text(json.dumps(signature, indent=1) + "\n", encoding="utf-8")
    say(f"  signed; there is no cosign to put it into the registry, so it is in {path}")


def _cosign(cosign: str, reference: str, key: str) -> None:
    command = [cosign, "sign", "--yes", "--tlog-upload=false", "--key", key, reference]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise StackError(f"cosign could not sign {reference}:\n{done.stderr.strip()[-500:]}")


_Command = TypeVar("_Command", bound=Callable[..., Any])

LOCK_FILE: Final = "images.lock.yaml"

_names = click.argument("names", metavar="[NAME]...", nargs=-1)
_stack = named_stack(f"{JUDGING_STACK} ({WITHOUT_STACK}), and whose lock file is used.")
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
        return _report(
            Archive(archive, Crane(), Helm(), say).fill(wanted, today=_today()), "written"
        )
    target = require_in_country(str(registry), *packs_settings(here, stack))
    return _report(Mirror(target, Crane(), Helm(), say, dry_run=dry_run).fill(wanted), "copied")


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
    return _report(disk.send(wanted, target), "sent")


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


def _report(outcome: Outcome, done: str) -> int:
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
