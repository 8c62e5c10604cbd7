"""A bare client for the tests: what any program with Python's own library could do."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any


def context(authority: Path) -> ssl.SSLContext:
    """TLS 1.3 with the stack's own authority as the only one that is trusted."""
    made = ssl.create_default_context(cafile=str(authority))
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made


def mint(config: dict[str, Any], *, scope: str = "predict") -> str:
    """A token from the command that people use."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "falaj.workloads.inference", "token"),
            *("--key", f"{config['keyring']}/tokens.pem"),
            *("--issuer", config["auth"]["issuer"], "--audience", config["auth"]["audience"]),
            *("--subject", "tests", "--scope", scope),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


class Client:
    """One keep-alive connection with a token; reconnects when the server asked to close."""

    def __init__(self, config: dict[str, Any], token: str) -> None:
        self.model = config["model"]
        self.connection = http.client.HTTPSConnection(
            "127.0.0.1",
            config["port"],
            context=context(Path(config["tls"]["client_ca"])),
            timeout=20,
        )
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and parsed body."""
        text = None if body is None else json.dumps(body)
        self.connection.request(method, path, text, self.headers)
        answer = self.connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw else None

    def infer(self, *inputs: tuple[str, str, list[int], list[Any]]) -> dict[str, Any]:
        """Outputs of one request, which must succeed, by name; with the serving version."""
        body = {
            "inputs": [
                {"name": name, "datatype": datatype, "shape": shape, "data": data}
                for name, datatype, shape, data in inputs
            ]
        }
        status, answer = self.request("POST", f"/v2/models/{self.model}/infer", body)
        assert status == 200, answer
        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        return {**outputs, "version": answer["model_version"]}

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
