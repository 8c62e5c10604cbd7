"""Fetches what the inference server needs: the sealed package, the key ring, a registry login.

Runs with the tier's role, on a machine before the server starts (``fetch.py SETTINGS``, a file) or
at the start of a container (settings in ``FALAJ_SERVING``). Needs Python 3.9 and its standard
library: machines reach private endpoints only, so that nothing could be installed first.

Settings: ``region``; ``bucket`` and ``prefix`` of the package; ``model``, ``version``; ``keyring``
(ARN of the secret); ``folder`` for the package; ``secrets`` for keys, in memory; ``user`` that
shall own both, or null; ``login``, a folder for Docker's configuration with a registry login, or
null.
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
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

_METADATA = "http://169.254.169.254/latest"
_CONTAINER = "http://169.254.170.2"
_TIMEOUT_S = 60
_S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class RefusedError(Exception):
    """What came is not what was asked for."""


def credentials() -> dict[str, str]:
    """The role's credentials, from the container's or the machine's own service."""
    relative = os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    if relative:
        found = json.loads(_read(_CONTAINER + relative, {}))
    else:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
        session = {
            "X-aws-ec2-metadata-token": _read(
                f"{_METADATA}/api/token", lifetime, method="PUT"
            ).decode()
        }
        base = f"{_METADATA}/meta-data/iam/security-credentials/"
        found = json.loads(_read(base + _read(base, session).decode().strip(), session))
    return {"id": found["AccessKeyId"], "key": found["SecretAccessKey"], "token": found["Token"]}


def _read(
    url: str, headers: dict[str, str], body: bytes | None = None, method: str | None = None
) -> bytes:
    # https, but for the two services of the host itself, which never leave it.
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        return answer.read()


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

    def get(self, path: str, query: dict[str, str] | None = None) -> bytes:
        """The answer to a GET of ``path``, unencoded."""
        return self._call("GET", path, query or {}, b"", {})

    def ask(self, target: str, document: dict[str, Any]) -> dict[str, Any]:
        """The answer to an action of the JSON protocol."""
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": target}
        return json.loads(self._call("POST", "/", {}, json.dumps(document).encode(), headers))

    def _call(
        self, method: str, path: str, query: dict[str, str], body: bytes, extra: dict[str, str]
    ) -> bytes:
        quoted = urllib.parse.quote(path, safe="/-_.~")
        asked = "&".join(
            f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}"
            for k, v in sorted(query.items())
        )
        digest = hashlib.sha256(body).hexdigest()
        now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 - Python 3.9
        headers = {
            **extra,
            "host": self._host,
            "x-amz-content-sha256": digest,
            "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
            "x-amz-security-token": self._role["token"],
        }
        signed = ";".join(sorted(headers))
        listed = "".join(f"{key}:{headers[key]}\n" for key in sorted(headers))
        canonical = "\n".join((method, quoted, asked, listed, signed, digest))
        headers["authorization"] = self._authorization(canonical, signed, headers["x-amz-date"])
        url = f"https://{self._host}{quoted}" + (f"?{asked}" if asked else "")
        return _read(url, headers, body or None, method)

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


def fetch_package(bucket: Service, prefix: str, folder: Path) -> None:
    """Download every object under ``prefix`` into ``folder``."""
    start = prefix.rstrip("/") + "/"
    query = {"list-type": "2", "prefix": start}
    names: list[str] = []
    while True:
        page = ET.fromstring(bucket.get("/", query))  # noqa: S314 - the storage service's own
        names += [key.text or "" for key in page.iterfind(f"{_S3}Contents/{_S3}Key")]
        following = page.findtext(f"{_S3}NextContinuationToken")
        if not following:
            break
        query["continuation-token"] = following
    files = [name for name in names if not name.endswith("/")]
    if not files:
        raise RefusedError(f"nothing lies under {prefix}; publish the package there first")
    for name in files:
        file = (folder / name[len(start) :]).resolve()
        if folder.resolve() not in file.parents:
            raise RefusedError(f"the package has a file {name!r} outside of its own folder")
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_bytes(bucket.get(f"/{name}"))


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
    """Let Docker pull from the account's registry; the login ends after twelve hours."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    logins = {
        urllib.parse.urlsplit(each["proxyEndpoint"]).netloc: {"auth": each["authorizationToken"]}
        for each in answer["authorizationData"]
    }
    file = folder / "config.json"
    file.write_text(json.dumps({"auths": logins}))
    file.chmod(0o600)


def fetch(settings: dict[str, Any]) -> None:
    """Fetch everything.

    Raises:
        RefusedError: what came can't be served.
    """
    region, role = settings["region"], credentials()
    folder, secrets = Path(settings["folder"]), Path(settings["secrets"])
    for each in (folder, secrets):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    if settings["login"]:
        registry = Service("ecr", region, role, f"api.ecr.{region}.amazonaws.com")
        target = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
        write_login(registry.ask(target, {}), Path(settings["login"]))
    vault = Service("secretsmanager", region, role)
    secret = vault.ask("secretsmanager.GetSecretValue", {"SecretId": settings["keyring"]})
    unpack_keyring(secret["SecretString"], secrets / "keyring")
    # The address with the bucket's name in it, so that the private endpoint's rules see it.
    store = Service("s3", region, role, f"{settings['bucket']}.s3.{region}.amazonaws.com")
    version = folder / "registry" / settings["model"] / "versions" / str(settings["version"])
    fetch_package(store, settings["prefix"], version)
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
