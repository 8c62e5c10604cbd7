"""Which kinds an API server serves, asked once for each group and version."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from falaj.sandbox.cluster.connection import Connection
from falaj.sandbox.cluster.errors import ApiError
from falaj.sandbox.cluster.retrying import retried

# A kind that isn't there may be there in a moment, when its definition was just made.
_ASK_AGAIN_SECONDS: Final = 0.25


@dataclass(frozen=True)
class Kind:
    """One kind as it is served."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "") -> str:
        """The path of an object, or of the list of them."""
        below = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        own = f"/{quote(name, safe=':')}" if name else ""
        return f"{_root(self.api_version)}{below}/{self.plural}{own}"


class Discovery:
    """Kinds by API version; asked again for one that was missing."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, dict[str, Kind]] = {}
        self._asked: dict[str, float] = {}
        self._alone = threading.Lock()

    def find(self, api_version: str, kind: str) -> Kind | None:
        """The kind as it is served now; None where it isn't.

        Raises:
            ApiError: the API server doesn't answer.
        """
        found = self._known.get(api_version, {}).get(kind)
        if found is not None:
            return found
        with self._alone:
            asked = self._asked.get(api_version, 0.0)
            if time.monotonic() - asked > _ASK_AGAIN_SECONDS:
                self._known[api_version] = self._ask(api_version)
                self._asked[api_version] = time.monotonic()
            return self._known[api_version].get(kind)

    def forget(self, api_version: str) -> None:
        """Ask again next time: a kind of this version has gone, or its definition changed."""
        with self._alone:
            self._known.pop(api_version, None)
            self._asked.pop(api_version, None)

    def served(self) -> tuple[str, tuple[str, ...]]:
        """Kubernetes' version, and every version of a group with its kinds, as Helm names them.

        Raises:
            ApiError: the API server doesn't answer.
        """
        version = str(self._connection.get("/version").get("gitVersion", ""))
        found: list[str] = []
        for group in self._connection.get("/apis").get("groups") or []:
            for each in group.get("versions") or []:
                name = str(each["groupVersion"])
                found.append(name)
                # Charts ask for single kinds of others' groups only.
                if "." in name and not group["name"].endswith(".k8s.io"):
                    found += [f"{name}/{kind}" for kind in sorted(self._offered(name))]
        return version, tuple(found)

    def _offered(self, api_version: str) -> dict[str, Kind]:
        """Kinds of a version; none where another server answers for it and doesn't, as Helm does:
        pods of the servers that charts add to the API are simulated here."""
        try:
            return self._kinds(self._connection.get(_root(api_version)), api_version)
        except ApiError as error:
            if error.is_missing or error.is_passing:
                return {}
            raise

    def _ask(self, api_version: str) -> dict[str, Kind]:
        try:
            # A version whose definition was made just now is served in a moment.
            answer = retried(self._connection, lambda: self._connection.get(_root(api_version)))
        except ApiError as error:
            if error.is_missing:
                return {}
            raise
        return self._kinds(answer, api_version)

    @staticmethod
    def _kinds(answer: Mapping[str, Any], api_version: str) -> dict[str, Kind]:
        return {
            str(each["kind"]): Kind(
                api_version, str(each["kind"]), str(each["name"]), bool(each["namespaced"])
            )
            for each in answer.get("resources") or []
            if "/" not in str(each["name"])  # parts of objects: pods/log, deployments/scale
        }


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
