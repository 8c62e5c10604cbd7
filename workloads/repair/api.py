"""Calls of the API server, and of exporters on nodes, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self

import aiohttp

from falaj.workloads.api_server import JSON, PAGE, REQUEST_SECONDS, Account, ApiError, object_of

_EXPORTER_SECONDS: Final = 5.0
_EXPORTER_BYTES: Final = 8 * 1024 * 1024


class Api:
    """Calls of the API server. Every call may raise `ApiError`."""

    def __init__(self, server: str, account: Account, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._account = account
        self._session = session

    @classmethod
    def of(cls, server: str, account: Account) -> Self:
        """Open a session. Raises WorkloadError: a file of the account that can't be used."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=account.context(), limit=16),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        )
        return cls(server, account, session)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *,
        kind: str = JSON, query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One call; the answer's object."""
        headers = self._account.headers("falaj-node-repair")
        data = None if body is None else json.dumps(body)
        if data is not None:
            headers["Content-Type"] = kind
        try:
            async with self._session.request(
                method, self._server + path, data=data, headers=headers, params=query
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ApiError.lost(f"{method} {path}", error) from error
        if answer.status >= 400:
            raise ApiError.refused(answer.status, text)
        return object_of(text)

    async def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        """All objects of a list, page by page."""
        found: list[dict[str, Any]] = []
        more = {"limit": str(PAGE)}
        while more:
            answer = await self.request("GET", path, query={**query, **more})
            found += answer.get("items") or []
            token = answer["metadata"].get("continue")
            more = {"limit": str(PAGE), "continue": token} if token else {}
        return found


async def read_exporter(address: str, port: int) -> str:
    """The answer of a node's exporter of GPU metrics. Raises `ApiError`."""
    place = f"[{address}]" if ":" in address else address
    timeout = aiohttp.ClientTimeout(total=_EXPORTER_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{place}:{port}/metrics", allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ApiError(answer.status, f"the exporter at {place} refuses")
            body = b""
            async for part in answer.content.iter_chunked(65536):
                body += part
                if len(body) > _EXPORTER_BYTES:
                    raise ApiError(0, f"the exporter at {place} answers without an end")
            return body.decode()
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        raise ApiError.lost(f"the exporter at {place}", error) from error
