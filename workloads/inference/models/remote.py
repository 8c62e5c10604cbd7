"""Other servers of the Open Inference Protocol: a runtime beside this one, and the next tier.

Calls go over the loopback interface, or by TLS.

What a client sent is never passed on as it was: another parser might read it otherwise (a key that
is there twice, a size that wraps around), and what it reads would not have been checked. The
arrays go in the binary form of the protocol.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import aiohttp
import numpy as np
import orjson

from falaj.workloads.documents import is_sequence
from falaj.workloads.inference.connections.header_names import HEADER_LENGTH
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.models.model import RowModel, context_of
from falaj.workloads.inference.protocol.oip import (
    NUMPY_TYPES,
    Array,
    Inference,
    Schema,
    TensorSpec,
)
from falaj.workloads.inference.settings import Limits, TlsSettings


class AnswerError(Exception):
    """The other server's answer isn't one to this request; the message says why."""


def encode(schema: Schema, inference: Inference) -> tuple[bytes, int]:
    """Return the body of a request and the length of its JSON part in bytes."""
    items: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for spec in schema.inputs.values():
        array = inference.feed[spec.name]
        blob = spec.to_binary(array)
        blobs.append(blob)
        items.append(
            {
                "name": spec.name,
                "datatype": spec.datatype,
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(blob)},
            }
        )
    asked = inference.outputs or schema.output_names
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in asked]
    head = orjson.dumps({"inputs": items, "outputs": outputs})
    return b"".join((head, *blobs)), len(head)


def decode(
    schema: Schema, inference: Inference, body: bytes, header_length: int | None
) -> Sequence[Array]:
    """Return the arrays that were asked for, in the order of the request.

    Args:
        schema: the model's.
        inference: what was asked.
        body: of the answer.
        header_length: of its JSON part; None: all of it.

    Raises:
        AnswerError: an output is missing, or isn't what the model gives for this request.
    """
    size = len(body) if header_length is None else header_length
    if size > len(body):
        raise AnswerError(f"its JSON part has {size} bytes, the answer {len(body)}")
    try:
        document: Any = orjson.loads(body[:size])
        items: Any = document["outputs"]
        arrays: dict[str, Array] = {}
        position = size
        for item in cast("list[Any]", items):
            spec = schema.outputs[str(item["name"])]
            if item["datatype"] != spec.datatype:
                raise AnswerError(f"'{spec.name}' is {item['datatype']}, not {spec.datatype}")
            parameters: dict[str, Any] = item.get("parameters") or {}
            length = parameters.get("binary_data_size")
            if length is None:
                arrays[spec.name] = _array(schema, spec, item["shape"], item["data"])
            else:
                blob = body[position : position + length]
                position += length
                arrays[spec.name] = _array(schema, spec, item["shape"], blob)
        found = [arrays[name] for name in inference.outputs or schema.output_names]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise AnswerError(f"it lacks what was asked for, or is malformed ({error!r})") from error
    except RequestError as error:
        raise AnswerError(error.message) from error
    for name, array in arrays.items():
        if schema.outputs[name].shape[:1] == (-1,) and array.shape[0] != inference.rows:
            raise AnswerError(f"'{name}' has {array.shape[0]} rows for {inference.rows}")
    return found


def _array(schema: Schema, spec: TensorSpec, shape: Any, data: Any) -> Array:
    sizes = list(shape)
    # Triton has no tensor without a size beside the batch's: one value a row comes as [rows, 1].
    if len(sizes) == len(spec.shape) + 1 and sizes[-1] == 1:
        sizes.pop()
    plan = spec.plan(sizes, schema.max_rows, schema.max_elements)
    if isinstance(data, bytes):
        return spec.from_binary(data, plan)
    return np.asarray(spec.from_json(data, plan))


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
        body, length = encode(self.schema, inference)
        sent = {
            "Content-Type": "application/octet-stream", HEADER_LENGTH: str(length),
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
                given = answer.headers.get(HEADER_LENGTH)
                return decode(self.schema, inference, content, int(given) if given else None)
        except TimeoutError as error:
            raise RemoteError(f"{self.url} gave no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RemoteError(f"{self.url} can't be reached: {error}") from error
        except (AnswerError, ValueError) as error:
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
        raise InferenceError(
            "overflow needs tls.client_ca: the authority of the other tier's name"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(settings.client_ca)
        context.load_cert_chain(settings.certificate, settings.private_key)
    except (ssl.SSLError, OSError) as error:
        raise InferenceError(f"can't use the certificates for the other tier: {error}") from error
    return context


class RelayedModel:
    """What `Model` is to the service, for a model that isn't in this process."""

    row: RowModel | None = None

    def __init__(self, schema: Schema) -> None:
        self.name = schema.name
        self.version = schema.version
        self.schema = schema
        self.expected = [float("inf")] * 32

    def is_quick(self, rows: int) -> bool:
        """Return False: no call to another process belongs on the event loop."""
        del rows
        return False

    def observe(self, rows: int, seconds: float) -> None:
        """Nothing is expected of calls, so nothing is learnt from them."""
        del rows, seconds

    def run(self, inference: Inference) -> Sequence[Any]:
        """Refuse: there is nothing here to run."""
        raise RuntimeError(f"{self.name} is run by another server, not here: {inference.rows}")


def schema_of(name: str, version: str, manifest: Mapping[str, Any], limits: Limits) -> Schema:
    """Return the schema that a verified manifest states.

    Raises:
        InferenceError: a tensor of a type that the protocol can't carry.
    """
    inputs = [_spec(entry) for entry in manifest["inputs"]]
    outputs = [_spec(entry) for entry in manifest["outputs"]]
    return Schema(
        name,
        version,
        inputs,
        outputs,
        batched=all(spec.shape[:1] == (-1,) for spec in inputs),
        max_rows=limits.max_rows,
        max_elements=limits.max_body_bytes,
    )


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    datatype = str(entry.get("datatype"))
    sizes: Any = entry.get("shape")
    if datatype not in NUMPY_TYPES or not is_sequence(sizes):
        raise InferenceError(
            f"the manifest's tensor '{entry.get('name')}' is {datatype} with the shape {sizes}, "
            "which the protocol can't carry"
        )
    shape = tuple(size if isinstance(size, int) and size > 0 else -1 for size in sizes)
    return TensorSpec(
        str(entry["name"]), datatype, shape, missing=entry.get("missing") is True,
        context=context_of(entry) if "context" in entry else 1,
    )  # fmt: skip


FAILURES = 3
"""In a row, before the other tier is left alone."""
PAUSE_SECONDS = 5.0


class Breaker:
    """Closed while calls succeed; open for a time after failures in a row; then one call tries."""

    def __init__(self, failures: int = FAILURES, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._most = failures
        self._pause = pause_seconds
        self._failed = 0
        self._until = 0.0
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether calls are held back."""
        return self._failed >= self._most

    def allows(self) -> bool:
        """Tell whether a call may be made now; one that may has to be told of its end."""
        if not self.is_open:
            return True
        if self._trying or time.monotonic() < self._until:
            return False
        self._trying = True
        return True

    def succeeded(self) -> None:
        """A call was answered."""
        self._failed = 0
        self._trying = False

    def failed(self) -> None:
        """A call was not."""
        self._failed += 1
        self._trying = False
        if self.is_open:
            self._until = time.monotonic() + self._pause

    def given_up(self) -> None:
        """A call ended without saying anything about the other tier."""
        self._trying = False


class Overflow:
    """Where to, and from which expected time in the queue."""

    def __init__(self, remote: Remote, above_seconds: float) -> None:
        self.remote = remote
        self.above_seconds = above_seconds
        self.breaker = Breaker()
        # What the answer says of who made it: the name in the certificate, without the port.
        host = remote.url.removeprefix("https://").rpartition(":")[0]
        self.header = b"Falaj-Served-By: " + host.encode()

        self._out = 0

    def take(self) -> bool:
        """Take one of the calls that may be out, if the other tier may be asked now."""
        if self._out >= self.remote.connections or not self.breaker.allows():
            return False
        self._out += 1
        return True

    def give_back(self) -> None:
        """End a call that was taken."""
        self._out -= 1
