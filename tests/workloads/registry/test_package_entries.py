"""A package's folder: what must be there, what must not, and what a good one gives."""

import hashlib
import os
from pathlib import Path

import pytest

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Manifest, Package
from falaj.workloads.registry.store import Store


def check(store: Store, keyring: KeyRing) -> Package:
    return store.verify("digits", 1, keyring, keyring.verify_key())


@pytest.mark.parametrize("where", [".", "files"])
@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_extra_entries_are_refused(
    store: Store, package: Package, keyring: KeyRing, where: str, kind: str
) -> None:
    path = package.path / where / "extra"
    if kind == "file":
        path.write_bytes(b"planted")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        os.mkfifo(path)
    with pytest.raises(IntegrityError, match="doesn't belong there: 'extra'"):
        check(store, keyring)


@pytest.mark.parametrize(
    "name", ["manifest.json", "manifest.sig", "keys.json", "files", "files/model.onnx.enc"]
)
@pytest.mark.parametrize("kind", ["link", "missing", "pipe"])
def test_replaced_entries_are_refused(
    package: Package, keyring: KeyRing, tmp_path: Path, name: str, kind: str
) -> None:
    store = Store(package.path.parents[2])
    path = package.path / name
    path.rename(tmp_path / "elsewhere")
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(IntegrityError):
        check(store, keyring)


def test_links_instead_of_folders_are_refused(
    store: Store, package: Package, keyring: KeyRing, tmp_path: Path
) -> None:
    package.path.rename(tmp_path / "version")
    package.path.symlink_to(tmp_path / "version")
    with pytest.raises(IntegrityError, match="isn't a folder"):
        check(store, keyring)
    package.path.unlink()
    (tmp_path / "version").rename(package.path)
    model = store.root / "digits"
    model.rename(tmp_path / "model")
    model.symlink_to(tmp_path / "model")
    with pytest.raises(IntegrityError, match="symbolic link"):
        check(store, keyring)


def test_huge_manifest_is_not_read(store: Store, package: Package, keyring: KeyRing) -> None:
    with (package.path / "manifest.json").open("r+b") as file:
        file.truncate(1 << 30)
    with pytest.raises(IntegrityError, match="allowed"):
        check(store, keyring)


def test_what_a_killed_rotation_left_is_ignored(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    (package.path / ".tmp-half").write_bytes(b"{")
    assert check(store, keyring).version == 1


def test_unknown_file_is_an_error(package: Package) -> None:
    with pytest.raises(WorkloadError, match=r"it has: card\.md, model\.onnx"):
        package.read("../keyring/signing.pem")


def test_whole_package_opens(store: Store, package: Package, keyring: KeyRing) -> None:
    opened = check(store, keyring)
    assert opened.read("model.onnx") == bytes(range(256))
    assert opened.manifest["metrics"] == {"accuracy": 0.99}
    assert opened.manifest["signer"] == keyring.signing_key_id
    assert (
        opened.digest == hashlib.sha256((opened.path / "manifest.json").read_bytes()).hexdigest()
    )
    assert (
        Manifest.from_bytes((opened.path / "manifest.json").read_bytes(), "x") == opened.contents
    )


def test_package_holds_no_plaintext_and_is_private(package: Package) -> None:
    for path in [package.path, *package.path.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
        if path.is_file():
            assert b"# digits" not in path.read_bytes()
            assert bytes(range(64)) not in path.read_bytes()
