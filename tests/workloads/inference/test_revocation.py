"""Tokens that end before their time: revoked, of a rotated key, or living too long."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest

from falaj.workloads.inference import auth, settings
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.registry import rotation
from falaj.workloads.registry.keyring import KeyRing
from tests.workloads.inference import models
from tests.workloads.inference.serving import AUDIENCE, ISSUER, Server, Site, call, row


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def authenticator(site: Site) -> Authenticator:
    return Authenticator(settings.read(site.config).auth)


@pytest.fixture
def revocable(site: Site) -> Site:
    site.write(auth=site.document["auth"] | {"revoked": str(site.root / "revoked.json")})
    return site


def test_a_revoked_token_ends_and_others_go_on(revocable: Site) -> None:
    first, second = revocable.token(), revocable.token()
    known = authenticator(revocable)
    for token in (first, second):
        assert known.identify(bearer(token), None).subject == "tester"
    auth.revoke(revocable.root / "revoked.json", token=first)
    assert known.refresh()
    with pytest.raises(RequestError, match="revoked"):
        known.identify(bearer(first), None)
    assert known.identify(bearer(second), None)
    auth.revoke(revocable.root / "revoked.json", subject="tester")
    assert known.refresh()
    assert not known.refresh()
    for token in (first, second):
        with pytest.raises(RequestError, match="revoked"):
            known.identify(bearer(token), None)
    time.sleep(1.1)  # `iat` has whole seconds
    assert known.identify(bearer(revocable.token()), None)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (5, "hold no key"),
        ({"keys": 5}, "hold no key"),
        ({"keys": {"kty": "OKP"}}, "hold no key"),
        ({"keys": [1]}, "another kind"),
        ({"keys": [{"kty": ["OKP"], "crv": "Ed25519"}]}, "another kind"),
        ({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": 5}]}, "broken key"),
    ],
)
def test_a_key_set_of_another_form_is_refused(
    tmp_path: Path, document: object, reason: str
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InferenceError, match=reason):
        auth.read_keys(path)


def test_a_damaged_list_is_refused_at_the_start_and_kept_out_later(revocable: Site) -> None:
    known = authenticator(revocable)
    token = revocable.token()
    path = revocable.root / "revoked.json"
    auth.revoke(path, token=token)
    known.refresh()
    path.write_text("{}")
    with pytest.raises(InferenceError, match="isn't a list of revoked tokens"):
        known.refresh()
    with pytest.raises(RequestError, match="revoked"):
        known.identify(bearer(token), None)
    with pytest.raises(InferenceError, match="isn't a list of revoked tokens"):
        authenticator(revocable)


def test_a_damaged_list_does_not_keep_keys_from_being_followed(revocable: Site) -> None:
    known = authenticator(revocable)
    before = revocable.token()
    (revocable.root / "revoked.json").write_text("{}")
    rotation.rotate(KeyRing.open(revocable.root / "keyring"), distrust=True)
    with pytest.raises(InferenceError, match="isn't a list of revoked tokens"):
        known.refresh()
    with pytest.raises(RequestError, match="doesn't know"):
        known.identify(bearer(before), None)
    assert known.identify(bearer(revocable.token()), None)


def test_expired_tokens_leave_the_list(revocable: Site) -> None:
    path = revocable.root / "revoked.json"
    auth.Revocations({"old": time.time() - 1}).write(path, 0)
    auth.revoke(path, token=revocable.token())
    assert "old" not in json.loads(path.read_text())["tokens"]
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(InferenceError, match="revoke its subject instead"):
        auth.revoke(path, token="nonsense")


def test_tokens_live_for_a_day_unless_the_service_says_more(site: Site) -> None:
    key = site.root / "keyring" / "tokens.pem"

    def mint(minutes: float, *, long_lived: bool) -> str:
        return auth.mint(
            key, issuer=ISSUER, audience=AUDIENCE, subject="tester", scopes=["predict"],
            minutes=minutes, long_lived=long_lived,
        )  # fmt: skip

    with pytest.raises(InferenceError, match="at most 1440; got 1441; --long-lived"):
        mint(1441, long_lived=False)
    long = mint(1441, long_lived=True)
    with pytest.raises(RequestError, match="longer than the 1440 minutes allowed"):
        authenticator(site).identify(bearer(long), None)
    # Also where a token doesn't say when it was issued.
    claims = jwt.decode(long, options={"verify_signature": False})
    del claims["iat"]
    bare = jwt.encode(claims, key.read_bytes(), algorithm="EdDSA")
    with pytest.raises(RequestError, match="longer than"):
        authenticator(site).identify(bearer(bare), None)
    site.write(auth=site.document["auth"] | {"max_token_minutes": 2000})
    assert authenticator(site).identify(bearer(long), None)


def test_tokens_of_a_rotated_key_end_with_its_overlap(site: Site) -> None:
    before = site.token(minutes=1440)
    rotation.rotate(KeyRing.open(site.root / "keyring"))
    known = authenticator(site)
    identity = known.identify(bearer(before), None)
    assert identity.expires <= time.time() + 24 * 3600
    assert known.identify(bearer(site.token()), None)
    jwks = site.root / "keyring" / "tokens.jwks.json"
    document = json.loads(jwks.read_text())
    document["keys"][1]["exp"] = int(time.time()) - 1
    jwks.write_text(json.dumps(document))
    with pytest.raises(RequestError, match="rotated out"):
        authenticator(site).identify(bearer(before), None)


def test_a_server_takes_both_up_while_it_runs(
    revocable: Site, start: Callable[..., Server]
) -> None:
    server = start(revocable).serving(revocable.publish(models.mlp()))
    token = revocable.token()
    connection = server.connect()

    def ask(token: str) -> int:
        return call(connection, "POST", "/v2/models/mlp/infer", token=token, body=row())[0]

    # Twice: the second time the head is known, and not authorised again.
    assert [ask(token), ask(token)] == [200, 200]
    subprocess.run(
        [
            sys.executable, "-m", "falaj.workloads.inference", "revoke", "--token",
            "--list", str(revocable.root / "revoked.json"),
        ],
        input=f"Authorization: Bearer {token}\n", text=True, check=True,
    )  # fmt: skip
    deadline = time.monotonic() + 10
    while ask(token) != 401:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    rotation.rotate(KeyRing.open(revocable.root / "keyring"), [revocable.store.root])
    fresh = revocable.token()
    deadline = time.monotonic() + 10
    while ask(fresh) != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert server.stop() == 0
