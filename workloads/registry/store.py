"""The registry: models, their numbered versions, and which version each alias stands for.

``<root>/<model>/versions/<n>/`` holds a package. A version appears by one rename of a finished
folder, so readers need no lock; writers of one model take turns.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import (
    PRIVATE_FILE,
    locked,
    make_private_folder,
    read_bytes,
    read_json,
    shred,
    storage_errors,
    sync_folder,
    write_json_atomic,
)
from falaj.workloads.registry.alias_list import (
    WITHDRAW,
    Alias,
    AliasList,
    compare,
    read_list,
    replay,
    write_list,
)
from falaj.workloads.registry.keyring import KeyRing, KeyService, Trusted
from falaj.workloads.registry.layout import MANIFEST, version_of, versions_of
from falaj.workloads.registry.package import (
    KEYS,
    Manifest,
    Package,
    check_alias,
    check_fields,
    check_file_name,
    check_model_name,
    digests_of,
    is_version,
    open_package,
    write_package,
)
from falaj.workloads.registry.sealed import CHUNK_BYTES

# The audit log: JSON lines of the registry's changes, each holding the digest of the line before.
#
# A line that was changed, removed from the middle or inserted breaks the chain. Cutting off the
# end isn't seen by the file alone: copy the last digest elsewhere to see that too.

AUDIT = "audit.jsonl"
FIRST_DIGEST = "0" * 64
"""What the first line gives as the digest before it."""


def append_event(root: Path, action: str, details: Mapping[str, Any]) -> None:
    """Append one line to ``<root>/audit.jsonl`` and force it to the disk.

    Args:
        root: the registry's folder, which exists.
        action: "publish", "promote", "rollback", "withdraw" or "prune".
        details: plain JSON values; ``time``, ``user`` and ``previous_digest`` are added.

    Raises:
        StorageFullError: no space; the log is as it was.
    """
    path = root / AUDIT
    with locked(root / ".audit.lock"), storage_errors(path):
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, PRIVATE_FILE)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            lines = file.read().splitlines(keepends=True)
            # A write that a power cut ended halfway never counted: its change was not made.
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()
            size = sum(map(len, lines))
            event = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "user": _user(),
                "action": action,
                **details,
                "previous_digest": hashlib.sha256(lines[-1]).hexdigest()
                if lines
                else FIRST_DIGEST,
            }
            text = json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n"
            _write(file.fileno(), size, text.encode())


def read_events(root: Path, *, whole: bool = True) -> list[dict[str, Any]]:
    """Return the events, oldest first, after checking the chain; none if there is no log yet.

    Args:
        root: the registry's folder.
        whole: refuse a last line without an end. A power cut leaves one, whose change was never
            made. Default: True.

    Raises:
        IntegrityError: a line was changed, removed or added.
    """
    path = root / AUDIT
    if not path.exists():
        return []
    events: list[dict[str, Any]] = []
    previous = FIRST_DIGEST
    lines = read_bytes(path, "the audit log").splitlines(keepends=True)
    if not whole and lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            event: Any = json.loads(line)
            fits = line.endswith(b"\n") and event["previous_digest"] == previous
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise IntegrityError(f"line {number} of {path} isn't an event: {error!r}") from error
        if not fits:
            message = f"line {number} of {path} doesn't follow from the line before it"
            raise IntegrityError(f"{message}: the log was changed")
        previous = hashlib.sha256(line).hexdigest()
        events.append(event)
    return events


def _write(descriptor: int, size: int, line: bytes) -> None:
    """Put ``line`` at offset ``size``, wholly or not at all."""
    try:
        os.ftruncate(descriptor, size)
        written = 0
        while written < len(line):
            written += os.pwrite(descriptor, line[written:], size + written)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())


COUNTER = "counter.json"
STAGING = ".staging-"
REMOVED = ".removed-"


def next_version(folder: Path, existing: Iterable[int]) -> int:
    """Return the number after the highest that was ever used; the model's lock is held.

    Raises:
        WorkloadError: the counter is damaged.
    """
    return max([_last_used(folder), *existing]) + 1


def note_used(folder: Path, version: int) -> None:
    """Remember that ``version`` was used, so that it isn't given again once it is removed."""
    last = _last_used(folder)
    if version > last:
        write_json_atomic(folder / COUNTER, {"last": version})


def make_staging(folder: Path) -> Path:
    """Make an empty private folder in which a version is prepared, on the same file system."""
    with storage_errors(folder):
        return Path(tempfile.mkdtemp(prefix=STAGING, dir=folder))


def remove_leftovers(folder: Path) -> None:
    """Remove what interrupted publications and prunings left; the model's lock is held."""
    for entry in folder.iterdir():
        if entry.is_symlink() or not entry.name.startswith((STAGING, REMOVED)):
            continue
        # Without its wrapped keys, what is left of a package can't be read any more.
        shred(entry / KEYS)
        with storage_errors(entry):
            shutil.rmtree(entry)


def _last_used(folder: Path) -> int:
    path = folder / COUNTER
    if not path.exists():
        return 0
    match read_json(path, "the version counter"):
        case {"last": int(number)} if number >= 0:
            return number
        case _:
            message = f"{path} is malformed; restore it, or write the highest version ever used"
            raise WorkloadError(f'{message} as {{"last": N}}')


PRODUCTION = "production"


@dataclass(frozen=True, slots=True)
class Published:
    """A version in the registry. ``created`` is False if it was there already."""

    model: str
    version: int
    path: Path
    digest: str
    created: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """What a promotion or a rollback did; ``previous`` is what the alias stood for before."""

    model: str
    alias: str
    version: int
    previous: int | None


@dataclass(frozen=True, slots=True)
class Pointed:
    """What an alias stands for, and the number of the list that says so."""

    version: int
    number: int


class Store:
    """A registry in a folder.

    Args:
        root: the folder, which need not exist before the first publication.
        keyring: signs the lists of aliases that are changed here. Default: none, as in a pod,
            whose key ring can't sign.
    """

    def __init__(self, root: Path, keyring: KeyRing | None = None) -> None:
        self.root = root
        self._keyring = keyring

    def models(self) -> list[str]:
        """Return the names of the models, sorted."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if versions_of(entry).is_dir())

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, oldest first; none for an unknown model."""
        folder = versions_of(self._folder(model))
        if not folder.is_dir():
            return []
        return sorted(int(entry.name) for entry in folder.iterdir() if is_version(entry.name))

    def aliases(self, model: str) -> dict[str, Alias]:
        """Return where the aliases of a model point, as the file says it, unverified."""
        return dict(read_list(self._folder(model)).aliases)

    def checked_list(self, model: str, keyring: KeyRing | None) -> AliasList:
        """Return a model's list of aliases, verified and held against the log of changes.

        Args:
            model: name of the model.
            keyring: whose signature it has to have; None: the log is compared alone.

        Raises:
            IntegrityError: it isn't signed, or is older than the log, or the log than it.
            WorkloadError: it, or the log, is damaged.
        """
        folder = self._folder(model)
        try:
            return self._compare(folder, keyring)
        except IntegrityError:
            if not (folder / ".lock").exists():
                raise
        # A change that is being made has one of both written: wait for the other.
        with locked(folder / ".lock", shared=True):
            return self._compare(folder, keyring)

    def _compare(self, folder: Path, keyring: KeyRing | None) -> AliasList:
        found = read_list(folder)
        what = f"the list of aliases of {found.model} in {self.root}"
        compare(found, read_events(self.root, whole=False), what)
        if keyring is not None:
            found.require_signature(keyring, what)
        return found

    def trusted(self, model: str, alias: str, keyring: KeyRing, *, seen: int = 0) -> Pointed:
        """Return what an alias stands for, as :meth:`checked_list` has it.

        Args:
            model: name of the model.
            alias: such as ``production``.
            keyring: whose signature the list has to have.
            seen: the highest number that is known of the model's lists. Default: none is.

        Raises:
            IntegrityError: see :meth:`checked_list`; or the list is older than the one seen.
            WorkloadError: nothing was promoted to it.
        """
        found = self.checked_list(model, keyring)
        if found.number < seen:
            raise IntegrityError(
                f"the list of aliases of {model} in {self.root} is number {found.number}, but "
                f"number {seen} was there already: the registry was put back; promote again what "
                "is to be served"
            )
        if check_alias(alias) not in found.aliases:
            raise self._no_alias(model, alias, found.aliases)
        return Pointed(found.aliases[alias].version, found.number)

    def path(self, model: str, version: int) -> Path:
        """Return the folder of a version.

        Raises:
            WorkloadError: there is no such version; the message lists those there are.
        """
        path = version_of(self._folder(model), version)
        if not path.is_dir():
            have = self.versions(model)
            shown = ", ".join(map(str, have)) if have else "none: publish one first"
            raise WorkloadError(
                f"{self.root} has no version {version} of {model}; it has: {shown}"
            )
        return path

    def resolve(self, model: str, alias: str = PRODUCTION) -> int:
        """Return the version that an alias stands for.

        Raises:
            WorkloadError: nothing was promoted to it.
        """
        aliases = self.aliases(model)
        if check_alias(alias) not in aliases:
            raise self._no_alias(model, alias, aliases)
        return aliases[alias].version

    def _no_alias(self, model: str, alias: str, aliases: Iterable[str]) -> WorkloadError:
        have = ", ".join(aliases) or "none"
        message = f"{model} in {self.root} has no alias {alias!r} (it has: {have})"
        return WorkloadError(f"{message}; promote a version to it first")

    def load(
        self, model: str, version: int | str, keys: KeyService, verify_key: Trusted
    ) -> Package:
        """Open a version (a number) or what an alias (text) stands for; its signature is verified.

        Raises:
            IntegrityError: it isn't what was published.
            WorkloadError: there is no such version or alias.
        """
        number = self.resolve(model, version) if isinstance(version, str) else version
        return open_package(self.path(model, number), model, number, keys, verify_key)

    def verify(
        self, model: str, version: int | str, keys: KeyService, verify_key: Trusted
    ) -> Package:
        """As :meth:`load`, and read every file of it.

        Raises:
            IntegrityError: anything in it isn't what was published.
        """
        package = self.load(model, version, keys, verify_key)
        package.verify()
        return package

    def publish(
        self,
        model: str,
        files: Mapping[str, bytes],
        manifest_fields: Mapping[str, Any],
        keyring: KeyRing,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        after: int = 0,
    ) -> Published:
        """Encrypt, sign and add a version; the same content is published once.

        Two publications are the same if ``lineage.run``, the names and contents of the files and
        the engine are, as `Manifest.says_the_same` has it. A damaged version isn't taken for it:
        then a new one is made.

        Args:
            model: name of the model.
            files: contents by name; at least one.
            manifest_fields: see :data:`falaj.workloads.registry.package.FIELDS`.
            keyring: signs, and wraps the data keys.
            chunk_bytes: plaintext bytes per encrypted chunk; 1 MiB by default.
            after: a number that was used elsewhere: the version is a higher one.

        Raises:
            StorageFullError: no space; the registry is as it was.
            WorkloadError: a bad name or field.
        """
        folder = self._folder(model)
        if not files:
            raise WorkloadError(f"nothing to publish for {model}: give at least one file")
        for name in files:
            check_file_name(name)
        check_fields(manifest_fields, "the package's fields")
        self._make_folders(folder)
        with locked(folder / ".lock"), keyring.steady():
            remove_leftovers(folder)
            existing = self._find(model, files, manifest_fields, keyring)
            if existing is not None:
                return existing
            version = next_version(folder, [after, *self.versions(model)])
            now = datetime.now(UTC).isoformat(timespec="seconds")
            draft = Manifest(model, version, now, keyring.signing_key_id, {}, manifest_fields)
            stage = make_staging(folder)
            try:
                write_package(
                    stage,
                    files,
                    draft,
                    keys=keyring,
                    signing_key=keyring.signing_key(),
                    chunk_bytes=chunk_bytes,
                )
                # Whoever signs also checks: a version that can't be opened is never published.
                package = open_package(stage, model, version, keyring, keyring.verify_key())
                package.verify()
                details = {"model": model, "version": version, "digest": package.digest}
                append_event(self.root, "publish", details)
                target = version_of(folder, version)
                with storage_errors(target):
                    stage.rename(target)
                    sync_folder(target.parent)
            except BaseException:
                shutil.rmtree(stage, ignore_errors=True)
                raise
            note_used(folder, version)
        return Published(model, version, target, package.digest, created=True)

    def promote(self, model: str, version: int, alias: str = PRODUCTION) -> Moved:
        """Let an alias stand for ``version``. Promoting what it stands for changes nothing.

        A list that isn't what the log says, or isn't signed where it has to be, is made anew from
        the log.

        Raises:
            WorkloadError: there is no such version, or a bad alias; or the list is signed, and
                this store has no key ring that signs.
        """
        check_alias(alias)
        self.path(model, version)
        folder = self._folder(model)
        with locked(folder / ".lock"):
            self.path(model, version)  # a prune may have taken it while we waited
            try:
                found = self._compare(folder, self._keyring)
                whole = True
            except WorkloadError:
                aliases, number = replay(read_events(self.root, whole=False), model)
                found, whole = AliasList(model, aliases, max(number, _number(folder))), False
            current = found.aliases.get(alias)
            before = current.version if current else None
            if current is None:
                self._move("promote", found, alias, Alias.first(version))
            elif before != version:
                self._move("promote", found, alias, current.promoted(version))
            elif not whole:
                self._move("promote", found, alias, current)
        return Moved(model, alias, version, before)

    def rollback(self, model: str, alias: str = PRODUCTION, expected: int | None = None) -> Moved:
        """Let an alias stand for the version before; those pruned since are passed over.

        Args:
            model: its name.
            alias: which.
            expected: the version that it has to stand for: somebody else may have gone back or
                forward meanwhile. Default: any.

        Raises:
            IntegrityError: the list isn't what the log says, or what was signed.
            WorkloadError: there is no such alias, it stands for another version than that, or
                there is nothing to go back to.
        """
        self.resolve(model, alias)
        folder = self._folder(model)
        with locked(folder / ".lock"):
            found = self._compare(folder, self._keyring)
            current = found.aliases[alias].version
            if expected not in (None, current):
                raise WorkloadError(
                    f"{alias} of {model} stands for version {current} by now, and not for version "
                    f"{expected}: nothing was changed"
                )
            have = set(self.versions(model))
            moved = found.aliases[alias].rolled_back(have.__contains__)
            if moved is None:
                message = f"{alias} of {model} stands for version {current}"
                raise WorkloadError(f"{message} and there is no earlier one to go back to")
            self._move("rollback", found, alias, moved)
        return Moved(model, alias, moved.version, current)

    def withdraw(self, model: str, alias: str) -> Moved:
        """Let an alias stand for nothing any more.

        Returns:
            What it stood for, as both versions.

        Raises:
            IntegrityError: the list isn't what the log says, or what was signed.
            WorkloadError: there is no such alias, or it is the one that is served by default.
        """
        if alias == PRODUCTION:
            raise WorkloadError(
                f"{alias} can't be withdrawn: a server would have nothing to serve; promote "
                "another version to it, or end the server"
            )
        self.resolve(model, alias)
        folder = self._folder(model)
        with locked(folder / ".lock"):
            found = self._compare(folder, self._keyring)
            current = found.aliases.get(alias)
            if current is None:
                raise self._no_alias(model, alias, found.aliases)
            self._move(WITHDRAW, found, alias, current)
        return Moved(model, alias, current.version, current.version)

    def prune(self, model: str, keep: int, protect: Iterable[int] = ()) -> list[int]:
        """Remove all but the newest ``keep`` versions; return those removed.

        A version that an alias stands for, or would roll back to, is never removed, nor one in
        ``protect`` (such as one that is about to be promoted).

        Raises:
            WorkloadError: ``keep`` is less than 1, or there is no such model.
        """
        if keep < 1:
            raise WorkloadError(f"{keep} versions to keep were given; allowed: 1 or more")
        folder = self._folder(model)
        if not self.versions(model):
            raise WorkloadError(f"{self.root} has no versions of {model}")
        with locked(folder / ".lock"):
            remove_leftovers(folder)
            versions = self.versions(model)
            # Written before anything goes: a removed version's number is never given again.
            note_used(folder, versions[-1])
            kept = {*versions[-keep:], *protect}
            for alias in read_list(folder).aliases.values():
                back = alias.rolled_back(set(versions).__contains__)
                kept |= {alias.version} | ({back.version} if back else set())
            removed = [version for version in versions if version not in kept]
            for version in removed:
                append_event(self.root, "prune", {"model": model, "version": version})
                path = version_of(folder, version)
                with storage_errors(path):
                    path.rename(folder / f"{REMOVED}{version}")
                    sync_folder(folder)
            remove_leftovers(folder)
        return removed

    def _folder(self, model: str) -> Path:
        folder = self.root / check_model_name(model)
        if folder.is_symlink() or versions_of(folder).is_symlink():
            raise IntegrityError(f"{folder} is, or leads through, a symbolic link: refused")
        return folder

    def _make_folders(self, folder: Path) -> None:
        for path in (self.root, folder, versions_of(folder)):
            make_private_folder(path)

    def _move(self, action: str, found: AliasList, name: str, alias: Alias) -> None:
        signs = self._keyring is not None and self._keyring.signs
        if found.signature is not None and not signs:
            raise WorkloadError(
                f"the list of aliases of {found.model} is signed, and nobody signs the change: "
                "give --keyring, a key ring with the key that signs packages"
            )
        before, number = found.aliases.get(name), found.number + 1
        details = {
            "model": found.model,
            "alias": name,
            "version": alias.version,
            "previous": before.version if before else None,
            "number": number,
        }
        # The record comes first: no change goes without one, even if the disk fills up here.
        append_event(self.root, action, details)
        folder = self._folder(found.model)
        aliases = {**found.aliases, name: alias}
        if action == WITHDRAW:
            del aliases[name]
        write_list(folder, aliases, number, self._keyring)

    def _find(
        self, model: str, files: Mapping[str, bytes], fields: Mapping[str, Any], keyring: KeyRing
    ) -> Published | None:
        """Return the newest whole version with the same content."""
        digests = digests_of(files)
        for version in reversed(self.versions(model)):
            with contextlib.suppress(WorkloadError):
                package = self.load(model, version, keyring, keyring.verify_key())
                if not package.contents.says_the_same(digests, fields):
                    continue
                package.verify()
                return Published(model, version, package.path, package.digest, created=False)
        return None


def _number(folder: Path) -> int:
    """The number that a list claims, whoever made it; 0 where it can't be read."""
    with contextlib.suppress(WorkloadError):
        return read_list(folder).number
    return 0


def describe_version(store: Store, model: str, version: int) -> dict[str, Any]:
    """Return model, version, path and aliases with digest and manifest, or with ``error``.

    Raises:
        WorkloadError: there is no such version.
    """
    path = store.path(model, version)
    aliases = [name for name, alias in store.aliases(model).items() if alias.version == version]
    found: dict[str, Any] = {
        "model": model,
        "version": version,
        "path": str(path),
        "aliases": aliases,
    }
    try:
        data = read_bytes(path / MANIFEST, "the manifest")
        manifest = Manifest.from_bytes(data, str(path / MANIFEST)).to_json()
    except WorkloadError as error:
        return {**found, "error": str(error)}
    return {**found, "digest": hashlib.sha256(data).hexdigest(), "manifest": manifest}


def describe(store: Store, only: str | None) -> tuple[dict[str, Any], str]:
    """Return all models, or one, with their versions: as JSON values and as text.

    Raises:
        WorkloadError: ``only`` names a model that isn't there.
    """
    models = store.models()
    if only is not None:
        if not store.versions(only):
            have = ", ".join(models) or "none"
            raise WorkloadError(f"{store.root} has no model {only!r}; it has: {have}")
        models = [only]
    listed: list[dict[str, Any]] = []
    lines: list[str] = []
    for model in models:
        versions = [_summary(store, model, number) for number in store.versions(model)]
        listed.append({"model": model, "versions": versions})
        lines += [_line(model, version) for version in versions]
    return {"models": listed}, "\n".join(lines) or f"{store.root} holds no models"


def _summary(store: Store, model: str, version: int) -> dict[str, Any]:
    found = describe_version(store, model, version)
    if "error" in found:
        return {key: found[key] for key in ("version", "aliases", "error")}
    manifest = found["manifest"]
    return {
        "version": version,
        "aliases": found["aliases"],
        "created": manifest["created"],
        "digest": found["digest"],
        "metrics": manifest.get("metrics", {}),
    }


def _line(model: str, version: dict[str, Any]) -> str:
    state = version.get("created") or f"damaged: {version['error']}"
    aliases = f"  <- {', '.join(version['aliases'])}" if version["aliases"] else ""
    return f"{model}  {version['version']}  {state}{aliases}"
