"""What commands about models ask for alike: registry, model, version, alias, who is trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from falaj.components.catalogue.clusters import MODEL_REPOSITORIES
from falaj.stacks.command.options import (
    JUDGING_STACK,
    WITHOUT_STACK,
    named_stack,
    project_option,
    the_project,
)
from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane, packs_settings, require_in_country
from falaj.stacks.models.seen import SeenHere
from falaj.workloads.registry.alias_record import MAX_DAYS
from falaj.workloads.registry.aliases import DAYS, resolve
from falaj.workloads.registry.keyring import KeyRing, Trusted, read_public_key
from falaj.workloads.registry.oci_layout import ImageManifest
from falaj.workloads.registry.sending import Trust
from falaj.workloads.registry.shelf import Shelf
from falaj.workloads.registry.store import PRODUCTION

_Command = TypeVar("_Command", bound=Callable[..., Any])

registry_argument = click.argument("registry", metavar="REGISTRY")
model_argument = click.argument("model", metavar="MODEL")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
version_option = click.option(
    "--version", type=click.IntRange(1), metavar="N", help="The version (default: the newest)."
)
digest_option = click.option(
    "--digest",
    metavar="sha256:…",
    help="The package's image by its digest, as packageDigest has it.",
)


def stack_options(command: _Command) -> _Command:
    """Take the stack whose settings say which registries are allowed."""
    return named_stack(f"{JUDGING_STACK} ({WITHOUT_STACK}).")(project_option(command))


def written_stack(command: _Command) -> _Command:
    """Take the stack whose file is written, and the project."""
    text = "The stack whose file is written; it also says which registries are allowed."
    return named_stack(text)(project_option(command))


def alias_options(command: _Command) -> _Command:
    """Take an alias, in the place of a version, and whether its record may be older."""
    with_older = click.option(
        "--older",
        is_flag=True,
        help="With --alias: take a record behind the newest that this machine has seen.",
    )(command)
    return click.option(
        "--alias",
        metavar="NAME",
        help="The version that an alias stands for; its record has to be the key's, valid, and "
        "not behind what this machine has seen.",
    )(with_older)


def signing_options(command: _Command) -> _Command:
    """Take an alias, the key ring that signs its record, and for how long."""
    with_days = click.option(
        "--days",
        type=click.IntRange(1, MAX_DAYS),
        default=DAYS,
        show_default=True,
        help="For which the record is valid.",
    )(command)
    with_keyring = click.option(
        "--keyring",
        metavar="FOLDER",
        required=True,
        type=click.Path(path_type=Path),
        help="The key ring that signs packages and records.",
    )(with_days)
    return click.option(
        "--alias", metavar="NAME", default=PRODUCTION, show_default=True, help="Which alias."
    )(with_keyring)


def trust_options(command: _Command) -> _Command:
    """Take whose signatures count, as `trusted` reads it."""
    with_keyring = click.option(
        "--keyring",
        metavar="FOLDER",
        type=click.Path(path_type=Path),
        help="A key ring: every file is opened as well, in memory.",
    )(command)
    return click.option(
        "--verify-key",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Trusted public key, PEM (default: the key ring's signing.pub.pem).",
    )(with_keyring)


@dataclass(frozen=True)
class Where:
    """How registries are judged."""

    stack: str | None
    project: Path | None

    def shelf(self, registry: str) -> Shelf[Crane]:
        """Its packages, if it is in the country."""
        judged = packs_settings(the_project(self.project), self.stack)
        return Shelf(require_in_country(registry, *judged), MODEL_REPOSITORIES, Crane())

    def shelves(self, source: str, destination: str) -> tuple[Shelf[Crane], Shelf[Crane]]:
        """Those of two; both are judged before either is asked."""
        judged = packs_settings(the_project(self.project), self.stack)
        addresses = [require_in_country(each, *judged) for each in (source, destination)]
        if addresses[0] == addresses[1]:
            raise StackError(f"DESTINATION: given {destination!r}, which is SOURCE as well")
        crane = Crane()
        source_shelf, destination_shelf = (
            Shelf(each, MODEL_REPOSITORIES, crane) for each in addresses
        )
        return source_shelf, destination_shelf


def trusted(verify_key: Path | None, keyring: Path | None) -> Trust:
    """Return whose signatures count, by a public key or a key ring.

    Raises:
        StackError: neither was given.
        WorkloadError: one can't be read.
    """
    if keyring is None and verify_key is None:
        raise StackError(
            "give --verify-key FILE (the public key that signs packages) or --keyring FOLDER: "
            "what nobody vouches for isn't sent or taken"
        )
    ring = KeyRing.open(keyring) if keyring is not None else None
    if verify_key is not None:
        return Trust(read_public_key(verify_key), ring)
    assert ring is not None  # noqa: S101 - one of both was given
    return Trust(ring.verify_key(), ring)


def image_of(
    shelf: Shelf[Crane], model: str, which: tuple[int | None, str | None, str | None],
    key: Trusted | None, *, older: bool,
) -> ImageManifest:  # fmt: skip
    """A package's image by version, digest or alias. Raises StackError where two are given."""
    version, digest, alias = which
    if alias is None:
        if older:
            raise StackError("--older: given without --alias, whose records it is about")
        return shelf.package(model, version, digest)
    if version is not None or digest is not None:
        raise StackError("--alias: given with --version or --digest; give one of them")
    if key is None:
        raise StackError("--alias: needs --verify-key FILE: who says what it stands for?")
    record = resolve(shelf, model, alias, key, SeenHere(), older=older).record
    return shelf.package(model, record.version, record.image)
