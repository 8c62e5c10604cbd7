"""A model in LitServe, answering the protocol's JSON: `litserve_server.py MODEL PORT`.

Run in an environment of its own; it knows nothing of Falaj. One worker and one thread; it checks
nothing, asks for no credentials, and speaks without TLS.
"""

from __future__ import annotations

import sys
from typing import Any

import litserve
import numpy as np
import onnxruntime


class Model(litserve.LitAPI):
    def setup(self, device: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            sys.argv[1], options, providers=["CPUExecutionProvider"]
        )

    # The argument has to have this name, and no type that the framework would read.
    def decode_request(self, request):
        tensor = request["inputs"][0]
        kind = {"FP32": np.float32, "INT64": np.int64}[tensor["datatype"]]
        return np.array(tensor["data"], kind).reshape(tensor["shape"])

    def predict(self, rows: Any) -> Any:
        return self.session.run(None, {"input": rows})[0]

    def encode_response(self, output: Any) -> dict[str, Any]:
        found = {
            "name": "probabilities", "datatype": "FP32", "shape": list(output.shape),
            "data": output.ravel().tolist(),
        }  # fmt: skip
        return {"model_name": "mlp", "outputs": [found]}


if __name__ == "__main__":
    made = Model(api_path="/v2/models/mlp/infer")
    server = litserve.LitServer(made, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="warning"
    )
