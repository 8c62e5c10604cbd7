"""Requests of the API server, one after the other; of no more than names where they will do."""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import urlencode, urlsplit

from falaj.workloads.api_server import (
    FOLDER,
    JSON,
    MERGE,
    PAGE,
    REQUEST_SECONDS,
    Account,
    ApiError,
    address,
    object_of,
)
from falaj.workloads.errors import WorkloadError

#: Only names, labels and the like of what is listed: the values of secrets stay where they are.
#: https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
_NAMES_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_ONE_NAME: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class ApiServer:
    """Requests of one account."""

    def __init__(self, address: str, account: Account, agent: str) -> None:
        """Open nothing yet.

        Args:
            address: ``https://host:port``.
            account: whose requests these are.
            agent: what the program is called in the API server's logs.

        Raises:
            WorkloadError: an address without TLS, or files that can't be read.
        """
        parts = urlsplit(address)
        if parts.scheme != "https" or not parts.hostname:
            raise WorkloadError(
                f"can't use the API server's address {address!r}; allowed: https://host:port"
            )
        self._host, self._port = parts.hostname, parts.port or 443
        self._account = account
        self._agent = agent
        self._tls = account.context()

    @classmethod
    def of(cls, options: argparse.Namespace, agent: str) -> Self:
        """As the options of `add_options` say. Raises WorkloadError: as the constructor does."""
        account = Account(options.authority, options.token)
        return cls(options.server or address(), account, agent)

    def get(self, path: str) -> dict[str, Any]:
        """One object. Raises ApiError."""
        return self._call("GET", path)

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        """All objects of a list, page by page. Raises ApiError."""
        return list(self._pages(path, JSON, query))

    def names(self, path: str, **query: str) -> set[str]:
        """Names of all objects of a list; nothing but metadata is asked for.

        Raises ApiError.
        """
        return {str(each["metadata"]["name"]) for each in self._pages(path, _NAMES_ONLY, query)}

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make an object. Raises ApiError."""
        return self._call("POST", path, body)

    def merge(self, path: str, body: dict[str, Any]) -> None:
        """Change some fields of an object. Raises ApiError."""
        self._call("PATCH", path, body, kind=MERGE)

    def delete_all(self, path: str, **query: str) -> None:
        """Delete all objects of a list; names are answered, no content.

        Raises ApiError.
        """
        self._call("DELETE", f"{path}?{urlencode(query)}", accept=_NAMES_ONLY)

    def delete(self, path: str) -> None:
        """Delete an object; one that isn't there is fine. Raises ApiError."""
        try:
            self._call("DELETE", path, accept=_ONE_NAME)
        except ApiError as error:
            if not error.is_missing:
                raise

    def _pages(self, path: str, accept: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        further = ""
        while True:
            asked = {**query, "limit": str(PAGE), **({"continue": further} if further else {})}
            page = self._call("GET", f"{path}?{urlencode(asked)}", accept=accept)
            yield from cast("list[dict[str, Any]]", page.get("items") or [])
            further = str(page.get("metadata", {}).get("continue") or "")
            if not further:
                return

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        accept: str = JSON,
        kind: str = JSON,
    ) -> dict[str, Any]:
        headers = self._account.headers(self._agent, Accept=accept)
        if body is not None:
            headers["Content-Type"] = kind
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=REQUEST_SECONDS, context=self._tls
        )
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ApiError.lost(f"the API server at {self._host}:{self._port}", error) from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise ApiError.refused(answer.status, text)
        return object_of(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add to a command line where the API server is, and by what account it is asked."""
    pod = Account.of(FOLDER)
    add = parser.add_argument
    add("--server", help="https://host:port of the API server (default: the pod's cluster)")
    add("--authority", type=Path, default=pod.authority, help="its certificates (PEM)")
    add("--token", type=Path, default=pod.token, help="file with the account's token")
