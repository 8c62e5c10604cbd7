"""Rotation of the keys that sign: what they signed goes on for a while, or not at all."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import IntegrityError
from falaj.workloads.registry import rotation
from falaj.workloads.registry.keyring import TOKEN_OVERLAP, KeyRing, pack, unpack
from falaj.workloads.registry.store import Store

Fields = dict[str, Any]


@pytest.fixture
def signing(tmp_path: Path, keyring: KeyRing, fields: Fields) -> Store:
    store = Store(tmp_path / "registry", keyring)
    store.publish("digits", {"model.onnx": b"one"}, fields, keyring)
    store.promote("digits", 1)
    return store


def token_keys(keyring: KeyRing) -> list[dict[str, Any]]:
    return json.loads((keyring.path / "tokens.jwks.json").read_text())["keys"]


def test_every_kind_of_key_is_new(signing: Store, keyring: KeyRing) -> None:
    names = ["signing.pem", "tokens.pem"]
    before = [(keyring.path / name).read_bytes() for name in names]
    ids = (keyring.primary, keyring.signing_key_id, keyring.token_key_id)
    opened = [os.open(keyring.path / name, os.O_RDONLY) for name in names]
    rotation.rotate(keyring, [signing.root])
    after = (keyring.primary, keyring.signing_key_id, keyring.token_key_id)
    assert not set(ids) & set(after)
    for name, descriptor, secret in zip(names, opened, before, strict=True):
        assert os.pread(descriptor, len(secret), 0) not in (secret, b""), "shredded"
        os.close(descriptor)
        assert (keyring.path / name).stat().st_mode & 0o777 == 0o600
    assert keyring.signing_key().public_key() == keyring.verify_key().current
    assert not list(keyring.path.glob(".tmp-*"))


def test_what_the_key_before_signed_goes_on(
    signing: Store, keyring: KeyRing, tmp_path: Path
) -> None:
    for _ in range(3):
        rotation.rotate(keyring, [signing.root])
    # Also after several: the package is still signed by the first.
    assert signing.verify("digits", 1, keyring, keyring.verify_key()).read("model.onnx") == b"one"
    assert signing.trusted("digits", "production", keyring).version == 1
    assert len(keyring.verify_key().former) == 2, "the first, and the one before"
    (tmp_path / "packed").write_bytes(pack(keyring))
    pod = unpack(tmp_path / "packed", tmp_path / "pod")
    signing.load("digits", 1, pod, pod.verify_key())


def test_a_key_that_signed_nothing_here_is_forgotten(keyring: KeyRing, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    first = keyring.signing_key_id
    rotation.rotate(keyring, [tmp_path / "registry"])
    assert keyring.verify_key().ids[1:] == (first,)
    rotation.rotate(keyring, [tmp_path / "registry"])
    assert first not in keyring.verify_key().ids
    # Without folders nobody knows what it signed.
    before = keyring.verify_key().ids
    rotation.rotate(keyring)
    assert keyring.verify_key().ids[1:] == before


def test_a_theft_ends_the_trust_at_once(signing: Store, keyring: KeyRing, fields: Fields) -> None:
    rotation.rotate(keyring, [signing.root], distrust=True)
    assert keyring.verify_key().former == ()
    assert len(token_keys(keyring)) == 1
    with pytest.raises(IntegrityError, match="not by the trusted"):
        signing.load("digits", 1, keyring, keyring.verify_key())
    with pytest.raises(IntegrityError, match="not by the trusted"):
        signing.trusted("digits", "production", keyring)
    again = signing.publish("digits", {"model.onnx": b"one"}, fields, keyring)
    signing.promote("digits", again.version)
    assert signing.trusted("digits", "production", keyring).version == again.version


def test_tokens_of_the_key_before_go_on_for_a_day(keyring: KeyRing) -> None:
    first = keyring.token_key_id
    now = datetime.now(UTC)
    keyring.rotate_signing_locked(lambda _: True, now)
    current, former = token_keys(keyring)
    assert (current["kid"], former["kid"]) == (keyring.token_key_id, first)
    assert "exp" not in current
    assert former["exp"] == int((now + TOKEN_OVERLAP).timestamp())
    keyring.rotate_signing_locked(lambda _: True, now + timedelta(hours=1))
    assert [key.get("exp") for key in token_keys(keyring)][2] == former["exp"], "not for longer"
    keyring.rotate_signing_locked(lambda _: True, now + timedelta(hours=24, minutes=1))
    assert first not in [key["kid"] for key in token_keys(keyring)]


def test_an_interrupted_rotation_keeps_the_key_in_use(keyring: KeyRing) -> None:
    os.link(keyring.path / "signing.pem", keyring.path / ".tmp-signing.pem")
    rotation.rotate(keyring)
    assert keyring.signing_key().public_key() == keyring.verify_key().current


def test_the_key_in_use_is_believed_after_an_interrupted_rotation(
    keyring: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it signed may lie elsewhere, as in a registry of images."""
    (tmp_path / "registry").mkdir()
    first = keyring.signing_key_id
    with monkeypatch.context() as patch:
        patch.setattr("falaj.workloads.registry.keyring.write_private_key", _full)
        with pytest.raises(OSError, match="full"):
            rotation.rotate(keyring, [tmp_path / "registry"])
    never_used = keyring.signing_key_id
    rotation.rotate(keyring, [tmp_path / "registry"])
    assert keyring.verify_key().ids[1:] == (first,)
    assert never_used not in keyring.verify_key().ids
    assert keyring.signing_key().public_key() == keyring.verify_key().current


def _full(path: Path, key: object) -> None:
    del key
    raise OSError(f"{path}: the disk is full")


def test_a_pods_key_ring_rotates_what_it_has(keyring: KeyRing, tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(pack(keyring))
    pod = unpack(tmp_path / "packed", tmp_path / "pod")
    assert rotation.rotate(pod).primary == "2"
    assert pod.verify_key().ids == keyring.verify_key().ids
