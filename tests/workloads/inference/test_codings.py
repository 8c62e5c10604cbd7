"""Bodies with a content coding: what comes out, what is refused, and what it takes of memory.

The standard library's `gzip` and `zlib` say what a body stands for.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference.connections.codings import MOST_FOR_ONE, PIECE_BYTES, STRETCH_BYTES
from falaj.workloads.inference.connections.http import Bodies, Exchange, Reader
from falaj.workloads.inference.protocol import routes
from tests.workloads.inference.raw_http import Raw, error, head, request
from tests.workloads.inference.serving import row

LIMIT = 100_000
INFER = next(route for route in routes.ROUTES if route.name == routes.INFER)
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "x-gzip": gzip.compress, "GZIP": gzip.compress,
    "deflate": zlib.compress,
}  # fmt: skip


def start(coding: str, length: int | None) -> bytes:
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return (
        b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: %b\r\n%b\r\n\r\n"
        % (coding.encode(), framing)
    )


def read(
    coding: str, body: bytes, *, size: int = 0, limit: int = LIMIT, bodies: Bodies | None = None
) -> Reader:
    """Read a request with this body, all at once or in pieces of some size."""

    def admit(exchange: Exchange) -> None:
        exchange.route = INFER

    reader = Reader(limit, bodies or Bodies(4 * limit), admit, lambda *_: None)
    data = start(coding, len(body)) + body
    for begin in range(0, len(data), size or len(data)):
        reader.feed(data[begin : begin + (size or len(data))], None)
    return reader


def refusal(reader: Reader) -> tuple[int, str]:
    """The refusal of the one request that was read, by which nothing is held any more."""
    found = reader.fatal
    if found is None:
        (exchange,) = reader.queue
        found = exchange.refusal
        assert exchange.held == 0
    assert found is not None
    return found.status, found.message


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize("coding", PACK)
def test_what_was_packed_is_read(coding: str, size: int) -> None:
    body = b"".join(b"%d " % n for n in range(1000))
    bodies = Bodies(LIMIT)
    reader = read(coding, PACK[coding](body), size=size, bodies=bodies)
    (exchange,) = reader.queue
    assert (exchange.refusal, bytes(exchange.content)) == (None, body)
    assert exchange.received == len(PACK[coding](body))
    assert bodies.held == exchange.held == len(body)
    bodies.release(exchange)
    assert bodies.held == 0


def test_identity_is_no_coding() -> None:
    (exchange,) = read("Identity", b"abc").queue
    assert (exchange.refusal, bytes(exchange.content)) == (None, b"abc")


PACKED = gzip.compress(b"0123456789" * 100)
WRONG = {
    "nothing": b"",
    "no gzip": b"0123456789",
    "zlib's form": zlib.compress(b"0123456789"),
    "its head alone": PACKED[:10],
    "cut in the data": PACKED[:25],
    "cut in the sum": PACKED[:-5],
    "cut by a byte": PACKED[:-1],
    "another sum": PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:],
    "another length": PACKED[:-4] + b"\xff\xff\xff\xff",
    "another method": PACKED[:2] + b"\x07" + PACKED[3:],
    "a byte behind it": PACKED + b"\0",
    "many bytes behind it": PACKED + b"x" * 5000,
    "two members": PACKED * 2,
    "an empty member behind it": PACKED + gzip.compress(b""),
    "packed twice, once unpacked": b"\x1f\x8b" + PACKED,
}


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_one_whole_member_is_refused(name: str, size: int) -> None:
    bodies = Bodies(LIMIT)
    status, message = refusal(read("gzip", WRONG[name], size=size, bodies=bodies))
    assert (status, "gzip" in message) == (400, True)
    assert bodies.held == 0


def test_the_bare_form_of_deflate_is_refused() -> None:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    bare = packer.compress(b"0123456789" * 100) + packer.flush()
    assert refusal(read("deflate", bare))[0] == 400
    dictionary = zlib.compressobj(zdict=b"0123456789")
    asked = dictionary.compress(b"0123456789" * 100) + dictionary.flush()
    assert refusal(read("deflate", asked))[0] == 400


@pytest.mark.parametrize(
    "coding",
    [
        "br",
        "zstd",
        "compress",
        "gzip, gzip",
        "gzip,",
        "identity, gzip",
        "",
        "*",
        "gzip;q=1",
        "x" * 999,
    ],
)
def test_other_codings_are_refused_with_those_that_are_known(coding: str) -> None:
    reader = read(coding, PACKED)
    (exchange,) = reader.queue
    assert exchange.refusal is not None
    assert exchange.refusal.status == 415
    assert exchange.refusal.headers == (b"Accept-Encoding: gzip, deflate",)
    assert "gzip" in exchange.refusal.message
    assert len(exchange.refusal.message) < 300
    assert exchange.content == b""


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_the_limit_of_a_body_is_that_of_what_it_stands_for(coding: str, more: int) -> None:
    reader = read(coding, PACK[coding](b"x" * (LIMIT + more)))
    if not more:
        assert len(reader.queue[0].content) == LIMIT
        return
    status, message = refusal(reader)
    assert (status, str(LIMIT) in message, "inflates" in message) == (413, True, True)
    assert reader.fatal is not None
    assert reader.fatal.close


def test_what_is_held_of_all_bodies_is_what_they_stand_for() -> None:
    bodies = Bodies(LIMIT // 2)
    status, message = refusal(read("gzip", gzip.compress(b"x" * LIMIT), bodies=bodies))
    assert (status, "try again" in message, bodies.held) == (503, True, 0)


@pytest.mark.parametrize("size", [0, 4096])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_takes_the_limit_and_a_constant(coding: str, size: int) -> None:
    limit = 4 * 1024 * 1024
    bomb = PACK[coding](bytes(32 * limit))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        status, _ = refusal(read(coding, bomb, size=size, limit=limit))
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert status == 413
    # An eighth is what a bytearray keeps for growing.
    assert peak < limit * 9 // 8 + 2 * len(bomb) + 4 * PIECE_BYTES


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_nothing_of_a_coded_body_is_kept_once_it_is_answered(coding: str) -> None:
    packed, bodies = PACK[coding](b"0123456789" * 5000), Bodies(LIMIT)
    kept: list[Reader] = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            reader = read(coding, packed, bodies=bodies)
            bodies.release(reader.queue.popleft())
            kept.append(reader)
        assert tracemalloc.get_traced_memory()[0] - before < 20 * 16 * 1024
    finally:
        tracemalloc.stop()


EMPTY_BLOCK = b"\0\0\0\xff\xff"
"""RFC 1951, 3.2.4: stored, of length 0, and not the last one."""


@pytest.mark.parametrize("size", [0, 1, 1448])
@pytest.mark.parametrize("begin", [b"", b"0123456789" * 500])
def test_a_body_that_goes_on_and_stands_for_nothing_is_refused(begin: bytes, size: int) -> None:
    packer = zlib.compressobj()
    packed = packer.compress(begin) + packer.flush(zlib.Z_SYNC_FLUSH)
    empty = EMPTY_BLOCK * (3 * STRETCH_BYTES // len(EMPTY_BLOCK))
    bodies = Bodies(8 * LIMIT)
    reader = read("deflate", packed + empty, size=size, limit=8 * LIMIT, bodies=bodies)
    status, message = refusal(reader)
    assert (status, bodies.held) == (400, 0)
    assert f"more than {MOST_FOR_ONE} for each" in message
    assert reader.fatal is not None
    assert reader.fatal.close


@pytest.mark.parametrize("size", [0, 1448])
def test_what_is_flushed_after_each_byte_is_read(size: int) -> None:
    """As a program does that hands on what it has at once: seven bytes for each."""
    packer = zlib.compressobj()
    body = b"0123456789" * 4000
    packed = b"".join(
        packer.compress(body[place : place + 1]) + packer.flush(zlib.Z_SYNC_FLUSH)
        for place in range(len(body))
    )
    assert len(packed) > 4 * STRETCH_BYTES
    reader = read("deflate", packed + packer.flush(), size=size, limit=8 * LIMIT)
    (exchange,) = reader.queue
    assert (exchange.refusal, bytes(exchange.content)) == (None, body)


@given(
    st.sampled_from(sorted(PACK)),
    st.binary(max_size=500) | st.integers(0, 2 * LIMIT).map(bytes),
    st.integers(0, 300),
)
def test_any_body_comes_out_as_it_was_or_is_too_large(coding: str, body: bytes, size: int) -> None:
    reader = read(coding, PACK[coding](body), size=size)
    if len(body) > LIMIT:
        assert refusal(reader)[0] == 413
    else:
        assert bytes(reader.queue[0].content) == body


@given(
    st.sampled_from(["gzip", "deflate"]),
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=4),
    st.integers(0, 50),
)
def test_damaged_bodies_are_refused_or_are_what_zlib_reads(
    coding: str, body: bytes, changes: list[tuple[int, bytes]], size: int
) -> None:
    data = PACK[coding](body)
    for place, new in changes:
        data = data[:place] + new + data[place + 1 :]
    judge = zlib.decompressobj(16 + zlib.MAX_WBITS if coding == "gzip" else zlib.MAX_WBITS)
    try:
        expected = judge.decompress(data)
    except zlib.error:
        expected = None
    if not judge.eof or judge.unused_data:
        expected = None
    bodies = Bodies(4 * LIMIT)
    reader = read(coding, data, size=size, bodies=bodies)
    if expected is None:
        assert refusal(reader)[0] in (400, 413)
        assert bodies.held == 0
    else:
        assert bytes(reader.queue[0].content) == expected


@given(st.sampled_from(["gzip", "deflate"]), st.binary(max_size=2000), st.integers(0, 100))
def test_noise_is_refused(coding: str, noise: bytes, size: int) -> None:
    assert refusal(read(coding, b"\0" + noise, size=size))[0] == 400


# -- the server ------------------------------------------------------------------------------


def coded(token: str, body: bytes, *lines: bytes, coding: bytes = b"gzip") -> bytes:
    return head(token, len(body), b"Content-Encoding: " + coding, *lines) + body


def test_coded_and_plain_requests_share_a_connection(raw: Raw, token: str) -> None:
    plain = request(token, id="plain")
    for _ in range(3):
        raw.send(coded(token, gzip.compress(json.dumps(row(id="coded")).encode(), mtime=0)))
        assert json.loads(raw.answer()[2])["id"] == "coded"
        raw.send(plain)
        assert json.loads(raw.answer()[2])["id"] == "plain"


def test_a_coded_head_is_never_taken_for_a_plain_one(raw: Raw, token: str) -> None:
    """With the same head and so the same length, once a coded body and once a plain one."""
    body = json.dumps(row(id="a")).encode()
    packed = zlib.compress(body)
    raw.send(coded(token, packed, coding=b"deflate"))
    assert raw.answer()[0] == 200
    raw.send(head(token, len(packed), b"Content-Encoding: deflate") + b" " * len(packed))
    answer = raw.answer()
    assert (answer[0], "well-formed" in error(answer)) == (400, True)


def test_coded_chunks(raw: Raw, token: str) -> None:
    packed = gzip.compress(json.dumps(row(id="chunks")).encode())
    begin = head(token, 0, b"Transfer-Encoding: chunked", b"Content-Encoding: gzip")
    raw.send(begin.replace(b"Content-Length: 0\r\n", b""))
    for place in range(0, len(packed), 9):
        piece = packed[place : place + 9]
        raw.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    raw.send(b"0\r\n\r\n")
    assert json.loads(raw.answer()[2])["id"] == "chunks"


def test_a_bomb_is_refused_and_the_server_goes_on(raw: Raw, token: str) -> None:
    raw.send(coded(token, gzip.compress(bytes(64 * 1024 * 1024))))
    answer = raw.answer()
    assert (answer[0], "inflates" in error(answer)) == (413, True)
    assert answer[1][b"Connection"] == b"close"
    assert raw.ended()


def test_a_body_that_is_cut_short_keeps_the_connection(raw: Raw, token: str) -> None:
    raw.send(coded(token, PACKED[:-1]) + request(token, id="next"))
    assert "ends before" in error(raw.answer())
    assert json.loads(raw.answer()[2])["id"] == "next"


def test_an_unknown_coding_keeps_the_connection(raw: Raw, token: str) -> None:
    raw.send(coded(token, b"abc", coding=b"br") + request(token, id="next"))
    status, headers, _ = raw.answer()
    assert (status, headers[b"Accept-Encoding"]) == (415, b"gzip, deflate")
    assert json.loads(raw.answer()[2])["id"] == "next"


@pytest.mark.parametrize(
    ("first", "second"), [(b"gzip", b"gzip"), (b"gzip", b"identity"), (b"br", b""), (b"", b"gzip")]
)
def test_lines_of_codings_are_one_list(raw: Raw, token: str, first: bytes, second: bytes) -> None:
    """RFC 9110, 5.3 and 8.4: as one line with both of them, which is answered so."""
    more = b"Content-Encoding: " + second
    raw.send(coded(token, PACKED, more, coding=first) + request(token, id="next"))
    status, headers, body = raw.answer()
    assert (status, headers[b"Accept-Encoding"]) == (415, b"gzip, deflate")
    assert f"'{(first + b', ' + second).decode()}'" in json.loads(body)["error"]
    assert json.loads(raw.answer()[2])["id"] == "next"


def test_a_stranger_is_refused_before_anything_is_inflated(raw: Raw) -> None:
    raw.send(coded("wrong", PACKED))
    assert raw.answer()[0] == 401
