"""How answers are counted: the same values in the same buckets, one by one or many at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference.drift.answers import BUCKETS, bucket, count, counted
from falaj.workloads.inference.protocol.oip import NUMPY_TYPES, TensorSpec
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site, call

VALUES = {
    "FP32": st.floats(width=32),
    "FP64": st.floats(),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "UINT64": st.integers(0, 2**64 - 1),
    "INT8": st.integers(-128, 127),
    "BOOL": st.booleans(),
    "BYTES": st.text(),
}


@pytest.mark.parametrize("datatype", VALUES)
def test_many_fall_where_each_falls(datatype: str) -> None:
    @given(st.lists(VALUES[datatype], max_size=40))
    def same(values: list[Any]) -> None:
        array = np.array(values, dtype=NUMPY_TYPES[datatype]).reshape(-1, 1)
        one, many = [0] * BUCKETS, [0] * BUCKETS
        for each in array.ravel().tolist():
            one[bucket(each)] += 1
        count(array, many)
        assert one == many
        assert sum(many) == len(values)

    same()


def test_numbers_near_each_other_share_a_bucket_and_others_do_not() -> None:
    assert bucket(1000.0) == bucket(1010.0)
    assert len({bucket(1000.0), bucket(1300.0), bucket(2000.0), bucket(-1000.0)}) == 4
    assert bucket(float("nan")) == bucket(0.0) == bucket(float("inf"))
    assert len({bucket(each) for each in range(10)}) == 10


def spec(name: str, datatype: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, datatype, shape)


def test_the_output_with_one_value_for_each_row_is_counted_and_a_class_first() -> None:
    probabilities, score = spec("probabilities", "FP32", -1, 10), spec("score", "FP32", -1, 1)
    assert counted([probabilities, score, spec("label", "INT64", -1)]) == "label"
    assert counted([probabilities, score]) == "score"
    assert counted([probabilities]) is None


def test_a_server_counts_what_it_answers(site: Site, start: Callable[..., Server]) -> None:
    server = start(site).serving(site.publish(models.classifier()))
    token, connection = site.token("predict", "observe"), server.connect()

    def ask(*labels: int, **more: Any) -> int:
        data = [float(place == label) for label in labels for place in range(64)]
        image = {"name": "image", "datatype": "FP32", "shape": [len(labels), 1, 8, 8]}
        body = {"inputs": [{**image, "data": data}], **more}
        return call(connection, "POST", "/v2/models/mlp/infer", token=token, body=body)[0]

    assert ask(3) == 200  # the path of one row
    assert ask(*[3] * 5, *[60] * 15) == 200
    assert ask(7, outputs=[{"name": "probabilities"}]) == 200  # no label is answered
    assert ask(9, inputs=[]) == 400

    def ask_in_binary(label: int, *names: str) -> bytes:
        image = np.zeros((1, 1, 8, 8), np.float32)
        image.flat[label] = 1
        tensor = {
            "name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8],
            "parameters": {"binary_data_size": image.nbytes},
        }  # fmt: skip
        wanted = [{"name": name, "parameters": {"binary_data": True}} for name in names]
        head = json.dumps({"inputs": [tensor], "outputs": wanted}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        status, found = call(
            connection, "POST", "/v2/models/mlp/infer", token=token, headers=headers,
            body=head + image.tobytes(),
        )  # fmt: skip
        assert status == 200
        return found

    for label in (11, 12, 12):  # the first of a form is read, others are known
        assert ask_in_binary(label, "label")[-8:] == label.to_bytes(8, "little")
        ask_in_binary(label, "probabilities")
    _, text = call(connection, "GET", "/metrics", token=token)
    found = dict(
        re.findall(r'falaj_inference_answers_total\{bucket="(\d+)",[^}]*\} (\S+)', text.decode())
    )
    assert found == {"3": "6.0", "60": "15.0", "11": "1.0", "12": "2.0"}
