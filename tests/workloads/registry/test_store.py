import hashlib
import json
import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import IntegrityError, StorageFullError, WorkloadError
from falaj.workloads.registry import store as store_module
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.layout import manifest_of
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Published, Store

Fields = dict[str, Any]


def publish(store: Store, keyring: KeyRing, fields: Fields, content: bytes) -> Published:
    return store.publish("digits", {"model.onnx": content}, fields, keyring)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../up", "/abs", ".hidden", "a b", "x" * 65, "audit.jsonl", "é"]
)
def test_model_names_that_are_paths_are_refused(
    store: Store, keyring: KeyRing, fields: Fields, name: str
) -> None:
    with pytest.raises(WorkloadError, match="can't name a model"):
        store.publish(name, {"model.onnx": b"x"}, fields, keyring)
    with pytest.raises(WorkloadError, match="can't name a model"):
        store.versions(name)
    assert not store.root.exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../keyring/signing.pem", ".x", "a\0b"])
def test_file_names_that_are_paths_are_refused(
    store: Store, keyring: KeyRing, fields: Fields, name: str
) -> None:
    with pytest.raises(WorkloadError, match="can't name a file"):
        store.publish("digits", {name: b"x"}, fields, keyring)
    assert not store.root.exists()


@pytest.mark.parametrize("alias", ["", "3", "Production", "a/b", "..", "-x"])
def test_bad_aliases_are_refused(store: Store, package: Package, alias: str) -> None:
    with pytest.raises(WorkloadError, match="can't name an alias"):
        store.promote("digits", 1, alias)


def test_nothing_to_publish_is_refused(store: Store, keyring: KeyRing, fields: Fields) -> None:
    with pytest.raises(WorkloadError, match="at least one file"):
        store.publish("digits", {}, fields, keyring)


def test_fields_that_json_cannot_say_are_refused(
    store: Store, keyring: KeyRing, fields: Fields
) -> None:
    fields["metrics"] = {"loss": float("nan")}
    with pytest.raises(WorkloadError, match="can't hold"):
        publish(store, keyring, fields, b"x")
    assert store.versions("digits") == []
    assert not list(store.root.glob("digits/.staging-*"))


def test_missing_versions_and_aliases_say_what_there_is(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    with pytest.raises(WorkloadError, match="no version 2 of digits; it has: 1"):
        store.load("digits", 2, keyring, keyring.verify_key())
    with pytest.raises(WorkloadError, match="none: publish one first"):
        store.load("letters", 1, keyring, keyring.verify_key())
    with pytest.raises(WorkloadError, match="no alias 'production'"):
        store.load("digits", "production", keyring, keyring.verify_key())
    with pytest.raises(WorkloadError, match="no version 9"):
        store.promote("digits", 9)
    with pytest.raises(WorkloadError, match="no alias"):
        store.rollback("digits")


@pytest.mark.parametrize("step", ["manifest.sig", "manifest.json", "keys.json", "audit", "rename"])
def test_full_disk_leaves_the_registry_as_it_was(
    store: Store,
    keyring: KeyRing,
    fields: Fields,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    import falaj.workloads.registry.package as package_module

    publish(store, keyring, fields, b"one")
    before = sorted(store.root.rglob("*"))
    original = package_module.write_atomic

    def full(path: Path, *more: Any, **options: Any) -> None:
        if path.name == step:
            raise StorageFullError("no space left")
        original(path, *more, **options)

    def refuse(*_arguments: object) -> None:
        raise StorageFullError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(package_module, "write_atomic", full)
        patch.setattr(package_module, "write_json_atomic", full if step == "keys.json" else
                      package_module.write_json_atomic)  # fmt: skip
        if step == "audit":
            patch.setattr(store_module, "append_event", refuse)
        if step == "rename":
            patch.setattr(Path, "rename", refuse)
        with pytest.raises(StorageFullError):
            publish(store, keyring, fields, b"two")
    assert sorted(store.root.rglob("*")) == before
    assert publish(store, keyring, fields, b"two").version == 2


def test_counter_of_nonsense_is_refused(store: Store, keyring: KeyRing, fields: Fields) -> None:
    publish(store, keyring, fields, b"one")
    (store.root / "digits" / "counter.json").write_text('{"last": "7"}')
    with pytest.raises(WorkloadError, match=r"counter\.json is malformed"):
        publish(store, keyring, fields, b"two")


def test_who_reads_a_manifest_alone_finds_it(
    store: Store, keyring: KeyRing, fields: Fields
) -> None:
    made = publish(store, keyring, fields, b"one")
    there = manifest_of(store.root, "digits", made.version)
    assert there.read_bytes()
    assert there.parent == store.path("digits", made.version) == made.path
    assert not manifest_of(str(store.root), "digits", None).exists()


def test_same_content_is_published_once(store: Store, keyring: KeyRing, fields: Fields) -> None:
    first = publish(store, keyring, fields, b"one")
    again = publish(store, keyring, {**fields, "metrics": {"accuracy": 0.5}}, b"one")
    assert (first.created, again.created) == (True, False)
    assert (again.version, again.digest) == (1, first.digest)
    other_run = {**fields, "lineage": {"run": "another"}}
    assert publish(store, keyring, other_run, b"one").version == 2
    assert publish(store, keyring, fields, b"two").version == 3
    assert publish(store, keyring, fields, b"one").version == 1


def test_damaged_version_is_not_taken_for_a_published_one(
    store: Store, keyring: KeyRing, fields: Fields
) -> None:
    first = publish(store, keyring, fields, b"one")
    (first.path / "files" / "model.onnx.enc").write_bytes(b"damaged")
    again = publish(store, keyring, fields, b"one")
    assert (again.version, again.created) == (2, True)


def test_pruned_numbers_are_never_given_again(
    store: Store, keyring: KeyRing, fields: Fields
) -> None:
    for number in range(3):
        publish(store, keyring, fields, bytes([number]))
    store.promote("digits", 1)
    assert store.prune("digits", 1) == [2]
    shutil.rmtree(store.root / "digits" / "versions" / "3")
    assert publish(store, keyring, fields, b"four").version == 4
    (store.root / "digits" / "counter.json").unlink()
    assert publish(store, keyring, fields, b"five").version == 5


def test_prune_keeps_what_aliases_need(store: Store, keyring: KeyRing, fields: Fields) -> None:
    for number in range(6):
        publish(store, keyring, fields, bytes([number]))
    for version in (1, 2, 3):
        store.promote("digits", version)
    store.promote("digits", 4, "canary")
    assert store.prune("digits", 1, protect=[5]) == [1]
    assert store.prune("digits", 1) == [5]
    assert store.versions("digits") == [2, 3, 4, 6]
    assert store.rollback("digits").version == 2
    assert store.prune("digits", 1) == [3]
    with pytest.raises(WorkloadError, match="no earlier one"):
        store.rollback("digits")
    assert not list(store.root.glob("digits/.removed-*"))


@pytest.mark.parametrize("keep", [0, -1])
def test_prune_of_everything_is_refused(store: Store, package: Package, keep: int) -> None:
    with pytest.raises(WorkloadError, match="allowed: 1 or more"):
        store.prune("digits", keep)


def test_leftovers_of_killed_writers_go_with_the_next_publication(
    store: Store, package: Package, keyring: KeyRing, fields: Fields
) -> None:
    folder = store.root / "digits"
    for name in (".staging-x", ".removed-7"):
        shutil.copytree(package.path, folder / name)
    assert store.versions("digits") == [1]
    publish(store, keyring, fields, b"next")
    assert not [entry for entry in folder.iterdir() if entry.name.startswith((".stag", ".rem"))]
    assert store.versions("digits") == [1, 2]


def test_promotions_and_rollbacks(store: Store, keyring: KeyRing, fields: Fields) -> None:
    for number in range(3):
        publish(store, keyring, fields, bytes([number]))
    assert store.promote("digits", 1).previous is None
    assert store.promote("digits", 3).previous == 1
    assert store.promote("digits", 3).previous == 3
    assert store.promote("digits", 2).previous == 3
    document = json.loads((store.root / "digits" / "aliases.json").read_text())
    assert document["production"]["version"] == 2
    assert document["production"]["history"] == [1, 3]
    with pytest.raises(WorkloadError, match="stands for version 2 by now, and not for version 3"):
        store.rollback("digits", expected=3)
    assert store.resolve("digits") == 2
    moved = store.rollback("digits", expected=2)
    assert (moved.version, moved.previous) == (3, 2)
    assert store.rollback("digits").version == 1
    with pytest.raises(WorkloadError, match="no earlier one to go back to"):
        store.rollback("digits")
    assert store.resolve("digits") == 1
    actions = [
        (event["action"], event.get("version")) for event in store_module.read_events(store.root)
    ]
    assert actions[3:] == [
        ("promote", 1), ("promote", 3), ("promote", 2), ("rollback", 3), ("rollback", 1),
    ]  # fmt: skip


def test_aliases_are_independent(store: Store, keyring: KeyRing, fields: Fields) -> None:
    publish(store, keyring, fields, b"one")
    publish(store, keyring, fields, b"two")
    store.promote("digits", 1)
    store.promote("digits", 2, "canary")
    assert (store.resolve("digits"), store.resolve("digits", "canary")) == (1, 2)
    package = store.load("digits", "canary", keyring, keyring.verify_key())
    assert package.read("model.onnx") == b"two"


@pytest.mark.parametrize(
    "content",
    ["[]", "{", '{"production": 1}', '{"production": {"version": "1"}}',
     '{"production": {"version": 1, "history": ["x"], "changed": ""}}', '{"../x": {}}'],
)  # fmt: skip
def test_damaged_aliases_are_an_error(store: Store, package: Package, content: str) -> None:
    (store.root / "digits" / "aliases.json").write_text(content)
    with pytest.raises(WorkloadError):
        store.resolve("digits")


def test_failed_audit_stops_a_promotion(
    store: Store, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise StorageFullError("no space left")

    monkeypatch.setattr(store_module, "append_event", full)
    with pytest.raises(StorageFullError):
        store.promote("digits", 1)
    assert store.aliases("digits") == {}


def _publish_some(root: Path, ring: Path, fields: Fields, worker: int) -> None:
    store, keyring = Store(root), KeyRing.open(ring)
    for number in range(4):
        publish(store, keyring, fields, f"{worker} {number}".encode())


def test_publishers_at_the_same_time_lose_nothing(
    store: Store, keyring: KeyRing, fields: Fields
) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_publish_some, args=(store.root, keyring.path, fields, worker))
        for worker in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert store.versions("digits") == list(range(1, 13))
    contents = {
        store.load("digits", n, keyring, keyring.verify_key()).read("model.onnx")
        for n in store.versions("digits")
    }
    assert contents == {f"{worker} {n}".encode() for worker in range(3) for n in range(4)}
    assert len(store_module.read_events(store.root)) == 12


def test_published_folder_and_digest(store: Store, keyring: KeyRing, fields: Fields) -> None:
    done = publish(store, keyring, fields, b"one")
    manifest = (done.path / "manifest.json").read_bytes()
    assert done.path == store.root / "digits" / "versions" / "1"
    assert done.digest == hashlib.sha256(manifest).hexdigest()
    assert store.models() == ["digits"]
    for path in [store.root, *store.root.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0


def test_version_that_does_not_open_is_never_published(
    store: Store, keyring: KeyRing, other_keyring: KeyRing, fields: Fields
) -> None:
    other = (other_keyring.path / "signing.pub.pem").read_bytes()
    (keyring.path / "signing.pub.pem").write_bytes(other)
    with pytest.raises(IntegrityError, match="not by the trusted"):
        publish(store, keyring, fields, b"one")
    assert store.versions("digits") == []
