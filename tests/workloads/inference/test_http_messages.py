"""What is a message, and where it ends: the cases that proxies and servers have disagreed on.

h11 is the independent parser: what is accepted here has there, where it is accepted too, the same
body and the same end. RFC 9112, 11.2 (request smuggling), and PortSwigger's list of variants:
https://portswigger.net/web-security/request-smuggling
"""

from __future__ import annotations

from collections.abc import Iterator

import h11
import pytest

from falaj.workloads.inference.connections.http import Bodies, Exchange, Reader
from falaj.workloads.inference.protocol.routes import JOB, ROUTES, WITH_BODY, Router

ROUTER = Router("mlp", "1")
POST = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n"


def read(data: bytes, size: int = 0) -> Reader:
    """Read bytes, all at once or in pieces of some size."""

    def admit(exchange: Exchange) -> None:
        exchange.route = ROUTER.find(exchange.url)
        if exchange.route is None:
            raise ROUTER.unknown(exchange.url)

    reader = Reader(1 << 20, Bodies(1 << 22), admit, lambda *_: None)
    for start in range(0, len(data), size or len(data)):
        reader.feed(data[start : start + (size or len(data))], None)
    return reader


REFUSED = {
    "CL and TE": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TE and CL": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two CLs": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "the same CL twice": POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "CL with a list": POST + b"Content-Length: 1, 1\r\n\r\nx",
    "CL with a sign": POST + b"Content-Length: +1\r\n\r\nx",
    "CL below zero": POST + b"Content-Length: -1\r\n\r\nx",
    "CL in hexadecimal": POST + b"Content-Length: 0x1\r\n\r\nx",
    "CL with an underscore": POST + b"Content-Length: 1_0\r\n\r\nx",
    "CL empty": POST + b"Content-Length: \r\n\r\nx",
    "CL too large": POST + b"Content-Length: 99999999999999999999999\r\n\r\nx",
    "obs-fold": POST + b"A: b\r\n c\r\nContent-Length: 1\r\n\r\nx",
    "obs-fold of TE": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare LF after a field": POST[:-2] + b"\nContent-Length: 1\r\n\r\nx",
    "bare LF after the line": b"GET /v2/health/live HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF at the end": LIVE + b"\n",
    "bare CR": LIVE + b"A: b\rc\r\n\r\n",
    "space before the colon": POST + b"Content-Length : 1\r\n\r\nx",
    "tab before the colon": POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "space before a field": b"GET /v2/health/live HTTP/1.1\r\n Host: x\r\n\r\n",
    "field without a colon": LIVE + b"Foo\r\n\r\n",
    "field without a name": LIVE + b": x\r\n\r\n",
    "NUL in a value": LIVE + b"A: b\x00c\r\n\r\n",
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "TE identity": POST + b"Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "TE twice": POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "TE empty": POST + b"Transfer-Encoding: \r\nContent-Length: 1\r\n\r\nx",
    "TE with VT": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "TE in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "chunk size overflow": CHUNKED + b"10000000000000001\r\nx\r\n0\r\n\r\n",
    "chunk size 0x1": CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n",
    "chunk size with a sign": CHUNKED + b"+1\r\nx\r\n0\r\n\r\n",
    "chunk size with a space": CHUNKED + b"1 \r\nx\r\n0\r\n\r\n",
    "chunk size missing": CHUNKED + b"\r\nx\r\n0\r\n\r\n",
    "chunk size and LF": CHUNKED + b"1\nx\r\n0\r\n\r\n",
    "chunk and LF": CHUNKED + b"1\r\nx\n0\r\n\r\n",
    "chunk too long": CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
    "extension with LF": CHUNKED + b"1;a\nb\r\nx\r\n0\r\n\r\n",
    "extension with CR": CHUNKED + b"1;a\rb\r\nx\r\n0\r\n\r\n",
    "last chunk and LF": CHUNKED + b"1\r\nx\r\n0\n\n",
    "CL in a trailer": CHUNKED + b"0\r\nContent-Length: 4\r\n\r\n",
    "no host": b"GET /v2/health/live HTTP/1.1\r\n\r\n",
    "host empty": LIVE.replace(b"Host: x", b"Host: ") + b"\r\n",
    "host with a space": LIVE.replace(b"Host: x", b"Host: a b") + b"\r\n",
    "host with a path": LIVE.replace(b"Host: x", b"Host: a/b") + b"\r\n",
    "host with a user": LIVE.replace(b"Host: x", b"Host: u@b") + b"\r\n",
    "host with a bad port": LIVE.replace(b"Host: x", b"Host: a:b") + b"\r\n",
    "two hosts": LIVE + b"Host: x\r\n\r\n",
    "two hosts in one": LIVE.replace(b"Host: x", b"Host: a, b") + b"\r\n",
    "target with a user": LIVE.replace(b" /v2", b" https://u@x/v2") + b"\r\n",
    "target of another scheme": LIVE.replace(b" /v2", b" ftp://x/v2") + b"\r\n",
    "target with a fragment": LIVE.replace(b"live", b"live#x") + b"\r\n",
    "absolute form with a fragment": LIVE.replace(b"/v2/health/live", b"https://x/v2#b") + b"\r\n",
    "target without a slash": LIVE.replace(b" /v2", b" v2") + b"\r\n",
    "HTTP/1.2": LIVE.replace(b"HTTP/1.1", b"HTTP/1.2") + b"\r\n",
}
ODD_VERSIONS = {
    "no version": b"GET /v2/health/live\r\n\r\n",
    "HTTP/0.9": LIVE.replace(b"HTTP/1.1", b"HTTP/0.9") + b"\r\n",
    "HTTP/2.0": LIVE.replace(b"HTTP/1.1", b"HTTP/2.0") + b"\r\n",
}
ACCEPTED = {
    "a length": POST + b"Content-Length: 1\r\n\r\nx",
    "chunks": CHUNKED + b"1\r\nx\r\n2\r\nyz\r\n0\r\n\r\n",
    "CHUNKED": CHUNKED.replace(b": chunked", b": CHUNKED") + b"1\r\nx\r\n0\r\n\r\n",
    "an extension": CHUNKED + b'1;a="b"\r\nx\r\n0\r\n\r\n',
    "a trailer": CHUNKED + b"1\r\nx\r\n0\r\nA: b\r\n\r\n",
    "nothing": LIVE + b"\r\n",
    "a host and a port": LIVE.replace(b"Host: x", b"Host: models.example.ae:8443") + b"\r\n",
    "an address": LIVE.replace(b"Host: x", b"Host: [::1]:8443") + b"\r\n",
    "absolute form": LIVE.replace(b" /v2", b" https://x:8443/v2") + b"\r\n",
    "absolute form, plain": LIVE.replace(b" /v2", b" HTTP://other/v2") + b"\r\n",
}


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_read_in_two_ways_is_refused(name: str, size: int) -> None:
    reader = read(REFUSED[name], size)
    assert reader.fatal is not None
    assert (reader.fatal.status, reader.fatal.close) == (400, True)
    assert not reader.queue


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", ODD_VERSIONS)
def test_another_version_is_refused(name: str, size: int) -> None:
    reader = read(ODD_VERSIONS[name], size)
    assert reader.fatal is not None
    assert (reader.fatal.status, reader.fatal.close) == (505, True)


def bodies_by_h11(data: bytes) -> Iterator[bytes]:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    body = b""
    while (event := connection.next_event()) is not h11.NEED_DATA:
        if isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            yield body
            body = b""
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_is_what_h11_reads(name: str, size: int) -> None:
    # Another one behind it shows where the first one ends.
    data = ACCEPTED[name] + ACCEPTED["a length"]
    reader = read(data, size)
    assert reader.fatal is None
    assert [exchange.refusal for exchange in reader.queue] == [None, None]
    assert [bytes(exchange.content) for exchange in reader.queue] == list(bodies_by_h11(data))


@pytest.mark.parametrize(
    "endless",
    [
        b"1;" + b"a" * 40_000,
        b"0" * 40_000,
        b"0\r\nA: " + b"b" * 40_000,
        b"0\r\n" + b"A: b\r\n" * 9000,
    ],
    ids=["extension", "size", "trailer", "trailers"],
)
@pytest.mark.parametrize("size", [0, 1000])
def test_what_is_not_data_ends(endless: bytes, size: int) -> None:
    reader = read(CHUNKED + b"1\r\nx\r\n")
    for start in range(0, len(endless), size or 20_000):
        reader.feed(endless[start : start + (size or 20_000)], None)
    assert reader.fatal is not None
    assert (reader.fatal.status, reader.fatal.close) == (400, True)
    assert "trailers" in reader.fatal.message


def test_small_chunks_are_no_extensions() -> None:
    reader = read(CHUNKED)
    for _ in range(100):
        reader.feed(b"1\r\nx\r\n" * 1000, None)
    reader.feed(b"0\r\n\r\n", None)
    assert reader.fatal is None
    assert reader.queue[0].received == 100_000


def test_a_trailer_says_nothing_of_the_head() -> None:
    reader = read(
        CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer other\r\nHost: y\r\nExpect: tea\r\n\r\n"
    )
    (exchange,) = reader.queue
    assert exchange.refusal is None
    assert exchange.headers == {b"host": b"x", b"transfer-encoding": b"chunked"}


def test_what_reads_may_be_asked_for_without_the_body() -> None:
    methods = {route.name: route.methods for route in ROUTES}
    assert [methods.pop(name) for name in WITH_BODY] == [(b"POST",)] * len(WITH_BODY)
    assert methods.pop(JOB) == (b"GET", b"HEAD", b"DELETE")
    assert set(methods.values()) == {(b"GET", b"HEAD")}
