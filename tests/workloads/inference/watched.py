"""Small models with what a package says of the rows that they were made from."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from http.client import HTTPSConnection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.optimization import reference as held_out
from falaj.workloads.training import dataset
from tests.workloads.inference import models
from tests.workloads.inference.serving import PATIENCE, Server, call

CITIES = ("Abu Dhabi", "Dubai", "Sharjah")


@cache
def digits() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Training and held-out images (rows, 1, 8, 8) and their digits."""
    images, labels = dataset.load()
    order = np.random.default_rng(3).permutation(len(images))
    first, second = order[:1200], order[1200:]
    return images[first], labels[first], images[second], labels[second]


@cache
def digits_model() -> tuple[bytes, dict[str, Any]]:
    """A linear model of digits: its graph, and its manifest's fields."""
    from sklearn.linear_model import LogisticRegression

    images, labels, others, truth = digits()
    flat, others_flat = (each.reshape(len(each), -1) / 16 for each in (images, others))
    fitted = LogisticRegression(max_iter=500).fit(flat, labels)
    weights = {
        "w": (fitted.coef_.T / 16).astype(np.float32),
        "b": fitted.intercept_.astype(np.float32),
    }
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0),
    ]
    content = models.model_of(
        nodes,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10]),
            helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    stated = fitted.predict_proba(others_flat).astype(np.float32)
    found = models.fields(content)
    found["outputs"][0]["role"], found["outputs"][1]["role"] = "probabilities", "label"
    classes = [str(digit) for digit in range(10)]
    description = {
        "features": [{"name": "image", "kind": "image"}], "classes": classes,
    }  # fmt: skip
    found |= {
        "classes": classes,
        "statistics": {
            **dataset.statistics_of({"image": images}, labels, description, len(images)),
            "outputs": held_out.outputs(stated, truth, classes),
        },
    }
    return content, found


def customers(count: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Rows of `models.table`: ages, one in ten missing, and cities."""
    random = np.random.default_rng(seed)
    ages = np.round(random.normal(40, 10, count)).astype(np.float32)
    ages[random.random(count) < 0.1] = np.nan
    cities = np.array(random.choice(CITIES, count, p=[0.5, 0.3, 0.2]), dtype=object)
    return {"age": ages[:, None], "city": cities[:, None]}


def table_fields(content: bytes, rows: int = 2_000) -> dict[str, Any]:
    """The fields of `models.table` with the statistics of `customers`."""
    made = customers(rows, seed=99)
    known = models.fields(content)
    score = np.where(np.isnan(made["age"]), 40, made["age"])
    known["outputs"][0]["role"] = "prediction"
    known["statistics"] = {
        "features": {
            "age": dataset.of_numbers(made["age"]),
            "city": dataset.of_texts(made["city"][:, 0]),
        },
        "outputs": held_out.outputs(score, score[:, 0] + 1, None),
    }
    return known


def request(images: Any, identifier: str | None) -> dict[str, Any]:
    """What asks a model of digits for these images."""
    tensor = {
        "name": "image", "datatype": "FP32", "shape": list(images.shape),
        "data": images.ravel().tolist(),
    }  # fmt: skip
    return {"inputs": [tensor]} | ({"id": identifier} if identifier is not None else {})


class Caller:
    """A connection with tokens of every scope, and what is asked of a model of digits.

    Args:
        server: is asked.
        model: of the server. Default: the first, with scopes for all; of another one, with scopes
            for it alone.
    """

    def __init__(self, server: Server, model: str | None = None) -> None:
        self._connection: HTTPSConnection = server.connect()
        self._base = f"/v2/models/{model or 'mlp'}"
        of = f":{model}" if model is not None else ""
        self._tokens = {
            scope: server.site.token(f"{scope}{of}")
            for scope in ("predict", "observe", "feedback")
        }

    def __call__(self, scope: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return call(self._connection, method, path, token=self._tokens[scope], body=body)

    def head(self, path: str) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._tokens['observe']}"}
        self._connection.request("HEAD", path, headers=headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def predict(self, images: Any, identifier: str | None = None) -> Any:
        asked = request(images, identifier)
        status, answer = self("predict", "POST", f"{self._base}/infer", asked)
        assert status == 200, answer
        return answer

    def drift(self) -> dict[str, Any]:
        status, found = self("observe", "GET", f"{self._base}/drift")
        assert status == 200, found
        return found

    def until(self, condition: Callable[[dict[str, Any]], Any], images: Any) -> dict[str, Any]:
        """Send images until the report is as is wished: a busy server counts a part of them."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.predict(images)
            found = self.drift()
            if condition(found):
                return found
            time.sleep(0.02)
        raise AssertionError(self.drift())

    def label(self, *labels: tuple[str, Any]) -> tuple[int, Any]:
        entries = [{"id": identifier, "label": label} for identifier, label in labels]
        return self("feedback", "POST", f"{self._base}/feedback", {"labels": entries})

    def close(self) -> None:
        self._connection.close()
