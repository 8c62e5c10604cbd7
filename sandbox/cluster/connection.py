"""The connection to a control plane: its errors, and what is asked again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import yaml

from falaj.engine.errors import EngineError
from falaj.engine.uplinks import is_here
from falaj.sandbox.activation import CLUSTER_VARIABLE
from falaj.sandbox.errors import PartialError
from falaj.wire.documents import is_mapping, mapping


class ApiError(EngineError):
    """An answer that is no success.

    Attributes:
        status: the HTTP status; 0 where no answer came.
        reason: the API server's word for it, such as ``NotFound`` or ``Invalid``.
        causes: the fields that are to blame, as ``(field, reason, message)``.
    """

    def __init__(self, status: int, reason: str, message: str, details: Any = None) -> None:
        self.status = status
        self.reason = reason
        self.causes = [
            (str(one.get("field", "")), str(one.get("reason", "")), str(one.get("message", "")))
            for one in mapping(details).get("causes") or ()
            if is_mapping(one)
        ]
        super().__init__(message)

    @classmethod
    def of(cls, status: int, body: bytes) -> ApiError:
        """The error that an answer's body describes (a ``Status`` object, or plain text)."""
        text = body.decode("utf-8", "replace")
        try:
            read = json.loads(text)
        except ValueError:
            read = None
        found = mapping(read)
        message = str(found.get("message") or text.strip()[:500] or f"HTTP status {status}")
        return cls(status, str(found.get("reason") or ""), message, found.get("details"))

    @property
    def is_missing(self) -> bool:
        """Whether the object, its namespace or its kind isn't there."""
        return self.status == 404

    @property
    def is_passing(self) -> bool:
        """Whether the same call may succeed in a moment: overload, a webhook that starts.

        The text for webhooks is the API server's own:
        k8s.io/apiserver, pkg/admission/plugin/webhook/errors/statuserror.go.
        """
        if self.status in (0, 429, 503, 504):
            return True
        return self.status == 500 and (
            "failed calling webhook" in str(self) or "failed to call webhook" in str(self)
        )

    @property
    def is_refusal(self) -> bool:
        """Whether the object itself is wrong. A field that its kind doesn't have is told as an
        internal error by the API server, in the words of its apply."""
        wrong = self.status in (400, 422) or "failed to create typed patch object" in str(self)
        return wrong and not self.is_immutable

    @property
    def is_immutable(self) -> bool:
        """Whether a field was changed that never changes."""
        return self.status == 422 and (
            "immutable" in str(self) or "may not change once set" in str(self)
            or "updates to statefulset spec for fields other than" in str(self)
            or "may not be changed" in str(self)
        )  # fmt: skip


class NotReadyError(PartialError):
    """An object was made or changed but didn't become ready in time."""


class CancelledError(EngineError):
    """The engine was told to stop while an object was waited for."""


Result = TypeVar("Result")

# How long a kind, a namespace or a webhook may take to be there after its resource is ready.
_APPEAR_SECONDS: Final = 30.0
_SHORTEST, _LONGEST = 0.05, 1.0


def retried(connection: Connection, work: Callable[[], Result], missing: bool = False) -> Result:
    """Do something again while that may help: a webhook that starts, an overload.

    Args:
        missing: also while something isn't there yet, such as a namespace in another process.
    """
    pauses = Pauses(connection.cancelled, _APPEAR_SECONDS)
    while True:
        try:
            return work()
        except ApiError as error:
            passing = error.is_passing or (missing and error.is_missing)
            if not passing or not pauses.wait():
                raise


class Pauses:
    """Pauses that grow, until the time is up."""

    def __init__(self, cancelled: threading.Event, seconds: float) -> None:
        self._cancelled = cancelled
        self._deadline = time.monotonic() + seconds
        self._pause = _SHORTEST

    def wait(self) -> bool:
        """Pause; False when the time is up. Raises CancelledError when the engine stops."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        if self._cancelled.wait(min(self._pause, left)):
            raise CancelledError("cancelled: the engine was told to stop")
        self._pause = min(self._pause * 1.5, _LONGEST)
        return True


MARKER: Final = ("kube-system", "falaj-test-control-plane")
"""Namespace and name of the ConfigMap that a test control plane carries."""

_REQUEST_SECONDS: Final = 60.0
# The engine works on as many resources at once as it is told to; 16 by default on 4 cores.
_CONNECTIONS: Final = 64

_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML


class Connection:
    """Requests to one API server over a pool of connections that are kept open.

    Args:
        kubeconfig: its current context is used.

    Raises:
        EngineError: the file can't be read, its server isn't on this machine or isn't a test
            control plane, or the extra ``kubernetes`` isn't installed.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.cancelled = threading.Event()
        self._client = _client(kubeconfig)
        self.server: str = self._client.configuration.host.rstrip("/")
        if not is_here(urlsplit(self.server).hostname or ""):
            raise EngineError(
                f"{CLUSTER_VARIABLE} names the cluster {self.server}, which isn't on this "
                "machine; the sandbox only ever uses the test control plane (`falaj cluster up`)"
            )
        self.identity = self._identity()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """An object or a list. Raises ApiError."""
        return self._request("GET", path, query)

    def delete(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Delete an object, with these options. Raises ApiError."""
        return self._request("DELETE", path, {}, body, "application/json")

    def apply(
        self, path: str, body: Mapping[str, Any], manager: str, *, force: bool, dry_run: bool
    ) -> dict[str, Any]:
        """Apply an object server-side, unknown and doubled fields refused. Raises ApiError."""
        query = {
            "fieldManager": manager,
            "fieldValidation": "Strict",
            "force": "true" if force else "false",
        }
        if dry_run:
            query["dryRun"] = "All"
        return self._request("PATCH", path, query, body, _APPLY)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        kind: str = "",
    ) -> dict[str, Any]:
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers: dict[str, Any] = {"Accept": "application/json"}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body, None)
        if kind:
            headers["Content-Type"] = kind
        # Its extra has it; who makes clusters up needs neither.
        import urllib3  # noqa: PLC0415

        try:
            answer = self._client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(total=_REQUEST_SECONDS),
                # A request that isn't answered is repeated by who knows whether it may be.
                retries=urllib3.Retry(total=0, connect=0, read=0),
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(
                0, "Unreachable",
                f"the test control plane at {self.server} doesn't answer: {error}; "
                "`falaj cluster up` starts it",
            ) from error  # fmt: skip
        if not 200 <= answer.status < 300:
            raise ApiError.of(answer.status, answer.data)
        return json.loads(answer.data or b"{}")

    def _identity(self) -> str:
        """What tells this control plane from the next one: the uid of its first namespace."""
        namespace, name = MARKER
        try:
            self.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
            found = self.get(f"/api/v1/namespaces/{namespace}")
        except ApiError as error:
            if not error.is_missing:
                raise
            raise EngineError(
                f"the cluster at {self.server} is no test control plane of Falaj: it has no "
                f"ConfigMap {name} in {namespace}; the sandbox touches no other cluster "
                f"(`falaj cluster up` starts one; unset {CLUSTER_VARIABLE} to go without)"
            ) from error
        return str(found["metadata"]["uid"])


def _client(kubeconfig: Path) -> Any:
    try:
        # Half a second, and only needed with a cluster.
        from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415
        from kubernetes.config import ConfigException, load_kube_config  # noqa: PLC0415
    except ImportError as error:
        raise EngineError(
            "the official Kubernetes client isn't installed; install Falaj's extra `kubernetes`"
        ) from error
    if not kubeconfig.is_file():
        raise EngineError(
            f"{CLUSTER_VARIABLE} names {kubeconfig}, which isn't there; `falaj cluster up` starts "
            "a test control plane and says where its kubeconfig is"
        )
    settings = Configuration()
    try:
        _refuse_programs(yaml.safe_load(kubeconfig.read_text(encoding="utf-8")), kubeconfig)
        load_kube_config(str(kubeconfig), client_configuration=settings, persist_config=False)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
        raise EngineError(f"{kubeconfig} is no kubeconfig that can be used: {error}") from error
    settings.connection_pool_maxsize = _CONNECTIONS
    settings.proxy = None  # the loopback is never behind a proxy
    return ApiClient(configuration=settings)


def _refuse_programs(config: Any, kubeconfig: Path) -> None:
    """Refuse a kubeconfig that starts a program to log in: it would run before anything else."""
    users = config.get("users") if is_mapping(config) else None
    for entry in users or ():
        user = mapping(entry.get("user"))
        for key in ("exec", "auth-provider"):
            if key in user:
                raise EngineError(
                    f"{kubeconfig} logs in with a program ({key}), as kubeconfigs of real "
                    "clusters do; the sandbox only ever uses the test control plane"
                )
