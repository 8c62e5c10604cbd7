"""What texts hold in base64 and gzip, at any depth, within bounds."""

from __future__ import annotations

import base64
import gzip

from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.reading.encoded import plain_of, texts_in

SECRET = "aws s3 cp /data s3://x --region eu-west-1"


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def test_every_layer_is_read() -> None:
    once = encoded(SECRET.encode())
    assert texts_in(once) == (SECRET,)
    assert SECRET in texts_in(encoded(once.encode()))
    assert SECRET in texts_in(encoded(gzip.compress(SECRET.encode())))
    assert SECRET in texts_in(f"#!/bin/sh\necho '{once}' | base64 -d | sh\n")
    assert SECRET in texts_in(base64.encodebytes(SECRET.encode() * 3).decode())[0]
    assert texts_in(base64.urlsafe_b64encode(b"a?b>c?d>e?f>g?h>")[:-2].decode())


def test_what_is_no_text_is_none() -> None:
    assert texts_in("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08") == ()
    assert texts_in("arn:aws:kms:me-central-1:111122223333:key/0c55ad01-5a3b-f4f1-b2b0") == ()
    assert texts_in(encoded(bytes(range(256)))) == ()
    assert plain_of("no base64 at all") == ""


def test_a_packed_text_is_read_to_a_bound() -> None:
    bomb = encoded(gzip.compress(b"a" * 50_000_000))
    assert all(len(each) <= 1_000_000 for each in texts_in(bomb))


@given(st.text(max_size=300))
def test_no_text_fails(value: str) -> None:
    texts_in(value)
    assert plain_of(encoded(value.encode())) in {value, ""}
