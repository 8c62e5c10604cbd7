"""gRPC as attackers and broken clients speak it: refused, bounded, and others are served."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import re
import signal
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from falaj.workloads.inference.rpc import calls
from falaj.workloads.inference.rpc.messages import CLASSES, HEALTH, INFERENCE
from tests.workloads.inference import models, raw_h2
from tests.workloads.inference.grpc_calls import (
    INFER,
    Client,
    processes,
    refusal,
    resident,
    row,
)
from tests.workloads.inference.raw_h2 import Frames, frame
from tests.workloads.inference.serving import Server, Site, alive, call, gone, started
from tests.workloads.inference.serving import row as http_row

BODY = 256 * 1024


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with small limits: two messages at a time are read."""
    site = Site(tmp_path_factory.mktemp("attacked") / "site")
    limits = {
        "max_body_bytes": BODY, "max_inflight_bytes": 2 * BODY, "max_rows": 64,
        "header_timeout_seconds": 2, "idle_timeout_seconds": 30,
    }  # fmt: skip
    site.document["auth"]["revoked"] = str(site.root / "revoked.json")
    site.write(limits=limits)
    with started(site, site.publish(models.mlp())) as server:
        yield server
    assert "Traceback" not in server.errors.read_text()


@pytest.fixture
def token(attacked: Server) -> str:
    return attacked.site.token("predict")


@pytest.fixture
def client(attacked: Server, token: str) -> Iterator[Client]:
    """Somebody else's connection, which has to be served through all of it."""
    with Client(attacked, token=token) as client:
        client.infer(row(client.model))
        yield client
        client.infer(row(client.model))


# Who is let in.


def test_an_older_tls_is_refused(attacked: Server, client: Client) -> None:
    with pytest.raises(ssl.SSLError):
        Frames(attacked, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert client.call("ServerLive").live


def test_http2_without_tls_is_refused(attacked: Server, client: Client) -> None:
    with socket.create_connection(("localhost", attacked.port), timeout=20) as plain:
        plain.sendall(raw_h2.PREFACE + frame(raw_h2.SETTINGS))
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := plain.recv(4096):
                answer += piece
    # TLS's alert, or that this is the port of TLS: never a frame of HTTP/2.
    assert answer[:1] in {b"", b"\x15"} or answer.startswith(b"HTTP/1.1 400 ")
    with grpc.insecure_channel(f"localhost:{attacked.port}") as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert refusal(live, b"", timeout=20)[0] == "UNAVAILABLE"
    assert client.call("ServerLive").live


def test_who_knows_http_1_1_gets_it(attacked: Server) -> None:
    context = attacked.site.pki.client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("localhost", attacked.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        assert tls.selected_alpn_protocol() == "http/1.1"


TOKENS: dict[str, tuple[str, dict[str, Any]]] = {
    "expired": ("UNAUTHENTICATED", {"minutes": 0.01}),
    "of another service": ("UNAUTHENTICATED", {"audience": "falaj:other"}),
    "of another issuer": ("UNAUTHENTICATED", {"issuer": "somebody"}),
}


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelReady", "ServerMetadata"])
def test_without_credentials_nothing_is_told(attacked: Server, method: str) -> None:
    with Client(attacked) as stranger:
        code, message = refusal(stranger.call, method)
    assert code == "UNAUTHENTICATED"
    assert message.startswith("no credentials")


@pytest.mark.parametrize("kind", [*TOKENS, "without the scope", "damaged", "words", "two"])
def test_a_bad_token_is_refused_in_the_words_of_http(attacked: Server, kind: str) -> None:
    site = attacked.site
    code, changes = TOKENS.get(kind, ("UNAUTHENTICATED", {}))
    shown = site.token("predict", **changes)
    if kind == "expired":
        time.sleep(2)
    elif kind == "without the scope":
        code, shown = "PERMISSION_DENIED", site.token("observe")
    elif kind == "damaged":
        shown = shown[:-6] + "AAAAAA"
    elif kind == "words":
        shown = "not a token"
    elif kind == "two":
        shown = f"{shown}, Bearer {shown}"
    with Client(attacked, token=shown) as stranger:
        found = refusal(stranger.infer, row(stranger.model))
    connection = attacked.connect()
    status, answer = call(connection, "POST", "/v2/models/mlp/infer", token=shown, body=http_row())
    connection.close()
    assert status in {401, 403}
    # Which model is asked stands in the message, which isn't read for a stranger; HTTP has a path.
    assert found == (code, answer["error"].replace(" (or predict:mlp)", ""))


def test_a_token_is_refused_once_it_is_revoked(attacked: Server) -> None:
    site = attacked.site
    shown = site.token("predict")
    with Client(attacked, token=shown) as stolen:
        stolen.infer(row(stolen.model))
        document = {"format": "falaj.revoked/1", "tokens": {}, "subjects": {"tester": time.time()}}
        revoked = site.root / "revoked.json"
        revoked.write_text(json.dumps(document))
        try:
            deadline = time.monotonic() + 20
            found = ("", "")
            while time.monotonic() < deadline and not found[0]:
                with contextlib.suppress(AssertionError):
                    found = refusal(stolen.infer, row(stolen.model))
            assert found == ("UNAUTHENTICATED", "the token was revoked: get a new one")
        finally:
            revoked.unlink()
    time.sleep(1)


IDENTITY = (
    "x-forwarded-client-cert", "x-client-cert", "x-ssl-client-cert", "x-falaj-identity",
    "x-falaj-peer", "peer", "subject", "forwarded", "x-forwarded-for",
)  # fmt: skip


def test_metadata_tell_nobody_who_calls(attacked: Server, client: Client) -> None:
    """A certificate is what the handshake has seen, of the connection that a call came over."""
    forged = tuple((name, "caller") for name in IDENTITY)
    forged += tuple((f"{name}-bin", b"caller") for name in IDENTITY[:3])
    with Client(attacked) as stranger:
        code, message = refusal(stranger.infer, row(stranger.model), metadata=forged)
        assert (code, message.startswith("no credentials")) == ("UNAUTHENTICATED", True)
    with Client(attacked, certificate="stranger") as stranger:
        found = refusal(stranger.infer, row(stranger.model), metadata=forged)
        assert found == (
            "PERMISSION_DENIED", "this service doesn't know the client certificate of 'stranger'",
        )  # fmt: skip
    # One that is known is so beside the stranger, and says nothing but its own name.
    with Client(attacked, certificate="caller") as known:
        known.infer(row(known.model), metadata=(("subject", "tester"),))
    deadline = time.monotonic() + 20
    lines: list[dict[str, Any]] = []
    while time.monotonic() < deadline and not lines:
        text = (attacked.site.logs / "access.jsonl").read_text()
        lines = [
            each for each in map(json.loads, text.splitlines()) if each["subject"] == "caller"
        ]
    assert lines[0]["path"] == INFER


def test_nobody_else_reaches_the_process(attacked: Server, client: Client) -> None:
    """Its socket has no name in any folder, so that there is nothing to connect to."""
    del client
    (process,) = processes(attacked)
    listening = [each for each in process.net_connections("unix") if each.status or each.laddr]
    names = {each.laddr for each in listening}
    assert not [name for name in names if name.startswith("/")]
    assert not list(attacked.site.state.parent.rglob("grpc*"))
    assert {each.name for each in attacked.site.state.parent.iterdir()} == {"logs", "state.json"}


# Floods.


def test_a_flood_of_resets_leaves_the_others_served(
    attacked: Server, client: Client, token: str
) -> None:
    """CVE-2023-44487."""
    (process,) = processes(attacked)
    before = resident(process)
    flood = Frames(attacked, token)
    block = flood.headers()
    with contextlib.suppress(OSError):
        for batch in range(40):
            flood.send(
                b"".join(
                    frame(raw_h2.HEADERS, raw_h2.END_HEADERS, stream, block)
                    + frame(raw_h2.RST_STREAM, 0, stream, struct.pack(">I", 8))
                    for stream in range(1 + 200 * batch, 201 + 200 * batch, 2)
                )
            )
            if batch % 10 == 0:
                client.infer(row(client.model))
    flood.close()
    client.infer(row(client.model))
    assert resident(process) - before < 64 * 1024 * 1024
    assert processes(attacked) == [process]


@pytest.mark.parametrize("empty", [False, True])
def test_endless_headers_end_the_connection(attacked: Server, client: Client, empty: bool) -> None:
    """CVE-2024-27316 and its kin: headers that go on in frame after frame."""
    (process,) = processes(attacked)
    before = resident(process)
    flood = Frames(attacked)
    piece = b"" if empty else raw_h2.fields(x="y" * 8000)
    with contextlib.suppress(OSError):
        flood.send(frame(raw_h2.HEADERS, 0, 1, flood.headers()))
        for _ in range(2000 if not empty else 20000):
            flood.send(frame(raw_h2.CONTINUATION, 0, 1, piece))
    client.infer(row(client.model))
    assert flood.is_closed()
    flood.close()
    assert resident(process) - before < 64 * 1024 * 1024


def test_floods_of_pings_and_settings_end_or_change_nothing(
    attacked: Server, client: Client
) -> None:
    (process,) = processes(attacked)
    before = resident(process)
    flood = Frames(attacked)
    with contextlib.suppress(OSError):
        for _ in range(200):
            flood.send(frame(raw_h2.PING, 0, 0, bytes(8)) * 50 + frame(raw_h2.SETTINGS) * 50)
    client.infer(row(client.model))
    flood.close()
    assert resident(process) - before < 64 * 1024 * 1024


def test_a_thousand_calls_that_never_go_on(attacked: Server, client: Client, token: str) -> None:
    """Few of them are let go on, and who calls meanwhile waits for none of them."""
    (process,) = processes(attacked)
    before = resident(process)
    floods = [Frames(attacked, token) for _ in range(10)]
    for flood in floods:
        block = flood.headers()
        for stream in range(1, 200, 2):
            # A message of the largest size is announced, and its first bytes come.
            begun = b"\0" + struct.pack(">I", BODY - 100) + bytes(64)
            flood.send(
                frame(raw_h2.HEADERS, raw_h2.END_HEADERS, stream, block)
                + frame(raw_h2.DATA, 0, stream, begun)
            )
    client.infer(row(client.model))
    connection = attacked.connect("caller")
    assert call(connection, "POST", "/v2/models/mlp/infer", body=http_row())[0] == 200
    connection.close()
    assert resident(process) - before < 96 * 1024 * 1024
    for flood in floods:
        flood.close()


@contextlib.contextmanager
def flooded(floods: list[Frames], path: str) -> Iterator[threading.Event]:
    """Calls begin on each of these connections again and again, and none sends its message."""
    stop = threading.Event()

    def flood(other: Frames, first: int = 1) -> None:
        block = other.headers(path)
        other.socket.settimeout(5)
        with contextlib.suppress(OSError):
            while not stop.is_set():
                streams = range(first, first + 200, 2)
                for kind in (
                    [frame(raw_h2.HEADERS, raw_h2.END_HEADERS, each, block) for each in streams],
                    [frame(raw_h2.RST_STREAM, 0, each, struct.pack(">I", 8)) for each in streams],
                ):
                    other.send(b"".join(kind))
                    if stop.wait(0.3):
                        break
                first += 200

    threads = [threading.Thread(target=flood, args=(each,)) for each in floods]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for each in floods:
            each.close()


@pytest.mark.parametrize("path", [f"/{HEALTH}/Check", f"/{INFERENCE}/ServerLive", INFER])
def test_a_flood_without_credentials_leaves_places_to_those_who_have_some(
    attacked: Server, client: Client, path: str
) -> None:
    """More calls than there are places."""
    with flooded([Frames(attacked) for _ in range(12)], path) as stop:
        for _ in range(40):
            client.infer(row(client.model))
            stop.wait(0.05)


def test_a_flood_from_one_address_leaves_places_to_others_without_credentials(
    attacked: Server, client: Client
) -> None:
    """Who asks whether the server lives shows no credentials either."""
    del client
    floods = [Frames(attacked, source="127.0.0.2") for _ in range(4)]
    with Client(attacked) as other, flooded(floods, f"/{HEALTH}/Check") as stop:
        stop.wait(0.2)
        for _ in range(20):
            assert other.call("ServerLive").live
            stop.wait(0.05)


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%lo", "fe80::2%lo", True),
        ("", "unknown", True),
    ],
)
def test_connections_of_one_network_are_named_so(one: str, other: str, are_one: bool) -> None:
    names = [calls.new_name(address) for address in (one, other)]
    networks = {calls.network_of_name(f"unix-abstract:{name}") for name in names}
    assert len(set(names)) == 2
    assert len(networks) == (1 if are_one else 2)
    # A name of a socket has 107 bytes at most, and no character that gRPC writes otherwise.
    assert all(re.fullmatch(r"[a-z0-9-]{1,80}", name) for name in names)


def test_what_a_stranger_sends_wrong_fills_no_log(attacked: Server, client: Client) -> None:
    """gRPC's library would write a line for each, which no setting bounds."""
    stranger = Frames(attacked)
    block = stranger.headers().replace(b"trailers", b"nothing!")
    stranger.send(frame(raw_h2.HEADERS, raw_h2.END_HEADERS, 1, block))
    assert any(kind in (raw_h2.HEADERS, raw_h2.RST_STREAM) for kind, *_ in stranger.read(2))
    stranger.close()
    client.infer(row(client.model))
    assert "metadata" not in attacked.errors.read_text()


def test_more_streams_than_allowed_are_refused_alone(
    attacked: Server, client: Client, token: str
) -> None:
    del client
    flood = Frames(attacked, token)
    block = flood.headers()
    settings = dict(
        struct.unpack(">HI", payload[at : at + 6])
        for kind, flags, _, payload in flood.read(1)
        if kind == raw_h2.SETTINGS and not flags
        for at in range(0, len(payload), 6)
    )
    assert settings[3] == 100  # SETTINGS_MAX_CONCURRENT_STREAMS
    flood.send(frame(raw_h2.SETTINGS, raw_h2.ACK))
    for stream in range(1, 2 * 110, 2):
        flood.send(frame(raw_h2.HEADERS, raw_h2.END_HEADERS, stream, block))
    refused = [
        stream
        for kind, _, stream, payload in flood.read(3)
        if kind == raw_h2.RST_STREAM and payload == struct.pack(">I", 7)  # REFUSED_STREAM
    ]
    assert refused
    flood.close()
    assert min(refused) > 199


def test_a_client_that_says_nothing_is_closed(attacked: Server) -> None:
    silent = Frames(attacked)
    assert silent.is_closed(20)
    silent.close()


def test_a_client_that_does_not_read_is_bounded(
    attacked: Server, client: Client, token: str
) -> None:
    (process,) = processes(attacked)
    before = resident(process)
    slow = Frames(attacked, token)
    slow.send(frame(raw_h2.SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1)))
    slow.send(frame(raw_h2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30)))
    block = slow.headers()
    message = CLASSES["ModelInferRequest"](model_name=client.model)
    message.inputs.add(name="input", datatype="FP32", shape=[64, 64])
    message.raw_input_contents.append(bytes(64 * 64 * 4))
    data = message.SerializeToString()
    data = b"\0" + struct.pack(">I", len(data)) + data
    slow.socket.settimeout(3)
    with contextlib.suppress(OSError):
        for stream in range(1, 4001, 2):
            slow.send(
                frame(raw_h2.HEADERS, raw_h2.END_HEADERS, stream, block)
                + frame(raw_h2.DATA, raw_h2.END_STREAM, stream, data)
            )
    client.infer(row(client.model))
    assert resident(process) - before < 96 * 1024 * 1024
    slow.close()


# Messages.


def test_a_giant_message_is_refused_before_it_is_read(
    attacked: Server, client: Client, token: str
) -> None:
    code, _ = refusal(client.raw, "ModelInfer", bytes(BODY + 1))
    assert code == "RESOURCE_EXHAUSTED"
    flood = Frames(attacked, token)
    flood.send(
        frame(raw_h2.HEADERS, raw_h2.END_HEADERS, 1, flood.headers())
        + frame(raw_h2.DATA, 0, 1, b"\0\xff\xff\xff\xff" + bytes(64))
    )
    answers = [each for each in flood.read(3) if each[2] == 1]
    flood.close()
    assert answers  # refused at its announcement
    assert answers[0][0] in {raw_h2.HEADERS, raw_h2.RST_STREAM}


def test_compressed_messages_are_read_within_the_bounds(
    attacked: Server, client: Client, token: str
) -> None:
    plain = client.infer(row(client.model, raw=True))
    packed = client.infer(row(client.model, raw=True), compression=grpc.Compression.Gzip)
    assert packed == plain
    (process,) = processes(attacked)
    before = resident(process)
    # A quarter of a gigabyte of zeros, made without taking it.
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeeze.compress(bytes(2**20)) for _ in range(256)) + squeeze.flush()
    for data in (bomb[:BODY], gzip.compress(bytes(64 * BODY))):
        flood = Frames(attacked, token)
        headers = flood.headers() + raw_h2.fields(grpc_encoding="gzip")
        sent = b"\1" + struct.pack(">I", len(data)) + data
        flood.send(frame(raw_h2.HEADERS, raw_h2.END_HEADERS, 1, headers))
        for at in range(0, len(sent), 16384):
            flood.send(frame(raw_h2.DATA, 0, 1, sent[at : at + 16384]))
        flood.send(frame(raw_h2.DATA, raw_h2.END_STREAM, 1))
        answers = [each for each in flood.read(3) if each[2] == 1]
        flood.close()
        assert answers
    assert resident(process) - before < 64 * 1024 * 1024


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_get_clean_codes(client: Client, seed: int) -> None:
    draw = random.Random(seed)
    valid = row(client.model, raw=bool(seed % 2)).SerializeToString()
    for _ in range(60):
        data = bytearray(valid if draw.random() < 0.7 else draw.randbytes(draw.randrange(200)))
        for _ in range(draw.randrange(1, 6)):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        method = draw.choice(["ModelInfer", "ModelInfer", "ModelMetadata", "ServerLive"])
        try:
            client.raw(method, bytes(data))
        except grpc.RpcError as error:
            assert error.code().name in {"INVALID_ARGUMENT", "NOT_FOUND"}  # type: ignore[attr-defined]


def test_a_call_without_a_message_or_with_two(client: Client) -> None:
    stream = client.channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
    given = row(client.model).SerializeToString()
    for messages in ([], [given, given]):
        code, message = refusal(stream, iter(messages), timeout=20, metadata=client.metadata)
        assert (code, "one message" in message) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("inference.GRPCInferenceService", "ModelStreamInfer"),
        ("inference.GRPCInferenceService", "RepositoryModelLoad"),
        ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"),
        ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"),
        (HEALTH, "Watch"),
        ("", ""),
    ],
)
def test_what_is_not_offered(client: Client, service: str, method: str) -> None:
    assert refusal(client.raw, method, b"", service=service)[0] == "UNIMPLEMENTED"


# The process ends.


def test_the_process_is_killed_under_load(attacked: Server, client: Client, token: str) -> None:
    (process,) = processes(attacked)
    codes: set[str] = set()
    stop = threading.Event()

    def load() -> None:
        with Client(attacked, token=token) as mine:
            while not stop.is_set():
                try:
                    mine.infer(row(mine.model))
                    codes.add("OK")
                except grpc.RpcError as error:
                    codes.add(error.code().name)  # type: ignore[attr-defined]

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    worker = attacked.workers()
    connection = attacked.connect("caller")
    process.send_signal(signal.SIGKILL)
    for _ in range(20):
        assert call(connection, "POST", "/v2/models/mlp/infer", body=http_row())[0] == 200
    connection.close()
    assert gone([process.pid])
    deadline = time.monotonic() + 30
    found = False
    while time.monotonic() < deadline and not found:
        with contextlib.suppress(grpc.RpcError):
            client.infer(row(client.model), wait_for_ready=True)
            found = True
    stop.set()
    for thread in threads:
        thread.join()
    assert found
    assert codes <= {"OK", "UNAVAILABLE"}
    assert attacked.workers() == worker
    (another,) = processes(attacked)
    assert another.pid != process.pid
    assert alive(another.pid)
    assert "the gRPC process ended" in attacked.errors.read_text()
