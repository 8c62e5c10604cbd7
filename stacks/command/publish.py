"""``falaj publish``: what one machine serves, sent to a registry of the country in one step."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from falaj.stacks.command import service
from falaj.stacks.command.console import say
from falaj.stacks.command.models import Where, pin_into, progress, service_in
from falaj.stacks.command.options import WITHOUT_STACK, stack_option, the_project, the_stack
from falaj.stacks.command.project import StackFile, command
from falaj.stacks.errors import StackError
from falaj.stacks.models.pinning import Pin
from falaj.stacks.models.seen import SeenHere
from falaj.workloads.registry import aliases, sending
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sending import Trust
from falaj.workloads.registry.store import Store


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
def publish(
    *,
    registry: str,
    target: str | None,
    is_pinned: bool,
    service_name: str | None,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Send the version that a stack of one machine serves, and let its alias stand for it there.

    Runs `falaj models push`, `promote` and, with --pin, `pin`, with the stack's own folder of
    models and key ring. Run again, nothing changes: a step that is done is left as it is.
    """
    if target is None and (is_pinned or service_name):
        raise StackError("--for STACK is needed: whose file is to name the version?")
    if service_name and not is_pinned:
        raise StackError("--service: given without --pin, whose file it is about")
    found = the_stack(stack, project)
    config = service.require_config(found)
    model, alias = str(config["model"]), str(config["alias"])
    file = StackFile(target, the_project(project)) if is_pinned and target else None
    if file:
        service_in(file, model, service_name)
    ring = KeyRing.open(Path(config["keyring"]))
    shelf = Where(target, project).shelf(registry)
    sent = sending.push(
        shelf, Store(Path(config["registry"])), model, alias,
        Trust(ring.verify_key(), ring), say=progress(as_json),
    )  # fmt: skip
    version, digest = sent.package.version, sent.package.itself.digest
    entry, is_new = aliases.promote(
        shelf, (model, version), alias, aliases.Signer(ring, SeenHere())
    )
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
    if file:
        wanted = Pin(version, digest, sent.keys.itself.digest, 100)
        done = pin_into(file, model, service_name, wanted, dry_run=False)
        answer |= {"service": done.service, "versions": done.versions}
        lines += [done.told, f"look at what changes: {command('preview', file)}"]
    say(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))
    return 0
