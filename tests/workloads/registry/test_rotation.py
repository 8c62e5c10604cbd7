import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import StorageFullError, WorkloadError
from falaj.workloads.registry import rotation
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.sealed import seal, unseal
from falaj.workloads.registry.store import Store


def check(store: Store, keyring: KeyRing) -> None:
    store.verify("digits", 1, keyring, keyring.verify_key())


def test_missing_folder_is_refused_before_anything_changes(
    keyring: KeyRing, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match=r"no folder .*no key was changed"):
        rotation.rotate(keyring, [tmp_path, tmp_path / "typo"])
    assert KeyRing.open(keyring.path).versions == ["1"]


def test_rotation_without_folders_keeps_old_keys(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    done = rotation.rotate(keyring)
    assert (done.primary, done.retired) == ("2", [])
    assert keyring.versions == ["1", "2"]
    check(store, keyring)


@pytest.mark.parametrize("damage", ["keys", "json", "sealed", "link"])
def test_damaged_file_keeps_every_old_key(
    store: Store, package: Package, keyring: KeyRing, tmp_path: Path, damage: str
) -> None:
    sealed = tmp_path / "runs" / "model.sealed"
    sealed.parent.mkdir()
    seal(sealed, b"data", keyring, b"x")
    bad = {"keys": package.path / "keys.json", "json": package.path / "keys.json"}.get(
        damage, sealed.parent / "bad.sealed"
    )
    good = bad.read_bytes() if bad.exists() else None
    if damage == "keys":
        document = json.loads(bad.read_text())
        document["version"] = 2
        bad.write_text(json.dumps(document))
    elif damage == "link":
        bad.symlink_to(sealed)
    else:
        bad.write_bytes(b"{")
    with pytest.raises(WorkloadError, match="1 files can't be re-wrapped, so every old key is"):
        rotation.rotate(keyring, [store.root, sealed.parent])
    assert keyring.versions == ["1", "2"]
    assert unseal(sealed, keyring, b"x") == b"data"
    if good is None:
        bad.unlink()
    else:
        bad.write_bytes(good)
    done = rotation.rotate(keyring, [store.root, sealed.parent])
    assert done.retired == ["1", "2"]
    check(store, keyring)


@pytest.mark.parametrize("damage", ["cut", "empty", "another key", "retired", "link"])
def test_damage_to_what_expires_by_itself_is_told_and_passed_over(
    store: Store, package: Package, keyring: KeyRing, tmp_path: Path, damage: str
) -> None:
    jobs = tmp_path / "jobs" / "state.jobs"
    jobs.mkdir(parents=True)
    bad, good = jobs / "a.request.sealed", jobs / "b.request.sealed"
    seal(good, b"data", keyring, b"x")
    if damage == "retired":
        seal(bad, b"data", keyring, b"x")
        held = bad.read_bytes()
        bad.unlink()
        rotation.rotate(keyring, [store.root, jobs])
        bad.write_bytes(held)
    elif damage == "another key":
        seal(bad, b"data", KeyRing.create(tmp_path / "other"), b"x")
    elif damage == "link":
        bad.symlink_to(good)
    else:
        seal(bad, b"data", keyring, b"x")
        bad.write_bytes(bad.read_bytes()[:20] if damage == "cut" else b"")
    before = bad.read_bytes()
    done = rotation.rotate(keyring, [store.root], expiring=[tmp_path / "jobs"])
    assert (done.retired, [str(bad) in each for each in done.damaged]) == (
        ["2" if damage == "retired" else "1"], [True]
    )  # fmt: skip
    assert unseal(good, keyring, b"x") == b"data"
    check(store, keyring)
    if damage != "link":
        assert bad.read_bytes() == before


def test_what_cannot_be_read_now_keeps_old_keys_also_where_it_expires(
    keyring: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A denied right says nothing of the file: its owner may give it back."""
    job = tmp_path / "jobs" / "a.request.sealed"
    job.parent.mkdir()
    seal(job, b"data", keyring, b"x")
    real = Path.open

    def denied(self: Path, *rest: Any, **more: Any) -> Any:
        if self == job:
            raise PermissionError(13, "Permission denied")
        return real(self, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", denied)
        with pytest.raises(WorkloadError, match="every old key is kept"):
            rotation.rotate(keyring, expiring=[job.parent])
    assert unseal(job, keyring, b"x") == b"data"


def test_package_that_lost_its_manifest_keeps_every_old_key(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    manifest = package.path / "manifest.json"
    saved = manifest.read_bytes()
    manifest.unlink()
    rotation.rotate(keyring, [store.root])
    manifest.write_bytes(saved)
    check(store, keyring)


def test_interrupted_rotation_completes_when_run_again(
    store: Store, package: Package, keyring: KeyRing, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    runs = tmp_path / "runs"
    runs.mkdir()
    for number in range(4):
        seal(runs / f"{number}.sealed", b"data", keyring, b"x")
    original = rotation.rewrap

    def fill_up(path: Path, keys: KeyRing) -> bool:
        if path.name == "2.sealed":
            raise StorageFullError("no space left")
        return original(path, keys)

    with monkeypatch.context() as patch:
        patch.setattr(rotation, "rewrap", fill_up)
        with pytest.raises(StorageFullError):
            rotation.rotate(keyring, [runs, store.root])
    again = KeyRing.open(keyring.path)
    assert again.versions == ["1", "2"]
    for number in range(4):
        assert unseal(runs / f"{number}.sealed", again, b"x") == b"data"
    check(store, again)
    assert rotation.rotate(again, [runs, store.root]).retired == ["1", "2"]
    for number in range(4):
        assert unseal(runs / f"{number}.sealed", again, b"x") == b"data"
    check(store, again)


def test_rotation_rewraps_packages_and_sealed_files(
    store: Store, package: Package, keyring: KeyRing, tmp_path: Path
) -> None:
    deep = tmp_path / "runs" / "a" / "b"
    deep.mkdir(parents=True)
    seal(deep / "model.sealed", b"data", keyring, b"x")
    (deep / "keys.json").write_text("not of a package")
    old_kek = (keyring.path / "kek-1.key").read_bytes()
    before = {
        path: path.read_bytes()
        for path in package.path.rglob("*")
        if path.is_file() and path.name != "keys.json"
    }
    done = rotation.rotate(keyring, [store.root, tmp_path / "runs"])
    assert (done.primary, done.rewrapped, done.retired) == ("2", 2, ["1"])
    assert {path: path.read_bytes() for path in before} == before
    keys = json.loads((package.path / "keys.json").read_text())
    assert {entry["key_id"] for entry in keys["files"].values()} == {"2"}
    assert unseal(deep / "model.sealed", keyring, b"x") == b"data"
    check(store, keyring)
    assert package.read("card.md") == b"# digits\n"
    assert not (keyring.path / "kek-1.key").exists()
    assert (keyring.path / "kek-2.key").read_bytes() != old_kek


def test_signatures_survive_a_rotation(store: Store, package: Package, keyring: KeyRing) -> None:
    signer = keyring.signing_key_id
    rotation.rotate(keyring, [store.root])
    assert keyring.signing_key_id != signer
    assert keyring.verify_key().ids[1:] == (signer,)
    loaded = store.load("digits", 1, keyring, keyring.verify_key())
    assert loaded.digest == package.digest


def test_leftovers_of_a_killed_publisher_do_not_stop_a_rotation(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    leftover = store.root / "digits" / ".staging-x"
    shutil.copytree(package.path, leftover)
    (leftover / "keys.json").write_text("{")
    done = rotation.rotate(keyring, [store.root])
    assert done.rewrapped == 1
    check(store, keyring)


def test_old_copies_cannot_come_back_after_a_rotation(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    keys = package.path / "keys.json"
    old = keys.read_bytes()
    rotation.rotate(keyring, [store.root])
    keys.write_bytes(old)
    with pytest.raises(WorkloadError, match="retired"):
        check(store, keyring)


def test_publishing_goes_on_under_the_new_key(
    store: Store, package: Package, keyring: KeyRing, fields: dict[str, Any]
) -> None:
    rotation.rotate(KeyRing.open(keyring.path), [store.root])
    done = store.publish("digits", {"model.onnx": b"two"}, fields, keyring)
    keys = json.loads((done.path / "keys.json").read_text())
    assert keys["files"]["model.onnx"]["key_id"] == "2"
    check(store, keyring)
