"""A model that another server runs: its schema is the signed manifest's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.oip import Inference, Schema
from falaj.workloads.inference.row import RowModel
from falaj.workloads.inference.settings import Limits
from falaj.workloads.inference.tensors import NUMPY_TYPES, TensorSpec


class RelayedModel:
    """What `Model` is to the service, for a model that isn't in this process."""

    row: RowModel | None = None

    def __init__(self, schema: Schema) -> None:
        self.name = schema.name
        self.version = schema.version
        self.schema = schema
        self.expected = [float("inf")] * 32

    def is_quick(self, rows: int) -> bool:
        """Return False: no call to another process belongs on the event loop."""
        del rows
        return False

    def observe(self, rows: int, seconds: float) -> None:
        """Nothing is expected of calls, so nothing is learnt from them."""
        del rows, seconds

    def run(self, inference: Inference) -> Sequence[Any]:
        """Refuse: there is nothing here to run."""
        raise RuntimeError(f"{self.name} is run by another server, not here: {inference.rows}")


def schema_of(name: str, version: str, manifest: Mapping[str, Any], limits: Limits) -> Schema:
    """Return the schema that a verified manifest states.

    Raises:
        InferenceError: a tensor of a type that the protocol can't carry.
    """
    inputs = [_spec(entry) for entry in manifest["inputs"]]
    outputs = [_spec(entry) for entry in manifest["outputs"]]
    return Schema(
        name,
        version,
        inputs,
        outputs,
        batched=all(spec.shape[:1] == (-1,) for spec in inputs),
        max_rows=limits.max_rows,
        max_elements=limits.max_body_bytes,
    )


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    datatype = str(entry.get("datatype"))
    sizes: Any = entry.get("shape")
    if datatype not in NUMPY_TYPES or not isinstance(sizes, list):
        raise InferenceError(
            f"the manifest's tensor '{entry.get('name')}' is {datatype} with the shape {sizes}, "
            "which the protocol can't carry"
        )
    shape = tuple(size if isinstance(size, int) and size > 0 else -1 for size in sizes)
    return TensorSpec(str(entry["name"]), datatype, shape)
