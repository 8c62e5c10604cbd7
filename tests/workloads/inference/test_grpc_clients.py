"""Clients of gRPC that aren't ours, `tritonclient` and KServe's, unchanged against the server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from falaj.workloads.inference.rpc.messages import CLASSES
from tests.environments import environment
from tests.workloads.inference import models
from tests.workloads.inference.foreign_grpc import ROWS
from tests.workloads.inference.serving import Server

HERE = Path(__file__).parent

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="session")
def python() -> Path:
    """An environment of the clients' own, kept in the cache for its pins."""
    return environment("grpc-clients", seconds=280) / "bin" / "python"


def ask(python: Path, client: str, server: Server) -> dict[str, Any]:
    site = server.site
    done = subprocess.run(
        [python, HERE / "foreign_grpc.py", client, str(server.port), site.pki.folder / "ca.crt",
         site.token("predict"), "mlp"],
        check=True, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def expected() -> Any:
    return ort.InferenceSession(models.mlp()).run(None, {"input": ROWS})[0]


def test_tritonclient(python: Path, running: Server, expected: Any) -> None:
    found = ask(python, "triton", running)
    assert [found[name] for name in ("live", "ready", "model ready")] == [True] * 3
    assert found["server"] == "falaj"
    assert found["inputs"] == [{"name": "input", "datatype": "FP32", "shape": ["-1", "64"]}]
    for name in ("infer", "asked", "gzip", "timeout", "async"):
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-6)
    assert found["asked id"] == "7"
    assert found["unknown"].startswith("StatusCode.NOT_FOUND: unknown model 'other'")
    assert found["no token"].startswith("StatusCode.UNAUTHENTICATED: no credentials")
    assert found["index"].startswith("StatusCode.UNIMPLEMENTED")
    # Its messages are made by the protocol's own compiler: ours have the same fields.
    for name, made in CLASSES.items():
        if "." not in name and made.DESCRIPTOR.file.package == "inference":
            ours = {each.name: [each.number, each.type] for each in made.DESCRIPTOR.fields}
            theirs = found["fields"][name]
            assert ours == {each: theirs[each] for each in ours}


def test_the_client_of_kserve(python: Path, running: Server, expected: Any) -> None:
    found = ask(python, "kserve", running)
    assert [found[name] for name in ("live", "ready", "model ready")] == [True] * 3
    for name in ("typed", "raw"):
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-6)
        assert found[f"{name} id"] == "7"
    assert "unknown model 'other'" in found["unknown"]
