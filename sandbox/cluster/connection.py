"""One connection to the test control plane, and to nothing else.

The sandbox never touches a real cluster. So a kubeconfig is taken only if its server is on the
loopback of this machine *and* carries the mark that the test control plane makes of itself: a
tunnel to a real cluster is on the loopback as well.
"""

from __future__ import annotations

import ipaddress
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import yaml

from falaj.engine.errors import EngineError
from falaj.sandbox.activation import CLUSTER_VARIABLE
from falaj.sandbox.cluster.errors import ApiError

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
        EngineError: the file can't be read, its server isn't on the loopback or isn't a test
            control plane, or the extra ``kubernetes`` isn't installed.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.cancelled = threading.Event()
        self._client = _client(kubeconfig)
        self.server: str = self._client.configuration.host.rstrip("/")
        if not _is_loopback(self.server):
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
    users = config.get("users") if isinstance(config, Mapping) else None
    for entry in users or []:
        user = entry.get("user") or {}
        for key in ("exec", "auth-provider"):
            if key in user:
                raise EngineError(
                    f"{kubeconfig} logs in with a program ({key}), as kubeconfigs of real "
                    "clusters do; the sandbox only ever uses the test control plane"
                )


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
