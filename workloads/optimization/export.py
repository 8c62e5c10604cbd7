"""From a trained torch module to an ONNX graph of its own operators, all in memory."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Generator

import onnx
import onnx.shape_inference
import torch

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.safety import check_graph

INPUT = "input"
OUTPUT = "output"
BATCH = "batch"

OPSET = 20
"""Of 2023; every ONNX Runtime since 1.17 runs it."""

PARITY_TOLERANCE = 1e-4
"""Of the largest output (at least of 1): both add the same float32 products, in another order."""


def export_module(module: torch.nn.Module, shape: tuple[int, ...]) -> onnx.ModelProto:
    """Export ``module`` with a free first axis ``batch``.

    Args:
        module: in evaluation mode; takes one float32 tensor (N, *shape), gives (N, outputs).
        shape: one row's shape.

    Returns:
        A checked model with the input ``input``, the output ``output``, and no external data;
        what the exporter notes about source files and stack traces is removed.

    Raises:
        WorkloadError: the module uses what ONNX cannot express.
    """
    # A batch of 1 would be taken for a constant.
    example = torch.zeros((2, *shape), dtype=torch.float32)
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module.cpu().eval(),
                (example,),
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: torch.export.Dim(BATCH)},),
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error).strip().splitlines()[0]
        raise WorkloadError(f"the module can't be exported to ONNX: {reason}") from error
    if program is None:
        raise WorkloadError("the module can't be exported to ONNX: the exporter returned nothing")
    model = onnx.ModelProto.FromString(program.model_proto.SerializeToString())
    strip_notes(model)
    onnx.checker.check_model(model, full_check=True)
    check_graph(model)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def strip_notes(model: onnx.ModelProto) -> None:
    """Remove comments and metadata, which would tell paths and source lines of this machine."""
    graph = model.graph
    holders = [model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info]
    for holder in [*holders, *graph.initializer]:
        holder.ClearField("doc_string")
        holder.ClearField("metadata_props")


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keep the exporter's progress and its notes on missing optional packages off the streams."""
    logger = logging.getLogger("torch.onnx")
    level, sink = logger.level, io.StringIO()
    logger.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
