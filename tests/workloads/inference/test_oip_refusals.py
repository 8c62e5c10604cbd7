"""Requests of the Open Inference Protocol that a model's schema refuses, and why."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from falaj.workloads.inference.errors import RequestError
from tests.workloads.inference import models
from tests.workloads.inference.oip import (
    ECHO,
    MLP,
    TABLE,
    changed,
    echo_request,
    loaded,
    refusal,
)
from tests.workloads.inference.serving import row


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
        (changed(data=[None] + [0.5] * 63), "doesn't say that it takes"),
        ({"inputs": row()["inputs"] * 2}, "there twice"),
        (row(id=7), "id must be"),
        (row(id="x" * 2000), "id must be"),
        (row(outputs={}), "outputs must be a list"),
        (row(outputs=[{"name": "nothing"}]), "unknown output 'nothing'"),
        (row(outputs=["probabilities"]), "unknown output"),
        (row(outputs=[{"name": "probabilities"}] * 2), "twice"),
        (row(parameters=[]), "parameters must be"),
        (row(parameters={"binary_data_output": 1}), "true or false"),
        (row(parameters={"x": {}}), "the parameter 'x' must be a text, a number, true or false"),
        (row(parameters={"x": [1]}), "the parameter 'x' must be"),
        (row(parameters={"x": None}), "the parameter 'x' must be"),
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


HALVES = np.array([1, 2], np.float16).tobytes()


def half(**options: Any) -> tuple[bytes, int]:
    """A request with an FP16 input in binary, and the length of its JSON."""
    tensor = {"name": "x", "datatype": "FP16", "shape": [1, 2],
              "parameters": {"binary_data_size": len(HALVES)}}  # fmt: skip
    head = json.dumps({"inputs": [tensor]} | options).encode()
    return head + HALVES, len(head)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"id": "a"},
        {"parameters": {"binary_data_output": False}},
        {"outputs": [{"name": "x_out"}]},
        {"outputs": [{"name": "x_out", "parameters": {"binary_data": False}}],
         "parameters": {"binary_data_output": True}},
    ],
)  # fmt: skip
def test_fp16_in_json_is_refused_before_the_model_runs(options: dict[str, Any]) -> None:
    served = ECHO["FP16"]
    assert served.schema.output_names == ["x_out"]
    message = refusal(served, *half(**options))
    assert "output 'x_out' is FP16" in message
    assert "binary_data" in message


def test_fp16_that_is_not_asked_for_needs_no_form() -> None:
    both = loaded(models.echo({"x": TensorProto.FLOAT16, "n": TensorProto.FLOAT}, ("batch", 2)))
    head: dict[str, Any] = {"inputs": [
        {"name": "x", "datatype": "FP16", "shape": [1, 2],
         "parameters": {"binary_data_size": len(HALVES)}},
        {"name": "n", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]},
    ]}  # fmt: skip
    asked = json.dumps(head | {"outputs": [{"name": "n_out"}]}).encode()
    inference = both.schema.read(asked + HALVES, len(asked))
    body, length = both.schema.write(inference, both.run(inference))
    assert length is None
    assert json.loads(body)["outputs"][0]["data"] == [1.0, 2.0]
    text = json.dumps(head).encode()
    with pytest.raises(RequestError, match="output 'x_out' is FP16"):
        both.schema.read(text + HALVES, len(text))


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
