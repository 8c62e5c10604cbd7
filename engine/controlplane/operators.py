"""What cert-manager and External Secrets do, for what stacks declare where their pods can't run.

Neither is a Go module that can be built on this computer. Certificates are issued by an authority
of their own, which the API server doesn't trust: else who may ask for one could be anybody there.
Entries of the secret store are files below a folder.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.objects import Objects
from falaj.engine.controlplane.processes import Files
from falaj.engine.errors import EngineError
from falaj.engine.files import replace_file

_CERTIFICATE: Final = ("cert-manager.io/v1", "Certificate")
_ENTRY: Final = ("external-secrets.io/v1", "ExternalSecret")
_MANAGER: Final = "falaj-operators"


#: Of an entry, as tenants name theirs; nothing leads out of the store's folder.
_NAME: Final = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$")


def store(files: Files) -> Path:
    """Folder of the secret store: an entry is a file of its name, with what it holds."""
    return files.folder / "secrets"


def write_entry(files: Files, name: str, value: bytes) -> None:
    """Put an entry into the secret store, in place of one of that name.

    Raises:
        EngineError: the name is none of an entry.
    """
    if not _NAME.match(name):
        raise EngineError(
            f"entry of the secret store: given {name!r}; allowed: TENANT/NAME, each of a-z, 0-9 "
            "and '-'"
        )
    file = store(files) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    store(files).chmod(0o700)
    replace_file(file, value, 0o600)


def issuer(files: Files) -> Authority:
    """The authority of certificates that stacks ask for."""
    return Authority(files.folder / "issuer", "falaj-issuer")


class Operators:
    """Makes the secrets that certificates and entries of one control plane ask for."""

    def __init__(self, files: Files, objects: Objects) -> None:
        self._files = files
        self._objects = objects
        self._authority = issuer(files)

    def keep(self) -> None:
        """Make secrets that aren't there, and replace those whose entry has changed.

        What one object asks for and can't get is said, and the others get theirs.

        Raises ApiException: the API server refuses something.
        """
        for kind, keep in ((_CERTIFICATE, self._issue), (_ENTRY, self._bring)):
            if self._objects.serves(*kind):
                for each in self._objects.list(*kind):
                    _tried(keep, each)

    def _issue(self, of: Mapping[str, Any]) -> None:
        """Issue a certificate once: what was issued outlives the control plane."""
        spec, namespace = of["spec"], of["metadata"]["namespace"]
        name = spec["secretName"]
        if self._objects.get("v1", "Secret", name, namespace) is not None:
            return
        # The file's name is the server's common name as well, which has 64 characters at most.
        digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()
        file = f"issued-{digest[:32]}"
        if spec.get("dnsNames"):
            pair = self._authority.server(file, tuple(spec["dnsNames"]))
        elif spec.get("commonName"):
            pair = self._authority.client(spec["commonName"], file=file)
        else:
            raise EngineError("given neither dnsNames nor commonName; one of both is needed")
        data = {
            "tls.crt": pair.certificate.read_bytes(),
            "tls.key": pair.key.read_bytes(),
            "ca.crt": self._authority.certificate.read_bytes(),
        }
        labels = spec.get("secretTemplate", {}).get("labels", {})
        self._write(name, namespace, labels, data, kind="kubernetes.io/tls")

    def _bring(self, of: Mapping[str, Any]) -> None:
        """Bring an entry where all that is asked for is there."""
        about, spec = of["metadata"], of["spec"]
        name = spec.get("target", {}).get("name") or about["name"]
        data: dict[str, bytes] = {}
        for each in spec.get("data") or ():
            key = each["remoteRef"]["key"]
            entry = store(self._files) / key
            if not _NAME.match(key) or not entry.is_file():
                return
            value = entry.read_bytes()
            if each["remoteRef"].get("decodingStrategy") == "Base64":
                value = base64.b64decode(value)
            data[each["secretKey"]] = value
        there = self._objects.get("v1", "Secret", name, about["namespace"])
        if data and (there is None or there.get("data") != _encoded(data)):
            self._write(name, about["namespace"], about.get("labels") or {}, data, kind="Opaque")

    def _write(
        self,
        name: str,
        namespace: str,
        labels: Mapping[str, str],
        data: Mapping[str, bytes],
        *,
        kind: str,
    ) -> None:
        about = {"name": name, "namespace": namespace, "labels": dict(labels)}
        secret = {
            "apiVersion": "v1", "kind": "Secret", "metadata": about, "type": kind,
            "data": _encoded(data),
        }  # fmt: skip
        try:
            self._objects.apply([secret], _MANAGER)
        except ApiException as error:
            if error.status != 404:  # the namespace is on its way out
                raise


def _tried(keep: Callable[[Mapping[str, Any]], None], of: Mapping[str, Any]) -> None:
    """Keep what one object asks for, whatever its owner wrote into it."""
    try:
        keep(of)
    except (EngineError, ValueError) as error:
        about = of["metadata"]
        sys.stderr.write(f"{about['namespace']}/{about['name']} gets no secret: {error}\n")


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
