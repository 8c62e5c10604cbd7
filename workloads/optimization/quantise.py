"""Static 8-bit quantisation of convolutions and matrix products, in memory only.

`onnxruntime.quantization.quantize_static` writes the model to temporary files. Its parts don't
have to: the ranges are measured here over an in-memory session, and the library's quantiser
then inserts QuantizeLinear and DequantizeLinear pairs (QDQ) into the graph in memory, so that
weights from an encrypted run never touch a disk as plaintext.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.export import INPUT, check_graph, strip_notes

OPERATORS = ("Conv", "Gemm", "MatMul")
"""The only ones that 8-bit kernels speed up; the rest stays in float."""

CALIBRATION_ROWS = 512
"""Ranges of small models hardly move beyond some hundred rows."""

_BATCH = 64


def quantise(
    core: onnx.ModelProto, calibration: NDArray[np.float32], reduce_range: bool
) -> onnx.ModelProto:
    """Return ``core`` with 8-bit weights (signed, per channel) and activations (unsigned).

    Args:
        core: the float model, from the input ``input``, with inferred shapes.
        calibration: rows of the training part as the core takes them, (rows, …).
        reduce_range: keep weights to 7 bits, for processors whose 8-bit sums saturate.

    Raises:
        WorkloadError: nothing in the model can be quantised, or the rows give no finite range.
    """
    tensors = _activations(core)
    if not tensors:
        raise WorkloadError(f"the model has none of {', '.join(OPERATORS)} to quantise")
    ranges = measure_ranges(core, tensors, calibration)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # the library advises through the root logger
    try:
        quantiser = QDQQuantizer(
            onnx.ModelProto.FromString(core.SerializeToString()),
            per_channel=True,
            reduce_range=reduce_range,
            weight_qType=QuantType.QInt8,
            activation_qType=QuantType.QUInt8,
            tensors_range=TensorsData(CalibrationMethod.MinMax, ranges),
            nodes_to_quantize=[],
            nodes_to_exclude=[],
            op_types_to_quantize=list(OPERATORS),
            extra_options={},
        )
        quantiser.quantize_model()
        quantiser.model.topological_sort()  # the new nodes stand at the end
    finally:
        root.setLevel(level)
    model: onnx.ModelProto = quantiser.model.model
    strip_notes(model)
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    check_graph(model)
    return model


def measure_ranges(
    core: onnx.ModelProto, tensors: list[str], rows: NDArray[np.float32]
) -> dict[str, Any]:
    """Return the smallest and largest value (float32 both) of each of ``tensors`` over ``rows``.

    Raises:
        WorkloadError: there are no rows, or a value is infinite or not a number.
    """
    if len(rows) == 0:
        raise WorkloadError("there are no training rows to calibrate the quantisation with")
    session = _probe(core, tensors)
    low = {name: np.float32(np.inf) for name in tensors}
    high = {name: np.float32(-np.inf) for name in tensors}
    computed = [name for name in tensors if name != INPUT]
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        outputs = cast("list[NDArray[np.float32]]", session.run(computed, {INPUT: batch}))
        values = dict(zip(computed, outputs, strict=True))
        values[INPUT] = batch
        for name in tensors:
            low[name] = min(low[name], values[name].min())
            high[name] = max(high[name], values[name].max())
            if not (np.isfinite(low[name]) and np.isfinite(high[name])):
                raise WorkloadError(
                    f"the model computes infinite or undefined values on training rows ({name}): "
                    "it can't be quantised; train again with a lower --learning-rate"
                )
    return {name: (low[name], high[name]) for name in tensors}


def pick_rows(count: int, limit: int = CALIBRATION_ROWS) -> NDArray[np.int64]:
    """Return which of ``count`` rows to calibrate on: ``limit`` at most, spread evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(np.int64))


def _activations(core: onnx.ModelProto) -> list[str]:
    constants = {item.name for item in core.graph.initializer}
    touched = [
        name
        for node in core.graph.node
        if node.op_type in OPERATORS
        for name in (*node.input, *node.output)
        if name and name not in constants
    ]
    return list(dict.fromkeys(touched))


def _probe(core: onnx.ModelProto, tensors: list[str]) -> onnxruntime.InferenceSession:
    """Open ``core`` with ``tensors`` as further outputs, unoptimised so that all of them exist."""
    probe = onnx.ModelProto.FromString(core.SerializeToString())
    known = {value.name: value for value in (*probe.graph.value_info, *probe.graph.output)}
    present = {value.name for value in (*probe.graph.output, *probe.graph.input)}
    for name in tensors:
        if name not in present:
            probe.graph.output.append(known[name])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        probe.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
