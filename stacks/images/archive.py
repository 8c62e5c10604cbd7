"""Images and charts on a disk, to be carried into a network that no cable leads to.

A folder with an OCI layout for each image (https://github.com/opencontainers/image-spec/blob/main/
image-layout.md) and an archive for each chart that no registry serves. ``contents.yaml``, of the
form of a lock file, names what is complete; the rest is fetched by the next run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from falaj.stacks.errors import StackError
from falaj.stacks.images.crane import Crane, Helm, RegistryError, archive_digest
from falaj.stacks.images.items import EMPTY, Item, Lock, Locked, load, save
from falaj.stacks.images.mirror import UNKNOWN, Outcome, digest_there

Say = Callable[[str], None]
CONTENTS: Final = "contents.yaml"
_CHUNK: Final = 1 << 20


class Archive:
    """A folder of images and charts."""

    def __init__(self, folder: Path, crane: Crane, helm: Helm, say: Say) -> None:
        self._folder = folder
        self._crane = crane
        self._helm = helm
        self._say = say

    def contents(self) -> Lock:
        """What is complete in the folder.

        Raises:
            StackError: the folder has no contents, or they can't be read.
        """
        path = self._folder / CONTENTS
        if not path.is_file():
            raise StackError(
                f"{self._folder} is no archive: it has no {CONTENTS}; write one with: falaj "
                f"images mirror --archive {self._folder}"
            )
        return load(path)

    def fill(self, wanted: Sequence[Item], *, today: str) -> Outcome:
        """Fetch what is missing; one that fails doesn't keep the others from being fetched.

        Raises:
            StackError: the folder can't be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(f"{self._folder} cannot be made: {error.strerror}") from None
        done = self.contents() if (self._folder / CONTENTS).is_file() else EMPTY
        outcome = Outcome()
        for number, item in enumerate(wanted, 1):
            label = f"[{number}/{len(wanted)}] {item.name}"
            try:
                if item.digest is None:
                    raise StackError(UNKNOWN)
                locked = done.of(item.kind).get(item.name)
                if locked and locked.digest == item.digest and self._path(item).exists():
                    outcome.there.append(item.name)
                    self._say(f"{label}: there")
                    continue
                self._fetch(item, item.digest)
            except StackError as error:
                outcome.failed[item.name] = str(error)
                self._say(f"{label}: FAILED\n  {error}")
                continue
            entry = {item.name: Locked(item.upstream, item.digest, today)}
            if item.kind == "images":
                done = Lock({**done.images, **entry}, done.charts)
            else:
                done = Lock(done.images, {**done.charts, **entry})
            save(self._folder / CONTENTS, done)
            outcome.copied.append(item.name)
            self._say(f"{label}: written to {self._path(item)}")
        return outcome

    def send(self, wanted: Sequence[Item], registry: str) -> Outcome:
        """Send everything to a registry, after a look at whether the disk was tampered with."""
        outcome = Outcome()
        for number, item in enumerate(wanted, 1):
            label = f"[{number}/{len(wanted)}] {item.name}"
            try:
                target = item.at(registry)
                if digest_there(self._crane, item, target) == item.digest:
                    outcome.there.append(item.name)
                    self._say(f"{label}: there")
                    continue
                self._send(item, registry)
                if digest_there(self._crane, item, target) != item.digest:
                    raise RegistryError(
                        f"{target} is not {item.digest} after it was sent: the registry changes "
                        "what it is sent, or somebody else pushes there; don't use it"
                    )
                outcome.copied.append(item.name)
                self._say(f"{label}: sent to {target}")
            except StackError as error:
                outcome.failed[item.name] = str(error)
                self._say(f"{label}: FAILED\n  {error}")
        return outcome

    def _path(self, item: Item) -> Path:
        return self._folder / item.kind / (f"{item.name}.tgz" if item.is_archive else item.name)

    def _fetch(self, item: Item, digest: str) -> None:
        """Fetch into a folder of another name first: what has the right name is complete."""
        if item.is_ours:
            raise StackError("it is built here; push it to a registry of the closed network there")
        target = self._path(item)
        unfinished = target.with_name(f".unfinished-{item.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished.mkdir()
            if item.is_archive:
                archive = self._helm.fetch(item, unfinished)
                if archive_digest(archive) != digest:
                    raise RegistryError(
                        f"{item.source} gave {archive_digest(archive)}, pinned is {digest}"
                    )
                archive.replace(target)
            else:
                layout = unfinished / "layout"
                self._crane.pull(f"{item.source}@{digest}", layout)
                check_layout(layout, digest)
                shutil.rmtree(target, ignore_errors=True)
                layout.rename(target)
        except OSError as error:
            raise StackError(
                f"{target} cannot be written: {error.strerror or error}; what is complete stays"
            ) from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _send(self, item: Item, registry: str) -> None:
        path = self._path(item)
        if not path.exists():
            raise StackError(f"{path} is missing, though {CONTENTS} names it; fetch it again")
        if item.is_archive:
            if archive_digest(path) != item.digest:
                raise StackError(f"{path} is not {item.digest}: it was changed; not sent")
            # helm names what it sends after the chart inside, whatever the file's name.
            self._helm.push(path, registry, item.mirror)
            return
        check_layout(path, item.digest or "")
        self._crane.push(path, item.at(registry))


def check_layout(folder: Path, digest: str) -> None:
    """Make sure that an OCI layout is complete and is the image of ``digest``.

    Raises:
        StackError: names the file that is missing or was changed.
    """
    found = _entries(folder)
    if found != [digest]:
        raise StackError(f"{folder} holds {', '.join(found) or 'nothing'}, not {digest}")
    for each in _blobs(folder, digest):
        if blob_digest(folder, each) != each:
            raise StackError(f"{blob_path(folder, each)} is not {each}: it was changed; not sent")


def layout_digest(folder: Path) -> str:
    """The digest of the one image in an OCI layout.

    Raises:
        StackError: it isn't a layout, or holds another number of images.
    """
    found = _entries(folder)
    if len(found) != 1:
        raise StackError(f"{folder} holds {len(found)} images, not one")
    return found[0]


def _entries(folder: Path) -> list[str]:
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        return [str(each["digest"]) for each in index["manifests"]]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise StackError(f"{folder} is no OCI layout: {error}") from None


def _blobs(folder: Path, digest: str) -> Iterator[str]:
    """A manifest and all that it refers to."""
    yield digest
    try:
        content: Any = json.loads(blob_path(folder, digest).read_bytes())
        parts = [*content.get("layers", []), *([content["config"]] if "config" in content else [])]
        inner = [str(each["digest"]) for each in content.get("manifests", [])]
        blobs = [str(each["digest"]) for each in parts]
    except OSError as error:
        raise StackError(
            f"{blob_path(folder, digest)}: {error.strerror}; fetch it again"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StackError(f"{blob_path(folder, digest)} is no manifest; fetch it again") from None
    yield from blobs
    for each in inner:
        yield from _blobs(folder, each)


def blob_path(folder: Path, digest: str) -> Path:
    """Where an OCI layout has a blob."""
    algorithm, _, name = digest.partition(":")
    return folder / "blobs" / algorithm / name


def blob_digest(folder: Path, digest: str) -> str:
    """The digest of what is where a blob has to be, ``sha256:…``.

    Raises:
        StackError: it can't be read.
    """
    hashed = hashlib.sha256()
    try:
        with blob_path(folder, digest).open("rb") as file:
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
    except OSError as error:
        raise StackError(
            f"{blob_path(folder, digest)}: {error.strerror}; fetch it again"
        ) from None
    return f"sha256:{hashed.hexdigest()}"
