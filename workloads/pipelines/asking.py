"""Asks a pipeline for a run, through one object that the pipeline's own starter looks into.

Who watches drift makes nothing in the cluster: who may make JobSets or Jobs may have any program
run by any account of the namespace, which RBAC can't narrow to a name. It may read and change one
ConfigMap, and read another one with what the last run was. The starter, whose account the cluster
holds to the pipeline's template, looks into it and starts the run, once there are newer data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.workloads.api_requests import ApiServer
from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError

KEY: Final = "drift.json"
_SIGNAL: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        signal: digest of what was seen: by another one, another run is asked for.
        document: all that was said, plain JSON.
    """

    signal: str
    document: Mapping[str, Any]

    @property
    def text(self) -> str:
        """As it is written down."""
        return json.dumps({**self.document, "signal": self.signal}, sort_keys=True)


def read_request(config_map: Mapping[str, Any], name: str) -> Request | None:
    """What a ConfigMap asks for; None: nothing.

    Raises:
        WorkloadError: it holds something else.
    """
    text = mapping(config_map.get("data")).get(KEY)
    if text is None:
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        found = None
    document = mapping(found)
    signal = document.get("signal")
    if not isinstance(signal, str) or not _SIGNAL.fullmatch(signal):
        raise WorkloadError(
            f"{KEY} of ConfigMap {name} is no request, whose signal has 64 digits of SHA-256: "
            "remove the key; who watches drift asks anew"
        )
    return Request(signal, document)


@dataclass(frozen=True)
class Asking:
    """One pipeline that may be asked.

    Attributes:
        api: the API server.
        pipeline: its name.
        namespace: where it is.
        requests: name of the ConfigMap that its starter looks into.
    """

    api: ApiServer
    pipeline: str
    namespace: str
    requests: str

    def _path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"

    def ask(self, request: Request) -> None:
        """Ask for a run. Raises ApiError."""
        self.api.merge(self._path(self.requests), {"data": {KEY: request.text}})

    def asked(self) -> Request | None:
        """What is asked for now. Raises ApiError, WorkloadError."""
        return read_request(self.api.get(self._path(self.requests)), self.requests)

    def withdraw(self) -> None:
        """Ask for nothing any more. Raises ApiError."""
        self.api.merge(self._path(self.requests), {"data": {KEY: None}})

    def started(self, state: str, key: str) -> Mapping[str, Any]:
        """What the last run was, as its starter wrote it down.

        Args:
            state: name of the starter's ConfigMap.
            key: in it.

        Raises:
            ApiError: it can't be read.
        """
        text = mapping(self.api.get(self._path(state)).get("data")).get(key)
        try:
            found: object = json.loads(text) if text is not None else {}
        except (ValueError, TypeError, RecursionError):
            found = {}
        return dict(mapping(found))
