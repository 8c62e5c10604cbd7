"""A model in BentoML, answering the protocol's JSON: `bentoml serve bentoml_service:Model`.

Run in an environment of its own, with the model's path in MODEL; it knows nothing of Falaj. One
worker and one thread; it checks nothing, asks for no credentials, and speaks without TLS.
"""

from __future__ import annotations

import os
from typing import Any

import bentoml
import numpy as np
import onnxruntime

TYPES = {"FP32": np.float32, "INT64": np.int64}


@bentoml.service(workers=1)
class Model:
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.environ["MODEL"], options, providers=["CPUExecutionProvider"]
        )

    @bentoml.api(route="/v2/models/mlp/infer")
    def infer(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        tensor = inputs[0]
        rows = np.array(tensor["data"], TYPES[tensor["datatype"]]).reshape(tensor["shape"])
        output = self.session.run(None, {"input": rows})[0]
        found = {
            "name": "probabilities", "datatype": "FP32", "shape": list(output.shape),
            "data": output.ravel().tolist(),
        }  # fmt: skip
        return {"model_name": "mlp", "outputs": [found]}
