"""The registry beside a control plane, and small images that are made for it.

An image of one program is a layer with its files and a configuration that says how to start it:
https://github.com/opencontainers/image-spec/blob/main/manifest.md
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import re
import ssl
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from falaj.engine.controlplane.processes import Files
from falaj.engine.errors import EngineError

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_SECONDS: Final = 120.0
NON_ROOT: Final = "65532:65532"


def command(binary: Path, files: Files, port: int) -> list[str]:
    """Serves it over TLS."""
    own = files.pair("registry")
    return [
        str(binary),
        f"-address=:{port}",
        f"-certificate={own.certificate}",
        f"-key={own.key}",
        f"-folder={files.folder / 'registry'}",
    ]


@dataclass(frozen=True)
class Image:
    """An image of one layer, an uncompressed archive, as a registry keeps it."""

    layer: bytes
    config: bytes
    manifest: bytes

    @classmethod
    def of(cls, layer: bytes, settings: Mapping[str, Any]) -> Self:
        """An image of a layer's files.

        Args:
            layer: its files.
            settings: how a container of it starts, in the form of an image's configuration.
        """
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": settings,
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
                # Builders that keep a layer for each step count those of the base by its history.
                "history": [{"created_by": "falaj"}],
            },
            sort_keys=True,
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _described(config, _CONFIG),
                "layers": [_described(layer, _LAYER)],
            },
            sort_keys=True,
        ).encode()
        return cls(layer, config, manifest)

    @classmethod
    def of_program(
        cls, files: Mapping[str, Path | bytes], start: Sequence[str], *, user: str = NON_ROOT
    ) -> Self:
        """An image of a program that needs nothing but its files.

        Args:
            files: what is at each path, without the slash at its beginning; all may be executed.
            start: the command that it begins with.
            user: number of the user and the group that it runs as.
        """
        return cls.of(_layer(files), {"Entrypoint": list(start), "User": user})

    @property
    def digest(self) -> str:
        """``sha256:…``."""
        return _digest(self.manifest)


@dataclass(frozen=True)
class Registry:
    """A registry that is reached at an address by who trusts its authority."""

    address: str
    authority: Path

    def push(self, repository: str, image: Image) -> str:
        """Push an image into a repository of the registry; returns its digest.

        Raises:
            EngineError: the registry refuses it, or can't be reached.
        """
        for blob in (image.config, image.layer):
            path = f"/v2/{repository}/blobs/uploads/?digest={_digest(blob)}"
            self._put("POST", path, blob, "application/octet-stream")
        path = f"/v2/{repository}/manifests/{image.digest}"
        self._put("PUT", path, image.manifest, _MANIFEST)
        return image.digest

    def has(self, repository: str, digest: str) -> bool:
        """Whether the registry has an image in a repository.

        Raises:
            EngineError: it can't be asked.
        """
        path = f"/v2/{repository}/manifests/{digest}"
        status, answer = self._ask("HEAD", path, None, {"Accept": _MANIFEST})
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.NOT_FOUND):
            raise self._refusal("HEAD", path, status, answer)
        return status == http.HTTPStatus.OK

    def _put(self, method: str, path: str, body: bytes, kind: str) -> None:
        status, answer = self._ask(method, path, body, {"Content-Type": kind})
        if status != http.HTTPStatus.CREATED:
            raise self._refusal(method, path, status, answer)

    def _refusal(self, method: str, path: str, status: int, answer: bytes) -> EngineError:
        return EngineError(
            f"the registry {self.address} answers {status} to {method} {path}: "
            f"{answer.decode(errors='replace')}"
        )

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        host, _, port = self.address.partition(":")
        try:
            context = ssl.create_default_context(cafile=str(self.authority))
            connection = http.client.HTTPSConnection(
                host, int(port), timeout=_SECONDS, context=context
            )
            with contextlib.closing(connection):
                connection.request(method, path, body, dict(headers))
                answer = connection.getresponse()
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"the registry {self.address} can't be reached: {error}") from error


def with_libraries(path: str, program: Path) -> dict[str, Path]:
    """A program at a path in an image, and the libraries of this computer that it is linked to.

    Raises:
        EngineError: it can't be told which.
    """
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if done.returncode and "not a dynamic" not in done.stderr:
        raise EngineError(f"`ldd {program}` failed: {done.stderr.strip()}")
    found = re.findall(r"(/\S+) \(0x", done.stdout)
    return {path.lstrip("/"): program, **{each.lstrip("/"): Path(each) for each in found}}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _described(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _layer(files: Mapping[str, Path | bytes]) -> bytes:
    """The same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(files.items()):
            data = content if isinstance(content, bytes) else content.read_bytes()
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), 0o555
            archive.addfile(about, io.BytesIO(data))
    return buffer.getvalue()
