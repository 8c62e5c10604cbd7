"""STREAM: what was sealed comes back, and nothing else is ever taken for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.sealed import (
    HEADER_BYTES,
    MAX_CHUNK_BYTES,
    TAG_BYTES,
    StreamHeader,
    decrypt,
    encrypt,
    new_data_key,
)

CHUNK = 16
STEP = CHUNK + TAG_BYTES
KEY = bytes(range(32))
CONTEXT = b"dataset:1:data"


def sealed(data: bytes, chunk: int = CHUNK) -> bytes:
    return bytes(encrypt(data, KEY, StreamHeader.new(chunk), CONTEXT))


def opened(stream: bytes, key: bytes = KEY, context: bytes = CONTEXT) -> bytes:
    return decrypt(stream, key, context, "the data")


def parts(stream: bytes) -> tuple[bytes, list[bytes]]:
    body = stream[HEADER_BYTES:]
    return stream[:HEADER_BYTES], [body[i : i + STEP] for i in range(0, len(body), STEP)]


def joined(header: bytes, chunks: list[bytes]) -> bytes:
    return header + b"".join(chunks)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_every_flipped_bit_is_refused(size: int) -> None:
    stream = sealed(bytes(size))
    for position in range(len(stream)):
        for bit in (1, 128):
            changed = bytearray(stream)
            changed[position] ^= bit
            with pytest.raises(IntegrityError):
                opened(bytes(changed))


@pytest.mark.parametrize("size", [0, 1, CHUNK, 3 * CHUNK, 3 * CHUNK + 5])
def test_every_truncation_is_refused(size: int) -> None:
    stream = sealed(bytes(size))
    for length in range(len(stream)):
        with pytest.raises(IntegrityError):
            opened(stream[:length])


@pytest.mark.parametrize("tail", [b"\0", bytes(TAG_BYTES), bytes(STEP)])
def test_additions_are_refused(tail: bytes) -> None:
    with pytest.raises(IntegrityError):
        opened(sealed(bytes(3 * CHUNK)) + tail)


def test_reordered_dropped_and_repeated_chunks_are_refused() -> None:
    header, chunks = parts(sealed(bytes(range(4 * CHUNK))))
    assert len(chunks) == 4
    for first in range(4):
        without = chunks[:first] + chunks[first + 1 :]
        twice = chunks[: first + 1] + chunks[first:]
        for changed in (without, twice):
            with pytest.raises(IntegrityError, match="isn't what was written"):
                opened(joined(header, changed))
        for second in range(first):
            swapped = list(chunks)
            swapped[first], swapped[second] = chunks[second], chunks[first]
            with pytest.raises(IntegrityError, match="isn't what was written"):
                opened(joined(header, swapped))


def test_chunks_of_another_stream_with_the_same_key_are_refused() -> None:
    header, chunks = parts(sealed(bytes(3 * CHUNK)))
    other_header, others = parts(sealed(bytes(3 * CHUNK)))
    for index in range(3):
        mixed = [*chunks[:index], others[index], *chunks[index + 1 :]]
        with pytest.raises(IntegrityError):
            opened(joined(header, mixed))
    with pytest.raises(IntegrityError):
        opened(joined(other_header, chunks))


def test_another_key_or_context_is_refused() -> None:
    stream = sealed(b"data")
    with pytest.raises(IntegrityError):
        opened(stream, key=bytes(32))
    for context in (b"", b"dataset:2:data", CONTEXT + b"\0"):
        with pytest.raises(IntegrityError):
            opened(stream, context=context)


@pytest.mark.parametrize("chunk", [0, MAX_CHUNK_BYTES + 1, 2**32 - 1])
def test_impossible_chunk_sizes_are_refused(chunk: int) -> None:
    with pytest.raises(WorkloadError, match="allowed: 1 to"):
        StreamHeader.new(chunk)
    stream = bytearray(sealed(b"data"))
    stream[HEADER_BYTES - 4 : HEADER_BYTES] = chunk.to_bytes(4, "big")
    with pytest.raises(IntegrityError, match="allowed"):
        opened(bytes(stream))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        opened(data)


@given(data=st.binary(max_size=5 * CHUNK + 3), chunk=st.integers(1, 2 * CHUNK))
def test_round_trip(data: bytes, chunk: int) -> None:
    assert opened(sealed(data, chunk)) == data


@given(
    st.integers(0, 4).flatmap(
        lambda n: st.integers(max(0, n * CHUNK - 2), n * CHUNK + 2).map(lambda s: bytes([n]) * s)
    )
)
def test_round_trip_around_chunk_edges(data: bytes) -> None:
    stream = sealed(data)
    assert len(stream) == HEADER_BYTES + len(data) + TAG_BYTES * max(1, -(-len(data) // CHUNK))
    assert opened(stream) == data


def test_default_chunks_are_one_mebibyte() -> None:
    data = bytes((1 << 20) + 1)
    stream = bytes(encrypt(data, KEY, StreamHeader.new(), CONTEXT))
    assert len(stream) == HEADER_BYTES + len(data) + 2 * TAG_BYTES
    assert opened(stream) == data


def test_nothing_repeats_between_streams() -> None:
    assert sealed(b"data") != sealed(b"data")
    assert new_data_key() != new_data_key()
    assert len(new_data_key()) == 32
