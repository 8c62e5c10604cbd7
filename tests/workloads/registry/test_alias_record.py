"""Records of aliases: one form, one signer, numbers that grow, and a time that ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.alias_list import MAX_HISTORY
from falaj.workloads.registry.alias_record import (
    MAX_DAYS,
    MAX_NUMBER,
    MAX_WHY,
    RECORD_PAYLOAD,
    AliasRecord,
    Before,
    new_record,
    read_record,
)
from falaj.workloads.registry.keyring import sign
from falaj.workloads.registry.oci_layout import (
    ALIAS_TYPE,
    described,
    read_alias_layer,
    read_image_manifest,
    write_alias_image,
    write_package_image,
)
from falaj.workloads.registry.package import PAYLOAD_TYPE, Package, canonical

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"1")
NOW = datetime(2026, 11, 23, 12, 0, 0, 999, UTC)
IMAGE = "sha256:" + "a" * 64


def made(
    before: Before | None = None, *, days: int = 30, history: tuple[int, ...] = (),
    share: int = 0,
) -> AliasRecord:  # fmt: skip
    return new_record(
        before or Before(), ("credit", "production", 7, IMAGE), history,
        signer=KEY.public_key(), days=days, now=NOW, share=share,
    )  # fmt: skip


def read(
    payload: bytes, key: Ed25519PrivateKey = KEY, signed_by: Ed25519PrivateKey = KEY
) -> AliasRecord:
    signature = sign(payload, RECORD_PAYLOAD, signed_by)
    return read_record(payload, signature, key.public_key(), "the record")


@given(
    seen=st.integers(0, MAX_NUMBER - 2), days=st.integers(1, MAX_DAYS),
    history=st.lists(st.integers(1, 999_999_999), max_size=2 * MAX_HISTORY),
)  # fmt: skip
def test_what_is_written_is_read_and_follows_all_that_was_seen(
    seen: int, days: int, history: list[int]
) -> None:
    first = made(Before(seen=seen), days=days, history=tuple(history))
    assert read(first.to_bytes()) == first
    assert first.number == seen + 1
    assert first.history == tuple(history[-MAX_HISTORY:])
    assert first.expires - first.issued == timedelta(days=days)
    second = made(Before(first, IMAGE, seen))
    assert (second.number, second.previous) == (seen + 2, IMAGE)


def test_a_record_keeps_its_reason_and_one_without_is_as_before() -> None:
    told = new_record(
        Before(), ("credit", "production", 7, IMAGE), (), signer=KEY.public_key(), days=30,
        now=NOW, why="0.02 % errors against 0.03 %",
    )  # fmt: skip
    assert read(told.to_bytes()).why == "0.02 % errors against 0.03 %"
    assert "why" not in made().to_json()
    for untold in ("", 7, "x" * (MAX_WHY + 1), "two\nlines"):
        with pytest.raises(IntegrityError):
            read(canonical({**made().to_json(), "why": untold}))
    for refused in ("x" * (MAX_WHY + 1), "two\nlines"):
        with pytest.raises(WorkloadError, match=f"one printable line of at most {MAX_WHY}"):
            new_record(
                Before(), ("credit", "production", 7, IMAGE), (), signer=KEY.public_key(),
                days=30, now=NOW, why=refused,
            )  # fmt: skip


def test_a_record_says_which_share_a_canary_has_earned_and_no_other() -> None:
    earned = made(share=20)
    assert read(earned.to_bytes()) == earned
    assert earned.to_json()["share"] == 20
    assert "share" not in made().to_json()
    for wrong in (0, -1, 50, 20.0, "20", True, None):
        with pytest.raises(IntegrityError):
            read(canonical({**made().to_json(), "share": wrong}))
    with pytest.raises(WorkloadError, match="share: given 50; allowed: 1 to 49"):
        made(share=50)


@pytest.mark.parametrize("days", [0, -1, MAX_DAYS + 1])
def test_a_record_is_valid_for_some_days(days: int) -> None:
    with pytest.raises(WorkloadError, match=f"given {days}; allowed: 1 to {MAX_DAYS}"):
        made(days=days)


def test_numbers_end_where_their_tags_do() -> None:
    with pytest.raises(WorkloadError, match="take another alias"):
        made(Before(seen=MAX_NUMBER))


def test_another_signer_or_another_kind_of_document_is_refused() -> None:
    payload = made().to_bytes()
    with pytest.raises(IntegrityError, match="not by the trusted"):
        read(payload, signed_by=OTHER)
    # Signed by the trusted key, but of somebody else's making: it says another signer inside.
    with pytest.raises(IntegrityError, match="isn't in the form"):
        read(payload, key=OTHER, signed_by=OTHER)
    # The signature of a package's manifest can't be shown for a record.
    with pytest.raises(IntegrityError, match="doesn't match"):
        read_record(payload, sign(payload, PAYLOAD_TYPE, KEY), KEY.public_key(), "the record")


def _with(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: {**document, **values}


LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no object": lambda document: [document],
    "nothing": lambda _: {},
    "a key more": _with(more=1),
    "a key less": lambda document: {k: v for k, v in document.items() if k != "expires"},
    "another format": _with(format="falaj.alias/2"),
    "a bad model": _with(model="../credit"),
    "a bad alias": _with(alias="Production"),
    "number zero": _with(number=0),
    "number true": _with(number=True),
    "number text": _with(number="1"),
    "number beyond": _with(number=MAX_NUMBER + 1),
    "a fraction": _with(number=1.0),
    "version zero": _with(version=0),
    "version true": _with(version=True),
    "version too long": _with(version=10**9),
    "a bad digest": _with(image="sha256:abc"),
    "no digest": _with(image=None),
    "a bad previous": _with(number=2, previous="sha256:abc"),
    "an empty previous": _with(number=2, previous=""),
    "a first one with one before": _with(previous=IMAGE),
    "history of text": _with(history=["1"]),
    "history of true": _with(history=[True]),
    "history of zero": _with(history=[0]),
    "a long history": _with(history=[1] * (MAX_HISTORY + 1)),
    "history null": _with(history=None),
    "a time without a zone": _with(issued="2026-11-23T12:00:00"),
    "no time": _with(issued="yesterday"),
    "expired before it began": _with(expires="2026-11-22T12:00:00+00:00"),
    "valid for ever": _with(expires="9999-12-31T00:00:00+00:00"),
    "another zone": _with(issued="2026-11-23T16:00:00+04:00"),
    "another signer": _with(signer="x"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_signed_record_in_another_form_is_refused(lie: str) -> None:
    document = LIES[lie](made().to_json())
    with pytest.raises(IntegrityError, match=r"malformed|isn't in the form"):
        read(canonical(document))


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xff", b"{", b"null", b"[" * 100_000,
        json.dumps(made().to_json(), indent=1).encode(),
        made().to_bytes()[:-1] + b',"number":1}',
    ],
    ids=["empty", "no text", "cut", "null", "deep", "spaced", "a key twice"],
)  # fmt: skip
def test_bytes_that_are_not_the_one_form_are_refused(payload: bytes) -> None:
    with pytest.raises(IntegrityError):
        read(payload)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
))  # fmt: skip
def test_no_value_breaks_the_reader(value: Any) -> None:
    document = made().to_json()
    for name in document:
        try:
            payload = canonical({**document, name: value})
        except WorkloadError:
            continue
        try:
            found = read(payload)
        except IntegrityError:
            continue
        assert found.to_bytes() == payload


def test_a_record_travels_as_an_image(package: Package, tmp_path: Path) -> None:
    sealed = write_package_image(package.path, tmp_path / "package")
    record = replace(made(), version=sealed.version, image=sealed.itself.digest)
    signature = record.signed(KEY)
    issued = str(record.to_json()["issued"])
    images = [
        write_alias_image(record.to_bytes(), signature, sealed, issued, tmp_path / name)
        for name in ("one", "other")
    ]
    assert images[0] == images[1], "the same record is the same image"
    image = read_image_manifest(tmp_path / "one", ALIAS_TYPE)
    assert (image.subject, image.version, image.created) == (None, sealed.version, issued)
    (layer,) = image.layers
    data = (tmp_path / "one" / "blobs" / "sha256" / layer.digest[7:]).read_bytes()
    payload, found = read_alias_layer(data, image)
    assert read_record(payload, found, KEY.public_key(), "the record") == record
    # No byte of it is free to hold something else.
    for place in range(0, len(data), 97):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(IntegrityError):
            read_alias_layer(changed, image)
        other = replace(image, layers=(described(changed),))
        try:
            pieces = read_alias_layer(changed, other)
            read_record(*pieces, KEY.public_key(), "the record")
        except IntegrityError:
            continue
        pytest.fail(f"byte {place} was changed, and nobody said so")
