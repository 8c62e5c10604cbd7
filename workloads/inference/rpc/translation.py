"""From the protocol's gRPC messages to its HTTP form and back.

The HTTP form with binary tensors says the same as the gRPC messages do, so a request is turned
into it and handed to the worker: what is checked, refused, counted and run is so in one place, and
with the same words. Here is only refused what the HTTP form can't say.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson
from google.protobuf.message import DecodeError

from falaj.workloads.inference.errors import RequestError, bad_request
from falaj.workloads.inference.rpc.messages import (
    CLASSES,
    HEALTH,
    INFERENCE,
    JOBS,
    NOT_SERVING,
    SERVING,
)


class Asked(NamedTuple):
    """A request in its HTTP form; ``header_length`` are the bytes of the body that are JSON."""

    method: str
    url: str
    body: bytes = b""
    header_length: int | None = None
    typed: bool = False
    """Whether the tensors came in typed contents, as then those of the answer do."""


class Told(NamedTuple):
    """An answer in its HTTP form."""

    status: int
    body: bytes
    header_length: int | None = None


class Method(NamedTuple):
    """One method of a service: how its request and its answer are turned."""

    ask: Callable[[bytes], Asked]
    tell: Callable[[Asked, Told], bytes]
    place: str
    """The path of HTTP that does the same, with `{}` for the model's name."""
    is_open: bool = False
    """Whether it asks for no credentials."""


class MalformedError(RequestError):
    """What protobuf can't read: it says the same of what there is no memory for."""


_MALFORMED: Final = "the request is not a {} message"
_LONGEST_NAME: Final = 300
"""Characters of a name that are looked at: no model's is longer."""


def _read(name: str, data: bytes) -> Any:
    try:
        return CLASSES[name].FromString(data)
    except DecodeError as error:
        raise MalformedError(400, _MALFORMED.format(name)) from error


def _path(name: str, version: str, last: str = "") -> str:
    path = f"/v2/models/{_segment(name)}"
    if version:
        path += f"/versions/{_segment(version)}"
    return path + last


def _segment(name: str) -> str:
    return _quoted(name[:_LONGEST_NAME])


@lru_cache
def _quoted(name: str) -> str:
    # Twice for what separates segments: the router takes one quoting off, and a name that goes on
    # as a path would be another route's.
    return quote(name.replace("/", "%2F"), safe="")


# Tensors: the contents' field of each datatype, and the array's type code of its elements.

_CONTENTS: Final[Mapping[str, tuple[str, str]]] = {
    "BOOL": ("bool_contents", "b"),
    "INT8": ("int_contents", "b"),
    "INT16": ("int_contents", "h"),
    "INT32": ("int_contents", "i"),
    "INT64": ("int64_contents", "q"),
    "UINT8": ("uint_contents", "B"),
    "UINT16": ("uint_contents", "H"),
    "UINT32": ("uint_contents", "I"),
    "UINT64": ("uint64_contents", "Q"),
    "FP32": ("fp32_contents", "f"),
    "FP64": ("fp64_contents", "d"),
    "BYTES": ("bytes_contents", ""),
}
_MOST_SIZES: Final = 64
"""Of a shape: NumPy's arrays have no more."""
_LENGTH: Final = struct.Struct("<I")
_OWN_PARAMETERS: Final = frozenset({"binary_data", "binary_data_output", "binary_data_size"})
"""Of the HTTP form; gRPC has none of them."""


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, parameter in given.items():
        choice = parameter.WhichOneof("choice")
        if choice is not None and name not in _OWN_PARAMETERS:
            found[name] = getattr(parameter, choice)
    return found


def _typed_elements(tensor: Any) -> Sequence[Any] | None:
    """The elements of a tensor's contents; None where its datatype has none.

    Raises:
        RequestError: they are in another field than the datatype's.
    """
    datatype = tensor.datatype
    wanted = _CONTENTS[datatype][0] if datatype in _CONTENTS else None
    for field, values in tensor.contents.ListFields():
        if field.name != wanted and wanted is not None:
            raise bad_request(
                f"input '{tensor.name[:80]}': {datatype} data must be in {wanted}; "
                f"got {field.name}"
            )
        if field.name == wanted:
            return values
    return [] if wanted is not None else None


def _blob(datatype: str, elements: Sequence[Any]) -> bytes | None:
    """The elements in binary form; None where one is out of the datatype's range."""
    if datatype == "BYTES":
        return b"".join(_LENGTH.pack(len(each)) + each for each in elements)
    try:
        return array(_CONTENTS[datatype][1], elements).tobytes()
    except OverflowError:
        return None


def _input(tensor: Any, blobs: list[bytes]) -> dict[str, Any]:
    """One typed input: binary where it can be, else as JSON, to be refused for what it is."""
    item: dict[str, Any] = {
        "name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape),
        "parameters": _parameters(tensor.parameters),
    }  # fmt: skip
    elements = _typed_elements(tensor)
    if elements is None:
        item["data"] = []
        return item
    # The product of very many sizes would take long to compute.
    fits = len(tensor.shape) <= _MOST_SIZES and len(elements) == prod(tensor.shape)
    blob = _blob(tensor.datatype, elements) if fits else None
    if blob is None:
        text = tensor.datatype == "BYTES"
        item["data"] = [each.decode("utf-8", "replace") if text else each for each in elements]
        return item
    blobs.append(blob)
    item["parameters"]["binary_data_size"] = len(blob)
    return item


def _raw_input(tensor: Any, raw: bytes) -> dict[str, Any]:
    if tensor.HasField("contents"):
        raise bad_request(f"input '{tensor.name[:80]}' has both contents and raw_input_contents")
    return {
        "name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape),
        "parameters": _parameters(tensor.parameters) | {"binary_data_size": len(raw)},
    }  # fmt: skip


def _ask_infer(data: bytes, last: str = "/infer") -> Asked:
    request = _read("ModelInferRequest", data)
    raw: Sequence[bytes] = request.raw_input_contents
    blobs: list[bytes] = []
    if raw:
        if len(raw) != len(request.inputs):
            raise bad_request(
                f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs; "
                "send one for each"
            )
        blobs = list(raw)
        inputs = [_raw_input(*each) for each in zip(request.inputs, raw, strict=True)]
    else:
        inputs = [_input(each, blobs) for each in request.inputs]
    document: dict[str, Any] = {
        "parameters": _parameters(request.parameters) | {"binary_data_output": True},
        "inputs": inputs,
    }
    if request.id:
        document["id"] = request.id
    if request.outputs:
        document["outputs"] = [
            {"name": each.name, "parameters": _parameters(each.parameters)}
            for each in request.outputs
        ]
    head = orjson.dumps(document)
    url = _path(request.model_name, request.model_version, last)
    return Asked("POST", url, head + b"".join(blobs), len(head), typed=not raw)


def _elements(datatype: str, blob: bytes) -> list[Any]:
    if datatype != "BYTES":
        return array(_CONTENTS[datatype][1], blob).tolist()
    found: list[bytes] = []
    position = 0
    while position < len(blob):
        (length,) = _LENGTH.unpack_from(blob, position)
        position += _LENGTH.size
        found.append(blob[position : position + length])
        position += length
    return found


def _blob_of_json(datatype: str, elements: Sequence[Any]) -> bytes:
    """The elements of an answer that is kept as JSON, where null stands for no number."""
    if datatype == "BYTES":
        return b"".join(_LENGTH.pack(len(each)) + each for each in map(str.encode, elements))
    numbers = [float("nan") if each is None else each for each in elements]
    if datatype == "FP16":
        return struct.pack(f"<{len(numbers)}e", *numbers)
    return array(_CONTENTS[datatype][1], numbers).tobytes()


def _tell_infer(asked: Asked, told: Told) -> bytes:
    end = told.header_length if told.header_length is not None else len(told.body)
    document = orjson.loads(told.body[:end])
    response = CLASSES["ModelInferResponse"](
        model_name=document["model_name"], model_version=document["model_version"],
        id=document.get("id", ""),
    )  # fmt: skip
    outputs = document["outputs"]
    # There is no typed form of FP16, and a message has one form for all.
    typed = asked.typed and all(each["datatype"] in _CONTENTS for each in outputs)
    for each in outputs:
        if "data" in each:
            blob = _blob_of_json(each["datatype"], each["data"])
        else:
            size = each["parameters"]["binary_data_size"]
            blob = told.body[end : end + size]
            end += size
        tensor = response.outputs.add(name=each["name"], datatype=each["datatype"])
        tensor.shape.extend(each["shape"])
        if typed:
            field = _CONTENTS[each["datatype"]][0]
            getattr(tensor.contents, field).extend(_elements(each["datatype"], blob))
        else:
            response.raw_output_contents.append(blob)
    return response.SerializeToString()


# The other methods: the path of each, and what its JSON says.


def _ask_plain(name: str, path: str) -> Callable[[bytes], Asked]:
    def ask(data: bytes) -> Asked:
        _read(name, data)
        return Asked("GET", path)

    return ask


def _ask_model(name: str, last: str) -> Callable[[bytes], Asked]:
    def ask(data: bytes) -> Asked:
        request = _read(name, data)
        return Asked("GET", _path(request.name, request.version, last))

    return ask


def _ask_health(data: bytes) -> Asked:
    service = _read("HealthCheckRequest", data).service
    if service not in {"", INFERENCE, JOBS}:
        raise RequestError(
            404, f"unknown service '{service[:80]}'; served are '{INFERENCE}' and '{JOBS}'"
        )
    return Asked("GET", "/v2/health/ready")


def _tell_flag(name: str, field: str) -> Callable[[Asked, Told], bytes]:
    def tell(asked: Asked, told: Told) -> bytes:
        del asked
        value = bool(orjson.loads(told.body).get(field))
        return CLASSES[name](**{field: value}).SerializeToString()

    return tell


def _tell_health(asked: Asked, told: Told) -> bytes:
    del asked
    ready = orjson.loads(told.body).get("ready")
    status = SERVING if ready else NOT_SERVING
    return CLASSES["HealthCheckResponse"](status=status).SerializeToString()


_EXTENSIONS: Final = frozenset({"binary_tensor_data"})
"""Of those that HTTP has: the others' methods aren't offered here."""


def _tell_server(asked: Asked, told: Told) -> bytes:
    del asked
    metadata = orjson.loads(told.body)
    metadata["extensions"] = [each for each in metadata["extensions"] if each in _EXTENSIONS]
    return CLASSES["ServerMetadataResponse"](**metadata).SerializeToString()


def _tell_model(asked: Asked, told: Told) -> bytes:
    del asked
    return CLASSES["ModelMetadataResponse"](**orjson.loads(told.body)).SerializeToString()


# Jobs: requests that are answered later.

_JOB_PLACE: Final = "/v2/models/{}/jobs/id"


def _ask_job(method: str, last: str = "") -> Callable[[bytes], Asked]:
    def ask(data: bytes) -> Asked:
        request = _read("JobRequest", data)
        if not request.id:
            raise bad_request("id must be that of a job, as SubmitJob answered it")
        return Asked(method, _path(request.model_name, "", f"/jobs/{_segment(request.id)}{last}"))

    return ask


def _tell_job(asked: Asked, told: Told) -> bytes:
    del asked
    return CLASSES["Job"](**orjson.loads(told.body)).SerializeToString()


METHODS: Final[Mapping[str, Mapping[str, Method]]] = {
    INFERENCE: {
        "ServerLive": Method(
            _ask_plain("ServerLiveRequest", "/v2/health/live"),
            _tell_flag("ServerLiveResponse", "live"),
            "/v2/health/live",
            is_open=True,
        ),
        "ServerReady": Method(
            _ask_plain("ServerReadyRequest", "/v2/health/ready"),
            _tell_flag("ServerReadyResponse", "ready"),
            "/v2/health/ready",
            is_open=True,
        ),
        "ModelReady": Method(
            _ask_model("ModelReadyRequest", "/ready"),
            _tell_flag("ModelReadyResponse", "ready"),
            "/v2/models/{}/ready",
        ),
        "ServerMetadata": Method(_ask_plain("ServerMetadataRequest", "/v2"), _tell_server, "/v2"),
        "ModelMetadata": Method(
            _ask_model("ModelMetadataRequest", ""), _tell_model, "/v2/models/{}"
        ),
        "ModelInfer": Method(_ask_infer, _tell_infer, "/v2/models/{}/infer"),
    },
    JOBS: {
        "SubmitJob": Method(partial(_ask_infer, last="/jobs"), _tell_job, "/v2/models/{}/jobs"),
        "GetJob": Method(_ask_job("GET"), _tell_job, _JOB_PLACE),
        "GetJobResult": Method(_ask_job("GET", "/result"), _tell_infer, f"{_JOB_PLACE}/result"),
        "RemoveJob": Method(_ask_job("DELETE"), _tell_job, _JOB_PLACE),
    },
    HEALTH: {"Check": Method(_ask_health, _tell_health, "/v2/health/ready", is_open=True)},
}
"""By service and name. Streams of health's `Watch` aren't offered: clients take its refusal for
"no health checking"."""
