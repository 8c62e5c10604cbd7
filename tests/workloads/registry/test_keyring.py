import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.keyring import (
    KeyRing,
    WrappedKey,
    key_id,
    read_private_key,
    shred_keyring,
)

KEY = bytes(range(32))


def test_open_without_a_ring_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="keyring create"):
        KeyRing.open(tmp_path / "missing")


@pytest.mark.parametrize(
    "index",
    [
        [],
        {},
        {"format": "falaj.keyring/2", "primary": "1", "keys": {"1": {"created": "x"}}},
        {"format": "falaj.keyring/1", "primary": "2", "keys": {"1": {"created": "x"}}},
        {"format": "falaj.keyring/1", "primary": 1, "keys": {"1": {"created": "x"}}},
        {"format": "falaj.keyring/1", "primary": "1", "keys": {"1": {}}},
        {"format": "falaj.keyring/1", "primary": "../1", "keys": {"../1": {"created": "x"}}},
    ],
)
def test_damaged_index_is_refused(keyring: KeyRing, index: object) -> None:
    (keyring.path / "keyring.json").write_text(json.dumps(index))
    with pytest.raises(WorkloadError, match=r"keyring\.json"):
        KeyRing.open(keyring.path)


def test_missing_key_file_is_refused(keyring: KeyRing) -> None:
    (keyring.path / "kek-1.key").unlink()
    with pytest.raises(WorkloadError, match="is missing"):
        KeyRing.open(keyring.path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
@pytest.mark.parametrize("name", ["kek-1.key", "signing.pem", "tokens.pem"])
def test_keys_open_to_others_are_refused(keyring: KeyRing, name: str, mode: int) -> None:
    (keyring.path / name).chmod(mode)
    with pytest.raises(WorkloadError, match="open to other users"):
        read_private_key(keyring.path / name) if name != "kek-1.key" else KeyRing.open(
            keyring.path
        )


def test_key_behind_a_link_is_refused(keyring: KeyRing, tmp_path: Path) -> None:
    key = keyring.path / "kek-1.key"
    key.rename(tmp_path / "elsewhere")
    key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkloadError, match="ordinary file"):
        KeyRing.open(keyring.path)


def test_short_key_is_refused(keyring: KeyRing) -> None:
    (keyring.path / "kek-1.key").write_bytes(b"short")
    with pytest.raises(WorkloadError, match="holds 5 bytes"):
        keyring.wrap(KEY, b"")


def test_every_flipped_bit_of_a_wrapped_key_is_refused(keyring: KeyRing) -> None:
    wrapped = keyring.wrap(KEY, b"context")
    for position in range(len(wrapped.ciphertext)):
        changed = bytearray(wrapped.ciphertext)
        changed[position] ^= 1
        with pytest.raises(IntegrityError, match="wrapped data key"):
            keyring.unwrap(WrappedKey("1", bytes(changed)), b"context")
    for length in range(len(wrapped.ciphertext)):
        with pytest.raises(IntegrityError, match="wrapped data key"):
            keyring.unwrap(WrappedKey("1", wrapped.ciphertext[:length]), b"context")


def test_wrapped_key_of_another_context_ring_or_version_is_refused(
    keyring: KeyRing, other_keyring: KeyRing
) -> None:
    wrapped = keyring.wrap(KEY, b"context")
    with pytest.raises(IntegrityError):
        keyring.unwrap(wrapped, b"other")
    with pytest.raises(IntegrityError):
        other_keyring.unwrap(wrapped, b"context")
    keyring.rotate()
    with pytest.raises(IntegrityError):
        keyring.unwrap(WrappedKey("2", wrapped.ciphertext), b"context")
    with pytest.raises(WorkloadError, match="version '9'"):
        keyring.unwrap(WrappedKey("9", wrapped.ciphertext), b"context")


@pytest.mark.parametrize(
    "value",
    [None, {}, {"key_id": "1"}, {"key_id": 1, "ciphertext": ""},
     {"key_id": "1", "ciphertext": "!"}, {"key_id": "1", "ciphertext": "AA==", "more": 1}],
)  # fmt: skip
def test_malformed_wrapped_key_is_refused(value: object) -> None:
    with pytest.raises(IntegrityError, match="malformed"):
        WrappedKey.from_json(value, "the file")


def test_primary_and_unknown_versions_cannot_be_retired(keyring: KeyRing) -> None:
    with pytest.raises(WorkloadError, match="is the primary"):
        keyring.retire("1")
    with pytest.raises(WorkloadError, match="no version '7'"):
        keyring.retire("7")


def test_retired_key_is_gone_for_good(keyring: KeyRing) -> None:
    wrapped = keyring.wrap(KEY, b"context")
    assert keyring.rotate() == "2"
    assert keyring.unwrap(wrapped, b"context") == KEY
    keyring.retire("1")
    assert not (keyring.path / "kek-1.key").exists()
    with pytest.raises(WorkloadError, match="was retired"):
        keyring.unwrap(wrapped, b"context")
    assert keyring.rotate() == "3"
    assert keyring.versions == ["2", "3"]


def test_round_trip_and_json(keyring: KeyRing) -> None:
    wrapped = keyring.wrap(KEY, b"context")
    assert wrapped != keyring.wrap(KEY, b"context")
    again = WrappedKey.from_json(json.loads(json.dumps(wrapped.to_json())), "x")
    assert KeyRing.open(keyring.path).unwrap(again, b"context") == KEY


def test_create_keeps_what_is_there(keyring: KeyRing) -> None:
    wrapped = keyring.wrap(KEY, b"context")
    again = KeyRing.create(keyring.path)
    assert again.unwrap(wrapped, b"context") == KEY
    assert again.signing_key_id == keyring.signing_key_id


def test_create_completes_an_interrupted_creation(keyring: KeyRing) -> None:
    (keyring.path / "keyring.json").unlink()
    (keyring.path / "tokens.pem").unlink()
    again = KeyRing.create(keyring.path)
    public = json.loads((keyring.path / "tokens.jwks.json").read_text())["keys"][0]
    assert public["kid"] == again.token_key_id
    assert again.unwrap(again.wrap(KEY, b""), b"") == KEY


def test_interrupted_rotation_changes_nothing(
    keyring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = keyring.wrap(KEY, b"context")

    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("falaj.workloads.registry.keyring._write_index", killed)
        with pytest.raises(KeyboardInterrupt):
            keyring.rotate()
    again = KeyRing.open(keyring.path)
    assert (again.primary, again.unwrap(wrapped, b"context")) == ("1", KEY)
    assert again.rotate() == "2"


def test_files_and_modes(keyring: KeyRing) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in keyring.path.iterdir()}
    assert modes == {
        ".lock": 0o600,
        "kek-1.key": 0o600,
        "keyring.json": 0o600,
        "signing.pem": 0o600,
        "signing.pub.pem": 0o644,
        "tokens.pem": 0o600,
        "tokens.jwks.json": 0o644,
    }
    assert keyring.path.stat().st_mode & 0o777 == 0o700


def test_keys_fit_together(keyring: KeyRing) -> None:
    jwks = json.loads((keyring.path / "tokens.jwks.json").read_text())
    assert [key["alg"] for key in jwks["keys"]] == ["EdDSA"]
    assert "d" not in jwks["keys"][0]
    tokens = read_private_key(keyring.path / "tokens.pem").public_key()
    assert jwks["keys"][0]["kid"] == keyring.token_key_id == key_id(tokens)
    assert keyring.signing_key_id == key_id(keyring.signing_key().public_key())
    assert keyring.signing_key_id != keyring.token_key_id


def test_shred_removes_all_but_foreign_files(keyring: KeyRing) -> None:
    (keyring.path / "notes.txt").write_text("mine")
    keyring.rotate()
    keyring.shred()
    assert [entry.name for entry in keyring.path.iterdir()] == ["notes.txt"]


def test_shred_completes_an_interrupted_shredding(keyring: KeyRing) -> None:
    (keyring.path / "kek-1.key").unlink()
    with pytest.raises(WorkloadError, match="missing"):
        KeyRing.create(keyring.path)
    shred_keyring(keyring.path)
    assert not keyring.path.exists()
    shred_keyring(keyring.path)
    assert not keyring.path.exists()


def test_rotation_waits_for_steady_blocks(keyring: KeyRing) -> None:
    other = KeyRing.open(keyring.path)
    rotation = threading.Thread(target=other.rotate)
    with keyring.steady(), keyring.steady():
        rotation.start()
        rotation.join(timeout=0.2)
        assert rotation.is_alive()
        assert keyring.primary == "1"
    rotation.join(timeout=30)
    assert not rotation.is_alive()
    with keyring.steady():
        assert keyring.primary == "2"


def test_rotations_of_two_processes_do_not_collide(keyring: KeyRing) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from falaj.workloads.registry.keyring import KeyRing\n"
        "ring = KeyRing.open(Path(sys.argv[1]))\n"
        "for _ in range(5): ring.rotate()"
    )
    command = [sys.executable, "-c", code, str(keyring.path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    again = KeyRing.open(keyring.path)
    assert again.versions == [str(number) for number in range(1, 12)]
    assert again.primary == "11"
