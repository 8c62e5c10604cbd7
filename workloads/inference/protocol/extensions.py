"""What extensions of the protocol ask of a server: statistics, configuration, the index.

The shapes are those of Triton's extensions, which KServe names too:
https://github.com/triton-inference-server/server/tree/main/docs/protocol. What this server doesn't
measure or know is left out. Of the repository's extension the index alone is served: versions
change through the registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from falaj.workloads.documents import is_dictionary
from falaj.workloads.engines import USUAL, Engine
from falaj.workloads.inference.errors import bad_request, json_of
from falaj.workloads.inference.metrics import LAST
from falaj.workloads.inference.models.batching import Plan
from falaj.workloads.inference.protocol.oip import Schema, TensorSpec

BINARY: Final = "binary_tensor_data"
ANNOUNCED: Final = (BINARY, "statistics", "model_configuration")
"""What metadata say; `model_repository` would promise that versions can be loaded."""


def statistics(
    model: str, totals: Mapping[str, Mapping[str, Any]], *, version: str | None, runs_here: bool
) -> list[dict[str, Any]]:
    """Return what `$stats_model_response` says of a model's versions.

    Args:
        model: its name.
        totals: the counts of all workers by version, as `Counters.snapshot` names them.
        version: which is asked for; None: all that were served since the start.
        runs_here: whether the model runs in workers. A runtime beside may run several requests
            together, which nobody counts.
    """
    return [
        _of_version(model, each, totals[each], runs_here)
        for each in sorted(totals, key=int)
        if version in (None, each)
    ]


def _of_version(
    model: str, version: str, total: Mapping[str, Any], runs_here: bool
) -> dict[str, Any]:
    answered = sum(total["latency"])
    found: dict[str, Any] = {
        "name": model,
        "version": version,
        "last_inference": total[LAST] // 1000,
        "inference_count": total["rows"],
    }
    stats = {
        "success": _duration(answered, total["latency_seconds"]),
        "fail": _duration(total["failed"], total["failed_seconds"]),
        "queue": _duration(sum(total["queue"]), total["queue_seconds"]),
    }
    if runs_here:
        elsewhere = total["overflowed"].get("answered", 0)
        found["execution_count"] = answered - elsewhere - total["joined"]
        if not elsewhere:
            stats["compute_infer"] = _duration(sum(total["compute"]), total["compute_seconds"])
    found["inference_stats"] = stats
    batches = total["batches"]
    if batches:
        found["batch_stats"] = [
            {
                "batch_size": int(rows),
                "compute_infer": _duration(batches[rows], total["batch_seconds"][rows]),
            }
            for rows in sorted(batches, key=int)
        ]
    return found


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}


def configuration(
    schema: Schema,
    instances: int | None,
    batching: Plan | None = None,
    *,
    engine: Engine = USUAL,
) -> dict[str, Any]:
    """Return the JSON form of Triton's message `ModelConfig`, as far as it says something here.

    Args:
        schema: of the model.
        instances: how many times the model is in memory, on the CPU; None: another program runs
            it, by its own configuration.
        batching: whether requests run together, where the settings ask for it.
        engine: what runs it here. Default: ONNX Runtime, as its package says.
    """
    specs = (*schema.inputs.values(), *schema.outputs.values())
    rows = schema.max_rows if all(spec.shape[:1] == (-1,) for spec in specs) else 0
    found: dict[str, Any] = {
        "name": schema.name,
        "version_policy": {"specific": {"versions": [int(schema.version)]}},
        "max_batch_size": rows,
        "input": [_tensor(spec, rows) for spec in schema.inputs.values()],
        "output": [_tensor(spec, rows) for spec in schema.outputs.values()],
    }
    parameters: dict[str, str] = {}
    if instances is not None:
        found["backend"] = engine.name
        found["instance_group"] = [{"kind": "KIND_CPU", "count": instances}]
        if engine.precision or engine.note:
            parameters["engine"] = str(engine)
    if batching is not None:
        parameters["batching"] = batching.reason
    if parameters:
        found["parameters"] = {name: {"string_value": text} for name, text in parameters.items()}
    if batching is not None and batching.rows:
        found["dynamic_batching"] = {
            "preferred_batch_size": [batching.rows], "max_queue_delay_microseconds": 0,
        }  # fmt: skip
    return found


def _tensor(spec: TensorSpec, rows: int) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    dims = spec.shape[1:] if rows else spec.shape
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(dims)}


def wants_ready(body: bytes | bytearray) -> bool:
    """Read `$repository_index_request`: whether only what is ready is asked for.

    Args:
        body: of the request; empty, as Triton's client sends it, it asks for all.

    Raises:
        RequestError: 400, it is no JSON object, or its ``ready`` is neither true nor false.
    """
    if not body:
        return False
    document = json_of(body)
    ready = document.get("ready", False) if is_dictionary(document) else None
    if type(ready) is not bool:
        raise bad_request(
            'the request must be empty, or a JSON object such as {"ready": true}, where ready is '
            "true or false"
        )
    return ready


def index(
    schema: Schema, versions: Iterable[int], *, ready: bool, only_ready: bool
) -> list[dict[str, str]]:
    """Return `$repository_index_response`.

    Args:
        schema: of the version that is served.
        versions: of the model that are in the registry.
        ready: whether the served one can answer now.
        only_ready: leave out what can't.
    """
    served = int(schema.version)
    found: list[dict[str, str]] = []
    for each in sorted({*versions, served}):
        state, reason = "UNAVAILABLE", "another version is served; promote this one to serve it"
        if each == served:
            state, reason = ("READY", "") if ready else (state, "its runtime isn't ready")
        found.append({"name": schema.name, "version": str(each), "state": state, "reason": reason})
    return [each for each in found if not only_ready or each["state"] == "READY"]
