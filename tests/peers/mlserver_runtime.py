"""A model in MLServer: the runtime that a folder's `model-settings.json` names.

Run in an environment of its own; it knows nothing of Falaj. One process and one thread.
"""

from __future__ import annotations

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Onnx(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = NumpyCodec.decode_input(payload.inputs[0])
        found = self.session.run(None, {"input": rows})[0]
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("probabilities", found)]
        )
