"""What crosses between server and workers: codings, what they leave out, hostile bytes."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falaj.workloads.bounds import CHOICES
from falaj.workloads.federation.updates import MessageError
from falaj.workloads.parameter_server import frames
from falaj.workloads.parameter_server.frames import Coding, Feedback, Layout, NotFiniteError

MODULE = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
LAYOUT = Layout.of(MODULE)
HEAD: dict[str, Any] = {
    "base": 4, "life": "a" * 32, "id": "b" * 32, "batches": 1, "rows": 32, "loss": 0.5,
}  # fmt: skip
KINDS = CHOICES["parameter_server"]["compression"].words
CODINGS = [Coding(kind, 0.2) for kind in KINDS]
FRONT = struct.Struct(">8sI32s")


def numbers(seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {e.name: scale * torch.randn(e.shape, generator=random) for e in LAYOUT.entries}


def framed(header: bytes, payload: bytes) -> bytes:
    digest = hashlib.sha256(header + payload).digest()
    return FRONT.pack(b"FALAJPS1", len(header), digest) + header + payload


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    _, length, _ = FRONT.unpack_from(data)
    rest = data[FRONT.size :]
    return json.loads(rest[:length]), rest[length:]


def test_counts_of_batches_do_not_travel_and_what_is_counted_is_known() -> None:
    names = {entry.name: entry.learned for entry in LAYOUT.entries}
    assert names["1.running_mean"] is False
    assert names["0.weight"] is True
    assert "1.num_batches_tracked" not in names


def test_plain_numbers_come_back_as_they_were() -> None:
    update = numbers(1)
    data = frames.encode(frames.UPDATE, HEAD, update, LAYOUT, CODINGS[0])
    fields, found = frames.decode(data, frames.UPDATE, LAYOUT, CODINGS[0])
    assert fields == HEAD
    assert all(torch.equal(found[name], each) for name, each in update.items())


@pytest.mark.parametrize("coding", CODINGS[1:], ids=lambda each: each.kind)
def test_each_coding_is_shorter_and_near(coding: Coding) -> None:
    update = numbers(1)
    plain = frames.encode(frames.UPDATE, HEAD, update, LAYOUT, CODINGS[0])
    data = frames.encode(frames.UPDATE, HEAD, update, LAYOUT, coding)
    assert len(data) < len(plain)
    _, found = frames.decode(data, frames.UPDATE, LAYOUT, coding)
    for entry in LAYOUT.entries:
        if not entry.learned:
            assert torch.equal(found[entry.name], update[entry.name])
        elif coding.kind == "top":
            there = found[entry.name] != 0
            assert int(there.sum()) == coding.chosen(entry)
            assert float(update[entry.name][there].abs().min()) >= float(
                update[entry.name][~there].abs().max()
            )
        else:
            assert torch.allclose(found[entry.name], update[entry.name], rtol=1e-2, atol=1e-3)


@given(st.sampled_from(CODINGS), st.integers(0, 2**31), st.floats(1e-6, 1e6))
def test_what_was_sent_and_what_is_kept_are_all_there_was(
    coding: Coding, seed: int, scale: float
) -> None:
    """Error feedback loses nothing: the sum of what arrives nears the sum of what was computed."""
    feedback = Feedback(LAYOUT, coding)
    computed = {e.name: torch.zeros(e.shape, dtype=torch.float64) for e in LAYOUT.entries}
    arrived = {e.name: torch.zeros(e.shape, dtype=torch.float64) for e in LAYOUT.entries}
    for turn in range(4):
        update = numbers(seed + turn, scale)
        data = feedback.encode(HEAD, update)
        _, found = frames.decode(data, frames.UPDATE, LAYOUT, coding)
        feedback.taken()
        for name, each in update.items():
            computed[name] += each
            arrived[name] += found[name]
    for entry in LAYOUT.entries:
        whole = arrived[entry.name] + feedback.kept.get(entry.name, torch.zeros(entry.shape))
        assert torch.allclose(whole, computed[entry.name], rtol=1e-4, atol=scale * 1e-4)


def test_an_update_that_was_not_taken_leaves_what_is_kept_alone() -> None:
    feedback = Feedback(LAYOUT, Coding("top", 0.1))
    feedback.encode(HEAD, numbers(1))
    assert feedback.kept == {}
    feedback.taken()
    before = dict(feedback.kept)
    feedback.encode(HEAD, numbers(2))
    assert all(torch.equal(before[name], each) for name, each in feedback.kept.items())
    feedback.forget()
    assert feedback.kept == {}


@given(st.binary(max_size=600))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        frames.decode(data, frames.UPDATE, LAYOUT, CODINGS[0])


@given(st.sampled_from(CODINGS), st.data())
def test_a_changed_byte_a_cut_and_an_addition_are_refused(coding: Coding, draw: Any) -> None:
    data = frames.encode(frames.UPDATE, HEAD, numbers(3), LAYOUT, coding)
    at = draw.draw(st.integers(0, len(data) - 1))
    other = draw.draw(st.integers(1, 255))
    changed = data[:at] + bytes([data[at] ^ other]) + data[at + 1 :]
    for bad in (changed, data[:at], data + bytes([other])):
        with pytest.raises(MessageError):
            frames.decode(bad, frames.UPDATE, LAYOUT, coding)


@given(st.sampled_from(CODINGS), st.binary(max_size=400), st.binary(max_size=400))
def test_bytes_with_a_right_digest_are_no_update_either(
    coding: Coding, header: bytes, payload: bytes
) -> None:
    with pytest.raises(MessageError):
        frames.decode(framed(header, payload), frames.UPDATE, LAYOUT, coding)


@given(
    st.sampled_from([*HEAD, "kind", "layout"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_a_field_is_what_it_has_to_be_or_is_refused(name: str, value: object) -> None:
    header, payload = parts(frames.encode(frames.UPDATE, HEAD, numbers(4), LAYOUT, CODINGS[0]))
    header[name] = value
    try:
        fields, _ = frames.decode(
            framed(json.dumps(header).encode(), payload), frames.UPDATE, LAYOUT, CODINGS[0]
        )
    except MessageError:
        return
    assert all(fields[each] >= 0 for each in ("base", "batches", "rows"))
    assert fields["loss"] is None or math.isfinite(fields["loss"])


HOSTILE_HEADERS = {
    "twice": b'{"kind": "update", "kind": "update"}',
    "deep": b"[" * 900,
    "not a number": json.dumps({**HEAD, "loss": float("nan")}).encode(),
    "more fields": json.dumps({**HEAD, "kind": "update", "layout": "", "code": "x"}).encode(),
    "no text": b"\xff\xfe\x00",
    "a long number": b'{"base": ' + b"9" * 900 + b"}",
}


@pytest.mark.parametrize("header", HOSTILE_HEADERS.values(), ids=HOSTILE_HEADERS)
def test_hostile_headers_are_refused(header: bytes) -> None:
    with pytest.raises(MessageError):
        frames.decode(framed(header, b""), frames.UPDATE, LAYOUT, CODINGS[0])


def _replaced(places: list[int]) -> bytes:
    coding = Coding("top", 0.1)
    header, payload = parts(frames.encode(frames.UPDATE, HEAD, numbers(5), LAYOUT, coding))
    assert coding.chosen(LAYOUT.entries[0]) == len(places)
    wrong = struct.pack(f"<{len(places)}I", *places) + payload[4 * len(places) :]
    return framed(json.dumps(header).encode(), wrong)


@pytest.mark.parametrize(
    "places", [[3, 2, 1, 0], [1, 1, 2, 3], [0, 1, 2, 35], [0, 1, 2, 2**32 - 1]]
)
def test_places_that_can_not_be_are_refused(places: list[int]) -> None:
    with pytest.raises(MessageError, match="at places that can't be"):
        frames.decode(_replaced(places), frames.UPDATE, LAYOUT, Coding("top", 0.1))


@pytest.mark.parametrize("coding", CODINGS, ids=lambda each: each.kind)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_refused_with_its_tensor(coding: Coding, value: float) -> None:
    update = numbers(6)
    update["2.bias"][1] = value
    data = frames.encode(frames.UPDATE, HEAD, update, LAYOUT, coding)
    if coding.kind == "float16" and math.isinf(value):
        _, found = frames.decode(data, frames.UPDATE, LAYOUT, coding)
        assert abs(float(found["2.bias"][1])) == 65504  # the largest; the rest is kept
        return
    with pytest.raises(NotFiniteError) as refused:
        frames.decode(data, frames.UPDATE, LAYOUT, coding)
    assert refused.value.name == "2.bias"


def test_another_model_coding_or_kind_is_refused() -> None:
    data = frames.encode(frames.UPDATE, HEAD, numbers(7), LAYOUT, CODINGS[0])
    other = Layout.of(nn.Linear(5, 7))
    for layout, coding, kind in (
        (other, CODINGS[0], frames.UPDATE), (LAYOUT, CODINGS[1], frames.UPDATE),
        (LAYOUT, CODINGS[0], frames.WEIGHTS),
    ):  # fmt: skip
        with pytest.raises(MessageError):
            frames.decode(data, kind, layout, coding)


@given(st.sampled_from(CODINGS), st.integers(0, 2**31))
def test_no_frame_is_longer_than_what_is_said_to_be_the_longest(coding: Coding, seed: int) -> None:
    head = {
        **HEAD,
        "base": 2**53,
        "batches": 2**53,
        "rows": 2**53,
        "loss": -1.2345678901234567e-300,
    }
    data = frames.encode(frames.UPDATE, head, numbers(seed), LAYOUT, coding)
    assert len(data) <= frames.largest(LAYOUT, coding)
