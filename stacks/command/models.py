"""``falaj models``: sealed packages in registries of the country, and from one to another."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from falaj.engine.commands import LEFT
from falaj.stacks.command.console import complain, progress, say, table
from falaj.stacks.command.model_options import (
    Where,
    alias_options,
    digest_option,
    image_of,
    json_option,
    model_argument,
    registry_argument,
    signing_options,
    stack_options,
    trust_options,
    trusted,
    version_option,
    written_stack,
)
from falaj.stacks.command.options import (
    the_project,
)
from falaj.stacks.command.pinned import follow_in, pin_into
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane
from falaj.stacks.models import transfer
from falaj.stacks.models.copying import Copied, CopiedModel, copy_models
from falaj.stacks.models.pinning import (
    SECTION,
    Pin,
)
from falaj.stacks.models.seen import SeenHere
from falaj.workloads.registry import aliases, sending
from falaj.workloads.registry.aliases import Entry, Signer, read, records_of
from falaj.workloads.registry.keyring import KeyRing, read_public_key
from falaj.workloads.registry.oci_layout import ImageManifest
from falaj.workloads.registry.shelf import Shelf, tag_of, tags_beside
from falaj.workloads.registry.store import PRODUCTION, Store

if TYPE_CHECKING:
    pass

_MIB: Final = 1 << 20
#: What a package says of itself that people look for first; ``--json`` has all of it.
_SHOWN: Final = ("task", "family", "data_class", "metrics", "lineage", "dataset")


def _print(as_json: bool, answer: dict[str, Any], text: str) -> None:
    say(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else text)


@click.group()
def models() -> None:
    """Sealed packages of models in registries: send, list, verify, fetch, copy them.

    A package is an image models/MODEL:vN of the registry, which InferenceService mounts by its
    digest; its wrapped keys are an image of their own, models/MODEL:vN.keys.K. Credentials are
    those of the container tools (~/.docker/config.json). Only registries in the country are
    asked; see --stack.
    """


@models.command()
@registry_argument
@model_argument
@click.option(
    "--from",
    "source",
    metavar="FOLDER",
    required=True,
    type=click.Path(path_type=Path),
    help="The registry of models: the folder that packages are published in.",
)
@click.option("--version", type=click.IntRange(1), metavar="N", help="Default: what --alias is.")
@click.option("--alias", default=PRODUCTION, show_default=True, help="What stands for a version.")
@trust_options
@json_option
@stack_options
def push(
    *,
    registry: str,
    model: str,
    source: Path,
    version: int | None,
    alias: str,
    verify_key: Path | None,
    keyring: Path | None,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Verify a version and send it; prints what packageDigest and keysDigest are.

    Sent again, nothing changes. After a rotation the newly wrapped keys are sent beside the older
    ones, and the package keeps its digest. A version that is there as another package is refused.
    """
    shelf = Where(stack, project).shelf(registry)
    trust = trusted(verify_key, keyring)
    which: int | str = alias if version is None else version
    done = sending.push(shelf, Store(source), model, which, trust, say=progress(as_json))
    reference = f"{shelf.repository(model)}@{done.package.itself.digest}"
    answer: dict[str, Any] = {
        "model": model,
        "version": done.package.version,
        "reference": reference,
        "packageDigest": done.package.itself.digest,
        "keysDigest": done.keys.itself.digest,
        "keysTag": done.keys_tag,
        "bytes": done.package.size + done.keys.size,
        "sent": list(done.sent),
    }
    text = [
        f"{model} version {done.package.version} is {', '.join(done.sent)} now"
        if done.sent
        else f"{model} version {done.package.version} was there",
        f"packageDigest: {done.package.itself.digest}",
        f"keysDigest: {done.keys.itself.digest}  # {done.keys_tag}",
    ]
    _print(as_json, answer, "\n".join(text))
    return 0


@models.command("list")
@registry_argument
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@json_option
@stack_options
def list_models(
    *,
    registry: str,
    names: tuple[str, ...],
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """List models with their versions, digests and keys (all models, if the registry says them).

    Registries that keep their catalogue to themselves want the models' names.
    """
    shelf = Where(stack, project).shelf(registry)
    rows = [("model", "version", "digest", "with it")]
    listed: list[dict[str, Any]] = []
    for model in names or shelf.models():
        tags = shelf.known(model) if names else shelf.tags(model)
        if not tags:
            continue
        digests = shelf.digests(model, [tag_of(version) for version in tags])
        versions: list[dict[str, Any]] = []
        for version, found in tags.items():
            digest = digests[tag_of(version)]
            beside = tags_beside(version, found)
            versions.append({"version": version, "digest": digest, "tags": beside})
            rows.append((model, str(version), digest or "missing", ", ".join(beside)))
        listed.append({"model": model, "versions": versions})
    text = table(rows) if listed else f"{shelf.address} has no models"
    _print(as_json, {"registry": shelf.address, "models": listed}, text)
    return 0


@models.command()
@registry_argument
@model_argument
@version_option
@digest_option
@alias_options
@click.option(
    "--verify-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Trusted public key, PEM: the manifest's signature is checked (default: it isn't).",
)
@json_option
@stack_options
def show(
    *,
    registry: str,
    model: str,
    version: int | None,
    digest: str | None,
    alias: str | None,
    older: bool,
    verify_key: Path | None,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Show what a package says of itself without being opened: digest, sizes, lineage."""
    shelf = Where(stack, project).shelf(registry)
    key = read_public_key(verify_key) if verify_key else None
    image = image_of(shelf, model, (version, digest, alias), key, older=older)
    manifest = shelf.contents(image, key).to_json()
    beside = tags_beside(image.version, shelf.tags(model).get(image.version, []))
    answer: dict[str, Any] = {
        **_described(shelf, image),
        "tags": beside,
        "signatureVerified": key is not None,
        "manifest": manifest,
    }
    lines = [
        f"{model} version {image.version}, published {image.created}",
        f"image: {answer['reference']} ({image.size / _MIB:.1f} MiB, {image.kind})",
        f"with it: {', '.join(beside) or 'nothing: its keys are missing'}",
        f"signer: {manifest['signer']} "
        + ("(verified)" if key else "(not verified: give --verify-key)"),
        *(
            f"{name}: {json.dumps(manifest[name], ensure_ascii=False)}"
            for name in _SHOWN
            if name in manifest
        ),
    ]
    _print(as_json, answer, "\n".join(lines))
    return 0


def _described(shelf: Shelf[Crane], image: ImageManifest) -> dict[str, Any]:
    return {
        "model": image.model,
        "version": image.version,
        "created": image.created,
        "reference": f"{shelf.repository(image.model)}@{image.itself.digest}",
        "digest": image.itself.digest,
        "artifactType": image.kind,
        "bytes": image.size,
        "layers": len(image.layers),
    }


@models.command()
@registry_argument
@model_argument
@version_option
@digest_option
@alias_options
@trust_options
@json_option
@stack_options
def verify(
    *,
    registry: str,
    model: str,
    version: int | None,
    digest: str | None,
    alias: str | None,
    older: bool,
    verify_key: Path | None,
    keyring: Path | None,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Fetch a package into a temporary folder and hold every byte against its signature."""
    shelf = Where(stack, project).shelf(registry)
    trust = trusted(verify_key, keyring)
    image = image_of(shelf, model, (version, digest, alias), trust.verify_key, older=older)
    with transfer.fetched(shelf, image, trust, say=progress(as_json)) as package:
        files = {name: entry.size for name, entry in package.contents.files.items()}
        signer = package.contents.signer
    answer = {
        **_described(shelf, image),
        "signer": signer,
        "files": files,
        "verified": True,
        "opened": trust.keyring is not None,
    }
    opened = "and opens" if trust.keyring else "as it is sealed; with --keyring it is opened, too"
    text = f"{model} version {image.version} is what key {signer} signed, {opened}"
    _print(as_json, answer, f"{text}\n{answer['reference']}")
    return 0


@models.command()
@registry_argument
@model_argument
@click.option(
    "--to",
    "target",
    metavar="FOLDER",
    required=True,
    type=click.Path(path_type=Path),
    help="The package's folder, for `python -m falaj.workloads.registry import --from`.",
)
@version_option
@digest_option
@alias_options
@trust_options
@json_option
@stack_options
def pull(
    *,
    registry: str,
    model: str,
    target: Path,
    version: int | None,
    digest: str | None,
    alias: str | None,
    older: bool,
    verify_key: Path | None,
    keyring: Path | None,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Fetch a package into a folder, which is there afterwards verified, or not at all."""
    shelf = Where(stack, project).shelf(registry)
    trust = trusted(verify_key, keyring)
    image = image_of(shelf, model, (version, digest, alias), trust.verify_key, older=older)
    package = transfer.pull(shelf, image, target, trust, say=progress(as_json))
    answer = {
        **_described(shelf, image),
        "signer": package.contents.signer,
        "path": str(target),
    }
    text = f"{model} version {image.version} is in {target}, as signed by {answer['signer']}"
    _print(as_json, answer, text)
    return 0


@models.command()
@registry_argument
@model_argument
@click.option(
    "--version",
    type=click.IntRange(1),
    metavar="N",
    required=True,
    help="What it is to stand for.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="Sign anew what the alias stands for already, so that it is valid for longer.",
)
@click.option(
    "--why",
    metavar="TEXT",
    default="",
    help="The reason, which the record keeps and `aliases` shows (default: none).",
)
@signing_options
@json_option
@stack_options
def promote(
    *,
    registry: str,
    model: str,
    version: int,
    renew: bool,
    why: str,
    alias: str,
    keyring: Path,
    days: int,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Let an alias stand for a version, by a signed and numbered record.

    What the alias stands for already isn't signed again, unless it has expired or --renew says so.
    Have one place do it: of two that sign the same number, one is refused or overwritten.
    """
    shelf = Where(stack, project).shelf(registry)
    signer = Signer(KeyRing.open(keyring), SeenHere(), days)
    entry, is_new = aliases.promote(shelf, (model, version), alias, signer, renew=renew, why=why)
    _print_entry(as_json, entry, "stands for" if is_new else "stood for")
    return 0


@models.command()
@registry_argument
@model_argument
@signing_options
@json_option
@stack_options
def rollback(
    *,
    registry: str,
    model: str,
    alias: str,
    keyring: Path,
    days: int,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Let an alias stand for the version before, by a record of its own.

    Versions that were removed since are passed over.
    """
    shelf = Where(stack, project).shelf(registry)
    signer = Signer(KeyRing.open(keyring), SeenHere(), days)
    _print_entry(as_json, aliases.roll_back(shelf, model, alias, signer), "stands for")
    return 0


def _print_entry(as_json: bool, entry: Entry, stands: str) -> None:
    record, now = entry.record, datetime.now(UTC)
    text = (
        f"{record.alias} of {record.model} {stands} version {record.version} "
        f"(record {record.number}, valid until {record.expires:%Y-%m-%d %H:%M} UTC)\n"
        f"packageDigest: {record.image}"
    )
    _print(as_json, entry.to_json(now), text)


@models.command("aliases")
@registry_argument
@model_argument
@click.option("--all", "everything", is_flag=True, help="Every record, the oldest first.")
@trust_options
@json_option
@stack_options
def list_aliases(
    *,
    registry: str,
    model: str,
    everything: bool,
    verify_key: Path | None,
    keyring: Path | None,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """List what a model's aliases stand for, and who said so when; each record is verified."""
    shelf = Where(stack, project).shelf(registry)
    key = trusted(verify_key, keyring).verify_key
    shelf.known(model)
    found = records_of(shelf.client.tags(shelf.repository(model)))
    entries = [
        read(shelf, model, alias, number, key)
        for alias, numbers in found.items()
        for number in (numbers if everything else numbers[-1:])
    ]
    now = datetime.now(UTC)
    rows = [("alias", "record", "version", "digest", "issued", "valid until", "why")]
    for entry in entries:
        record = entry.record
        until = f"{record.expires:%Y-%m-%d %H:%M}" + (" EXPIRED" if entry.expired(now) else "")
        rows.append((
            record.alias, str(record.number), str(record.version), record.image,
            f"{record.issued:%Y-%m-%d %H:%M}", until, record.why,
        ))  # fmt: skip
    text = table(rows) if entries else f"{shelf.repository(model)} has no aliases"
    _print(as_json, {"aliases": [each.to_json(now) for each in entries]}, text)
    return 0


@models.command()
@registry_argument
@model_argument
@version_option
@digest_option
@alias_options
@click.option(
    "--service",
    metavar="NAME",
    help=f"The key below {SECTION} (default: the one that has the model).",
)
@click.option(
    "--weight",
    type=click.IntRange(0, 100),
    default=100,
    show_default=True,
    metavar="PERCENT",
    help="Share of requests; with less than 100 it is a canary beside the versions there.",
)
@trust_options
@click.option("--dry-run", is_flag=True, help="Only say what the versions would be.")
@json_option
@written_stack
def pin(
    *,
    registry: str,
    model: str,
    version: int | None,
    digest: str | None,
    alias: str | None,
    older: bool,
    service: str | None,
    weight: int,
    verify_key: Path | None,
    keyring: Path | None,
    dry_run: bool,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Write a version's digests into a stack's file, for its inference service or its tier.

    An alias is resolved here, once, and not while the stack is previewed: what is reviewed is
    what is deployed. Commit the file, then bring the stack up.
    """
    if stack is None:
        raise StackError("--stack NAME is needed: whose file is to name the version?")
    shelf = Where(stack, project).shelf(registry)
    trust = trusted(verify_key, keyring)
    image = image_of(shelf, model, (version, digest, alias), trust.verify_key, older=older)
    shelf.contents(image, trust.verify_key)
    tag, keys = shelf.keys(image)
    file = StackFile(stack, the_project(project))
    wanted = Pin(image.version, image.itself.digest, keys.itself.digest, weight)
    done = pin_into(file, model, service, wanted, dry_run=dry_run)
    answer = {
        **_described(shelf, image), "keysTag": tag, "service": done.service,
        "versions": done.versions,
    }  # fmt: skip
    more = "" if dry_run else f"\nversion {image.version} has {weight} %, with keys {tag}"
    _print(as_json, answer, f"{done.text}{more}")
    return 0


@models.command()
@click.option("--dry-run", is_flag=True, help="Only say what the versions would be.")
@json_option
@written_stack
def follow(*, dry_run: bool, as_json: bool, stack: str | None, project: Path | None) -> int:
    """Write what aliases stand for into a stack's file, for its services with a canary.

    `up` does it first, so that no digest is written by hand. Where changes are reviewed, let this
    write the file, and commit it: what is reviewed is what is deployed.
    """
    if stack is None:
        raise StackError("--stack NAME is needed: whose services follow aliases?")
    file = StackFile(stack, the_project(project))
    done = follow_in(file, dry_run=dry_run)
    answer = {"services": {each.service: each.versions for each in done}}
    text = "\n".join(each.text for each in done) or (
        f"no service of stack {stack} follows an alias: {SECTION}.NAME.canary says which"
    )
    _print(as_json, answer, text)
    return 0


@models.command()
@click.argument("source", metavar="SOURCE")
@click.argument("destination", metavar="DESTINATION")
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what would be copied.")
@json_option
@stack_options
def copy(
    *,
    source: str,
    destination: str,
    names: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    stack: str | None,
    project: Path | None,
) -> int:
    """Copy all versions of models, with their keys, from one registry to another.

    What is there stays, so that a repeat copies what is new, and goes on where an interrupted run
    ended. A tag that stands for something else at the destination is refused and named.

    The recovery point is the age of the oldest version that the source has and the destination
    hasn't: what would be missing if the source were lost now. Exit status: 0 nothing is left, 3
    something is (also in a dry run), 2 refused.
    """
    here, there = Where(stack, project).shelves(source, destination)
    done = copy_models(here, there, names, progress(as_json), dry_run=dry_run)
    answer = {
        "source": here.address,
        "destination": there.address,
        "dryRun": dry_run,
        **done.to_json(),
    }
    _print(as_json, answer, _summary(done))
    if done.exit_status == LEFT and not dry_run:
        left = [f"{each.model}:{tag}" for each in done.models for tag in each.left]
        complain(f"{there.address} hasn't {', '.join(left)}; run again: what was copied stays")
    return done.exit_status


def _summary(done: Copied) -> str:
    rows = [(
        "model", "versions", "copied", "were there", "left", "newest at source",
        "newest at destination", "recovery point",
    )]  # fmt: skip
    rows += [_row(each, done.now) for each in done.models]
    point = _age(done.recovery_point)
    return f"\n{table(rows)}\n\nrecovery point: {point}; took {done.seconds:.1f} s"


def _row(each: CopiedModel, now: datetime) -> tuple[str, ...]:
    newest = (each.newest_at_source, each.newest_at_destination)
    counts = (each.versions, each.copied, each.there, each.left)
    return (
        each.model,
        *(str(len(count)) for count in counts),
        *(tag_of(version) if version else "none" for version in newest),
        _age(each.recovery_point(now)),
    )


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return str(timedelta(seconds=round(seconds))) if seconds else "0 (nothing is left)"
