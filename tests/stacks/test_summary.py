"""How the end of `falaj up` says to call the server: pasted, it sends that request."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from falaj.stacks.command import summary


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


def test_many_of_the_same_value_are_written_shortly() -> None:
    long = summary.curl(
        "t", "ca", "https://x", {"inputs": [tensor(*[153.0] * 3072, name="image")]}
    )
    assert "[153.0] * 3072" in long
    assert len(long) < 400
    assert "'\"'" not in long, "to be read as well"
    assert "* 64" not in summary.curl("t", "ca", "https://x", {"inputs": [tensor(*[0.0] * 64)]})
