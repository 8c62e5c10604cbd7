"""Fetches what the inference server needs before it starts: its key ring, and a registry login.

Runs with the tier's role, on a machine before the server starts (``fetch.py SETTINGS``, a file) or
at the start of a container (settings in ``FALAJ_SERVING``). Needs Python 3.9 and its standard
library: machines reach private endpoints only, so that nothing could be installed first. The
server's container can't have the machine's role; with the login it takes its package from the
registry by itself.

Settings: ``region``; ``keyring`` (ARN of the secret); ``secrets``, a folder in memory; ``login``,
a folder in it for Docker's configuration with the login; ``folder``, where the server keeps its
package; ``user`` that shall own both folders, or null.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import io
import json
import os
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

_METADATA = "http://169.254.169.254/latest"
_CONTAINER = "http://169.254.170.2"
_TIMEOUT_S = 60
#: Bytes of a refusal's text that are told: services give reasons in it.
_SAID = 2048


class RefusedError(Exception):
    """What came is not what was asked for."""


def credentials() -> dict[str, str]:
    """The role's credentials, from the container's or the machine's own service."""
    relative = os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    if relative:
        found = json.loads(_read(_CONTAINER + relative, {}))
    else:
        roles = "iam/security-credentials/"
        found = json.loads(metadata(roles + metadata(roles).strip()))
    return {"id": found["AccessKeyId"], "key": found["SecretAccessKey"], "token": found["Token"]}


def metadata(path: str) -> str:
    """What the machine's own service says of it."""
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    session = _read(f"{_METADATA}/api/token", lifetime, method="PUT").decode()
    return _read(f"{_METADATA}/meta-data/{path}", {"X-aws-ec2-metadata-token": session}).decode()


def _read(
    url: str, headers: dict[str, str], body: bytes | None = None, method: str | None = None
) -> bytes:
    # https, but for the two services of the host itself, which never leave it.
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310
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


class Service:
    """Calls one AWS service of one region, signed with Signature Version 4.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
    """

    def __init__(self, name: str, region: str, role: dict[str, str], host: str = "") -> None:
        """``host`` differs from the usual ``name.region.amazonaws.com`` for some."""
        self._name = name
        self._region = region
        self._role = role
        self._host = host or f"{name}.{region}.amazonaws.com"

    def ask(self, target: str, document: dict[str, Any]) -> dict[str, Any]:
        """The answer to an action of the JSON protocol."""
        body = json.dumps(document).encode()
        now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 - Python 3.9
        headers = {
            "content-type": "application/x-amz-json-1.1",
            "host": self._host,
            "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
            "x-amz-security-token": self._role["token"],
            "x-amz-target": target,
        }
        signed = ";".join(sorted(headers))
        listed = "".join(f"{key}:{headers[key]}\n" for key in sorted(headers))
        digest = hashlib.sha256(body).hexdigest()
        canonical = "\n".join(("POST", "/", "", listed, signed, digest))
        headers["authorization"] = self._authorization(canonical, signed, headers["x-amz-date"])
        return json.loads(_read(f"https://{self._host}/", headers, body, "POST"))

    def _authorization(self, canonical: str, signed: str, stamp: str) -> str:
        scope = f"{stamp[:8]}/{self._region}/{self._name}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, digest))
        key = f"AWS4{self._role['key']}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        return (
            f"AWS4-HMAC-SHA256 Credential={self._role['id']}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}"
        )


def unpack_keyring(value: str, folder: Path) -> None:
    """Lay out the key ring: a tar archive in base64, of plain files alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(value, validate=True))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                file = folder / Path(member.name).name
                file.write_bytes(content.read())
                file.chmod(0o600)


def write_login(answer: dict[str, Any], folder: Path) -> None:
    """Let Docker, and the server, pull from the account's registry; it ends after twelve hours."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    logins: dict[str, dict[str, str]] = {
        urllib.parse.urlsplit(str(each["proxyEndpoint"])).netloc: {
            "auth": each["authorizationToken"]
        }
        for each in answer["authorizationData"]
    }
    file = folder / "config.json"
    file.write_text(json.dumps({"auths": logins}))
    file.chmod(0o600)


def fetch(settings: dict[str, Any]) -> None:
    """Fetch everything.

    Raises:
        RefusedError: a service refused, or what came is no key ring.
    """
    region, role = settings["region"], credentials()
    folder, secrets = Path(settings["folder"]), Path(settings["secrets"])
    for each in (folder, secrets):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    registry = Service("ecr", region, role, f"api.ecr.{region}.amazonaws.com")
    target = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
    write_login(registry.ask(target, {}), Path(settings["login"]))
    vault = Service("secretsmanager", region, role)
    secret = vault.ask("secretsmanager.GetSecretValue", {"SecretId": settings["keyring"]})
    unpack_keyring(secret["SecretString"], secrets / "keyring")
    if settings["user"] is not None:
        for top in (folder, secrets):
            for path in (top, *top.rglob("*")):
                os.chown(path, settings["user"], settings["user"])


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else os.environ["FALAJ_SERVING"]
    try:
        fetch(json.loads(text))
    except (RefusedError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
