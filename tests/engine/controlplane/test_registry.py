"""Images that are made for a registry of a control plane, and bases of Debian's packages."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from falaj.engine import debian
from falaj.engine.controlplane import bases
from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.registry import Image, Registry, with_libraries
from falaj.engine.errors import EngineError


def test_where_no_registry_answers_it_is_said(tmp_path: Path) -> None:
    here = Registry("127.0.0.1:1", _authority(tmp_path))
    with pytest.raises(EngineError, match=r"the registry 127\.0\.0\.1:1 can't be reached"):
        here.push("falaj/base", Image.of(b"", {}))


def test_a_program_comes_with_what_it_is_linked_to() -> None:
    shell = Path(shutil.which("sh") or "")
    found = with_libraries("/sh", shell)
    assert found["sh"] == shell
    assert any("libc.so" in each for each in found), found
    assert all(path.is_file() for path in found.values())


def test_what_is_no_program_is_told(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    with pytest.raises(EngineError, match=f"ldd {path}"):
        with_libraries("/missing", path)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What every package unpacks to."""
    above = tmp_path / "package"
    for name, text in {
        "usr/bin/python3.11": "program",
        "usr/share/doc/python3/copyright": "licence",
        "usr/share/man/man1/python.1": "manual",
        "usr/share/documents": "kept",
        "etc/passwd": "of the package",
    }.items():
        path = above / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (above / "usr/bin/python3.11").chmod(0o755)
    (above / "usr/bin/python3").symlink_to("python3.11")

    def unpacked(names: Sequence[str]) -> list[Path]:
        assert names
        return [above]

    monkeypatch.setattr(debian, "unpacked", unpacked)
    return above


@pytest.mark.parametrize("base", bases.PACKAGES)
def test_a_base_is_the_packages_files_without_manuals(base: str, packages: Path) -> None:
    layer = bases.layer(base)
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        members = {each.name: each for each in archive.getmembers()}
        passwd = archive.extractfile("etc/passwd")
        assert passwd is not None
        assert b"nonroot:x:65532:65532" in passwd.read()
    assert members["usr/bin/python3.11"].mode == 0o755
    assert members["usr/bin/python3"].linkname == "python3.11"
    assert members["tmp"].mode == 0o1777
    assert "usr/share/documents" in members
    assert not [each for each in members if each.startswith(("usr/share/doc/", "usr/share/man"))]
    assert {each.mtime for each in members.values()} == {0}
    assert {(each.uid, each.gid) for each in members.values()} == {(0, 0)}
    assert bases.layer(base) == layer


def _authority(folder: Path) -> Path:
    Authority(folder).server("here", ("127.0.0.1",))
    return next(folder.glob("ca.crt"))
