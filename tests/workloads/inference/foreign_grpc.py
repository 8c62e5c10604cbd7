"""Asks a server as `tritonclient` and KServe's client do, and prints what they saw as JSON.

Run in an environment of their own: `foreign_grpc.py triton|kserve PORT CA TOKEN MODEL`. It knows
nothing of Falaj.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROWS = np.linspace(0, 1, 192, dtype=np.float32).reshape(3, 64)


def triton(port: str, authority: str, token: str, model: str) -> dict[str, Any]:
    import tritonclient.grpc as client
    from tritonclient.grpc import service_pb2
    from tritonclient.utils import InferenceServerException

    headers = {"authorization": f"Bearer {token}"}
    found: dict[str, Any] = {}
    with client.InferenceServerClient(
        f"localhost:{port}", ssl=True, root_certificates=authority
    ) as server:
        found["live"] = server.is_server_live(headers=headers)
        found["ready"] = server.is_server_ready(headers=headers)
        found["model ready"] = server.is_model_ready(model, "1", headers=headers)
        found["server"] = server.get_server_metadata(headers=headers).name
        metadata = server.get_model_metadata(model, headers=headers, as_json=True)
        found["inputs"] = metadata["inputs"]
        given = client.InferInput("input", [3, 64], "FP32")
        given.set_data_from_numpy(ROWS)
        asked = client.InferRequestedOutput("probabilities")
        for name, options in {
            "infer": {}, "asked": {"outputs": [asked], "request_id": "7", "priority": 1},
            "gzip": {"compression_algorithm": "gzip"}, "timeout": {"client_timeout": 20},
        }.items():  # fmt: skip
            result = server.infer(model, [given], headers=headers, **options)
            found[name] = result.as_numpy("probabilities").tolist()
            found[f"{name} id"] = result.get_response().id
        answers: list[Any] = []
        import threading

        done = threading.Event()

        def called(result: Any, error: Any) -> None:
            answers.append(error or result.as_numpy("probabilities").tolist())
            done.set()

        server.async_infer(model, [given], called, headers=headers)
        done.wait(20)
        found["async"] = answers[0]
        for name, work in {
            "unknown": lambda: server.infer("other", [given], headers=headers),
            "no token": lambda: server.infer(model, [given]),
            "index": lambda: server.get_model_repository_index(headers=headers),
        }.items():
            try:
                work()
                found[name] = "answered"
            except InferenceServerException as error:
                found[name] = f"{error.status()}: {error.message()}"
    messages = service_pb2.DESCRIPTOR.message_types_by_name
    found["fields"] = {
        name: {each.name: [each.number, each.type] for each in message.fields}
        for name, message in messages.items()
    }
    return found


def kserve(port: str, authority: str, token: str, model: str) -> dict[str, Any]:
    import grpc
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    async def ask() -> dict[str, Any]:
        found: dict[str, Any] = {}
        server = InferenceGRPCClient(
            f"localhost:{port}",
            creds=grpc.ssl_channel_credentials(Path(authority).read_bytes()),
            timeout=20,
        )
        headers = [("authorization", f"Bearer {token}")]
        found["live"] = await server.is_server_live(headers=headers)
        found["ready"] = await server.is_server_ready(headers=headers)
        found["model ready"] = await server.is_model_ready(model, headers=headers)
        for name, binary in {"typed": False, "raw": True}.items():
            given = InferInput("input", [3, 64], "FP32")
            given.set_data_from_numpy(ROWS, binary_data=binary)
            request = InferRequest(model_name=model, infer_inputs=[given], request_id="7")
            result = await server.infer(request, headers=headers)
            found[name] = result.outputs[0].as_numpy().tolist()
            found[f"{name} id"] = result.id
        try:
            await server.infer(
                InferRequest(model_name="other", infer_inputs=[given]), headers=headers
            )
        except Exception as error:
            found["unknown"] = str(error)
        await server.close()
        return found

    return asyncio.run(ask())


if __name__ == "__main__":
    print(json.dumps({"triton": triton, "kserve": kserve}[sys.argv[1]](*sys.argv[2:])))
