"""What pods do with packages: key rings in one file, packages taken over, models laid open."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import file_system_of, require_memory
from falaj.workloads.registry.__main__ import main
from falaj.workloads.registry.keyring import KeyRing, pack, unpack
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.publishing import import_package
from falaj.workloads.registry.store import Store
from falaj.workloads.registry.triton_layout import Running, configuration, write_repository
from tests.workloads.inference import models


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="falaj-test-", dir="/dev/shm") as folder:
        yield Path(folder)


# -- key rings ---------------------------------------------------------------------------------


def test_a_packed_key_ring_opens_packages_and_signs_nothing(
    keyring: KeyRing, package: Package, store: Store, tmp_path: Path
) -> None:
    keyring.rotate()
    source = tmp_path / "keyring.tar"
    source.write_bytes(pack(keyring))
    other = unpack(source, tmp_path / "there")
    assert other.versions == ["1", "2"]
    assert store.verify("digits", 1, other, other.verify_key()).digest == package.digest
    assert not (other.path / "signing.pem").exists()
    assert not (other.path / "tokens.pem").exists()
    with pytest.raises(WorkloadError):
        other.signing_key()
    for path in other.path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert pack(keyring) == source.read_bytes()
    # After a restart of the pod: the same again, over what is there.
    assert unpack(source, tmp_path / "there").versions == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no packed key ring"),
        (b"H4sIAAAA" * 200, "Is it still in base64?"),
        (
            archive(**{"keyring.json": b"{}", "../kek-1.key": b"x"}),
            "belongs to no packed key ring",
        ),
        (archive(**{"keyring.json": b"{}", "signing.pem": b"x"}), "belongs to no packed key ring"),
        (archive(**{"kek-1.key": b"x" * 32}), "holds no keyring.json"),
        (archive(**{"keyring.json": b"{}"}), "isn't a key ring"),
        (b"x" * (1 << 21), "has at most"),
    ],
)
def test_what_is_no_packed_key_ring_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    source = tmp_path / "keyring.tar"
    source.write_bytes(content)
    with pytest.raises(WorkloadError, match=words.replace("?", r"\?")):
        unpack(source, tmp_path / "there")


@given(st.binary(max_size=2048))
def test_any_bytes_are_refused_in_words(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "keyring.tar"
        source.write_bytes(content)
        with pytest.raises(WorkloadError):
            unpack(source, Path(folder) / "there")


def test_a_link_in_the_archive_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        link = tarfile.TarInfo("keyring.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    (tmp_path / "keyring.tar").write_bytes(buffer.getvalue())
    with pytest.raises(WorkloadError, match="belongs to no packed key ring"):
        unpack(tmp_path / "keyring.tar", tmp_path / "there")


# -- packages ------------------------------------------------------------------------------------


def test_a_package_is_taken_over_and_again(
    keyring: KeyRing, package: Package, tmp_path: Path
) -> None:
    there = Store(tmp_path / "there")
    for _ in range(2):
        found = import_package(
            there, "digits", 1, package.path, keys=keyring, verify_key=keyring.verify_key()
        )
        assert found.digest == package.digest
    assert there.versions("digits") == [1]


def test_what_was_not_signed_leaves_nothing_behind(
    keyring: KeyRing, other_keyring: KeyRing, package: Package, tmp_path: Path
) -> None:
    there = Store(tmp_path / "there")
    for model, version, trusted in (
        ("digits", 2, keyring), ("letters", 1, keyring), ("digits", 1, other_keyring),
    ):  # fmt: skip
        with pytest.raises(IntegrityError):
            import_package(
                there, model, version, package.path, keys=keyring, verify_key=trusted.verify_key()
            )
        assert there.versions(model) == []
    sealed = package.path / "files" / "model.onnx.enc"
    content = sealed.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        sealed.write_bytes(damaged)
        with pytest.raises(IntegrityError):
            import_package(
                there, "digits", 1, package.path, keys=keyring, verify_key=keyring.verify_key()
            )
    assert [path.name for path in (tmp_path / "there" / "digits" / "versions").iterdir()] == []


def test_links_in_a_package_are_not_followed(
    keyring: KeyRing, package: Package, tmp_path: Path
) -> None:
    sealed = package.path / "files" / "model.onnx.enc"
    moved = tmp_path / "elsewhere"
    sealed.rename(moved)
    sealed.symlink_to(moved)
    with pytest.raises(IntegrityError, match="can't read"):
        import_package(
            Store(tmp_path / "there"), "digits", 1, package.path, keys=keyring,
            verify_key=keyring.verify_key(),
        )  # fmt: skip


# -- Triton --------------------------------------------------------------------------------------


def published(store: Store, keyring: KeyRing, content: bytes) -> Package:
    done = store.publish("m", {"model.onnx": content}, models.fields(content), keyring)
    return store.load("m", done.version, keyring, keyring.verify_key())


def test_the_repository_holds_the_model_for_its_owner_alone(
    store: Store, keyring: KeyRing, memory: Path
) -> None:
    content = models.classifier()
    package = published(store, keyring, content)
    for _ in range(2):  # as after a restart
        folder = write_repository(package, memory / "repository", Running(16, 1))
    assert (folder / "1" / "model.onnx").read_bytes() == content
    assert stat.S_IMODE((folder / "1" / "model.onnx").stat().st_mode) == 0o400
    assert stat.S_IMODE((folder / "1").stat().st_mode) == 0o500
    lines = (folder / "config.pbtxt").read_text().splitlines()
    assert 'name: "m"' in lines
    assert "max_batch_size: 16" in lines
    assert 'input [ { name: "image" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] } ]' in lines
    # One label for each row: Triton needs a size that the model doesn't have.
    label = 'output [ { name: "label" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } } ]'
    assert label in lines
    assert "instance_group [ { kind: KIND_GPU count: 1 } ]" in lines
    assert "version_policy { specific { versions: [ 1 ] } }" in lines


def tensors(*shapes: list[int], datatype: str = "FP32") -> list[dict[str, Any]]:
    return [
        {"name": f"t{index}", "datatype": datatype, "shape": shape}
        for index, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize(
    ("inputs", "outputs", "batch"),
    [
        (tensors([-1, 4]), tensors([-1, 2], [-1]), 32),
        (tensors([-1]), tensors([-1, 2]), 0),
        (tensors([4]), tensors([2]), 0),
        (tensors([-1, 4]), tensors([2]), 0),
    ],
)
def test_rows_are_batched_where_every_tensor_has_them(
    inputs: list[Any], outputs: list[Any], batch: int
) -> None:
    text = configuration("m", 1, {"inputs": inputs, "outputs": outputs}, Running(32, 0))
    assert f"max_batch_size: {batch}" in text.splitlines()
    assert ("dynamic_batching { }" in text.splitlines()) == bool(batch)


def test_names_can_not_end_their_quotes() -> None:
    name = 'a" } ] backend: "python'
    shape = [{"name": name, "datatype": "BYTES", "shape": [-1, 1]}]
    text = configuration("m", 1, {"inputs": shape, "outputs": shape}, Running(1, 0))
    assert 'name: "a\\" } ] backend: \\"python"' in text
    assert text.count('\nbackend: "') == 1


@pytest.mark.parametrize("running", [Running(1, 1, "cuda"), Running(1, 1, "")])
def test_unknown_accelerators_are_refused(running: Running) -> None:
    manifest = {"inputs": tensors([-1, 4]), "outputs": tensors([-1, 4])}
    with pytest.raises(WorkloadError, match="tensorrt-fp16"):
        configuration("m", 1, manifest, running)


def test_a_type_that_triton_lacks_is_refused() -> None:
    manifest = {"inputs": tensors([-1, 4], datatype="COMPLEX"), "outputs": []}
    with pytest.raises(WorkloadError, match="COMPLEX"):
        configuration("m", 1, manifest, Running(1, 1))


def test_plain_models_go_to_memory_only(
    store: Store, keyring: KeyRing, memory: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert file_system_of(memory / "not" / "there") == "tmpfs"
    published(store, keyring, models.classifier())
    command = ["unseal", "--registry", str(store.root), "--model", "m", "--version", "1",
               "--keyring", str(keyring.path), "--layout", "triton", "--json"]  # fmt: skip
    if file_system_of(tmp_path) != "tmpfs":
        assert main([*command, "--to", str(tmp_path / "open")]) == 2
        assert "to memory only" in capsys.readouterr().err
        assert not (tmp_path / "open").exists()
    assert main([*command, "--to", str(memory / "open")]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(memory / "open" / "m")
    assert main([*command, "--to", str(tmp_path / "open"), "--allow-disk"]) == 0


def test_a_disk_is_told_from_memory() -> None:
    with pytest.raises(WorkloadError, match="proc"):
        require_memory(Path("/proc/self"))
