"""``falaj publish``: what one machine serves, sent to a registry of the country in one step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from falaj.stacks.command import service
from falaj.stacks.command.console import progress, say
from falaj.stacks.command.model_options import Where
from falaj.stacks.command.options import (
    WITHOUT_STACK,
    model_option,
    stack_option,
    the_project,
    the_stack,
)
from falaj.stacks.command.pinned import pin_into, service_in
from falaj.stacks.command.project import StackFile, command
from falaj.stacks.errors import StackError
from falaj.stacks.models.pinning import Pin
from falaj.stacks.models.seen import SeenHere
from falaj.workloads.registry import aliases, sending
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sending import Say, Trust
from falaj.workloads.registry.shelf import Client, Shelf
from falaj.workloads.registry.store import Store


@dataclass(frozen=True)
class Served:
    """What a stack of one machine serves."""

    config: Mapping[str, Any]
    """What its server was told."""

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.config["model"])

    @property
    def alias(self) -> str:
        """What the served version is called."""
        return str(self.config["alias"])

    @property
    def store(self) -> Store:
        """The stack's folder of models."""
        return Store(Path(self.config["registry"]))

    @cached_property
    def keyring(self) -> KeyRing:
        """The stack's key ring.

        Raises:
            WorkloadError: it is gone, or damaged.
        """
        return KeyRing.open(Path(self.config["keyring"]))

    @property
    def trust(self) -> Trust:
        """Who signs the stack's packages, and what opens them."""
        return Trust(self.keyring.verify_key(), self.keyring)


@dataclass(frozen=True)
class Sent:
    """What stands in a registry now."""

    version: int
    package_digest: str
    keys_digest: str
    answer: dict[str, Any]
    """For programs."""
    lines: list[str]
    """For people."""


def send(served: Served, shelf: Shelf[Client], *, say: Say) -> Sent:
    """Send a served version to a registry, and let its alias stand for it there.

    Args:
        served: what a stack serves.
        shelf: where to.
        say: gets lines about what is sent.

    Raises:
        StackError: the registry can't be reached, or refuses.
        IntegrityError: it isn't what was signed.
    """
    model, alias, ring = served.model, served.alias, served.keyring
    sent = sending.push(shelf, served.store, model, alias, served.trust, say=say)
    version, digest = sent.package.version, sent.package.itself.digest
    signer = aliases.Signer(ring, SeenHere())
    entry, is_new = aliases.promote(shelf, (model, version), alias, signer)
    answer: dict[str, Any] = {
        "model": model,
        "version": version,
        "reference": f"{shelf.repository(model)}@{digest}",
        "packageDigest": digest,
        "keysDigest": sent.keys.itself.digest,
        "sent": list(sent.sent),
        "alias": entry.to_json(datetime.now(UTC)),
        "verifyKey": str(ring.path / "signing.pub.pem"),
    }
    lines = [
        f"{model} version {version} {'is' if sent.sent else 'was'} in {shelf.repository(model)}, "
        f"and {alias} {'stands' if is_new else 'stood'} for it",
        f"packageDigest: {digest}",
        f"keysDigest: {sent.keys.itself.digest}  # {sent.keys_tag}",
        f"verified with: {answer['verifyKey']}",
    ]
    return Sent(version, digest, sent.keys.itself.digest, answer, lines)


@click.command()
@click.argument("registry", metavar="REGISTRY")
@click.option(
    "--for",
    "target",
    metavar="STACK",
    help="The stack that is to serve it, whose policies say which registries are in the country "
    f"({WITHOUT_STACK}).",
)
@click.option(
    "--pin",
    "is_pinned",
    is_flag=True,
    help="Write the digests into the file of that stack, with all requests.",
)
@click.option(
    "--service",
    "service_name",
    metavar="NAME",
    help="With --pin: its inference service (default: the one that has the model).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_option
@model_option("Which of the server's models")
def publish(
    *,
    registry: str,
    target: str | None,
    is_pinned: bool,
    service_name: str | None,
    as_json: bool,
    stack: str | None,
    project: Path | None,
    model: str | None,
) -> int:
    """Send the version that a stack of one machine serves, and let its alias stand for it there.

    Runs `falaj models push`, `promote` and, with --pin, `pin`, with the stack's own folder of
    models and key ring, or those of a further model. Run again, nothing changes: a step that is
    done is left as it is.
    """
    if target is None and (is_pinned or service_name):
        raise StackError("--for STACK is needed: whose file is to name the version?")
    if service_name and not is_pinned:
        raise StackError("--service: given without --pin, whose file it is about")
    found = the_stack(stack, project)
    served = Served(service.config_of(service.require_config(found), model))
    file = StackFile(target, the_project(project)) if is_pinned and target else None
    if file:
        service_in(file, served.model, service_name)
    shelf = Where(target, project).shelf(registry)
    sent = send(served, shelf, say=progress(as_json))
    answer, lines = sent.answer, sent.lines
    if file:
        wanted = Pin(sent.version, sent.package_digest, sent.keys_digest, 100)
        done = pin_into(file, served.model, service_name, wanted, dry_run=False)
        answer |= {"service": done.service, "versions": done.versions}
        lines += [done.text, f"look at what changes: {command('preview', file)}"]
    say(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))
    return 0
