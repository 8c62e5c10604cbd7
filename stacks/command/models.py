"""``falaj models``: sealed packages in registries of the country, and from one to another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from falaj.components.catalogue.clusters import MODEL_REPOSITORIES
from falaj.engine.commands import LEFT
from falaj.stacks.command import testplane
from falaj.stacks.command.console import complain, say, table
from falaj.stacks.command.options import (
    JUDGING_STACK,
    WITHOUT_STACK,
    named_stack,
    project_option,
    the_project,
)
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane, packs_settings, require_in_country
from falaj.stacks.models import following, transfer
from falaj.stacks.models.copying import Copied, CopiedModel, copy_models
from falaj.stacks.models.pinning import (
    SECTION,
    TIER,
    Pin,
    pinned,
    require_tier,
    service_of,
    tier_pinned,
)
from falaj.stacks.models.seen import SeenHere
from falaj.workloads.registry import aliases, sending
from falaj.workloads.registry.alias_record import MAX_DAYS
from falaj.workloads.registry.aliases import DAYS, Entry, Signer, read, records_of, resolve
from falaj.workloads.registry.keyring import KeyRing, Trusted, read_public_key
from falaj.workloads.registry.oci_layout import ImageManifest
from falaj.workloads.registry.sending import Trust
from falaj.workloads.registry.shelf import Shelf, tag_of, tags_beside
from falaj.workloads.registry.store import PRODUCTION, Store

if TYPE_CHECKING:
    from falaj.stacks.settings import WorkloadsSettings
    from falaj.stacks.settings.in_cluster import Trainer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_MIB: Final = 1 << 20
#: What a package says of itself that people look for first; ``--json`` has all of it.
_SHOWN: Final = ("task", "family", "data_class", "metrics", "lineage", "dataset")

_registry = click.argument("registry", metavar="REGISTRY")
_model = click.argument("model", metavar="MODEL")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_version = click.option(
    "--version", type=click.IntRange(1), metavar="N", help="The version (default: the newest)."
)
_digest = click.option(
    "--digest",
    metavar="sha256:…",
    help="The package's image by its digest, as packageDigest has it.",
)


def _stack(command: _Command) -> _Command:
    return named_stack(f"{JUDGING_STACK} ({WITHOUT_STACK}).")(project_option(command))


def _by_alias(command: _Command) -> _Command:
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


def _signs(command: _Command) -> _Command:
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


def _trust(command: _Command) -> _Command:
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


def _trusted(verify_key: Path | None, keyring: Path | None) -> Trust:
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


def _image(
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


def progress(as_json: bool) -> Callable[[str], None]:
    """Lines about what is being done; beside a JSON object on the other stream."""
    return _aside if as_json else say


def _aside(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
@_registry
@_model
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
@_trust
@_json
@_stack
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
    trust = _trusted(verify_key, keyring)
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
@_registry
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@_json
@_stack
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
@_registry
@_model
@_version
@_digest
@_by_alias
@click.option(
    "--verify-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Trusted public key, PEM: the manifest's signature is checked (default: it isn't).",
)
@_json
@_stack
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
    image = _image(shelf, model, (version, digest, alias), key, older=older)
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
@_registry
@_model
@_version
@_digest
@_by_alias
@_trust
@_json
@_stack
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
    trust = _trusted(verify_key, keyring)
    image = _image(shelf, model, (version, digest, alias), trust.verify_key, older=older)
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
@_registry
@_model
@click.option(
    "--to",
    "target",
    metavar="FOLDER",
    required=True,
    type=click.Path(path_type=Path),
    help="The package's folder, for `python -m falaj.workloads.registry import --from`.",
)
@_version
@_digest
@_by_alias
@_trust
@_json
@_stack
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
    trust = _trusted(verify_key, keyring)
    image = _image(shelf, model, (version, digest, alias), trust.verify_key, older=older)
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
@_registry
@_model
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
@_signs
@_json
@_stack
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
@_registry
@_model
@_signs
@_json
@_stack
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
@_registry
@_model
@click.option("--all", "everything", is_flag=True, help="Every record, the oldest first.")
@_trust
@_json
@_stack
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
    key = _trusted(verify_key, keyring).verify_key
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
@_registry
@_model
@_version
@_digest
@_by_alias
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
@_trust
@click.option("--dry-run", is_flag=True, help="Only say what the versions would be.")
@_json
@named_stack("The stack whose file is written; it also says which registries are allowed.")
@project_option
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
    trust = _trusted(verify_key, keyring)
    image = _image(shelf, model, (version, digest, alias), trust.verify_key, older=older)
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
@_json
@named_stack("The stack whose file is written; it also says which registries are allowed.")
@project_option
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


def follow_in(file: StackFile, *, dry_run: bool) -> list[Pinned]:
    """Write what the aliases stand for that a stack's services follow.

    Returns:
        One for each service that follows any; none where the stack is of another kind. Of one
        whose first version is awaited, there are no versions.

    Raises:
        StackError: a service doesn't say what it follows, or the registry isn't allowed or behind.
        WorkloadError: an alias can't be resolved, see `falaj.stacks.models.following.found`.
    """
    pins, stood_for = _stood_for(file)
    for each, found in stood_for:
        at = f"{SECTION}.{each.service}"
        values: dict[str, Any] = {f"{at}.versions": found.versions}
        if found.record is not None:
            values[f"{at}.canary.record"] = found.record
        text = written(file, values, dry_run=dry_run)
        pins.append(Pinned(each.service, found.versions, f"{each.service}: {found.text}\n{text}"))
    return pins


def _stood_for(
    file: StackFile,
) -> tuple[list[Pinned], list[tuple[following.Followed, following.Found]]]:
    """Services of a stack whose first version is awaited, and the others with what they follow.

    Raises:
        StackError, WorkloadError: as of `follow_in`.
    """
    asked = _following(file)
    if asked is None:
        return [], []
    follows, awaited, shelf = asked
    waiting = [
        Pinned(each.service, [], _awaits(each, awaited[each.service]))
        for each in follows
        if each.service in awaited and not following.is_published(each, shelf)
    ]
    names = {each.service for each in waiting}
    others = (each for each in follows if each.service not in names)
    return waiting, [(each, following.found(each, shelf, SeenHere())) for each in others]


def moved_in(file: StackFile) -> list[str]:
    """Of each service whose aliases stand for something else than its stack's file has: both.

    Raises:
        StackError: a service doesn't say what it follows, or the registry isn't allowed or behind.
        WorkloadError: an alias can't be resolved, see `falaj.stacks.models.following.found`.
    """
    said: list[str] = []
    for each, now in _stood_for(file)[1]:
        if now.versions != list(each.versions):
            has = ", ".join(
                f"version {one.get('version')} with {one.get('weight', 100)} %"
                for one in each.versions
            )
            said.append(
                f"{each.service}: {file.shown_path} has {has or 'no version'}, "
                f"and its aliases have moved since: {now.text}"
            )
    return said


def has_first_version(file: StackFile) -> bool:
    """Whether there is a version now for a service of a stack whose first one is awaited.

    Raises:
        RegistryError: the registry can't be asked.
    """
    asked = _following(file)
    if asked is None:
        return False
    follows, awaited, shelf = asked
    return any(each.service in awaited and following.is_published(each, shelf) for each in follows)


def _following(
    file: StackFile,
) -> tuple[list[following.Followed], Mapping[str, Trainer], Shelf[Crane]] | None:
    """What services of a stack follow, which of them await their first version, and where.

    Returns:
        None: none follows any, or the stack is of another kind.
    """
    follows = _follows(file)
    if not follows:
        return None
    from falaj.stacks.settings import WorkloadsSettings  # noqa: PLC0415 - as in `_follows`

    settings = file.settings()
    if not isinstance(settings, WorkloadsSettings):
        return None
    shelf = Where(file.name, file.project.root).shelf(_registry_of(settings))
    return follows, settings.awaited, shelf


def _registry_of(settings: WorkloadsSettings) -> str:
    """Where a stack's packages are asked for from here: beside real machines of this computer,
    the registry that answers them for the stack's own."""
    beside = testplane.registry()
    if beside is None:
        return settings.registry
    return "/".join(filter(None, (beside, settings.registry.partition("/")[2])))


def _awaits(follow: following.Followed, trainer: Trainer) -> str:
    return (
        f"{follow.service}: comes once {trainer} has published {follow.model}@{follow.canary}, "
        "its first version"
    )


def _follows(file: StackFile) -> list[following.Followed]:
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    given = [key for key, _ in edit.values_of(file.path, file.project.root)]
    if not any(key.partition(".")[0] == f"falaj:{SECTION}" for key in given):
        return []
    return following.followed(edit.value_of(file.path, file.project.root, SECTION))


@dataclass(frozen=True)
class Pinned:
    """What a stack's file says now, or would."""

    service: str
    versions: list[dict[str, Any]]
    text: str
    """The lines that come into the file."""


def service_in(file: StackFile, model: str, service: str | None) -> tuple[str, dict[str, Any]]:
    """The service of a stack's file that has a model: its key, and what stands there.

    Raises:
        StackError: there is no such file, or no such service in it.
    """
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    if _is_tier(file):
        tier = edit.value_of(file.path, file.project.root, TIER)
        require_tier(tier, model, service)
        return TIER, tier
    services = edit.value_of(file.path, file.project.root, SECTION)
    name = service_of(services, model, service)
    return name, services[name]


def _is_tier(file: StackFile) -> bool:
    """Whether a stack's file is of a tier that serves one model."""
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    given = edit.values_of(file.path, file.project.root)
    return ("blueprint", "smb") in ((key.removeprefix("falaj:"), each) for key, each in given)


def pin_into(
    file: StackFile, model: str, service: str | None, wanted: Pin, *, dry_run: bool
) -> Pinned:
    """Write a version into a stack's file, for the service or the tier that has the model.

    Raises:
        StackError: the file has no such service, or its versions leave no room for this one.
    """

    name, entry = service_in(file, model, service)
    if name == TIER and _is_tier(file):
        pins = tier_pinned(wanted)
        versions, values = [pins], {f"{TIER}.{key}": value for key, value in pins.items()}
    else:
        versions = pinned(entry.get("versions") or [], wanted)
        values = {f"{SECTION}.{name}.versions": versions}
    return Pinned(name, versions, written(file, values, dry_run=dry_run))


def written(file: StackFile, values: dict[str, Any], *, dry_run: bool) -> str:
    """Set keys in a stack's file; what came into it, or would."""
    from falaj.stacks.settings import edit  # noqa: PLC0415 - the models: not for `--help`

    if dry_run:
        return "\n".join(f"{key} would be {json.dumps(value)}" for key, value in values.items())
    change = edit.set_values(file.path, file.project.root, values)
    lines = [f"{change.label}:{number}: {line}" for number, line in change.come]
    return "\n".join(lines) or f"{change.label} says so already; nothing was changed"


@models.command()
@click.argument("source", metavar="SOURCE")
@click.argument("destination", metavar="DESTINATION")
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what would be copied.")
@_json
@_stack
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
