"""Language models that are made, not trained: what follows depends on the last character alone.

So what a text has to be like can be computed beside the server, from the same table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.workloads.inference.serving import Server, Site, call

CHARACTERS = "\ufffd\nab c.شكرا😀"
"""Arabic letters, and one beyond the 16 bits of a UTF-16 unit."""
CONTEXT = 8
NAME = "mlp"
"""The model of `Site`'s settings."""
COMPLETIONS = "/v1/completions"


def table(seed: int = 0, characters: str = CHARACTERS) -> NDArray[np.float32]:
    """Logits of what follows each character; the unknown one is likely, so that it would show."""
    count = len(characters)
    logits = np.random.default_rng(seed).standard_normal((count, count)).astype(np.float32) * 2
    logits[:, 0] = 4
    return logits


def bigrams(
    logits: NDArray[np.float32], characters: Sequence[str] = CHARACTERS, *, slow: int = 0
) -> bytes:
    """Return `tokens` INT64 (N,S) -> `probabilities` (N,V) and `label` BYTES (N).

    Args:
        logits: of what follows each character.
        characters: the vocabulary.
        slow: elements of a square matrix that is multiplied with itself in each run, in a side.
    """
    count = len(characters)
    nodes = [
        helper.make_node("Gather", ["tokens", "last"], ["given"], axis=1),
        helper.make_node("Less", ["given", "count"], ["below"]),
        helper.make_node("GreaterOrEqual", ["given", "zero"], ["above"]),
        helper.make_node("And", ["below", "above"], ["known"]),
        helper.make_node("Where", ["known", "given", "zero"], ["place"]),
        helper.make_node("Gather", ["logits", "place"], ["follows"], axis=0),
        helper.make_node("Softmax", ["follows"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["likeliest"], axis=1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["likeliest"], ["label"], domain="ai.onnx.ml",
            keys_int64s=list(range(count)), values_strings=list(characters),
        ),
    ]  # fmt: skip
    constants = [
        numpy_helper.from_array(np.array(-1, np.int64), "last"),
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        numpy_helper.from_array(np.array(count, np.int64), "count"),
        numpy_helper.from_array(logits, "logits"),
    ]
    if slow:
        # Of a size that the run alone knows, so that nothing of it is computed before.
        nodes[5:5] = [
            helper.make_node("CastLike", ["zero", "logits"], ["none"]),
            helper.make_node("ReduceMin", ["tokens"], ["least"], keepdims=0),
            helper.make_node("CastLike", ["least", "logits"], ["number"]),
            helper.make_node("Add", ["square", "number"], ["moved"]),
            helper.make_node("MatMul", ["moved", "moved"], ["product"]),
            helper.make_node("ReduceMax", ["product"], ["largest"], keepdims=0),
            helper.make_node("Mul", ["largest", "none"], ["nothing"]),
            helper.make_node("Add", ["logits", "nothing"], ["shifted"]),
        ]
        nodes[13] = helper.make_node("Gather", ["shifted", "place"], ["follows"], axis=0)
        constants.append(numpy_helper.from_array(np.zeros((slow, slow), np.float32), "square"))
    inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"])]
    outputs = [
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", count]),
        helper.make_tensor_value_info("label", TensorProto.STRING, ["batch"]),
    ]
    graph = helper.make_graph(nodes, "model", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def fields(
    characters: Sequence[str] = CHARACTERS, context: int = CONTEXT, **more: Any
) -> dict[str, Any]:
    """The manifest's fields of such a model."""
    return {
        "dataset": {"digest": "0" * 64},
        "lineage": {"run": "run", "dataset": "0" * 64},
        "family": "text",
        "task": "language",
        "classes": list(characters),
        "inputs": [
            {"name": "tokens", "datatype": "INT64", "shape": [-1, -1], "context": context}
        ],
        "outputs": [
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, len(characters)],
             "role": "probabilities"},
            {"name": "label", "datatype": "BYTES", "shape": [-1], "role": "label"},
        ],
    } | more  # fmt: skip


def publish(site: Site, model: bytes | None = None, **manifest: Any) -> int:
    return site.publish(model or bigrams(table()), fields=fields(**manifest))


def greedy(prompt: str, most: int, logits: NDArray[np.float32] | None = None) -> str:
    """What temperature 0 has to generate."""
    rows, text = table() if logits is None else logits, prompt or "\n"
    for _ in range(most):
        place = max(CHARACTERS.find(text[-1]), 0)
        text += CHARACTERS[1 + int(rows[place, 1:].argmax())]
    return text[len(prompt or "\n") :]


def ask(server: Server, token: str, prompt: Any = "a", **more: Any) -> tuple[int, Any]:
    body = {"model": NAME, "prompt": prompt} | more
    connection = server.connect()
    try:
        return call(connection, "POST", COMPLETIONS, token=token, body=body)
    finally:
        connection.close()


def usage(prompt: int, generated: int, reused: int = 0) -> dict[str, Any]:
    """What an answer says of tokens."""
    return {
        "prompt_tokens": prompt, "completion_tokens": generated,
        "total_tokens": prompt + generated, "prompt_tokens_details": {"cached_tokens": reused},
    }  # fmt: skip


def texts(answer: tuple[int, Any]) -> list[str]:
    status, document = answer
    assert status == 200, document
    return [each["text"] for each in document["choices"]]


def events(content: bytes) -> Iterator[Any]:
    """What a stream said, but for its end."""
    parts = content.decode().split("\n\n")
    assert parts.pop() == ""
    for part in parts:
        assert part.startswith("data: ")
        assert "\n" not in part
        yield part.removeprefix("data: ")


def streamed(answer: tuple[int, Any]) -> list[Any]:
    """The documents of a stream that came to its end."""
    status, content = answer
    assert status == 200, content
    *found, last = events(content)
    assert last == "[DONE]"
    return [json.loads(each) for each in found]


def joined(documents: Sequence[Any], index: int = 0) -> str:
    choices = [each for document in documents for each in document["choices"]]
    return "".join(each["text"] for each in choices if each["index"] == index)
