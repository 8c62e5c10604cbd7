"""The registry beside a control plane, and small images that are made for it.

An image of one program is a layer with its files and a configuration that says how to start it:
https://github.com/opencontainers/image-spec/blob/main/manifest.md
"""

from __future__ import annotations

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
from typing import Any, Final

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
class Registry:
    """A registry that is reached at an address by who trusts its authority."""

    address: str
    authority: Path

    def push_program(
        self,
        repository: str,
        files: Mapping[str, Path | bytes],
        start: Sequence[str],
        *,
        user: str = NON_ROOT,
    ) -> str:
        """Push an image of a program that needs nothing but its files; returns its digest.

        Args:
            repository: below the registry.
            files: what is at each path, without the slash at its beginning; all may be executed.
            start: the command that it begins with.
            user: number of the user and the group that it runs as.

        Raises:
            EngineError: the registry refuses it, or can't be reached.
        """
        return self.push(repository, _layer(files), {"Entrypoint": list(start), "User": user})

    def push(self, repository: str, layer: bytes, settings: Mapping[str, Any]) -> str:
        """Push an image of one layer, an uncompressed archive; returns its digest.

        Args:
            repository: below the registry.
            layer: its files.
            settings: how a container of it starts, in the form of an image's configuration.

        Raises:
            EngineError: the registry refuses it, or can't be reached.
        """
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": settings,
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            },
            sort_keys=True,
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": self._described(repository, config, _CONFIG),
                "layers": [self._described(repository, layer, _LAYER)],
            },
            sort_keys=True,
        ).encode()
        digest = _digest(manifest)
        self._ask("PUT", f"/v2/{repository}/manifests/{digest}", manifest, _MANIFEST)
        return digest

    def _described(self, repository: str, blob: bytes, kind: str) -> dict[str, Any]:
        digest = _digest(blob)
        path = f"/v2/{repository}/blobs/uploads/?digest={digest}"
        self._ask("POST", path, blob, "application/octet-stream")
        return {"mediaType": kind, "digest": digest, "size": len(blob)}

    def _ask(self, method: str, path: str, body: bytes, kind: str) -> None:
        host, _, port = self.address.partition(":")
        context = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection(
            host, int(port), timeout=_SECONDS, context=context
        )
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"the registry {self.address} can't be reached: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.CREATED:
            raise EngineError(
                f"the registry {self.address} answers {answer.status} to {method} {path}: "
                f"{said.decode(errors='replace')}"
            )


def with_libraries(path: str, program: Path) -> dict[str, Path]:
    """A program at a path in an image, and the libraries of this computer that it is linked to.

    Raises:
        EngineError: it can't be told which.
    """
    told = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if told.returncode and "not a dynamic" not in told.stderr:
        raise EngineError(f"`ldd {program}` failed: {told.stderr.strip()}")
    found = re.findall(r"(/\S+) \(0x", told.stdout)
    return {path.lstrip("/"): program, **{each.lstrip("/"): Path(each) for each in found}}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


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
