"""Fetches what the inference server needs, and becomes the server.

Runs inside the inference image, on a machine of a scale set or as a container app, as the tier's
identity and without privileges. Keys are written to a folder in memory and never reach a disk; the
package stays sealed until the server reads it.

Of its own it reads the settings ``client`` (id of the identity), ``keyring`` and ``certificate``
(URLs of Key Vault secrets); ``secrets`` is a folder in memory.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from falaj.components.specification.server_start import become_server, take_over

_METADATA = "http://169.254.169.254/metadata/identity/oauth2/token"
_SCHEME = "https"
_TIMEOUT_S = 60
#: Bytes of a refusal's text that are told: services give reasons in it.
_SAID = 2048
_PEM = re.compile(
    r"-----BEGIN ([A-Z ]+)-----\n.+?\n-----END \1-----\n?",
    re.DOTALL,
)


class RefusedError(Exception):
    """What came is not what was asked for."""


def token(resource: str, client: str) -> str:
    """A token of the tier's identity for ``resource``.

    Container apps have an endpoint of their own for it, told by the environment:
    https://learn.microsoft.com/azure/container-apps/managed-identity
    """
    endpoint = os.environ.get("IDENTITY_ENDPOINT")
    version = "2019-08-01" if endpoint else "2018-02-01"
    query = {"api-version": version, "resource": resource, "client_id": client}
    headers = (
        {"X-IDENTITY-HEADER": os.environ["IDENTITY_HEADER"]} if endpoint else {"Metadata": "true"}
    )
    url = f"{endpoint or _METADATA}?{urllib.parse.urlencode(query)}"
    answer: dict[str, str] = json.loads(_read(url, headers))
    return answer["access_token"]


def _read(url: str, headers: dict[str, str], form: dict[str, str] | None = None) -> bytes:
    body = urllib.parse.urlencode(form).encode() if form else None
    # https, but for the machine's own metadata service, which never leaves the host.
    request = urllib.request.Request(url, body, headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            return answer.read()
    except urllib.error.HTTPError as refusal:
        # On one line, as journals and logs count by lines.
        reason = " ".join(refusal.read(_SAID).decode(errors="replace").split())
        host = urllib.parse.urlsplit(url).netloc
        raise RefusedError(f"{host} answers {refusal.code}: {reason}") from None
    except OSError as error:
        host = urllib.parse.urlsplit(url).netloc
        raise RefusedError(f"{host} can't be reached: {error}") from None


def secret(url: str, client: str) -> dict[str, Any]:
    """A secret of a vault: ``value`` and ``contentType``."""
    bearer = token("https://vault.azure.net", client)
    return json.loads(_read(f"{url}?api-version=7.4", {"Authorization": f"Bearer {bearer}"}))


def log_in(host: str, client: str, folder: Path) -> Path:
    """Write a login to the registry in the form of Docker's configuration.

    The identity's own token is exchanged for one of the registry, with which the server asks for
    one to pull its repository: https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md
    """
    form = {
        "grant_type": "access_token",
        "service": host,
        "access_token": token("https://containerregistry.azure.net/", client),
    }
    answer: dict[str, str] = json.loads(_read(f"{_SCHEME}://{host}/oauth2/exchange", {}, form))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / "config.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"auths": {host: {"identitytoken": answer["refresh_token"]}}}))
    return file


def unpack_keyring(value: str, folder: Path) -> None:
    """Lay out the key ring: a tar archive in base64, of plain files alone."""
    folder.mkdir(mode=0o700, parents=True)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(value, validate=True))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                file = folder / Path(member.name).name
                file.write_bytes(content.read())
                file.chmod(0o600)


def split_certificate(found: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write certificates and private key of a PEM secret into files of their own."""
    if found.get("contentType") != "application/x-pem-file":
        raise RefusedError(
            f"the certificate's content type is {found.get('contentType')!r}; allowed: "
            "application/x-pem-file; issue it anew with that type"
        )
    blocks = [match[0] for match in _PEM.finditer(found["value"])]
    keys = [block for block in blocks if "PRIVATE KEY" in block.splitlines()[0]]
    chain = [block for block in blocks if block.startswith("-----BEGIN CERTIFICATE-----")]
    if len(keys) != 1 or not chain:
        raise RefusedError(
            f"the certificate's secret holds {len(keys)} private keys and {len(chain)} "
            "certificates; allowed: one key, and the certificate with its chain"
        )
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_text("".join(chain))
    key.write_text(keys[0])
    key.chmod(0o600)
    return certificate, key


def prepare(settings: dict[str, Any]) -> Path:
    """Fetch everything; the path of the server's configuration.

    Raises:
        RefusedError: what came can't be served.
        subprocess.CalledProcessError: as `take_over` says.
    """
    secrets = Path(settings["secrets"])
    for each in (Path(settings["folder"]), secrets):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    client = settings["client"]
    split_certificate(secret(settings["certificate"], client), secrets)
    unpack_keyring(secret(settings["keyring"], client)["value"], secrets / "keyring")
    host = settings["repository"].partition("/")[0]
    login = log_in(host, client, secrets / "login")
    return take_over(settings, login)


if __name__ == "__main__":
    os.chdir(os.environ.get("FALAJ_WORKDIR", os.curdir))
    become_server(prepare, RefusedError)
