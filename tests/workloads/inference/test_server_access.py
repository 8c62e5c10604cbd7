"""Who may do what: tokens, certificates, scopes; and what the records say of it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tests.workloads.inference import models
from tests.workloads.inference.serving import AUDIENCE, ISSUER, Server, Site, call, row

INFER = "/v2/models/mlp/infer"


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    base = {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "scope": "predict", "exp": now + 60}
    return {key: value for key, value in (base | changes).items() if value is not None}


def signed(site: Site, header: dict[str, Any] | None = None, **changes: Any) -> str:
    key = (site.root / "keyring" / "tokens.pem").read_bytes()
    identifier = json.loads((site.root / "keyring/tokens.jwks.json").read_text())["keys"][0]["kid"]
    return jwt.encode(
        claims(**changes), key, "EdDSA", headers={"kid": identifier} | (header or {})
    )


def unsigned(header: dict[str, Any], **changes: Any) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part(header)}.{part(claims(**changes))}."


def forged(site: Site, algorithm: str) -> str:
    """Return a token signed with the public key as if it were a shared secret, or another key."""
    jwks = json.loads((site.root / "keyring/tokens.jwks.json").read_text())["keys"][0]
    headers = {"kid": jwks["kid"]}
    if algorithm.startswith("HS"):
        return jwt.encode(claims(), jwks["x"] * 2, algorithm, headers=headers)
    if algorithm == "ES256":
        return jwt.encode(
            claims(), ec.generate_private_key(ec.SECP256R1()), algorithm, headers=headers
        )
    return jwt.encode(claims(), ed25519.Ed25519PrivateKey.generate(), algorithm, headers=headers)


WRONG: dict[str, tuple[Callable[[Site], str], str]] = {
    "expired": (lambda s: signed(s, exp=int(time.time()) - 1), "expired"),
    "not yet": (lambda s: signed(s, nbf=int(time.time()) + 60), "isn't valid yet"),
    "no expiry": (lambda s: signed(s, exp=None), "lacks the claim exp"),
    "no subject": (lambda s: signed(s, sub=None), "lacks the claim sub"),
    "no audience": (lambda s: signed(s, aud=None), "lacks the claim aud"),
    "other audience": (lambda s: signed(s, aud="other"), "audience"),
    "other issuer": (lambda s: signed(s, iss="other"), "issuer"),
    "scope list": (lambda s: signed(s, scope=["predict"]), "scope claim"),
    "unknown key": (lambda s: signed(s, header={"kid": "nobody"}), "doesn't know"),
    "none": (lambda s: unsigned({"alg": "none", "typ": "JWT"}), "algorithm"),
    "None": (lambda s: unsigned({"alg": "None", "typ": "JWT"}), "algorithm"),
    "unsigned": (lambda s: unsigned({"alg": "EdDSA", "typ": "JWT"}), "signature"),
    "no algorithm": (lambda s: unsigned({"typ": "JWT"}), "algorithm"),
    "HS256": (lambda s: forged(s, "HS256"), "algorithm"),
    "ES256": (lambda s: forged(s, "ES256"), "algorithm"),
    "other EdDSA key": (lambda s: forged(s, "EdDSA"), "signature is wrong"),
    "cut": (lambda s: signed(s)[:-4] + "AAAA", "signature is wrong"),
    "not a token": (lambda s: "hello", "not a valid JWT"),
    "too long": (lambda s: "a" * 9000, "longer than"),
    "empty": (lambda s: "", "Bearer"),
    "unprintable subject": (lambda s: signed(s, sub="a\nb"), "printable"),
    "surrogate in the subject": (lambda s: signed(s, sub="\ud800"), "printable"),
    "odd claims": (lambda s: signed(s, exp="soon"), "not a valid JWT"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_tokens_are_refused(running: Server, kind: str) -> None:
    make, words = WRONG[kind]
    headers = {"Authorization": f"Bearer {make(running.site)}"}
    status, answer = call(running.connect(), "POST", INFER, body=row(), headers=headers)
    assert status == 401
    assert words in answer["error"]


def test_no_credentials(running: Server) -> None:
    connection = running.connect()
    connection.request("POST", INFER, body=b"{}")
    answer = connection.getresponse()
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "no credentials" in json.loads(answer.read())["error"]


def test_another_scheme_is_refused(running: Server) -> None:
    headers = {"Authorization": "Basic dXNlcjpwYXNz"}
    status, answer = call(running.connect(), "GET", "/v2", headers=headers)
    assert (status, "Bearer" in answer["error"]) == (401, True)


def test_unknown_paths_tell_strangers_nothing(running: Server) -> None:
    assert call(running.connect(), "GET", "/v2/models/other")[0] == 401


@pytest.mark.parametrize(
    ("scopes", "path", "status"),
    [
        (("observe",), INFER, 403),
        (("predict",), "/metrics", 403),
        (("observe",), "/metrics", 200),
        (("admin",), "/metrics", 200),
        (("admin",), INFER, 200),
        (("predict", "observe"), INFER, 200),
        (("observe",), "/v2/models/mlp", 403),
    ],
)
def test_scopes(running: Server, scopes: tuple[str, ...], path: str, status: int) -> None:
    token = running.site.token(*scopes)
    body = row() if path == INFER else None
    method = "POST" if body else "GET"
    got, answer = call(running.connect(), method, path, token=token, body=body)
    assert got == status
    if status == 403:
        assert "needs the scope" in answer["error"]


def test_token_is_looked_at_again_when_it_expires(running: Server) -> None:
    connection = running.connect()
    token = signed(running.site, exp=int(time.time()) + 2)
    assert call(connection, "POST", INFER, token=token, body=row())[0] == 200
    status = 200
    deadline = time.monotonic() + 20
    while status == 200 and time.monotonic() < deadline:
        status, answer = call(connection, "POST", INFER, token=token, body=row())
    assert status == 401
    assert "expired" in answer["error"]


def test_client_certificate(running: Server) -> None:
    connection = running.connect("caller")
    for _ in range(3):
        assert call(connection, "POST", INFER, body=row())[0] == 200
    assert call(connection, "GET", "/metrics")[0] == 403


def test_unknown_client_certificate(running: Server) -> None:
    status, answer = call(running.connect("stranger"), "POST", INFER, body=row())
    assert status == 403
    assert "'stranger'" in answer["error"]


def test_certificate_does_not_excuse_a_bad_token(running: Server) -> None:
    connection = running.connect("caller")
    assert call(connection, "POST", INFER, token="wrong", body=row())[0] == 401


def test_certificate_of_one_connection_does_not_serve_another(running: Server) -> None:
    # The same bytes, known as good on a connection with a certificate.
    with_certificate, without = running.connect("caller"), running.connect()
    for _ in range(3):
        assert call(with_certificate, "POST", INFER, body=row())[0] == 200
        assert call(without, "POST", INFER, body=row())[0] == 401
    stranger = running.connect("stranger")
    assert call(stranger, "POST", INFER, body=row())[0] == 403


def test_a_changed_key_set_ends_old_tokens(site: Site, start: Callable[..., Server]) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    token = site.token()
    assert call(server.connect(), "POST", INFER, token=token, body=row())[0] == 200
    (worker,) = server.workers()
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    key = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(other)) | {"kid": "new", "alg": "EdDSA"}
    path = site.root / "keyring/tokens.jwks.json"
    path.chmod(0o600)
    path.write_text(json.dumps({"keys": [key]}))

    def is_replaced(state: dict[str, Any]) -> bool:
        """Both serve for a moment: the old one goes when the new one is there."""
        serving = [each["pid"] for each in state["workers"] if each["state"] == "serving"]
        return bool(serving) and worker not in serving

    server.wait(is_replaced, "no new worker")
    assert call(server.connect(), "POST", INFER, token=token, body=row())[0] == 401
    assert server.stop() == 0


def test_records(site: Site, start: Callable[..., Server]) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    connection = server.connect()
    token = site.token("predict")
    for _ in range(5):
        call(connection, "POST", INFER, token=token, body=row())
    for _ in range(3):
        call(connection, "POST", INFER, token="wrong", body=row())
    assert server.stop() == 0
    lines = [json.loads(line) for line in (site.logs / "access.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines] == [200] * 5 + [401] * 3
    assert {line["subject"] for line in lines[:5]} == {"tester"}
    assert {line["path"] for line in lines} == {INFER}
    audit = [json.loads(line) for line in (site.logs / "audit.jsonl").read_text().splitlines()]
    assert [record["event"] for record in audit][:2] == ["started", "serving"]
    assert audit[-1]["event"] == "stopped"
    requests = [record for record in audit if record["event"] == "requests"]
    assert sum(record["callers"].get("tester", 0) for record in requests) == 5
    denied = [entry for record in requests for entry in record["denied"]]
    assert sum(entry["count"] for entry in denied) == 3
    assert {entry["client"] for entry in denied} == {"127.0.0.1"}
    # A token in a log would be as good as a password in it.
    everything = "".join(path.read_text() for path in site.logs.iterdir())
    assert token not in everything
    for path in site.logs.iterdir():
        assert path.stat().st_mode & 0o077 == 0


def test_metrics(site: Site, start: Callable[..., Server]) -> None:
    site.write(limits={"drain_seconds": 1})
    first = site.publish(models.mlp(1))
    server = start(site).serving(first)
    token = site.token("predict", "observe")
    connection = server.connect()
    for _ in range(7):
        call(connection, "POST", INFER, token=token, body=row())
    call(connection, "POST", INFER, token=token, body={})
    call(connection, "POST", INFER, body={})
    second = site.publish(models.mlp(2), run="other")
    server.serving(second)
    server.wait(lambda s: len(s["workers"]) == 1, "the old worker is still there")
    connection = server.connect()
    call(connection, "POST", INFER, token=token, body=row())
    status, text = call(connection, "GET", "/metrics", token=token)
    assert status == 200
    found = text.decode()
    prefix = 'falaj_inference_responses_total{model="mlp",'
    # The counts of the ended worker are still there.
    assert f'{prefix}route="infer",status="200",version="{first}"}} 7.0' in found
    assert f'{prefix}route="infer",status="400",version="{first}"}} 1.0' in found
    assert f'{prefix}route="infer",status="401",version="{first}"}} 1.0' in found
    assert f'{prefix}route="infer",status="200",version="{second}"}} 1.0' in found
    assert f'falaj_inference_served_version{{model="mlp"}} {float(second)}' in found
    assert server.stop() == 0
