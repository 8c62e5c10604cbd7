"""The messages of the gRPC services, as tables of their fields.

Names, numbers and types are those of the Open Inference Protocol v2
(https://github.com/kserve/open-inference-protocol, `specification/protocol`), of gRPC's health
checking (https://github.com/grpc/grpc/blob/master/doc/health-checking.md), and of jobs, which the
protocol doesn't have: `jobs.proto` beside this says the same to makers of clients. Classes are
made of the tables when this module is loaded: so there is no generated code, which would have to
fit the protobuf library's version. They stand in a pool of their own, beside those of other
packages that have messages of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INFERENCE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
JOBS: Final = "falaj.inference.Jobs"

Fields = Mapping[str, tuple[int, str]]
"""By name: the field's number, and its type. `*` stands for a repeated one, `%` for a map from
texts to messages, `|` for one of a choice."""

_TENSOR: Final[Fields] = {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "*int64")}
_CARRIED: Final[Fields] = {
    **_TENSOR, "parameters": (4, "%InferParameter"), "contents": (5, "InferTensorContents"),
}  # fmt: skip
_NAMED: Final[Fields] = {"name": (1, "string"), "version": (2, "string")}
_ANSWERED: Final[Fields] = {
    "model_name": (1, "string"), "model_version": (2, "string"), "id": (3, "string"),
    "parameters": (4, "%InferParameter"),
}  # fmt: skip

_INFERENCE: Final[Mapping[str, Fields]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": _NAMED,
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**_NAMED, "extensions": (3, "*string")},
    "ModelMetadataRequest": _NAMED,
    "ModelMetadataResponse": {
        "name": (1, "string"), "versions": (2, "*string"), "platform": (3, "string"),
        "inputs": (4, "*ModelMetadataResponse.TensorMetadata"),
        "outputs": (5, "*ModelMetadataResponse.TensorMetadata"),
    },
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "ModelInferRequest": {
        **_ANSWERED,
        "inputs": (5, "*ModelInferRequest.InferInputTensor"),
        "outputs": (6, "*ModelInferRequest.InferRequestedOutputTensor"),
        "raw_input_contents": (7, "*bytes"),
    },
    "ModelInferRequest.InferInputTensor": _CARRIED,
    "ModelInferRequest.InferRequestedOutputTensor": {
        "name": (1, "string"), "parameters": (2, "%InferParameter"),
    },
    "ModelInferResponse": {
        **_ANSWERED,
        "outputs": (5, "*ModelInferResponse.InferOutputTensor"),
        "raw_output_contents": (6, "*bytes"),
    },
    "ModelInferResponse.InferOutputTensor": _CARRIED,
    "InferParameter": {
        "bool_param": (1, "|bool"), "int64_param": (2, "|int64"), "string_param": (3, "|string"),
        "double_param": (4, "|double"), "uint64_param": (5, "|uint64"),
    },
    "InferTensorContents": {
        "bool_contents": (1, "*bool"), "int_contents": (2, "*int32"),
        "int64_contents": (3, "*int64"), "uint_contents": (4, "*uint32"),
        "uint64_contents": (5, "*uint64"), "fp32_contents": (6, "*float"),
        "fp64_contents": (7, "*double"), "bytes_contents": (8, "*bytes"),
    },
}  # fmt: skip
_HEALTH: Final[Mapping[str, Fields]] = {
    "HealthCheckRequest": {"service": (1, "string")},
    # An enumeration (UNKNOWN 0, SERVING 1, NOT_SERVING 2) is a whole number on the wire.
    "HealthCheckResponse": {"status": (1, "int32")},
}
_JOBS: Final[Mapping[str, Fields]] = {
    "JobRequest": {"model_name": (1, "string"), "id": (2, "string")},
    "Job": {
        "id": (1, "string"), "state": (2, "string"), "created": (3, "string"),
        "expires": (4, "string"), "error": (5, "string"),
    },
}  # fmt: skip
SERVING: Final = 1
NOT_SERVING: Final = 2

_Field = descriptor_pb2.FieldDescriptorProto


def _field(of: Any, place: tuple[str, str], name: str, given: tuple[int, str]) -> None:
    """Add a field to a message, whose place is its package and its path in there."""
    (package, path), (number, kind) = place, given
    repeated, is_map, is_choice = kind[0] == "*", kind[0] == "%", kind[0] == "|"
    kind = kind.lstrip("*%|")
    field = of.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if repeated or is_map:
        field.label = _Field.LABEL_REPEATED
    if is_choice:
        field.oneof_index = 0
        if not of.oneof_decl:
            of.oneof_decl.add(name="choice")
    if is_map:
        entry = of.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _field(entry, place, "key", (1, "string"))
        _field(entry, place, "value", (2, kind))
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{path}.{entry.name}"
    elif kind[0].isupper():
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"
    else:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")


def _classes(package: str, tables: Mapping[str, Fields]) -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    made: dict[str, Any] = {}
    for path, fields in tables.items():
        outer, _, inner = path.rpartition(".")
        at = made[outer].nested_type if outer else file.message_type
        made[path] = at.add(name=inner)
        for name, given in fields.items():
            _field(made[path], (package, path), name, given)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        path: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{path}"))
        for path in tables
    }


CLASSES: Final[Mapping[str, Any]] = {
    **_classes("inference", _INFERENCE), **_classes("grpc.health.v1", _HEALTH),
    **_classes("falaj.inference", _JOBS),
}  # fmt: skip
"""Message classes by their name within the package."""
