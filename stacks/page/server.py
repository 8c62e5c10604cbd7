"""Asks the inference server, over TLS 1.3 and with a client certificate of this machine."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from falaj.stacks.certificates import certificate_of
from falaj.stacks.page.account import Account
from falaj.workloads.files import fingerprint
from falaj.workloads.inference.settings import reached_at

SCOPES: Final = ("predict", "observe")
"""What the page's certificate has to be allowed."""
MOST_BYTES: Final = 8 * 2**20
"""Of an answer that is read; a longer one is refused."""
_SECONDS: Final = 30.0
"""For an answer to a row; what is only looked at has less."""
_SECONDS_TO_LOOK: Final = 5.0
_SECONDS_TO_CONNECT: Final = 3.0
_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


class UnreachableError(Exception):
    """The server can't be asked; ``todo`` says what to do about it."""

    def __init__(self, message: str, todo: str) -> None:
        super().__init__(message)
        self.todo = todo


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    body: bytes

    def document(self) -> Any:
        """The answer as JSON values; None where it is no JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


@dataclass(frozen=True)
class _Connection:
    """An open session, and the files by which it was made."""

    files: tuple[object, ...]
    session: aiohttp.ClientSession


class Server:
    """The inference server of one stack.

    Args:
        up: the command that brings it up, for what is said where it doesn't answer.
    """

    def __init__(self, up: str) -> None:
        self._up = up
        self.patience = _SECONDS_TO_LOOK
        self._open: _Connection | None = None

    async def close(self) -> None:
        """Close its connections."""
        found, self._open = self._open, None
        if found is not None:
            await found.session.close()

    async def ask(
        self,
        account: Account,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Send a request: a GET, or a POST of ``body`` as JSON, which may take longer.

        Raises:
            UnreachableError: it doesn't answer, isn't who it should be, or answers too much.
        """
        host = reached_at(account.settings.host)
        port = account.port
        shown = f"[{host}]" if ":" in host else host
        url = f"https://{shown}:{port}{path}"
        session = await self._session(account)
        try:
            try:
                return await self._send(session, url, body)
            except aiohttp.ServerDisconnectedError:
                # A worker may end, as when a version is switched; nothing is asked but to predict.
                return await self._send(session, url, body)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._why(error, f"https://{shown}:{port}") from error

    async def _send(
        self, session: aiohttp.ClientSession, url: str, body: Mapping[str, Any] | None
    ) -> Reply:
        method = "GET" if body is None else "POST"
        data = None if body is None else orjson.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        # Of the server's own paths only: it has no reason to send anybody elsewhere.
        async with session.request(
            method,
            url,
            data=data,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=self.patience if body is None else _SECONDS,
                sock_connect=_SECONDS_TO_CONNECT,
            ),
        ) as answer:
            return Reply(answer.status, await self._read(answer, url))

    async def _read(self, answer: aiohttp.ClientResponse, url: str) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in answer.content.iter_any():
            size += len(part)
            if size > MOST_BYTES:
                raise UnreachableError(
                    f"the server answered {url} with more than {MOST_BYTES // 2**20} MiB",
                    f"ask it by its own interface, or bring it up anew: {self._up}",
                )
            parts.append(part)
        return b"".join(parts)

    async def _session(self, account: Account) -> aiohttp.ClientSession:
        """An open session; a new one where certificates were renewed."""
        tls = account.settings.tls
        name = account.caller(*SCOPES)
        if tls.client_ca is None or name is None:
            raise UnreachableError(
                f"there is no client certificate in {account.pki} that may predict and observe",
                f"have it made: {self._up}",
            )
        certificate, key = account.pki / f"{name}.crt", account.pki / f"{name}.key"
        if certificate_of(certificate).state == "expired":
            # Said here: a server that refuses it may be gone before its reason is read.
            raise UnreachableError(
                "this machine's client certificate has expired", f"renew it: {self._up}"
            )
        files = tuple((each, fingerprint(each)) for each in (tls.client_ca, certificate, key))
        if self._open is None or self._open.files != files:
            await self.close()
            self._open = _Connection(files, self._new(tls.client_ca, certificate, key))
        return self._open.session

    def _new(self, authority: Path, certificate: Path, key: Path) -> aiohttp.ClientSession:
        try:
            context = ssl.create_default_context(cafile=str(authority))
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UnreachableError(
                f"the certificates in {authority.parent} can't be used: {error}",
                f"have them made anew: {self._up}",
            ) from error
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=8),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "falaj-open", "Accept-Encoding": "identity"},
            auto_decompress=False,
        )

    def _why(self, error: BaseException, address: str) -> UnreachableError:
        match error:
            case UnreachableError():
                return error
            case aiohttp.ClientConnectorCertificateError(certificate_error=why) if (
                getattr(why, "verify_code", 0) == _EXPIRED
            ):
                return UnreachableError(
                    f"the certificate of {address} has expired", f"renew it: {self._up}"
                )
            case aiohttp.ClientConnectorCertificateError(certificate_error=why):
                return UnreachableError(
                    f"{address} isn't the stack's server: {getattr(why, 'verify_message', why)}",
                    f"see what listens there; the stack's own comes back with: {self._up}",
                )
            case TimeoutError():
                return UnreachableError(
                    f"{address} didn't answer in time", f"see its logs, or start it: {self._up}"
                )
            case aiohttp.ClientConnectorError():
                return UnreachableError(
                    f"nothing answers at {address}", f"bring the server back: {self._up}"
                )
            case _:
                return UnreachableError(
                    f"{address} didn't answer as a server does: "
                    f"{str(error) or type(error).__name__}",
                    f"bring the server up anew: {self._up}",
                )
