"""Requests of the Open Inference Protocol against a model's schema: what is answered."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto
from onnxruntime import InferenceSession

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.models.model import Model, RowModel, bind
from falaj.workloads.inference.protocol.oip import NUMPY_TYPES, TensorSpec
from tests.workloads.inference import models
from tests.workloads.inference.oip import (
    ECHO,
    KINDS,
    MLP,
    TABLE,
    answer,
    echo_request,
    loaded,
    refusal,
)
from tests.workloads.inference.serving import row


def test_answer_has_what_the_protocol_asks_for() -> None:
    found = answer(MLP, row(id="42"))
    assert list(found) == ["model_name", "model_version", "id", "outputs"]
    assert (found["model_name"], found["model_version"], found["id"]) == ("mlp", "3", "42")
    (output,) = found["outputs"]
    assert output["name"] == "probabilities"
    assert (output["datatype"], output["shape"]) == ("FP32", [1, 10])
    assert sum(output["data"]) == pytest.approx(1, abs=1e-5)


def test_unknown_members_are_ignored() -> None:
    document = row(future=1, parameters={"priority": 1})
    document["inputs"][0]["parameters"] = {"hint": "x"}
    assert answer(MLP, document)["outputs"]


def test_raw_table_rows_with_missing_values() -> None:
    age = {"name": "age", "datatype": "FP32", "shape": [3, 1], "data": [20, None, 30.5]}
    city = {"name": "city", "datatype": "BYTES", "shape": [3, 1], "data": ["a", "ä", None]}
    found = answer(TABLE, {"inputs": [city, age]})
    score, label = found["outputs"]
    assert score["data"] == [20, 40, 30.5]
    assert (label["shape"], label["data"]) == ([3], ["a", "ä", ""])
    only = answer(TABLE, {"inputs": [city, age], "outputs": [{"name": "label"}]})
    assert [output["name"] for output in only["outputs"]] == ["label"]


def test_outputs_come_in_the_order_asked_for() -> None:
    age = {"name": "age", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    city = {"name": "city", "datatype": "BYTES", "shape": [1, 1], "data": ["x"]}
    outputs = [{"name": "label"}, {"name": "score"}]
    found = answer(TABLE, {"inputs": [age, city], "outputs": outputs})
    assert [output["name"] for output in found["outputs"]] == ["label", "score"]


def test_not_a_number_goes_out_as_null() -> None:
    served = loaded(models.echo({"x": TensorProto.FLOAT}, ("batch", 2)), missing=True)
    found = answer(served, echo_request("FP32", [None, 1]))
    assert found["outputs"][0]["data"] == [None, 1]


def values(datatype: str) -> st.SearchStrategy[Any]:
    if datatype == "BOOL":
        return st.booleans()
    if datatype == "BYTES":
        return st.text(max_size=20)
    if datatype.startswith("FP"):
        width = int(datatype[2:])
        return st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore
    limits = np.iinfo(NUMPY_TYPES[datatype])
    return st.integers(int(limits.min), int(limits.max))


JSON_TYPES = [name for name in KINDS if name != "FP16"]


@given(st.data(), st.sampled_from(JSON_TYPES), st.integers(1, 4), st.booleans())
def test_every_datatype_survives_json(
    data: st.DataObject, datatype: str, rows: int, nested: bool
) -> None:
    flat = data.draw(st.lists(values(datatype), min_size=2 * rows, max_size=2 * rows))
    sent = [flat[n : n + 2] for n in range(0, len(flat), 2)] if nested else flat
    request = json.dumps(echo_request(datatype, sent, (rows, 2))).encode()
    inference = ECHO[datatype].schema.read(request, None)
    array = inference.feed["x"]
    assert (array.shape, inference.rows) == ((rows, 2), rows)
    assert array.ravel().tolist() == flat
    back = answer(ECHO[datatype], request)["outputs"][0]["data"]
    # FP32 goes out in the fewest digits that mean the same FP32.
    assert np.array(back, dtype=NUMPY_TYPES[datatype]).tolist() == flat


@given(st.data(), st.sampled_from(list(KINDS)), st.integers(1, 4))
def test_every_datatype_survives_binary(data: st.DataObject, datatype: str, rows: int) -> None:
    flat = data.draw(st.lists(values(datatype), min_size=2 * rows, max_size=2 * rows))
    schema = ECHO[datatype].schema
    spec = schema.inputs["x"]
    blob = spec.to_binary(np.array(flat, dtype=spec.dtype).reshape(rows, 2))
    tensor: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": [rows, 2]}
    tensor["parameters"] = {"binary_data_size": len(blob)}
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(document).encode()
    inference = schema.read(head + blob, len(head))
    content, header_length = schema.write(inference, ECHO[datatype].run(inference))
    assert header_length is not None
    (output,) = json.loads(content[:header_length])["outputs"]
    assert output["shape"] == [rows, 2]
    assert output["parameters"] == {"binary_data_size": len(blob)}
    assert content[header_length:] == blob


@given(st.binary(max_size=60), st.sampled_from(list(KINDS)))
def test_raw_request_is_one_row(body: bytes, datatype: str) -> None:
    spec = ECHO[datatype].schema.inputs["x"]
    fits = datatype not in {"BYTES", "BOOL"} and len(body) == 2 * spec.dtype.itemsize
    if datatype == "BOOL":
        fits = len(body) == 2 and set(body) <= {0, 1}
    if fits and datatype.startswith("FP"):
        fits = bool(np.isfinite(np.frombuffer(body, spec.dtype)).all())
    try:
        inference = ECHO[datatype].schema.read(body, 0)
    except RequestError:
        assert not fits
        return
    assert fits
    content, header_length = ECHO[datatype].schema.write(inference, ECHO[datatype].run(inference))
    assert content[header_length:] == body or "FP" in datatype


def test_raw_text_is_the_whole_body() -> None:
    text = loaded(models.echo({"x": TensorProto.STRING}))
    inference = text.schema.read("grüß dich".encode(), 0)
    assert inference.feed["x"].tolist() == [["grüß dich"]]


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["inputs", "name", "shape", "data", "datatype", "parameters"]),
                inner,
                max_size=5,
            )
        ),
        max_leaves=20,
    ).map(lambda value: json.dumps(value).encode()),
    st.none() | st.integers(0, 300),
)
@example(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}', None)
def test_no_body_raises_anything_but_a_refusal(body: bytes, header_length: int | None) -> None:
    for served in (ECHO["FP32"], ECHO["BYTES"], TABLE):
        try:
            inference = served.schema.read(body, header_length)
        except RequestError as error:
            assert error.status == 400
            assert error.message
        else:
            assert inference.feed


tensor_parts = st.fixed_dictionaries(
    {
        "name": st.just("input") | st.text(max_size=3),
        "datatype": st.just("FP32") | st.just("FP64"),
        "shape": st.sampled_from([[1, 64], [2, 64], [1, 64.0], [True, 64], [64], "x"]),
        "data": st.sampled_from([64, 63, 0]).flatmap(
            lambda n: st.lists(
                st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from([None, True, "1", 1e300]),
                min_size=n,
                max_size=n,
            )
        )
        | st.lists(st.floats(-9, 9), min_size=64, max_size=64),
    }
)


@given(tensor_parts, st.sampled_from([{}, {"id": "x"}, {"outputs": []}]))
def test_the_short_way_answers_as_the_long_one(
    tensor: dict[str, Any], options: dict[str, Any]
) -> None:
    body = json.dumps({"inputs": [tensor], **options}).encode()
    assert MLP.row is not None
    short = MLP.row.answer(body)
    if short is not None:
        short_data = json.loads(short[0])["outputs"][0].pop("data")
        found = answer(MLP, body)
        long_data = found["outputs"][0].pop("data")
        assert json.loads(short[0])["model_version"] == found["model_version"]
        assert short_data == pytest.approx(long_data, rel=1e-5)


def bound(served: Model) -> RowModel:
    """A model's buffers anew, which remember nothing."""
    assert isinstance(served.session, InferenceSession)
    specs = list(served.schema.inputs.values()), list(served.schema.outputs.values())
    found = bind(served.session, *specs, served.schema.head)
    assert found is not None
    return found


BRACKETS = loaded(models.echo({'x[0]"}]': TensorProto.FLOAT}, ("batch", 2)))
NAME = rb'"name":"x[0]\"}]"'
GOOD = b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2],"data":@}]}' % NAME
FORMS = (
    GOOD,
    GOOD.replace(b":", b": ").replace(b",", b", ") + b"\n",
    b'{"inputs":[{"data":@,"shape":[1,2],"datatype":"FP32",%b}]}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP32","data":@,"shape":[1,2]}]}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2],"data":[8,9],"data":@}]}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2],"data":@,"data":[8,9]}]}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2],"data":@,%b}]}' % (NAME, NAME),
    b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2.0],"data":@}]}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP64","shape":[1,2],"data":@}]}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2],"data":@}],"id":"a"}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2],"data":@}]}}' % NAME,
    b'{"inputs":[{%b,"datatype":"FP32","shape":[1,2],"data":@' % NAME,
    b"@",
    b"[@]",
)
DATA = (
    b"[5,6]", b"[1,2]", b" [ 3.5 , -4e1 ]\t", b"[1,2,3]", b"[1]", b"[]", b"",
    b"[[1,2]]", b"[[1],[2]]", b"[true,2]", b"[null,2]", b'["a",2]', b'"ab"',
    b'{"a":1,"b":2}', b"7", b"[1e300,2]",
    b"[NaN,2]", b'[1,2],"id":[3,4]', b'[1,2],"data":[3,4]', b"[1,2]}],\"x\":[{\"a\":[3,4]",
    b"[1,2", b"1,2]", b"[1,2]]", b"[\xff,2]", b"[01,2]", b"[1,2,]",
)  # fmt: skip


@cache
def long_way(body: bytes) -> dict[str, Any] | None:
    """What the general way answers; None where it refuses."""
    try:
        return answer(BRACKETS, body)
    except RequestError:
        return None


@pytest.mark.parametrize("first", range(len(FORMS)))
def test_what_is_remembered_of_one_request_changes_no_other_answer(first: int) -> None:
    answered = 0
    for then in FORMS:
        row_model = bound(BRACKETS)
        row_model.answer(FORMS[first].replace(b"@", b"[5,6]"))
        for data in DATA:
            body = then.replace(b"@", data)
            found = row_model.answer(body)
            answered += found is not None
            assert found is None or json.loads(found[0]) == long_way(body), (then, data)
    assert answered


@pytest.mark.parametrize(("form", "remembered"), [(GOOD, True), (FORMS[3], False)])
def test_requests_alike_are_checked_once(form: bytes, remembered: bool) -> None:
    row_model = bound(BRACKETS)
    looked: list[bytes] = []
    fill = row_model._fill  # pyright: ignore[reportPrivateUsage]
    row_model._fill = lambda body: looked.append(bytes(body)) or fill(body)  # type: ignore[method-assign] # pyright: ignore[reportPrivateUsage]
    for data in (b"[1,2]", b"[3,4]", b"[5,6]"):
        found = row_model.answer(form.replace(b"@", data))
        assert found is not None
        assert json.loads(found[0])["outputs"][0]["data"] == json.loads(data)
    assert len(looked) == (1 if remembered else 3)
    # Another client, whose form comes to be remembered in its turn.
    other = GOOD.replace(b":", b": ")
    for _ in range(70):
        assert row_model.answer(other.replace(b"@", b"[7,8]")) is not None
    assert len(looked) <= 70


PAIR = loaded(models.echo({"a": TensorProto.FLOAT, "b": TensorProto.INT64}, ("batch", 2)))


def parts(first: str = "a", **changes: Any) -> dict[str, Any]:
    """What a request of one row says before its binary tensors."""
    of = {"a": ("FP32", 8), "b": ("INT64", 16)}
    inputs: list[dict[str, Any]] = [
        {
            "name": name, "datatype": of[name][0], "shape": [1, 2],
            "parameters": {"binary_data_size": of[name][1]},
        }
        for name in ((first, "b") if first == "a" else (first, "a"))
    ]  # fmt: skip
    return {"inputs": inputs, "parameters": {"binary_data_output": True}, **changes}


ASKED = [{"name": name, "parameters": {"binary_data": True}} for name in ("b_out", "a_out")]
REMEMBERED: tuple[dict[str, Any], ...] = (
    parts(),
    parts("b"),
    parts(outputs=ASKED),
    parts(outputs=ASKED[:1]),
    parts(parameters={}, outputs=ASKED),
)
TWO_ROWS = parts()
TWO_ROWS["inputs"][0] |= {"shape": [2, 2], "parameters": {"binary_data_size": 16}}
TWO_ROWS["inputs"][1] |= {"shape": [2, 2], "parameters": {"binary_data_size": 32}}
IN_JSON = parts()
del IN_JSON["inputs"][0]["parameters"]
IN_JSON["inputs"][0]["data"] = [1, 2]
NOT_REMEMBERED: tuple[dict[str, Any], ...] = (
    parts(id="1"), parts(parameters={}),
    parts(parameters={}, outputs=[ASKED[0], {"name": "a_out"}]), TWO_ROWS, IN_JSON,
    parts(more="x" * 2_000), parts(parameters={"binary_data_output": True, "priority": "high"}),
    parts(parameters={"binary_data_output": True, "priority": "low"}),
    parts(parameters={"binary_data_output": True, "timeout": 5}),
)  # fmt: skip
BLOBS = (
    np.array([1, -2], np.float32).tobytes() + np.array([3, 4], np.int64).tobytes(),
    np.array([math.nan, 2], np.float32).tobytes() + np.array([3, 4], np.int64).tobytes(),
    np.array([-math.inf, math.inf], np.float32).tobytes() + np.array([3, 4], np.int64).tobytes(),
    np.array([3e38, 3e38], np.float32).tobytes() + np.array([-1, 4], np.int64).tobytes(),
    np.array([1, 2, 3, 4], np.float32).tobytes() + np.array([3, 4, 5, 6], np.int64).tobytes(),
    np.array([3, 4], np.int64).tobytes(),
    b"",
    bytes(23),
    bytes(24),
    bytes(25),
)


def by_the_long_way(body: bytes, header_length: int) -> tuple[bytes, int | None] | None:
    """The general way's answer with its JSON's length; None where it refuses."""
    try:
        inference = PAIR.schema.read(body, header_length)
    except RequestError:
        return None
    return PAIR.schema.write(inference, PAIR.run(inference))


def told(row_model: RowModel, body: bytes, header_length: int) -> None:
    """Have a request checked in the general way, and remembered where it can be."""
    inference = PAIR.schema.read(body, header_length)
    row_model.learn(body, header_length, inference, PAIR.schema)


@pytest.mark.parametrize("first", REMEMBERED)
def test_binary_tensors_behind_known_json_are_answered_as_ever(first: dict[str, Any]) -> None:
    row_model = bound(PAIR)
    head = json.dumps(first).encode()
    assert row_model.answer(head + BLOBS[0], len(head)) is None
    told(row_model, head + BLOBS[0], len(head))
    answered = 0
    for blob in BLOBS:
        for then in (*REMEMBERED, *NOT_REMEMBERED):
            json_part = json.dumps(then).encode()
            for length in (len(json_part), 0, len(json_part) - 1, len(json_part) + 8):
                body = json_part + blob
                found = row_model.answer(bytearray(body), length)
                answered += found is not None
                assert found is None or found[:2] == by_the_long_way(body, length), (then, blob)
                assert found is None or then == first
    # The plain row and that of zeros, at least.
    assert answered >= 2


@pytest.mark.parametrize("document", NOT_REMEMBERED)
def test_json_that_says_more_than_of_one_binary_row_is_read_each_time(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PAIR.schema, "takes_priority", True)
    monkeypatch.setattr(PAIR.schema, "takes_timeout", True)
    head = json.dumps(document).encode()
    blob = {id(TWO_ROWS): BLOBS[4], id(IN_JSON): BLOBS[5]}.get(id(document), BLOBS[0])
    row_model = bound(PAIR)
    told(row_model, head + blob, len(head))
    assert row_model.answer(head + blob, len(head)) is None


def test_a_raw_row_is_answered_as_ever_and_no_more_is_remembered_than_there_is_room_for() -> None:
    served = ECHO["FP64"]
    row_model = bound(served)
    for values in ([1.5, -2.0], [0.0, 5e-324]):
        body = np.array(values, np.float64).tobytes()
        inference = served.schema.read(body, 0)
        row_model.learn(body, 0, inference, served.schema)
        found = row_model.answer(body, 0)
        assert found is not None
        assert found[:2] == served.schema.write(inference, served.run(inference))
    row_model = bound(PAIR)
    for spaces in range(500):
        head = json.dumps(parts()).encode() + b" " * spaces
        told(row_model, head + BLOBS[0], len(head))
        assert row_model.answer(head + BLOBS[0], len(head)) is not None
    assert len(row_model._forms) <= 64  # pyright: ignore[reportPrivateUsage]


def test_images_with_a_label() -> None:
    served = loaded(models.classifier())
    image = [0.0] * 64
    image[37] = 5.0
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    body = json.dumps({"inputs": [tensor | {"data": image}]}).encode()
    assert served.row is not None
    found = served.row.answer(body)
    assert found is not None
    short = json.loads(found[0])
    assert short == answer(served, body)
    assert found[1:] == (None, 37)
    probabilities, label = short["outputs"]
    assert (probabilities["shape"], label["shape"], label["datatype"]) == ([1, 64], [1], "INT64")
    assert label["data"] == [37]
    nested = [[[image[n : n + 8] for n in range(0, 64, 8)]]]
    found = answer(served, {"inputs": [tensor | {"data": nested}]})
    assert found["outputs"][1]["data"] == [37]


def test_a_model_with_fixed_sizes() -> None:
    served = loaded(models.echo({"x": TensorProto.FLOAT}, (2, 3)))
    assert served.row is None
    found = answer(served, echo_request("FP32", [1, 2, 3, 4, 5, 6], (2, 3)))
    assert found["outputs"][0]["shape"] == [2, 3]
    assert "doesn't fit" in refusal(served, echo_request("FP32", [1, 2, 3], (1, 3)))
    assert served.schema.read(bytes(24), 0).feed["x"].shape == (2, 3)


def test_the_short_way_is_taken_where_it_can_be() -> None:
    assert MLP.row is not None
    assert MLP.row.answer(json.dumps(row()).encode()) is not None
    assert TABLE.row is None
    assert ECHO["BYTES"].row is None
    assert ECHO["INT8"].row is not None
    assert ECHO["INT8"].row.answer(json.dumps(echo_request("INT8", [128, 0])).encode()) is None


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_missing_values_need_not_be_finite(datatype: str, value: float) -> None:
    """A model answers NaN with NaN, and the client takes it for an answer."""
    dtype = NUMPY_TYPES[datatype]
    blob = np.array([1, value], dtype).tobytes()
    spec = TensorSpec("x", datatype, (-1, 2))
    with pytest.raises(RequestError, match="doesn't say that it takes") as caught:
        spec.input_from_binary(blob, spec.plan([1, 2], 10, 10))
    assert caught.value.status == 400
    takes = TensorSpec("x", datatype, (-1, 2), missing=True)
    if math.isnan(value):
        assert math.isnan(takes.input_from_binary(blob, takes.plan([1, 2], 10, 10))[0, 1])
    else:
        with pytest.raises(RequestError, match="a value is infinite"):
            takes.input_from_binary(blob, takes.plan([1, 2], 10, 10))


def test_expected_time_follows_the_runs() -> None:
    served = loaded(models.mlp())
    assert served.is_quick(1)
    for _ in range(300):
        served.observe(1, 0.01)
    assert not served.is_quick(1)
    assert served.expected[1] == pytest.approx(0.01, rel=0.01)
