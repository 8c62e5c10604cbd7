"""ONNX Runtime must not identify the machine or report its use abroad."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SESSION = """
import onnx.helper as h, onnxruntime
from onnx import TensorProto as T
value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [1])
graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [value("x")], [value("y")])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnxruntime.InferenceSession(model.SerializeToString())
"""

OPENVINO = """
import openvino
from openvino import opset8 as of
x = of.parameter([1, 2], openvino.Type.f32)
openvino.Core().compile_model(openvino.Model([of.relu(x)], [x]), "CPU")
"""
# As an environment without what fetches models would.
LEARNING = """
import sys
sys.modules["huggingface_hub"] = None
from falaj.workloads.training.byte_pairs import learn
assert learn(["ab ab"], 300).size == 257
"""
# Ends a program that looks a name up or connects, whoever asks it to.
GUARD = """
import os, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        os.write(2, f"{event} {arguments}".encode())
        os._exit(9)
sys.addaudithook(refuse)
"""
#: Stands for the vendor's own distribution, which no environment of ours has.
REPORTS = """
import socket
from pathlib import Path
(Path.home() / "identity").write_text("machine")
class Telemetry:
    def __init__(self, *given, **named): socket.getaddrinfo("telemetry.invalid", 443)
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


def test_openvino_reports_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    assert left_behind(tmp_path, f"{GUARD}import workloads{OPENVINO}") == []


def test_what_would_report_openvinos_use_is_not_imported(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "path"
    home.mkdir()
    (path / "openvino_telemetry").mkdir(parents=True)
    (path / "openvino_telemetry" / "__init__.py").write_text(REPORTS)
    (path / "openvino_telemetry" / "backend.py").write_text("")
    assert left_behind(home, f"{GUARD}import workloads{OPENVINO}", PYTHONPATH=str(path)) == []
    # It would be imported, were that not forbidden.
    bare = "try:\n import openvino\nexcept Exception: pass"
    assert left_behind(home, bare, PYTHONPATH=str(path)) == ["identity"]


def test_learning_of_tokens_asks_nobody_and_leaves_nothing(tmp_path: Path) -> None:
    assert left_behind(tmp_path, GUARD + LEARNING) == []


def test_no_environment_of_ours_has_what_reports() -> None:
    assert importlib.util.find_spec("openvino") is not None
    installed = {each.metadata["Name"] for each in importlib.metadata.distributions()}
    assert "openvino-telemetry" not in installed
    assert "openvino-telemetry" in (ROOT / "requirements/excluded").read_text().split()
    assert "openvino-telemetry==" not in (ROOT / "requirements/openvino.txt").read_text()
    for each in ("local", "image-inference", "image-training", "image-workspace"):
        assert "huggingface-hub==" not in (ROOT / f"requirements/{each}.txt").read_text()
