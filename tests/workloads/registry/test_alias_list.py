"""Lists of aliases that were changed, put back, or whose log was cut."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.__main__ import main
from falaj.workloads.registry.keyring import KeyRing, pack, unpack
from falaj.workloads.registry.store import Store

Fields = dict[str, Any]


@pytest.fixture
def signed(tmp_path: Path, keyring: KeyRing, fields: Fields) -> Store:
    """Two versions; production was promoted to 1 and then to 2."""
    store = Store(tmp_path / "registry", keyring)
    for version in (1, 2):
        store.publish("digits", {"model.onnx": bytes([version])}, fields, keyring)
        store.promote("digits", version)
        files = (store.root / "digits" / "aliases.json", store.root / "audit.jsonl")
        for file in files:
            shutil.copy(file, tmp_path / f"{file.name}.{version}")
    return store


def edited(store: Store, change: Callable[[dict[str, Any]], None]) -> None:
    path = store.root / "digits" / "aliases.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def edit_version(document: dict[str, Any]) -> None:
    document["production"]["version"] = 1


def edit_both(document: dict[str, Any]) -> None:
    document["production"]["version"] = 1
    document["_list"]["number"] = 3


def edit_history(document: dict[str, Any]) -> None:
    document["production"]["history"] = [2]


def drop_signature(document: dict[str, Any]) -> None:
    del document["_list"]["signature"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit_version, "but the log of changes .*it was changed"),
        (edit_both, "the log was cut"),
        (edit_history, "doesn't match its content"),
        (drop_signature, "isn't signed"),
    ],
)
def test_an_edited_list_is_refused(
    signed: Store, keyring: KeyRing, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    assert signed.trusted("digits", "production", keyring).version == 2
    edited(signed, change)
    with pytest.raises(IntegrityError, match=words):
        signed.trusted("digits", "production", keyring)
    with pytest.raises(IntegrityError):
        signed.rollback("digits")


def test_an_older_signed_list_is_refused_and_audit_says_so(
    signed: Store, keyring: KeyRing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = ["audit", "--registry", str(signed.root), "--keyring", str(keyring.path)]
    assert main([*audit, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lists"] == {"digits": 2}
    shutil.copy(tmp_path / "aliases.json.1", signed.root / "digits" / "aliases.json")
    with pytest.raises(IntegrityError, match="is number 1, but the log of changes goes to 2"):
        signed.trusted("digits", "production", keyring)
    # Also without a key ring: the log alone tells.
    assert main(audit[:3]) == 2
    assert "it was put back" in capsys.readouterr().err


def test_a_cut_log_is_refused(signed: Store, keyring: KeyRing, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "audit.jsonl.1", signed.root / "audit.jsonl")
    with pytest.raises(IntegrityError, match="number 2, but the log of changes only goes to 1"):
        signed.trusted("digits", "production", keyring)


def test_a_registry_put_back_as_a_whole_is_found_by_who_saw_more(
    signed: Store, keyring: KeyRing, tmp_path: Path
) -> None:
    shutil.copy(tmp_path / "aliases.json.1", signed.root / "digits" / "aliases.json")
    shutil.copy(tmp_path / "audit.jsonl.1", signed.root / "audit.jsonl")
    assert signed.trusted("digits", "production", keyring).version == 1
    with pytest.raises(IntegrityError, match="number 2 was there already"):
        signed.trusted("digits", "production", keyring, seen=2)


def test_a_list_of_another_model_or_key_ring_is_refused(
    signed: Store, keyring: KeyRing, other_keyring: KeyRing, fields: Fields
) -> None:
    with pytest.raises(IntegrityError, match="not by the trusted"):
        signed.trusted("digits", "production", other_keyring)
    signed.publish("letters", {"model.onnx": b"x"}, fields, keyring)
    signed.promote("letters", 1)
    signed.publish("letters", {"model.onnx": b"y"}, fields, keyring)
    signed.promote("letters", 2)
    shutil.copy(signed.root / "digits" / "aliases.json", signed.root / "letters" / "aliases.json")
    with pytest.raises(IntegrityError, match="doesn't match its content"):
        signed.trusted("letters", "production", keyring)


@pytest.mark.parametrize("change", [edit_version, edit_both, drop_signature])
def test_a_promotion_mends_what_was_changed(
    signed: Store, keyring: KeyRing, change: Callable[[dict[str, Any]], None]
) -> None:
    edited(signed, change)
    moved = signed.promote("digits", 2)
    assert (moved.version, moved.previous) == (2, 2)
    found = signed.trusted("digits", "production", keyring)
    assert (found.version, found.number) == (2, 4 if change is edit_both else 3)
    assert signed.rollback("digits").version == 1


def test_an_interrupted_promotion_is_completed_by_the_next(
    signed: Store, keyring: KeyRing, tmp_path: Path
) -> None:
    shutil.copy(tmp_path / "aliases.json.1", signed.root / "digits" / "aliases.json")
    signed.promote("digits", 2)
    assert signed.trusted("digits", "production", keyring).version == 2
    log = signed.root / "audit.jsonl"
    log.write_bytes(log.read_bytes() + b'{"time": "20')  # a power cut while a line was written
    assert signed.trusted("digits", "production", keyring).version == 2


def test_nobody_unsigned_changes_a_signed_list(signed: Store) -> None:
    with pytest.raises(WorkloadError, match="give --keyring"):
        Store(signed.root).rollback("digits")
    assert Store(signed.root).resolve("digits") == 2


def test_a_pod_believes_its_own_list(
    keyring: KeyRing, tmp_path: Path, fields: Fields, store: Store
) -> None:
    """Its key ring can't sign, and what it serves came by a digest."""
    (tmp_path / "packed").write_bytes(pack(keyring))
    ring = unpack(tmp_path / "packed", tmp_path / "pod")
    store.publish("digits", {"model.onnx": b"x"}, fields, keyring)
    Store(store.root, ring).promote("digits", 1)
    assert store.trusted("digits", "production", ring).version == 1
    with pytest.raises(IntegrityError, match="isn't signed"):
        store.trusted("digits", "production", keyring)


def test_an_alias_is_withdrawn_as_others_are_changed(
    signed: Store, keyring: KeyRing, capsys: pytest.CaptureFixture[str]
) -> None:
    signed.promote("digits", 1, "shadow")
    with pytest.raises(WorkloadError, match="give --keyring"):
        Store(signed.root).withdraw("digits", "shadow")
    arguments = [
        "withdraw", "--registry", str(signed.root), "--model", "digits", "--alias", "shadow",
        "--keyring", str(keyring.path), "--json",
    ]  # fmt: skip
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {
        "model": "digits", "alias": "shadow", "version": None, "previous": 1,
    }  # fmt: skip
    assert signed.checked_list("digits", keyring).versions() == {"production": 2}
    assert main(arguments) == 2
    assert "no alias 'shadow'" in capsys.readouterr().err
    with pytest.raises(WorkloadError, match="nothing to serve"):
        signed.withdraw("digits", "production")
    # Put back, it is found out.
    signed.promote("digits", 2, "shadow")
    path = signed.root / "digits" / "aliases.json"
    before = path.read_bytes()
    signed.withdraw("digits", "shadow")
    path.write_bytes(before)
    with pytest.raises(IntegrityError, match="put back"):
        signed.checked_list("digits", keyring)
