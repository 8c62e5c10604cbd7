"""Sends held-out samples to a served model over TLS 1.3 and shows predictions beside the truth.

``python -m falaj.workloads.demo --config service.json --dataset DIR --keyring DIR``
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.chat import ASSISTANT, Message, Template, described_template
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json
from falaj.workloads.inference.auth import mint
from falaj.workloads.inference.settings import reached_at
from falaj.workloads.pictures import IMAGE
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training.conversations import messages_of
from falaj.workloads.training.dataset import SOURCE
from falaj.workloads.training.language import FAMILY, TOKENS, request_of, tokens_a_character
from falaj.workloads.training.snapshot import Dataset, Rows, load_rows, open_dataset, served_rows
from falaj.workloads.vocabulary import Vocabulary

_SHADES = " .:-=+*#%@"
_MOST_WINDOWS = 256
"""Of a text, that the server is asked about, spread evenly."""
_MOST_CHATS = 32
"""Of conversations likewise."""
_WINDOWS_AT_ONCE = 64
_COMPLETED = 64
"""Tokens that a text is continued by."""
_LEAST_PROBABILITY = 1e-7
"""A softmax may round to 0, whose logarithm would be infinite."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="falaj.workloads.demo", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the server's service.json")
    parser.add_argument("--dataset", type=Path, required=True, help="the dataset's snapshot")
    parser.add_argument(
        "--keyring", type=Path, required=True, help="keys of the dataset and tokens"
    )
    parser.add_argument("--model", help="which of the server's models; default: the first")
    parser.add_argument(
        "--dataset-keyring", type=Path, metavar="DIR",
        help="keys of the dataset, where they aren't those of tokens",
    )  # fmt: skip
    parser.add_argument("--draw", type=int, default=3, help="how many images to draw (default 3)")
    parser.add_argument("--show", type=int, default=12, help="how many predictions to list")
    parser.add_argument(
        "--example", action="store_true", help="print one request body and send nothing"
    )
    options = parser.parse_args(arguments)
    try:
        if options.example:
            config = read_json(options.config, "service configuration")
            keys = options.dataset_keyring or options.keyring
            request = example(options.model or str(config["model"]), options.dataset, keys)
            print(json.dumps(request))
            return 0
        run(
            options.config, options.dataset, options.keyring, options.draw, options.show,
            model=options.model, dataset_keyring=options.dataset_keyring,
        )  # fmt: skip
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def run(
    config_path: Path, dataset: Path, keyring_path: Path, draw: int, show: int,
    *, model: str | None = None, dataset_keyring: Path | None = None,
) -> None:  # fmt: skip
    """Send every held-out row, or some of a text's windows, and print what came back.

    Args:
        config_path: the server's ``service.json``.
        dataset: the snapshot.
        keyring_path: keys of tokens.
        draw: how many images to draw.
        show: how many predictions to list.
        model: which of the server's. Default: the first.
        dataset_keyring: keys of the dataset. Default: those of tokens.

    Raises:
        WorkloadError: the service cannot be reached, or refused a request.
    """
    config = read_json(config_path, "service configuration")
    limit = int(config["limits"]["max_rows"])
    if model is not None and model != config["model"]:
        limit = int(config["models"][model].get("max_rows", limit))
        config["model"] = model
    described = read_json(dataset / "dataset.json", "dataset")
    opened = open_dataset(dataset, KeyRing.open(dataset_keyring or keyring_path))
    rows = served_rows(opened, "held_out")
    client = Client(config, keyring_path / "tokens.pem")
    if opened.template is not None:
        _show_chats(client, opened, rows.spread(_MOST_CHATS), opened.template, draw)
        return
    metadata = client.get(f"/v2/models/{config['model']}")
    is_text = described["family"] == FAMILY
    if is_text:
        rows, limit = rows.spread(_MOST_WINDOWS), min(limit, _WINDOWS_AT_ONCE)
    outputs = client.predict(rows.inputs, metadata, limit)
    print(
        f"{len(rows.labels)} held-out rows sent to https://{client.host}:{client.port} over "
        f"{client.protocol} with a token of scope predict"
    )
    if is_text:
        vocabulary = opened.vocabulary
        assert vocabulary is not None  # noqa: S101 - it is a text
        _show_text(client, outputs["probabilities"], rows, vocabulary, draw)
    elif "prediction" in outputs:
        _show_regression(outputs["prediction"], rows, show)
    else:
        _show_classification(outputs["label"], rows, described, draw, show)


class Client:
    """A small client of the inference protocol: TLS 1.3, the stack's own CA, a fresh token."""

    def __init__(self, config: Mapping[str, Any], token_key: Path) -> None:
        """Connect lazily; ``token_key`` is the private key that signs the token."""
        self.host = reached_at(str(config["host"]))
        self.port = int(config["port"])
        self.model = str(config["model"])
        self.protocol = "TLS 1.3"
        context = ssl.create_default_context(cafile=str(config["tls"]["client_ca"]))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._connection = http.client.HTTPSConnection(
            self.host, self.port, context=context, timeout=30
        )
        token = mint(
            token_key,
            issuer=str(config["auth"]["issuer"]),
            audience=str(config["auth"]["audience"]),
            subject="demo",
            scopes=["predict"],
            minutes=10,
        )
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def get(self, path: str) -> dict[str, Any]:
        """Parsed body of a GET."""
        return self._request("GET", path, None)

    def predict(
        self, inputs: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any], limit: int
    ) -> dict[str, list[Any]]:
        """Outputs by name for all rows, sent in requests of at most ``limit`` rows."""
        datatypes = {entry["name"]: entry["datatype"] for entry in metadata["inputs"]}
        count = len(next(iter(inputs.values())))
        collected: dict[str, list[Any]] = {}
        for start in range(0, count, limit):
            body = {
                "inputs": [
                    _tensor(name, datatypes[name], values[start : start + limit])
                    for name, values in inputs.items()
                ]
            }
            answer = self._request("POST", f"/v2/models/{self.model}/infer", json.dumps(body))
            for output in answer["outputs"]:
                width = math.prod(output["shape"][1:])
                data = output["data"]
                grouped = (
                    data
                    if width == 1
                    else [data[i : i + width] for i in range(0, len(data), width)]
                )
                collected.setdefault(output["name"], []).extend(grouped)
        return collected

    def complete(self, prompt: str) -> str:
        """The likeliest tokens that continue a text."""
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": _COMPLETED, "temperature": 0,
        }  # fmt: skip
        answer = self._request("POST", "/v1/completions", json.dumps(body))
        return str(answer["choices"][0]["text"])

    def answer(self, messages: Sequence[Message]) -> str:
        """What is likeliest to be answered to messages."""
        turns = [{"role": each.role, "content": each.content} for each in messages]
        body = {"model": self.model, "messages": turns, "temperature": 0}
        answer = self._request("POST", "/v1/chat/completions", json.dumps(body))
        return str(answer["choices"][0]["message"]["content"])

    def _request(self, method: str, path: str, body: str | None) -> dict[str, Any]:
        try:
            self._connection.request(method, path, body, self._headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise WorkloadError(
                f"https://{self.host}:{self.port} cannot be reached: {error}\n"
                "  see what runs with: falaj status"
            ) from None
        answer = json.loads(text)
        if response.status != http.HTTPStatus.OK:
            raise WorkloadError(f"{method} {path}: {response.status} {answer.get('error')}")
        return answer


def _tensor(name: str, datatype: str, values: NDArray[Any]) -> dict[str, Any]:
    # NaN is not JSON; the server reads null in a float tensor as a missing value.
    flat = [
        None if isinstance(value, float) and math.isnan(value) else value
        for value in values.reshape(-1).tolist()
    ]
    return {"name": name, "datatype": datatype, "shape": list(values.shape), "data": flat}


def example(model: str, dataset: Path, keyring_path: Path) -> dict[str, Any]:
    """A request body that the model accepts; of a language model one for a completion.

    Of the digits it is the first held-out one. Of tables it is a made-up row of medians and most
    frequent categories, of pictures one without anything in it: a person's own don't belong in the
    output of a command.

    Raises:
        WorkloadError: the dataset can't be read.
    """
    described = read_json(dataset / "dataset.json", "dataset")
    if described["family"] == FAMILY:
        is_chat = described_template(described) is not None
        return request_of(model, described["statistics"], is_chat=is_chat)
    if described["source"]["kind"] == SOURCE:
        image = load_rows(dataset, KeyRing.open(keyring_path), "held_out").inputs[IMAGE][:1]
        return {"inputs": [_tensor(IMAGE, "FP32", image)]}
    if described["family"] == "images":
        return {"inputs": [_plain(described)]}
    columns = {feature["name"] for feature in described["features"]}
    return {
        "inputs": [
            _typical(name, statistics)
            for name, statistics in described["statistics"]["features"].items()
            if name in columns
        ]
    }


def _plain(described: Mapping[str, Any]) -> dict[str, Any]:
    """A picture that is all of the middle grey of those that were learned."""
    edges = described["statistics"]["features"][IMAGE]["edges"]
    shape = (1, *described["features"][0]["shape"])
    return _tensor(IMAGE, "FP32", np.full(shape, edges[len(edges) // 2]))


def _typical(name: str, statistics: Mapping[str, Any]) -> dict[str, Any]:
    if statistics["kind"] == "text":
        value: Any = next(iter(statistics["categories"]), "")
        return {"name": name, "datatype": "BYTES", "shape": [1, 1], "data": [value]}
    edges = statistics.get("edges") or [statistics.get("mean", 0.0)]
    value = edges[len(edges) // 2]
    return {"name": name, "datatype": "FP32", "shape": [1, 1], "data": [value]}


def _show_classification(
    labels: list[Any], rows: Rows, described: Mapping[str, Any], draw: int, show: int
) -> None:
    classes = [str(name) for name in described["classes"]]
    truth = [classes[int(index)] for index in rows.labels]
    predicted = [str(label) for label in labels]
    image = rows.inputs.get(IMAGE)
    largest = float(described["features"][0].get("largest", 1.0))
    for index in range(min(draw, len(truth)) if image is not None else 0):
        assert image is not None  # noqa: S101 - narrowed by the range above
        print(f"\npredicted {predicted[index]}, truth {truth[index]}")
        print(drawing(image[index].mean(axis=0), largest))
    print("\npredicted  truth")
    for one, other in list(zip(predicted, truth, strict=True))[:show]:
        print(f"{one:<9}  {other}{'' if one == other else '   <- wrong'}")
    right = sum(one == other for one, other in zip(predicted, truth, strict=True))
    print(f"\naccuracy through the endpoint: {right}/{len(truth)} = {right / len(truth):.2%}")


def _show_text(
    client: Client, answers: list[Any], rows: Rows, vocabulary: Vocabulary, draw: int
) -> None:
    for window in rows.inputs[TOKENS][:draw].tolist():
        beginning = vocabulary.decode(window)
        print(f"\nbeginning:  {beginning!r}\ncontinued:  {client.complete(beginning)!r}")
    shares = np.asarray(answers, dtype=np.float64)
    count = len(rows.labels)
    probabilities = shares[np.arange(count), rows.labels]
    nats = -np.log(np.maximum(probabilities, _LEAST_PROBABILITY)).mean()
    right = int((shares.argmax(axis=1) == rows.labels).sum())
    unit, share = vocabulary.unit.removesuffix("s"), tokens_a_character(vocabulary, rows.labels)
    print(
        f"\nthe {unit} after each of {count} held-out windows, through the endpoint: "
        f"{right}/{count} = {right / count:.2%} right, {nats * share:.4g} nats a character"
    )


def _show_chats(
    client: Client, opened: Dataset, rows: Rows, template: Template, draw: int
) -> None:
    """Ask for the last answer of held-out conversations, and tell how often it is the very one."""
    vocabulary = opened.vocabulary
    assert vocabulary is not None  # noqa: S101 - they are tokens
    same = 0
    whole = np.concatenate([rows.inputs[TOKENS], rows.labels[:, None]], axis=1)
    for number, row in enumerate(whole.tolist()):
        messages = messages_of(row, template, vocabulary)
        while messages[-1].role != ASSISTANT:
            messages.pop()
        *asked, wanted = messages
        found = client.answer(asked)
        same += found == wanted.content
        if number < draw:
            print(f"\nasked:     {asked[-1].content!r}\nanswered:  {found!r}")
            print(f"held out:  {wanted.content!r}")
    print(
        f"\nthe last answers of {len(rows.labels)} held-out conversations, through the endpoint "
        f"at https://{client.host}:{client.port} over {client.protocol} with a token of scope "
        f"predict: {same}/{len(rows.labels)} = {same / len(rows.labels):.2%} are the very ones"
    )


def _show_regression(predictions: list[Any], rows: Rows, show: int) -> None:
    truth = np.asarray(rows.labels, dtype=np.float64)
    predicted = np.asarray(predictions, dtype=np.float64).reshape(-1)
    print("\npredicted     truth")
    for one, other in list(zip(predicted, truth, strict=True))[:show]:
        print(f"{one:<12.5g}  {other:.5g}")
    error = float(np.sqrt(np.mean((predicted - truth) ** 2)))
    print(f"\nRMSE through the endpoint: {error:.5g} over {len(truth)} rows")


def drawing(image: NDArray[Any], largest: float) -> str:
    """An image of shape (H, W), values 0 to `largest`, as text; each pixel is two characters."""
    levels = np.clip(image / largest * (len(_SHADES) - 1), 0, len(_SHADES) - 1).astype(int)
    return "\n".join("  " + "".join(_SHADES[level] * 2 for level in row) for row in levels)


if __name__ == "__main__":
    sys.exit(main())
