"""The API server, as a pod of its cluster knows it: address, authority, account, and refusals.

https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

from __future__ import annotations

import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_bytes

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the token of a pod's account and the cluster's authority."""
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
REQUEST_SECONDS: Final = 30.0
PAGE: Final = 500
"""Objects of a list that are asked for at once."""
MISSING: Final = 404
CONFLICT: Final = 409
TOO_MANY: Final = 429
_SERVERS: Final = 500
_LOST: Final = 0


class ApiError(Exception):
    """The API server refused something, or wasn't reached (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        """``status`` is HTTP's; ``message`` is the server's own."""
        text = f"the API server answered {status}: {message}" if status else message
        super().__init__(text)
        self.status = status
        self.message = message

    @property
    def is_missing(self) -> bool:
        """Whether there is no such object."""
        return self.status == MISSING

    @property
    def may_pass(self) -> bool:
        """Whether the same request may be taken a little later."""
        return self.status in {_LOST, TOO_MANY} or self.status >= _SERVERS

    @classmethod
    def lost(cls, what: str, error: BaseException) -> Self:
        """No answer came, or none that can be read."""
        return cls(_LOST, f"{what}: {error or type(error).__name__}")

    @classmethod
    def refused(cls, status: int, text: str) -> Self:
        """What an answer says of a refusal, with its causes."""
        try:
            document = json.loads(text)
            listed = mapping(document.get("details")).get("causes") or ()
            reasons = [str(document["message"]), *(str(each["message"]) for each in listed)]
            return cls(status, "; ".join(reasons))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(status, text[:_LONGEST_TEXT] or "no reason given")


_LONGEST_TEXT: Final = 500


@dataclass(frozen=True)
class Account:
    """By what a pod is known to the API server, and the API server to the pod."""

    authority: Path
    """Certificates in PEM form."""
    token: Path
    """The kubelet writes it anew long before it runs out: it is read for each request."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """As the kubelet lays the files out."""
        return cls(folder / "ca.crt", folder / "token")

    def context(self) -> ssl.SSLContext:
        """What makes connections. Raises WorkloadError: a file that isn't there, or is none."""
        text = read_bytes(self.authority, "the certificate of the cluster's authority")
        read_bytes(self.token, "the token of the pod's account")
        try:
            return ssl.create_default_context(cadata=text.decode())
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise WorkloadError(
                f"{self.authority} is no certificate in PEM form: {error}"
            ) from error

    def headers(self, agent: str, **further: str) -> dict[str, str]:
        """Headers of a request. Raises ApiError: the token can't be read just now."""
        try:
            token = self.token.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise ApiError.lost("can't read the token of the pod's account", error) from error
        return {
            "Accept": JSON, "Authorization": f"Bearer {token}", "User-Agent": agent, **further,
        }  # fmt: skip


def address() -> str:
    """``https://host:port``, as Kubernetes tells every pod.

    https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables

    Raises:
        WorkloadError: this isn't a pod.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{each}", "") for each in ("HOST", "PORT"))
    if not host or not port.isdecimal():
        raise WorkloadError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT aren't set: this isn't a pod of "
            "the cluster, where it has to run"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def object_of(text: str | bytes) -> dict[str, Any]:
    """An answer's object. Raises ApiError: it broke off."""
    try:
        found: object = json.loads(text or "{}")
    except ValueError as error:
        raise ApiError.lost("the API server's answer is no JSON", error) from error
    if not isinstance(found, dict):
        raise ApiError(_LOST, "the API server's answer is no object")
    return found  # pyright: ignore[reportUnknownVariableType]
