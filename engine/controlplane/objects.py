"""Objects of a cluster as plain manifests, over the official client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, cast
from urllib.parse import quote, urlencode

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import load_kube_config

from falaj.engine.errors import EngineError

Manifest = Mapping[str, Any]

REQUEST_SECONDS = 60.0
SIDE_BY_SIDE = 8
"""Requests at once where there are many."""
MANAGER = "falaj-control-plane"
"""Who a control plane's own objects say that they are of."""
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
_JSON = "application/json"
_STEP_SECONDS = 0.1
_LONGEST_STEP_SECONDS = 0.5
_STEPS_OF_WAIT = 10
"""What has taken long is asked about less often: a question may be a list of many objects."""
#: A kind whose definition was just made is served a moment later.
_SERVED_SECONDS = 15.0
_MISSING = 404
_CONFLICT = 409


class Objects:
    """What one user may do with objects; refusals are `kubernetes.client.ApiException`."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    @classmethod
    def of(cls, kubeconfig: str) -> Self:
        """Open the current context of the file `kubeconfig`."""
        settings = Configuration()
        load_kube_config(kubeconfig, client_configuration=settings, persist_config=False)
        settings.proxy = None  # loopback is never behind a proxy
        settings.connection_pool_maxsize = 2 * SIDE_BY_SIDE
        return cls(ApiClient(configuration=settings))

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def request(
        self, method: str, path: str, body: Any = None, kind: str = _JSON, **query: str
    ) -> dict[str, Any]:
        """One call; the answer as a dict. Raises ApiException."""
        url = f"{self.client.configuration.host.rstrip('/')}{path}"
        headers = {"Accept": _JSON, "User-Agent": "falaj-control-plane"}
        # The official client adds certificates to its connections, and a token to calls of its own
        # only.
        tokens = cast("Mapping[str, Any]", self.client.configuration.auth_settings())
        headers.update((each["key"], each["value"]) for each in tokens.values())
        if body is not None:
            headers["Content-Type"] = kind
        response = self.client.rest_client.pool_manager.request(
            method,
            f"{url}?{urlencode(query)}" if query else url,
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            timeout=REQUEST_SECONDS,
        )
        if not 200 <= response.status < 300:
            raise ApiException(
                status=response.status, reason=response.reason, body=response.data.decode()
            )
        return json.loads(response.data) if response.data else {}

    def apply(
        self, manifests: Iterable[Manifest], manager: str = "falaj-tests", *, dry_run: bool = False
    ) -> list[dict[str, Any]]:
        """Apply server-side in this order, unknown fields refused; the objects as they are then.

        Raises ApiException; its `body` says what the API server had against the object.
        """
        query = {"fieldManager": manager, "fieldValidation": "Strict", "force": "true"}
        if dry_run:
            query["dryRun"] = "All"
        found: list[dict[str, Any]] = []
        for manifest in manifests:
            path = self.path_of(manifest)
            found.append(self.request("PATCH", path, manifest, _APPLY, **query))
        return found

    def create(self, manifest: Manifest) -> dict[str, Any]:
        """Create; unlike `apply` an object that is there already is a conflict (409)."""
        path = self.path_of(manifest).rpartition("/")[0]
        if not manifest["metadata"].get("name"):  # the server makes up the name
            path = self.path_of(manifest)
        return self.request("POST", path, manifest, fieldValidation="Strict")

    def create_all(self, manifests: Iterable[Manifest]) -> None:
        """Create many side by side; those that are there already stay as they are."""

        def one(manifest: Manifest) -> None:
            try:
                self.create(manifest)
            except ApiException as error:
                if error.status != _CONFLICT:
                    raise

        self._each(one, manifests)

    def get(
        self, api_version: str, kind: str, name: str, namespace: str | None = None
    ) -> dict[str, Any] | None:
        """An object; None where there is none."""
        try:
            return self.request("GET", self.path(api_version, kind, namespace, name))
        except ApiException as error:
            if error.status == _MISSING:
                return None
            raise

    def list(
        self, api_version: str, kind: str, namespace: str | None = None, labels: str = ""
    ) -> list[dict[str, Any]]:
        """Objects in a namespace, or in all; `labels` is a selector."""
        query = {"labelSelector": labels} if labels else {}
        answer = self.request("GET", self.path(api_version, kind, namespace), **query)
        return answer["items"]

    def patch(
        self, api_version: str, kind: str, name: str, change: Manifest,
        namespace: str | None = None, *, part: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """Merge `change` into an object, or into its `part` such as `status`."""
        path = self.path(api_version, kind, namespace, name) + (f"/{part}" if part else "")
        return self.request("PATCH", path, change, _MERGE)

    def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:  # fmt: skip
        """Ask for an object to be deleted; what depends on it is collected afterwards."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", self.path(api_version, kind, namespace, name), options)
        except ApiException as error:
            if error.status != _MISSING:
                raise

    def delete_all(self, manifests: Iterable[Manifest]) -> None:
        """Ask for many to be deleted, side by side."""
        self._each(
            lambda each: self.delete(
                each["apiVersion"],
                each["kind"],
                each["metadata"]["name"],
                each["metadata"].get("namespace"),
                0 if each["kind"] == "Pod" else None,
            ),
            manifests,
        )

    def path_of(self, manifest: Manifest) -> str:
        """The path of the object that a manifest describes."""
        metadata = manifest["metadata"]
        return self.path(
            manifest["apiVersion"],
            manifest["kind"],
            metadata.get("namespace"),
            metadata.get("name", ""),
        )

    def path(
        self, api_version: str, kind: str, namespace: str | None = None, name: str = ""
    ) -> str:
        """The path of an object, or of the list of them.

        Raises EngineError where the API server serves no such kind.
        """
        plural, namespaced = self._find(api_version, kind)
        if namespaced and name and not namespace:
            namespace = "default"
        below = f"/namespaces/{quote(namespace)}" if namespace and namespaced else ""
        return f"{_root(api_version)}{below}/{plural}" + (f"/{quote(name)}" if name else "")

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server serves a kind now: definitions come and go.

        One small question; the definitions of a platform's charts are megabytes.
        """
        try:
            served = self.request("GET", _root(api_version))["resources"]
        except ApiException as error:
            if error.status != _MISSING:
                raise
            served = ()
        self._kinds[api_version] = {
            each["kind"]: (each["name"], each["namespaced"])
            for each in served
            if "/" not in each["name"]
        }
        return kind in self._kinds[api_version]

    def _find(self, api_version: str, kind: str) -> tuple[str, bool]:
        deadline = time.monotonic() + _SERVED_SECONDS
        while kind not in self._kinds.get(api_version, {}) and not self.serves(api_version, kind):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the cluster serves no {kind} of {api_version}; it serves "
                    f"{', '.join(self._kinds[api_version]) or 'nothing of that version'}: "
                    "install its definition first"
                )
            time.sleep(_STEP_SECONDS)
        return self._kinds[api_version][kind]

    def token(self, account: str, namespace: str, seconds: int) -> str:
        """A token of a service account, valid for so long."""
        path = f"{self.path('v1', 'ServiceAccount', namespace, account)}/token"
        spec = {"expirationSeconds": seconds}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self.request("POST", path, body)["status"]["token"])

    @staticmethod
    def _each(act: Callable[[Manifest], object], manifests: Iterable[Manifest]) -> None:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            for _ in pool.map(act, manifests):
                pass


def wait_for(ready: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Call `ready` until its answer is true, and return that.

    Raises TimeoutError that names `what` and the last answer.
    """
    begun = time.monotonic()
    while not (answer := ready()):
        waited = time.monotonic() - begun
        if waited > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s, but {answer!r}")
        step = max(_STEP_SECONDS, waited / _STEPS_OF_WAIT)
        time.sleep(min(step, _LONGEST_STEP_SECONDS))
    return answer


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
