"""The command line: tokens, status, and mistakes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jwt
import pytest

from falaj.workloads.inference.__main__ import main
from tests.workloads.inference import models
from tests.workloads.inference.serving import AUDIENCE, ISSUER, Server, Site

TOKEN = ["--issuer", ISSUER, "--audience", AUDIENCE, "--subject", "me"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    return error


def test_mistakes_are_told(tmp_path: Path, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none")
    assert "can't read" in refused(capsys, "serve", "--config", missing)
    assert "can't read" in refused(capsys, "status", "--config", missing)
    assert "no audit log" in refused(capsys, "audit", "--logs", missing)
    key = str(site.root / "keyring/tokens.pem")
    wrong = ["token", *TOKEN, "--scope", "root", "--key", key]
    assert "unknown scope 'root'" in refused(capsys, *wrong)
    for minutes in ("0", "-1", "nan", "1e9"):
        wrong = ["token", *TOKEN, "--scope", "predict", "--key", key, "--minutes", minutes]
        assert "--minutes" in refused(capsys, *wrong)
    not_a_key = str(site.config)
    wrong = ["token", *TOKEN, "--scope", "predict", "--key", not_a_key]
    assert "is not a private key" in refused(capsys, *wrong)
    assert "can't read" in refused(capsys, *wrong[:-1], missing)


def test_token(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    key = str(site.root / "keyring/tokens.pem")
    options = ["--scope", "predict", "--scope", "observe", "--key", key, "--minutes", "5"]
    assert main(["token", *TOKEN, *options, "--header"]) == 0
    line = capsys.readouterr().out.strip()
    assert line.startswith("Authorization: Bearer ")
    jwks = json.loads((site.root / "keyring/tokens.jwks.json").read_text())["keys"]
    token = line.rpartition(" ")[2]
    claims = jwt.decode(token, jwt.PyJWK(jwks[0]), ["EdDSA"], audience=AUDIENCE, issuer=ISSUER)
    assert jwt.get_unverified_header(token)["kid"] == jwks[0]["kid"]
    assert (claims["sub"], claims["scope"]) == ("me", "predict observe")
    assert 290 < claims["exp"] - time.time() <= 300


def test_status(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["status", "--config", str(site.config)]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "stopped"
    version = site.publish(models.mlp())
    server = Server(site).serving(version)
    try:
        assert main([*arguments, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["status"], report["running"], report["version"]) == ("serving", True, 1)
        assert main(arguments) == 0
        assert f"serving, version 1 of mlp on 127.0.0.1 port {server.port}" in (
            capsys.readouterr().out
        )
        assert server.stop() == 0
        assert main(arguments) == 0
        assert "service: stopped" in capsys.readouterr().out
        assert main(["audit", "--logs", str(site.logs)]) == 0
        assert capsys.readouterr().out.startswith("intact: ")
    finally:
        server.kill()
