"""Unpacks a container image, named by its digest, on a machine that has no container runtime.

Runs on the machine, before the server and as root: ``pull_image.py HOST/NAME@sha256:… FOLDER
CLIENT``. The machine reaches nothing but private endpoints, so nothing could be installed first;
systemd then runs the server with the unpacked folder as its root. What comes from the registry is
compared with its digest before it is used.

``FOLDER/root`` gets the file system and ``FOLDER/environment`` the image's variables, with its
working directory as ``FALAJ_WORKDIR``. A folder that holds the image already is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any

_SCHEME = "https"
_METADATA = "http://169.254.169.254/metadata/identity/oauth2/token"
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK = 1 << 20
_TIMEOUT_S = 60
#: Bytes of a refusal's text that are told.
_SAID = 2048


class RefusedError(Exception):
    """What came is not what was asked for."""


class Registry:
    """Reads one repository as the machine's identity."""

    def __init__(self, host: str, name: str, client: str) -> None:
        """``client`` is the client id of the identity."""
        self._base = f"{_SCHEME}://{host}/v2/{name}"
        self._token = _registry_token(host, name, client)

    def document(self, digest: str, kind: str) -> dict[str, Any]:
        """A manifest (``manifests``) or configuration (``blobs``), compared with its digest."""
        with self._open(f"{kind}/{digest}") as answer:
            content = answer.read()
        _compare(hashlib.sha256(content).hexdigest(), digest)
        return json.loads(content)

    def layer(self, digest: str, to: Path) -> None:
        """Download a layer and compare it with its digest."""
        running = hashlib.sha256()
        with self._open(f"blobs/{digest}") as answer, to.open("wb") as file:
            while chunk := answer.read(_CHUNK):
                running.update(chunk)
                file.write(chunk)
        _compare(running.hexdigest(), digest)

    def _open(self, path: str) -> IO[bytes]:
        request = urllib.request.Request(f"{self._base}/{path}")  # noqa: S310 - https
        request.add_header("Accept", ", ".join(_MANIFESTS))
        # Not sent on: layers come from a storage address that has a signature of its own.
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return _opened(request)


def _opened(request: urllib.request.Request, body: bytes | None = None) -> IO[bytes]:
    """The answer; what a refusal says is told, as a registry gives its reasons in it."""
    host = request.host
    try:
        # https, but for the machine's own metadata service, which never leaves the host.
        return urllib.request.urlopen(request, body, timeout=_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as refusal:
        # It may be another host's: layers lie at a storage address. On one line, as journals
        # count by lines.
        host = urllib.parse.urlsplit(refusal.url).netloc
        reason = " ".join(refusal.read(_SAID).decode(errors="replace").split())
        raise RefusedError(f"{host} answers {refusal.code}: {reason}") from None
    except OSError as error:
        raise RefusedError(f"{host} can't be reached: {error}") from None


def _compare(found: str, digest: str) -> None:
    if f"sha256:{found}" != digest:
        raise RefusedError(f"the registry sent sha256:{found} where {digest} was asked for")


def _json(request: urllib.request.Request, data: dict[str, str] | None = None) -> Any:
    body = urllib.parse.urlencode(data).encode() if data else None
    with _opened(request, body) as answer:
        return json.load(answer)


def _registry_token(host: str, name: str, client: str) -> str:
    """A token to pull one repository: the identity's own, exchanged at the registry."""
    asked = {"api-version": "2018-02-01", "resource": "https://containerregistry.azure.net/"}
    query = urllib.parse.urlencode({**asked, "client_id": client})
    # The machine's own metadata service: it never leaves the host, and has no TLS.
    url = f"{_METADATA}?{query}"
    own = urllib.request.Request(url, headers={"Metadata": "true"})  # noqa: S310
    identity = _json(own)
    exchange, granting = (
        urllib.request.Request(f"{_SCHEME}://{host}/oauth2/{each}")  # noqa: S310 - https
        for each in ("exchange", "token")
    )
    refresh = _json(
        exchange,
        {"grant_type": "access_token", "service": host, "access_token": identity["access_token"]},
    )
    access = _json(
        granting,
        {
            "grant_type": "refresh_token",
            "service": host,
            "scope": f"repository:{name}:pull",
            "refresh_token": refresh["refresh_token"],
        },
    )
    return access["access_token"]


def manifest_of(registry: Registry, digest: str, machine: str) -> dict[str, Any]:
    """The image's manifest for this machine, through an index where the image has one."""
    found = registry.document(digest, "manifests")
    if "manifests" not in found:
        return found
    wanted = _ARCHITECTURES.get(machine, machine)
    for entry in found["manifests"]:
        platform = entry.get("platform", {})
        if platform.get("os") == "linux" and platform.get("architecture") == wanted:
            return registry.document(entry["digest"], "manifests")
    raise RefusedError(f"the image has no variant for linux/{wanted}")


def unpack(layer: Path, root: Path) -> None:
    """Lay one layer over what is there, and remove what it says is gone.

    The filter keeps every member inside ``root``; a layer that is no tar archive, plain or gzip,
    is refused.
    """
    try:
        with tarfile.open(layer) as archive:
            for member in archive:
                path = Path(member.name)
                if path.name == _OPAQUE:
                    _empty(_inside(root, path.parent))
                elif path.name.startswith(_WHITEOUT):
                    _remove(_inside(root, path.parent) / path.name.removeprefix(_WHITEOUT))
                else:
                    if not member.isdir():
                        # Else a link of a lower layer would be followed and not replaced.
                        _remove(_inside(root, path.parent) / path.name)
                    archive.extract(member, root, numeric_owner=True, filter="tar")
    except (tarfile.TarError, ValueError) as error:
        raise RefusedError(f"a layer of the image can't be unpacked: {error}") from error


def _inside(root: Path, folder: Path) -> Path:
    found = (root / folder).resolve()
    if not found.is_relative_to(root.resolve()):
        raise RefusedError(f"a layer of the image names {folder}, which lies outside of it")
    return found


def _empty(folder: Path) -> None:
    if folder.is_dir():
        for entry in folder.iterdir():
            _remove(entry)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def pull(image: str, folder: Path, client: str) -> None:
    """Bring the image into ``folder``, all of it or nothing.

    Raises:
        RefusedError: what came isn't what was asked for, or can't be run here.
    """
    name, _, digest = image.partition("@")
    done = folder / "digest"
    if done.is_file() and done.read_text() == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    root.mkdir(parents=True)
    host, _, repository = name.partition("/")
    registry = Registry(host, repository, client)
    manifest = manifest_of(registry, digest, os.uname().machine)
    for each in manifest["layers"]:
        file = folder / "layer"
        registry.layer(each["digest"], file)
        unpack(file, root)
        file.unlink()
    settings = registry.document(manifest["config"]["digest"], "blobs").get("config", {})
    lines = [*(settings.get("Env") or ()), f"FALAJ_WORKDIR={settings.get('WorkingDir') or '/'}"]
    (folder / "environment").write_text("".join(f"{line}\n" for line in lines))
    # Mount points for the two files that name resolution needs.
    for each in ("etc/resolv.conf", "etc/hosts"):
        place = _inside(root, Path(each).parent) / Path(each).name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    done.write_text(digest)


if __name__ == "__main__":
    try:
        pull(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    except (RefusedError, OSError) as error:
        sys.exit(f"error: {error}")
