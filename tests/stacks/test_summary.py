"""How the end of `falaj up` says to call the server: pasted, it sends that request."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command import summary
from falaj.stacks.command.project import Project, StackFile


def tensor(*data: Any, **more: Any) -> dict[str, Any]:
    return {"name": "it's", "datatype": "FP32", "shape": [1, len(data)], "data": [*data], **more}


@pytest.mark.parametrize(
    "request_of",
    [
        {"inputs": [tensor(1.5)]},
        {"inputs": [tensor("a 'b' \"c\" $d `e` \\ نعم", datatype="BYTES")]},
        {"inputs": [tensor(*[0.0] * 3072)]},
        {"inputs": [tensor(*[None] * 3072), tensor("a 'b' \"c\" $d `e` \\ نعم")]},
        {"inputs": [tensor(*range(100))]},
    ],
)
def test_what_is_pasted_sends_what_was_asked_for(request_of: dict[str, Any]) -> None:
    call = summary.curl("true", "ca.crt", "https://localhost/x", request_of)
    # Of all its arguments the last one is what curl would send.
    said = subprocess.run(
        ["bash", "-c", f'curl() {{ printf %s "${{@: -1}}"; }}\n{call}'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(said.stdout) == request_of


def test_a_language_model_is_asked_to_continue_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: notes\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  falaj:platform: local\n")
    stack = StackFile("dev", Project.find(tmp_path))
    state, config = tmp_path / "state.json", tmp_path / "service.json"
    state.write_text(json.dumps({"version": 1}))
    config.write_text(json.dumps({"state": str(state)}))
    asked = {"model": "notes", "prompt": "e", "max_tokens": 64, "temperature": 0}
    monkeypatch.setattr(summary, "_example", lambda _: asked)
    figures = {"metric": 1.25, "sizeBytes": 1024, "latencyUs": 9.0}
    evaluation = {"metric": "nats_per_character", "accepted": "float", "reason": "r",
                  "float": figures, "int8": {}, "int4": figures | {"metric": 1.5}}  # fmt: skip
    said = summary.summary(
        {
            "model": "notes", "version": 1, "registry": str(tmp_path), "caCertificate": "ca.crt",
            "endpoint": "https://localhost:8443/v2/models/notes/infer",
            "serviceConfig": str(config), "evaluation": evaluation,
        },
        stack,
    )  # fmt: skip
    assert "Serving notes version 1 at https://localhost:8443/v1/completions\n" in said
    assert json.dumps(asked, separators=(",", ":")) in said
    assert re.search(r"nats_per_character +1\.25 +- +1\.5", said)
    # As an earlier version of the software left it.
    assert "INT4" not in summary._figures({"evaluation": evaluation | {"int4": {}}})
    assert "INT4" not in summary._figures(
        {"evaluation": evaluation | {"int4": figures | {"metric": None}}}
    )
    del evaluation["int4"]
    assert "INT4" not in summary._figures({"evaluation": evaluation})
    assert "tritonclient" not in said
    assert "/infer" not in said


def test_many_of_the_same_value_are_written_shortly() -> None:
    long = summary.curl(
        "t", "ca", "https://x", {"inputs": [tensor(*[153.0] * 3072, name="image")]}
    )
    assert "[153.0] * 3072" in long
    assert len(long) < 400
    assert "'\"'" not in long, "to be read as well"
    assert "* 64" not in summary.curl("t", "ca", "https://x", {"inputs": [tensor(*[0.0] * 64)]})
