"""Calls to another server of the Open Inference Protocol: on the loopback interface, or by TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from falaj.workloads.inference import relay
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.oip import Inference, Schema
from falaj.workloads.inference.settings import TlsSettings
from falaj.workloads.inference.tensors import Array

_HEADER_LENGTH = "Inference-Header-Content-Length"
_MORE_JSON_BYTES = 1 << 20
"""What an answer may be larger than the largest request."""
_LOOK_SECONDS = 2.0


class RemoteError(Exception):
    """The other server gave no answer that can be used.

    ``busy`` tells that it is there and took no more; ``refused`` that it refused this request.
    """

    def __init__(self, message: str, *, busy: bool = False, refused: bool = False) -> None:
        super().__init__(message)
        self.busy = busy
        self.refused = refused


class Remote:
    """A pool of connections to one server, for one version of one model.

    Args:
        url: scheme, host and port.
        schema: the model's, with the version's name at the other server.
        timeout_seconds: for a whole call.
        connections: calls under way at most; more wait within the time.
        context: for TLS; None on the loopback interface.
    """

    def __init__(
        self,
        url: str,
        schema: Schema,
        *,
        timeout_seconds: float,
        connections: int,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self.schema = schema
        self.running = 0
        self.connections = connections
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._context = context
        self._session: aiohttp.ClientSession | None = None
        self._base = f"{url}/v2/models/{schema.name}/versions/{schema.version}"
        self._most = schema.max_elements * 8 + _MORE_JSON_BYTES

    def _open(self) -> aiohttp.ClientSession:
        """Made with the first call: it belongs to the running loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self.connections, ssl=self._context or True, keepalive_timeout=30
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                trust_env=False,
                auto_decompress=False,
                # Triton compresses for whoever doesn't mind, which costs more than it saves here.
                headers={"Accept-Encoding": "identity"},
            )
        return self._session

    async def infer(
        self, inference: Inference, headers: Mapping[str, str] | None = None
    ) -> Sequence[Array]:
        """Return the outputs that the request asks for.

        Raises:
            RemoteError: no answer in time, no room, a refusal, or an answer that isn't one.
        """
        body, length = relay.encode(self.schema, inference)
        sent = {
            "Content-Type": "application/octet-stream", _HEADER_LENGTH: str(length),
            **(headers or {}),
        }  # fmt: skip
        self.running += 1
        try:
            async with self._open().post(
                f"{self._base}/infer", data=body, headers=sent, allow_redirects=False
            ) as answer:
                content = await self._content(answer)
                if answer.status != 200:
                    raise _refusal(answer.status, content)
                given = answer.headers.get(_HEADER_LENGTH)
                return relay.decode(self.schema, inference, content, int(given) if given else None)
        except TimeoutError as error:
            raise RemoteError(f"{self.url} gave no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RemoteError(f"{self.url} can't be reached: {error}") from error
        except (relay.AnswerError, ValueError) as error:
            raise RemoteError(f"the answer of {self.url} can't be used: {error}") from error
        finally:
            self.running -= 1

    async def _content(self, answer: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in answer.content.iter_any():
            size += len(part)
            if size > self._most:
                raise RemoteError(f"the answer of {self.url} has more than {self._most} bytes")
            parts.append(part)
        return b"".join(parts)

    async def is_ready(self) -> bool:
        """Tell whether the other server can run this version."""
        return await self._get("/ready") is not None

    async def statistics(self) -> tuple[int, float] | None:
        """Return how many requests were in its queue and for how many seconds, since its start.

        Triton's statistics extension; None where the server doesn't have it.
        """
        content = await self._get("/stats")
        try:
            queue: Any = orjson.loads(content or b"{}")["model_stats"][0]["inference_stats"]
            return int(queue["queue"]["count"]), int(queue["queue"]["ns"]) / 1e9
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError):
            return None

    async def _get(self, path: str) -> bytes | None:
        try:
            async with self._open().get(
                self._base + path, timeout=aiohttp.ClientTimeout(total=_LOOK_SECONDS)
            ) as answer:
                content = await answer.read()
                return content if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError):
            return None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _refusal(status: int, content: bytes) -> RemoteError:
    text = content[:300].decode("utf-8", "replace")
    return RemoteError(
        f"it answered {status}: {text}", busy=status in {429, 503}, refused=status == 400
    )


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of calls to another tier: both sides show certificates of one authority.

    Raises:
        InferenceError: there is no authority, or a file is broken.
    """
    if settings.client_ca is None:
        raise InferenceError("spill needs tls.client_ca: the authority of the other tier's name")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(settings.client_ca)
        context.load_cert_chain(settings.certificate, settings.private_key)
    except (ssl.SSLError, OSError) as error:
        raise InferenceError(f"can't use the certificates for the other tier: {error}") from error
    return context
