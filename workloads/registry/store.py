"""The registry: models, their numbered versions, and which version each alias stands for.

``<root>/<model>/versions/<n>/`` holds a package. A version appears by one rename of a finished
folder, so readers need no lock; writers of one model take turns.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import (
    make_private_folder,
    storage_errors,
    sync_folder,
)
from falaj.workloads.registry import audit, numbering
from falaj.workloads.registry.aliases import Alias, read_aliases, write_aliases
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.keyservice import KeyService
from falaj.workloads.registry.locking import locked
from falaj.workloads.registry.manifest import Manifest, check_fields
from falaj.workloads.registry.names import (
    check_alias,
    check_file_name,
    check_model_name,
    is_version,
)
from falaj.workloads.registry.package import Package, open_package, write_package
from falaj.workloads.registry.stream import CHUNK_BYTES

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


class Store:
    """A registry in a folder."""

    def __init__(self, root: Path) -> None:
        """Use the registry in ``root``, which need not exist before the first publication."""
        self.root = root

    def models(self) -> list[str]:
        """Return the names of the models, sorted."""
        if not self.root.is_dir():
            return []
        return sorted(entry.name for entry in self.root.iterdir() if (entry / "versions").is_dir())

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, oldest first; none for an unknown model."""
        folder = self._folder(model) / "versions"
        if not folder.is_dir():
            return []
        return sorted(int(entry.name) for entry in folder.iterdir() if is_version(entry.name))

    def aliases(self, model: str) -> dict[str, Alias]:
        """Return where the aliases of a model point."""
        return read_aliases(self._folder(model))

    def path(self, model: str, version: int) -> Path:
        """Return the folder of a version.

        Raises:
            WorkloadError: there is no such version; the message lists those there are.
        """
        path = self._folder(model) / "versions" / str(version)
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
            have = ", ".join(aliases) or "none"
            message = f"{model} in {self.root} has no alias {alias!r} (it has: {have})"
            raise WorkloadError(f"{message}; promote a version to it first")
        return aliases[alias].version

    def load(
        self, model: str, version: int | str, keys: KeyService, verify_key: Ed25519PublicKey
    ) -> Package:
        """Open a version (a number) or what an alias (text) stands for; its signature is verified.

        Raises:
            IntegrityError: it isn't what was published.
            WorkloadError: there is no such version or alias.
        """
        number = self.resolve(model, version) if isinstance(version, str) else version
        return open_package(self.path(model, number), model, number, keys, verify_key)

    def verify(
        self, model: str, version: int | str, keys: KeyService, verify_key: Ed25519PublicKey
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
    ) -> Published:
        """Encrypt, sign and add a version; the same content is published once.

        Two publications are the same if ``lineage.run`` and the names and contents of the files
        are. A damaged version isn't taken for it: then a new one is made.

        Args:
            model: name of the model.
            files: contents by name; at least one.
            manifest_fields: see :data:`falaj.workloads.registry.manifest.FIELDS`.
            keyring: signs, and wraps the data keys.
            chunk_bytes: plaintext bytes per encrypted chunk; 1 MiB by default.

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
            numbering.remove_leftovers(folder)
            existing = self._find(model, files, manifest_fields, keyring)
            if existing is not None:
                return existing
            version = numbering.next_version(folder, self.versions(model))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            draft = Manifest(model, version, now, keyring.signing_key_id, {}, manifest_fields)
            stage = numbering.make_staging(folder)
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
                audit.append(self.root, "publish", details)
                target = folder / "versions" / str(version)
                with storage_errors(target):
                    stage.rename(target)
                    sync_folder(target.parent)
            except BaseException:
                shutil.rmtree(stage, ignore_errors=True)
                raise
            numbering.note_used(folder, version)
        return Published(model, version, target, package.digest, created=True)

    def promote(self, model: str, version: int, alias: str = PRODUCTION) -> Moved:
        """Let an alias stand for ``version``. Promoting what it stands for changes nothing.

        Raises:
            WorkloadError: there is no such version, or a bad alias.
        """
        check_alias(alias)
        self.path(model, version)
        folder = self._folder(model)
        with locked(folder / ".lock"):
            self.path(model, version)  # a prune may have taken it while we waited
            aliases = read_aliases(folder)
            current = aliases.get(alias)
            before = current.version if current else None
            if before != version:
                moved = current.promoted(version) if current else Alias.first(version)
                self._move("promote", model, aliases, alias, moved)
        return Moved(model, alias, version, before)

    def rollback(self, model: str, alias: str = PRODUCTION) -> Moved:
        """Let an alias stand for the version before; those pruned since are passed over.

        Raises:
            WorkloadError: there is no such alias, or nothing to go back to.
        """
        self.resolve(model, alias)
        folder = self._folder(model)
        with locked(folder / ".lock"):
            current = self.resolve(model, alias)
            aliases = read_aliases(folder)
            have = set(self.versions(model))
            moved = aliases[alias].rolled_back(have.__contains__)
            if moved is None:
                message = f"{alias} of {model} stands for version {current}"
                raise WorkloadError(f"{message} and there is no earlier one to go back to")
            self._move("rollback", model, aliases, alias, moved)
        return Moved(model, alias, moved.version, current)

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
            numbering.remove_leftovers(folder)
            versions = self.versions(model)
            # Written before anything goes: a removed version's number is never given again.
            numbering.note_used(folder, versions[-1])
            kept = {*versions[-keep:], *protect}
            for alias in read_aliases(folder).values():
                back = alias.rolled_back(set(versions).__contains__)
                kept |= {alias.version} | ({back.version} if back else set())
            removed = [version for version in versions if version not in kept]
            for version in removed:
                audit.append(self.root, "prune", {"model": model, "version": version})
                path = folder / "versions" / str(version)
                with storage_errors(path):
                    path.rename(folder / f"{numbering.REMOVED}{version}")
                    sync_folder(folder)
            numbering.remove_leftovers(folder)
        return removed

    def _folder(self, model: str) -> Path:
        folder = self.root / check_model_name(model)
        if folder.is_symlink() or (folder / "versions").is_symlink():
            raise IntegrityError(f"{folder} is, or leads through, a symbolic link: refused")
        return folder

    def _make_folders(self, folder: Path) -> None:
        for path in (self.root, folder, folder / "versions"):
            make_private_folder(path)

    def _move(
        self, action: str, model: str, aliases: dict[str, Alias], name: str, alias: Alias
    ) -> None:
        before = aliases[name].version if name in aliases else None
        details = {"model": model, "alias": name, "version": alias.version, "previous": before}
        # The record comes first: no change goes without one, even if the disk fills up here.
        audit.append(self.root, action, details)
        write_aliases(self._folder(model), {**aliases, name: alias})

    def _find(
        self, model: str, files: Mapping[str, bytes], fields: Mapping[str, Any], keyring: KeyRing
    ) -> Published | None:
        """Return the newest whole version with the same content."""
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        for version in reversed(self.versions(model)):
            with contextlib.suppress(WorkloadError):
                package = self.load(model, version, keyring, keyring.verify_key())
                contents = package.contents
                same_run = contents.fields["lineage"].get("run") == fields["lineage"].get("run")
                if not same_run or contents.plain_digests != digests:
                    continue
                package.verify()
                return Published(model, version, package.path, package.digest, created=False)
        return None
