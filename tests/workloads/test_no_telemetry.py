"""ONNX Runtime must not identify the machine or report its use abroad."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SESSION = """
import onnx.helper as h, onnxruntime
from onnx import TensorProto as T
value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [1])
graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [value("x")], [value("y")])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnxruntime.InferenceSession(model.SerializeToString())
"""


def left_behind(tmp_path: Path, program: str, **given: str) -> list[str]:
    """Files that a program leaves in an empty home folder; outside of CI, which suppresses it."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ORT_", "XDG_", "GITHUB_", "TF_BUILD")) and key != "CI"
    }
    environment |= {"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", **given}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    return [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("given", [{}, {"ORT_DISABLE_TELEMETRY": "0"}], ids=["unset", "asked-for"])
def test_workloads_leave_no_device_id(tmp_path: Path, given: dict[str, str]) -> None:
    assert left_behind(tmp_path, "import workloads\n" + SESSION, **given) == []
