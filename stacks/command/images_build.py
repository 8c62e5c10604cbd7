"""Build our own images, with a list of contents, reproducibly, and push and sign them."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

from falaj.stacks.command.console import say
from falaj.stacks.command.project import Project
from falaj.stacks.errors import StackError
from falaj.stacks.images import signing
from falaj.stacks.images.build import TOOLS, Built, build, find_tool, source_date_epoch
from falaj.stacks.images.crane import Crane
from falaj.stacks.images.items import Item, items
from falaj.stacks.images.lock import EMPTY, load
from falaj.stacks.images.recipes import BUILD_BASE, recipes
from falaj.stacks.images.target import packs_settings, require_in_country
from falaj.stacks.images.wheels import MACHINES

_HERE: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def add_options(command: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    command.add_argument("--lock", metavar="FILE", help="digests of the bases")
    command.add_argument("--tool", choices=TOOLS, help="the builder (default: the first found)")
    command.add_argument(
        "--mirror", metavar="REGISTRY", help="take bases from this mirror (default: upstream)"
    )
    command.add_argument(
        "--base",
        action="append",
        metavar="NAME=REFERENCE",
        help="another base, with a digest or of this machine (localhost/…)",
    )
    command.add_argument("--wheels", metavar="FOLDER", help="wheels, where no index is in reach")
    command.add_argument(
        "--machine", choices=sorted(MACHINES), help="processor (default: this machine's)"
    )
    command.add_argument(
        "--out", metavar="FOLDER", default="out/images", help="results (default: out/images)"
    )
    command.add_argument("--push", metavar="REGISTRY", help="host with port and path")
    command.add_argument(
        "--sign-key", metavar="FILE", help="private key in PEM; cosign is used where there is one"
    )


def build_command(project: Project, options: argparse.Namespace) -> int:
    """Build what was asked for; returns the exit status.

    Raises:
        StackError: something is missing or was refused.
    """
    lock = load(Path(options.lock)) if options.lock else EMPTY
    known = {each.name: each for each in items(lock) if each.kind == "images"}
    wanted = recipes(options.names)
    tool = find_tool(options.tool)
    machine = options.machine or _HERE.get(platform.machine(), "amd64")
    given = _given_bases(options.base or [], known)
    names = {BUILD_BASE, *(each.run_base for each in wanted)}
    bases = {name: given.get(name) or _base(known[name], options.mirror) for name in sorted(names)}
    registry = None
    if options.push:
        registry = require_in_country(options.push, *packs_settings(project, options.stack))
    elif options.sign_key:
        raise StackError("--sign-key: needs --push: what is signed is an image in a registry")
    epoch = source_date_epoch()
    wheels = Path(options.wheels) if options.wheels else None
    if wheels is not None and not wheels.is_dir():
        raise StackError(f"--wheels: there is no folder {wheels}")
    for recipe in wanted:
        built = build(
            recipe, known[recipe.name], bases, Path(options.out),
            tool=tool, machine=machine, epoch=epoch, wheels=wheels, say=say,
        )  # fmt: skip
        say(f"{built.name}: {built.digest}\n  in {built.layout}\n  contents in {built.bom}")
        if registry is not None:
            push(built, known[recipe.name], registry, options.sign_key)
    return 0


def _given_bases(given: list[str], known: dict[str, Item]) -> dict[str, str]:
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


def push(built: Built, item: Item, registry: str, key: str | None) -> None:
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
