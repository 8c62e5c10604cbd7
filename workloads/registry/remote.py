"""Images of packages in a registry of images, read by their digests.

What comes is what its digest says, or refused. A transfer that breaks off goes on.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from falaj.workloads.errors import IntegrityError, NotThereError, RegistryError, WorkloadError
from falaj.workloads.registry.distribution import Answer, RegistryClient
from falaj.workloads.registry.oci_layout import (
    DIGEST,
    MAX_DOCUMENT_BYTES,
    Descriptor,
    ImageManifest,
    Reader,
    described,
    parse_image_manifest,
)

_REPOSITORY: Final = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9a-f:]+\](?::\d{1,5})?)"
    r"/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
)


class _BrokenOffError(Exception):
    """A transfer that failed; another may do."""


def check_repository_name(name: str) -> str:
    """The host of a repository, ``HOST/PATH``.

    Raises:
        WorkloadError: it is none.
    """
    match = _REPOSITORY.fullmatch(name)
    if match is None:
        raise WorkloadError(
            f"--repository: given {name!r}; allowed: host and path without a tag, as in "
            "registry.example.ae/models/churn"
        )
    return match["host"]


@dataclass(frozen=True)
class Repository:
    """A repository of a registry, whose name was checked."""

    name: str
    """Host and path, as in ``registry.example.ae/models/churn``."""
    client: RegistryClient

    def image(self, digest: str, option: str) -> RemoteImage:
        """One of its images; ``option`` is who gave the digest.

        Raises:
            WorkloadError: it isn't a digest.
        """
        if not DIGEST.fullmatch(digest):
            raise WorkloadError(
                f"{option}: given {digest!r}; allowed: sha256: and 64 of 0-9 and a-f, as "
                "`falaj publish` prints it"
            )
        return RemoteImage(self, digest)

    def document(self, digest: str) -> bytes:
        """A manifest.

        Raises:
            RegistryError: it isn't there, or can't be had.
            IntegrityError: the registry sent another.
        """
        try:
            data = self.client.manifest_bytes(f"{self.name}@{digest}", MAX_DOCUMENT_BYTES)
        except NotThereError as error:
            raise NotThereError(
                f"{error}\n  send the package there with `falaj publish`, or give the digests "
                "that it printed"
            ) from None
        found = described(data).digest
        if found != digest:
            raise IntegrityError(f"the registry sent {found} for {self.name}@{digest}")
        return data

    @contextmanager
    def blob(self, blob: Descriptor) -> Generator[Reader]:
        """A layer or configuration, from its beginning; a transfer that breaks off goes on."""
        reference = f"{self.name}@{blob.digest}"
        reader = _Resuming(
            lambda start: self.client.part(reference, start),
            reference,
            blob.size,
            self.client.pauses,
        )
        try:
            yield reader
        finally:
            reader.close()


@dataclass(frozen=True)
class RemoteImage:
    """One image of a repository, by its digest."""

    repository: Repository
    digest: str

    def __str__(self) -> str:
        """Return its reference."""
        return f"{self.repository.name}@{self.digest}"

    def manifest(self, kind: str) -> ImageManifest:
        """Its manifest.

        Raises:
            IntegrityError: it is of another kind, or none of ours.
            RegistryError: it can't be had.
        """
        found = parse_image_manifest(self.repository.document(self.digest), str(self))
        if found.kind != kind:
            raise IntegrityError(f"{self} is {found.kind!r}; needed: {kind!r}")
        return found

    def open(self, blob: Descriptor) -> AbstractContextManager[Reader]:
        """One of its parts; see `Repository.blob`."""
        return self.repository.blob(blob)


class _Resuming:
    """The content of a blob, which is asked for again from where a connection broke off."""

    def __init__(
        self, ask: Callable[[int], Answer], what: str, size: int, pauses: tuple[float, ...]
    ) -> None:
        self._ask = ask
        self._what = what
        self._size = size
        self._at = 0
        self._answer: Answer | None = None
        self._given = pauses
        self._pauses = iter(pauses)

    def read(self, count: int, /) -> bytes:
        """The next bytes, fewer only at the end of what the manifest names."""
        wanted = min(count, self._size - self._at)
        parts: list[bytes] = []
        while wanted > 0:
            try:
                data = self._some(wanted)
            except _BrokenOffError as error:
                self.close()
                pause = next(self._pauses, None)
                if pause is None:
                    raise RegistryError(
                        f"{self._what} can't be had: {error}; look at the name, the private "
                        "endpoint and the rules of the network"
                    ) from error
                time.sleep(pause)
                continue
            parts.append(data)
            self._at += len(data)
            wanted -= len(data)
        return b"".join(parts)

    def _some(self, wanted: int) -> bytes:
        if self._answer is None:
            self._answer = self._ask(self._at)
        try:
            data = self._answer.response.read(wanted)
        except http.client.IncompleteRead as error:
            data = error.partial
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenOffError(str(error)) from error
        if not data:
            raise _BrokenOffError(f"it ended after {self._at} of {self._size} bytes")
        # What comes is a sign that going on helps.
        self._pauses = iter(self._given)
        return data

    def close(self) -> None:
        """Let go of the connection."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None
