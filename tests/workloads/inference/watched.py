"""Small models with what a package says of the rows that they were made from."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.optimization import reference as held_out
from falaj.workloads.training import dataset
from tests.workloads.inference import models

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
