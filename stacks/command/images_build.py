"""Build our own images, with a list of contents, reproducibly, and push and sign them."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from falaj.stacks.command.console import say
from falaj.stacks.command.options import project_option, stacks_here, the_project
from falaj.stacks.errors import StackError
from falaj.stacks.images import signing
from falaj.stacks.images.build import TOOLS, Built, find_tool, source_date_epoch
from falaj.stacks.images.build import build as build_image
from falaj.stacks.images.crane import Crane
from falaj.stacks.images.items import Item, items
from falaj.stacks.images.lock import EMPTY, load
from falaj.stacks.images.recipes import BUILD_BASE, recipes
from falaj.stacks.images.target import packs_settings, require_in_country
from falaj.stacks.images.wheels import MACHINES

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
@click.option("--push", metavar="REGISTRY", help="Host with port and path.")
@click.option(
    "--sign-key", metavar="FILE", help="Private key in PEM; cosign is used where there is one."
)
@click.option(
    "-s",
    "--stack",
    metavar="NAME",
    shell_complete=stacks_here,
    help="The stack whose policies say which registries are in the country.",
)
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
    push: str | None,
    sign_key: str | None,
    stack: str | None,
    project: Path | None,
) -> int:
    """Build our own images, with a list of contents, reproducibly, and push and sign them."""
    known = {
        each.name: each for each in items(load(lock) if lock else EMPTY) if each.kind == "images"
    }
    wanted = recipes(names)
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


def push_image(built: Built, item: Item, registry: str, key: str | None) -> None:
    """Push an image, look whether it arrived unchanged, and sign it where there is a key.

    Raises:
        StackError: the registry refused it or keeps something else, or the key can't be used.
    """
    target = item.at(registry)
    crane = Crane()
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
    text = signing.payload(repository, built.digest)
    signature = {"payload": text.decode(), "signature": signing.sign(text, Path(key))}
    path = built.bom.with_name("signature.json")
    path.write_text(json.dumps(signature, indent=1) + "\n", encoding="utf-8")
    say(f"  signed; there is no cosign to put it into the registry, so it is in {path}")


def _cosign(cosign: str, reference: str, key: str) -> None:
    command = [cosign, "sign", "--yes", "--tlog-upload=false", "--key", key, reference]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise StackError(f"cosign could not sign {reference}:\n{done.stderr.strip()[-500:]}")
