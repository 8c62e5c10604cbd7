"""A gRPC client of the tests' own, with the messages that the server is made of."""

from __future__ import annotations

import struct
from typing import Any, Self

import grpc
import psutil

from falaj.workloads.inference.rpc.messages import CLASSES, INFERENCE
from tests.workloads.inference.serving import Server, Site

PROCESS = "falaj.workloads.inference.rpc.server"
INFER = f"/{INFERENCE}/ModelInfer"


def credentials(site: Site, certificate: str | None = None) -> grpc.ChannelCredentials:
    """TLS as a client of the site has it, with a certificate of its own or without."""
    folder = site.pki.folder
    pair = [(folder / f"{certificate}.{end}").read_bytes() for end in ("key", "crt")] if (
        certificate
    ) else [None, None]  # fmt: skip
    return grpc.ssl_channel_credentials((folder / "ca.crt").read_bytes(), *pair)


class Client:
    """Calls over one connection."""

    def __init__(
        self,
        server: Server,
        *,
        token: str | None = None,
        certificate: str | None = None,
        options: tuple[tuple[str, Any], ...] = (),
    ) -> None:
        self.model = server.site.document["model"]
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        # A pool of its own: else channels of the same options share a connection.
        own = (("grpc.use_local_subchannel_pool", 1), *options)
        self.channel = grpc.secure_channel(
            f"localhost:{server.port}", credentials(server.site, certificate), options=own
        )

    def raw(
        self, method: str, message: bytes, *, service: str = INFERENCE, seconds: float = 30,
        metadata: tuple[tuple[str, str], ...] = (), **options: Any,
    ) -> bytes:  # fmt: skip
        """Call a method with bytes."""
        call = self.channel.unary_unary(f"/{service}/{method}")
        return call(message, timeout=seconds, metadata=(*self.metadata, *metadata), **options)

    def call(self, method: str, message: Any = None, **options: Any) -> Any:
        """Call a method of the protocol with a message; None: an empty one."""
        given = message if message is not None else CLASSES[f"{method}Request"]()
        answer = self.raw(method, given.SerializeToString(), **options)
        return CLASSES[f"{method}Response"].FromString(answer)

    def infer(self, message: Any, **options: Any) -> Any:
        """Call for an inference."""
        return self.call("ModelInfer", message, **options)

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def row(model: str, values: Any = (0.5,) * 64, *, raw: bool = False, **more: Any) -> Any:
    """Return a request of one row for the small network."""
    message = CLASSES["ModelInferRequest"](model_name=model, **more)
    tensor = message.inputs.add(name="input", datatype="FP32", shape=[1, 64])
    if raw:
        message.raw_input_contents.append(struct.pack(f"<{len(values)}f", *values))
    else:
        tensor.contents.fp32_contents.extend(values)
    return message


def refusal(work: Any, *given: Any, **named: Any) -> tuple[str, str]:
    """The code and the message with which a call is refused."""
    try:
        work(*given, **named)
    except grpc.RpcError as error:
        return error.code().name, error.details()  # type: ignore[attr-defined]
    raise AssertionError("the call was answered")


def processes(server: Server) -> list[psutil.Process]:
    """The gRPC processes of a server."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    return [each for each in children if PROCESS in each.cmdline()]


def resident(process: psutil.Process) -> int:
    """The memory of a process, in bytes."""
    return int(process.memory_info().rss)
