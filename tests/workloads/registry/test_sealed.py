from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import (
    artifact_path,
    read_artifact,
    rewrap,
    seal,
    sealing,
    unseal,
    unsealed_chunks,
    write_artifact,
)
from tests.examples import examples

CONTEXT = b"run:1:model"


def front_length(data: bytes) -> int:
    return 12 + int.from_bytes(data[8:12], "big")


def test_every_flipped_byte_is_refused(keyring: KeyRing, tmp_path: Path) -> None:
    path = tmp_path / "model.sealed"
    seal(path, bytes(range(48)), keyring, CONTEXT, chunk_bytes=16)
    good = path.read_bytes()
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(WorkloadError):
            unseal(path, keyring, CONTEXT)
    path.write_bytes(good)
    assert unseal(path, keyring, CONTEXT) == bytes(range(48))


def test_every_truncation_is_refused(keyring: KeyRing, tmp_path: Path) -> None:
    path = tmp_path / "model.sealed"
    seal(path, bytes(40), keyring, CONTEXT, chunk_bytes=16)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(IntegrityError):
            unseal(path, keyring, CONTEXT)


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_bytes_are_refused(keyring: KeyRing, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.sealed"
    path.write_bytes(data)
    with pytest.raises(IntegrityError):
        unseal(path, keyring, CONTEXT)
    path.write_bytes(b"FALAJSL1" + data)
    with pytest.raises(IntegrityError):
        rewrap(path, keyring)


def test_wrapped_key_and_stream_of_two_files_do_not_mix(keyring: KeyRing, tmp_path: Path) -> None:
    first, second = tmp_path / "a.sealed", tmp_path / "b.sealed"
    seal(first, b"first", keyring, CONTEXT)
    seal(second, b"second", keyring, CONTEXT)
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(a[: front_length(a)] + b[front_length(b) :])
    with pytest.raises(IntegrityError, match="wrapped data key"):
        unseal(first, keyring, CONTEXT)


def test_file_in_another_role_is_refused(keyring: KeyRing, tmp_path: Path) -> None:
    path = tmp_path / "model.sealed"
    seal(path, b"data", keyring, CONTEXT)
    with pytest.raises(IntegrityError, match="swapped"):
        unseal(path, keyring, b"run:2:model")


def test_another_ring_and_a_retired_key_are_refused(
    keyring: KeyRing, other_keyring: KeyRing, tmp_path: Path
) -> None:
    path = tmp_path / "model.sealed"
    seal(path, b"data", keyring, CONTEXT)
    with pytest.raises(IntegrityError):
        unseal(path, other_keyring, CONTEXT)
    keyring.rotate()
    keyring.retire("1")
    with pytest.raises(WorkloadError, match="retired"):
        unseal(path, keyring, CONTEXT)


def test_missing_file_is_an_error(keyring: KeyRing, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="is missing"):
        unseal(tmp_path / "x.sealed", keyring, CONTEXT)
    with pytest.raises(WorkloadError, match="is missing"):
        read_artifact(tmp_path / "x", None, CONTEXT)


def test_plaintext_is_refused_where_a_ring_is_given(keyring: KeyRing, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"planted")
    with pytest.raises(IntegrityError, match="is plaintext"):
        read_artifact(tmp_path / "model", keyring, CONTEXT)


def test_sealed_artifact_without_a_ring_is_an_error(keyring: KeyRing, tmp_path: Path) -> None:
    write_artifact(tmp_path / "model", b"data", keyring, CONTEXT)
    with pytest.raises(WorkloadError, match="give the key ring"):
        read_artifact(tmp_path / "model", None, CONTEXT)


def test_sealing_leaves_no_plaintext(keyring: KeyRing, tmp_path: Path) -> None:
    write_artifact(tmp_path / "model", b"secret", None, CONTEXT)
    target = write_artifact(tmp_path / "model", b"secret", keyring, CONTEXT)
    assert target == artifact_path(tmp_path / "model", keyring) == tmp_path / "model.sealed"
    assert not (tmp_path / "model").exists()
    assert b"secret" not in target.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600


def test_plain_artifact_replaces_a_sealed_one(keyring: KeyRing, tmp_path: Path) -> None:
    write_artifact(tmp_path / "model", b"old", keyring, CONTEXT)
    write_artifact(tmp_path / "model", b"new", None, CONTEXT)
    assert not (tmp_path / "model.sealed").exists()
    assert read_artifact(tmp_path / "model", None, CONTEXT) == b"new"


@given(data=st.binary(max_size=100), chunk=st.integers(1, 40))
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(50),
)
def test_round_trip(keyring: KeyRing, tmp_path: Path, data: bytes, chunk: int) -> None:
    path = tmp_path / "data.sealed"
    seal(path, data, keyring, CONTEXT, chunk_bytes=chunk)
    assert unseal(path, keyring, CONTEXT) == data


def test_rewrap_changes_the_wrapped_key_only(keyring: KeyRing, tmp_path: Path) -> None:
    path = tmp_path / "model.sealed"
    seal(path, b"data", keyring, CONTEXT)
    before = path.read_bytes()
    assert not rewrap(path, keyring)
    assert path.read_bytes() == before
    keyring.rotate()
    assert rewrap(path, keyring)
    after = path.read_bytes()
    assert after[front_length(after) :] == before[front_length(before) :]
    keyring.retire("1")
    assert unseal(path, keyring, CONTEXT) == b"data"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(pieces=st.lists(st.binary(max_size=40), max_size=6), cut=st.integers(1, 200))
def test_pieces_are_sealed_as_the_whole_is(
    pieces: list[bytes], cut: int, keyring: KeyRing, tmp_path: Path
) -> None:
    path = tmp_path / "rows.sealed"
    with sealing(path, keyring, CONTEXT, chunk_bytes=16) as stream:
        for piece in pieces:
            assert stream.write(piece) == len(piece)
    whole = b"".join(pieces)
    assert unseal(path, keyring, CONTEXT) == whole
    found = list(unsealed_chunks(path, keyring, CONTEXT))
    assert b"".join(found) == whole
    assert all(len(each) == 16 for each in found[:-1])
    seal(path, whole, keyring, CONTEXT, chunk_bytes=16)
    assert b"".join(unsealed_chunks(path, keyring, CONTEXT)) == whole
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(IntegrityError):
        list(unsealed_chunks(path, keyring, CONTEXT))


def test_pieces_of_changed_files_are_not_given_out(keyring: KeyRing, tmp_path: Path) -> None:
    path = tmp_path / "rows.sealed"
    with sealing(path, keyring, CONTEXT, chunk_bytes=16) as stream:
        stream.write(bytes(range(48)))
    good = path.read_bytes()
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(WorkloadError):
            list(unsealed_chunks(path, keyring, CONTEXT))
    path.write_bytes(good + good[-32:])
    with pytest.raises(IntegrityError):
        list(unsealed_chunks(path, keyring, CONTEXT))
    with pytest.raises(IntegrityError):
        list(unsealed_chunks(path, keyring, b"another"))
    with pytest.raises(WorkloadError, match="is missing"):
        list(unsealed_chunks(tmp_path / "none.sealed", keyring, CONTEXT))


def test_a_block_that_fails_leaves_the_older_file(keyring: KeyRing, tmp_path: Path) -> None:
    path = tmp_path / "rows.sealed"
    seal(path, b"older", keyring, CONTEXT)

    def fail() -> None:
        with sealing(path, keyring, CONTEXT) as stream:
            stream.write(b"newer")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert unseal(path, keyring, CONTEXT) == b"older"
    assert [each.name for each in tmp_path.glob("*rows*")] == ["rows.sealed"]
    assert not list(tmp_path.glob(".tmp-*"))
