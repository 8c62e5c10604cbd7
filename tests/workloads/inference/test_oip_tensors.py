"""Requests of the Open Inference Protocol against a model's schema: refusals first."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto

from tests.workloads.inference import models
from tests.workloads.inference.serving import row
from workloads.inference import model
from workloads.inference.errors import RequestError
from workloads.inference.settings import Limits
from workloads.inference.tensors import NUMPY_TYPES, TensorSpec

LIMITS = Limits(max_body_bytes=65536, max_rows=32)
KINDS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}


def loaded(content: bytes) -> model.Model:
    return model.load(content, name="mlp", version="3", manifest={}, threads=1, limits=LIMITS)


MLP = loaded(models.mlp())
TABLE = loaded(models.table())
ECHO = {name: loaded(models.echo({"x": kind}, ("batch", 2))) for name, kind in KINDS.items()}


def answer(served: model.Model, document: Any) -> dict[str, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    inference = served.schema.read(body, None)
    content, header_length = served.schema.write(inference, served.run(inference))
    assert header_length is None
    return json.loads(content)


def refusal(served: model.Model, document: Any, header_length: int | None = None) -> str:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    if served.row is not None and header_length is None:
        assert served.row.answer(body) is None
    with pytest.raises(RequestError) as caught:
        served.schema.read(body, header_length)
    assert caught.value.status == 400
    return caught.value.message


def changed(**changes: Any) -> dict[str, Any]:
    tensor = row()["inputs"][0] | changes
    return {"inputs": [{k: v for k, v in tensor.items() if v is not ...}]}


def echo_request(datatype: str, data: Any, shape: Any = (1, 2)) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": datatype, "shape": list(shape), "data": data}]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"inputs": [NaN]}', "not JSON"),
        (b"[" * 5000 + b"]" * 5000, "not JSON"),
        ([], "JSON object"),
        ("text", "JSON object"),
        ({}, "list of inputs"),
        ({"inputs": {}}, "list of inputs"),
        ({"inputs": []}, "list of inputs"),
        ({"inputs": [1]}, "an object"),
        ({"inputs": [{}]}, "unknown input"),
        (changed(name="other"), "unknown input 'other'"),
        (changed(name=["input"]), "unknown input"),
        (changed(datatype="FP64"), "expects FP32"),
        (changed(datatype="BF16"), "expects FP32"),
        (changed(datatype=...), "expects FP32"),
        (changed(shape=...), "list of whole numbers"),
        (changed(shape=64), "list of whole numbers"),
        (changed(shape=[1, 64.0]), "list of whole numbers"),
        (changed(shape=[True, 64]), "list of whole numbers"),
        (changed(shape=["1", 64]), "list of whole numbers"),
        (changed(shape=[[1], 64]), "list of whole numbers"),
        (changed(shape=[64]), "dimensions"),
        (changed(shape=[1] * 1000), "dimensions"),
        (changed(shape=[1, 63]), "doesn't fit"),
        (changed(shape=[-1, 64]), "doesn't fit"),
        (changed(shape=[0, 64]), "doesn't fit"),
        (changed(shape=[1, -64]), "doesn't fit"),
        (changed(shape=[33, 64]), "at most 32"),
        (changed(shape=[2**62, 64]), "at most 32"),
        (changed(shape=[2**64, 64]), "whole numbers"),
        (changed(shape=[2, 64]), "64 elements in data, but shape [2, 64] means 128"),
        (changed(data=...), "data must be a list"),
        (changed(data="x"), "data must be a list"),
        (changed(data=[0.5] * 63), "63 elements"),
        (changed(data=[]), "0 elements"),
        (changed(data=["0.5"] * 64), "must be numbers"),
        (changed(data=[True] * 64), "must be numbers"),
        (changed(data=[0.5] * 63 + [True]), "must be numbers"),
        (changed(data=[0.5] * 63 + [[0.5]]), "must be numbers"),
        (changed(data=[[0.5] * 32, [0.5] * 32]), "nesting"),
        (changed(data=[[0.5] * 64, [0.5] * 64]), "nesting"),
        (changed(data=[[[0.5] * 64]]), "nesting"),
        (changed(data=[1e39] + [0.5] * 63), "out of the range"),
        (changed(data=[None] + [1e39] + [0.5] * 62), "out of the range"),
        ({"inputs": row()["inputs"] * 2}, "there twice"),
        (row(id=7), "id must be"),
        (row(id="x" * 2000), "id must be"),
        (row(outputs={}), "outputs must be a list"),
        (row(outputs=[{"name": "nothing"}]), "unknown output 'nothing'"),
        (row(outputs=["probabilities"]), "unknown output"),
        (row(outputs=[{"name": "probabilities"}] * 2), "twice"),
        (row(parameters=[]), "parameters must be"),
        (row(parameters={"binary_data_output": 1}), "true or false"),
        (
            row(outputs=[{"name": "probabilities", "parameters": {"classification": 3}}]),
            "not offered",
        ),
        (changed(parameters={"shared_memory_region": "x"}), "not offered"),
        (changed(parameters={"binary_data_size": 256}), "both data and"),
        (changed(parameters={"binary_data_size": -1}, data=...), "number of bytes"),
        (changed(parameters={"binary_data_size": 256}, data=...), "0 bytes are left"),
        (changed(parameters=3), "parameters must be"),
    ],
)
def test_bad_requests_are_refused_with_the_reason(document: Any, words: str) -> None:
    assert words in refusal(MLP, document)


def test_too_many_elements_are_refused_before_memory_is_taken() -> None:
    free = loaded(models.echo({"x": TensorProto.FLOAT}, ("batch", "wide")))
    document = echo_request("FP32", [], (1, 2**40))
    assert "more elements than a body" in refusal(free, document)


def test_missing_inputs_and_unequal_rows() -> None:
    age = {"name": "age", "datatype": "FP32", "shape": [1, 1], "data": [3]}
    city = {"name": "city", "datatype": "BYTES", "shape": [2, 1], "data": ["a", "b"]}
    assert "missing inputs: 'city'" in refusal(TABLE, {"inputs": [age]})
    assert "rows" in refusal(TABLE, {"inputs": [age, city]})


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [0, 1]), ("BOOL", [None, True]), ("INT8", [1.0, 2]), ("INT8", [128, 0]),
        ("INT8", [-129, 0]), ("INT8", [True, 1]), ("INT8", ["1", 1]), ("INT8", [None, 1]),
        ("UINT8", [-1, 0]), ("UINT8", [256, 0]), ("INT32", [2**31, 0]), ("INT64", [2**63, 0]),
        ("UINT64", [-1, 0]), ("UINT64", [2**64, 0]), ("FP16", [1.0, 2.0]), ("BYTES", [1, "a"]),
        ("BYTES", [["a"], "b"]), ("FP64", ["nan", 1.0]),
    ],
)  # fmt: skip
def test_values_of_other_types_or_out_of_range(datatype: str, data: Any) -> None:
    assert "input 'x'" in refusal(ECHO[datatype], echo_request(datatype, data))


@pytest.mark.parametrize(
    ("datatype", "blob", "words"),
    [
        ("FP32", b"\0" * 7, "7 bytes of binary data"),
        ("FP32", b"\0" * 9, "9 bytes of binary data"),
        ("BOOL", b"\x00\x02", "0 or 1"),
        ("BYTES", b"\x01\0\0\0a", "2 BYTES elements"),
        ("BYTES", b"\x01\0\0\0a" * 3, "2 BYTES elements"),
        ("BYTES", b"\x01\0\0\0a\xff\xff\xff\xffb", "2 BYTES elements"),
        ("BYTES", b"\x01\0\0\0a\x01\0", "2 BYTES elements"),
        ("BYTES", b"\x01\0\0\0a\x01\0\0\0\xff", "UTF-8"),
    ],
)
def test_malformed_binary_tensors(datatype: str, blob: bytes, words: str) -> None:
    tensor = {"name": "x", "datatype": datatype, "shape": [1, 2]}
    tensor["parameters"] = {"binary_data_size": len(blob)}
    head = json.dumps({"inputs": [tensor]}).encode()
    assert words in refusal(ECHO[datatype], head + blob, len(head))


def test_binary_sizes_that_do_not_add_up() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": 8}}]}).encode()
    assert "only 4 bytes are left" in refusal(ECHO["FP32"], head + b"\0" * 4, len(head))
    assert "follow the last" in refusal(ECHO["FP32"], head + b"\0" * 9, len(head))
    assert "the body has" in refusal(ECHO["FP32"], head, len(head) + 1)
    assert "not JSON" in refusal(ECHO["FP32"], head + b"\0" * 8, len(head) - 1)


def test_raw_requests_that_do_not_fit() -> None:
    assert "a model with one input" in refusal(TABLE, b"\0" * 8, 0)
    assert "7 bytes of binary data" in refusal(ECHO["FP32"], b"\0" * 7, 0)
    assert "0 bytes of binary data" in refusal(ECHO["FP32"], b"", 0)


# -- what is answered ------------------------------------------------------------------------


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
    found = answer(ECHO["FP32"], echo_request("FP32", [None, 1]))
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
        short_data = json.loads(short)["outputs"][0].pop("data")
        found = answer(MLP, body)
        long_data = found["outputs"][0].pop("data")
        assert json.loads(short)["model_version"] == found["model_version"]
        assert short_data == pytest.approx(long_data, rel=1e-5)


def test_images_with_a_label() -> None:
    served = loaded(models.classifier())
    image = [0.0] * 64
    image[37] = 5.0
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    body = json.dumps({"inputs": [tensor | {"data": image}]}).encode()
    assert served.row is not None
    short = json.loads(served.row.answer(body) or b"")
    assert short == answer(served, body)
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


def test_binary_not_a_number_and_infinity_pass() -> None:
    blob = struct.pack("<2f", math.nan, math.inf)
    plan = TensorSpec("x", "FP32", (-1, 2)).plan([1, 2], 10, 10)
    array = TensorSpec("x", "FP32", (-1, 2)).from_binary(blob, plan)
    assert math.isnan(array[0, 0])
    assert math.isinf(array[0, 1])


def test_expected_time_follows_the_runs() -> None:
    served = loaded(models.mlp())
    assert served.is_quick(1)
    for _ in range(300):
        served.observe(1, 0.01)
    assert not served.is_quick(1)
    assert served.expected[1] == pytest.approx(0.01, rel=0.01)
