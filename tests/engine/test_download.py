"""The download path against a release site on this machine, with small fake archives."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from falaj.engine import install
from falaj.engine.errors import EngineError
from falaj.engine.install import (
    ChecksumMismatchError,
    UnreachableError,
    download_engine,
    ensure_engine,
    machine_name,
    release_site,
)
from falaj.engine.versions import pins

PROGRAM = b"#!/bin/sh\necho v3.255.0\n"


class Site:
    """Serves `files` (path: content); a `short` one breaks off, a `silent` one never answers."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.short = False
        self.silent = threading.Event()
        self.silent.set()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.silent.wait(30)
                content = site.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if site.short else content)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.silent.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Generator[Site]:
    made = Site()
    monkeypatch.setenv("FALAJ_ENGINE_RELEASES", made.url)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield made
    made.close()


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def release(
    site: Site, monkeypatch: pytest.MonkeyPatch, members: dict[str, bytes], digest: str | None
) -> str:
    """Publish an archive; pin `digest` for it (None: its own)."""
    content = archive(members)
    name = f"pulumi-v3.255.0-{machine_name()}.tar.gz"
    site.files[f"/{name}"] = content
    pinned = (
        {machine_name(): digest or hashlib.sha256(content).hexdigest()} if digest != "" else {}
    )
    monkeypatch.setattr(install, "pins", lambda: dataclasses.replace(pins(), sha256=pinned))
    return name


def fetch(folder: Path) -> list[str]:
    lines: list[str] = []
    download_engine(folder, lines.append)
    return lines


def test_a_wrong_checksum_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(site, monkeypatch, {"pulumi/pulumi": PROGRAM}, "0" * 64)
    with pytest.raises(ChecksumMismatchError, match=r"0{64} is expected; it was not used"):
        fetch(tmp_path)
    assert not (tmp_path / "pulumi").exists()


def test_a_truncated_archive_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(site, monkeypatch, {"pulumi/pulumi": PROGRAM}, None)
    site.short = True
    with pytest.raises(UnreachableError, match="broke off"):
        fetch(tmp_path)


def test_a_site_that_does_not_answer_is_given_up(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "READ_SECONDS", 0.2)
    site.silent.clear()
    with pytest.raises(UnreachableError, match="cannot be reached"):
        fetch(tmp_path)


def test_a_missing_release_is_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="404"):
        fetch(tmp_path)


@pytest.mark.parametrize("address", ["http://mirror.example", "ftp://127.0.0.1", "https://", "x"])
def test_a_mirror_must_be_https(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALAJ_ENGINE_RELEASES", address)
    with pytest.raises(EngineError, match="must be an https:// address"):
        release_site()


def test_an_archive_without_the_program_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(site, monkeypatch, {"other/pulumi": PROGRAM}, None)
    with pytest.raises(EngineError, match="holds no pulumi program"):
        fetch(tmp_path)


def test_an_archive_cannot_write_elsewhere(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"pulumi/pulumi": PROGRAM, "pulumi/../../evil": b"x", "/tmp/falaj-evil": b"x"}
    release(site, monkeypatch, members, None)
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    fetch(folder)
    assert [path.name for path in folder.iterdir()] == ["pulumi"]
    assert not (tmp_path / "evil").exists()
    assert not Path("/tmp/falaj-evil").exists()


def test_a_good_archive_is_unpacked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"pulumi/pulumi": PROGRAM, "pulumi/pulumi-language-python": PROGRAM}
    release(site, monkeypatch, members, None)
    lines = fetch(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pulumi",
        "pulumi-language-python",
    ]
    assert (tmp_path / "pulumi").stat().st_mode & 0o111
    assert "downloading pulumi-v3.255.0" in lines[0]


def test_without_a_pin_the_vendors_checksum_file_decides(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = release(site, monkeypatch, {"pulumi/pulumi": PROGRAM}, "")
    with pytest.raises(UnreachableError, match=r"checksums\.txt answers 404"):
        fetch(tmp_path)
    site.files["/pulumi-3.255.0-checksums.txt"] = b"0" * 64 + b"  another.tar.gz\n"
    with pytest.raises(UnreachableError, match="names no checksum"):
        fetch(tmp_path)
    digest = hashlib.sha256(site.files[f"/{name}"]).hexdigest()
    site.files["/pulumi-3.255.0-checksums.txt"] += f"{digest}  {name}\n".encode()
    fetch(tmp_path)
    assert (tmp_path / "pulumi").read_bytes() == PROGRAM


def test_a_downloaded_engine_brings_its_own_language_host(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"pulumi/pulumi": PROGRAM, "pulumi/pulumi-language-python": PROGRAM}
    release(site, monkeypatch, members, None)
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    lines: list[str] = []
    first, second = ensure_engine(lines.append), ensure_engine(lines.append)
    assert first == second
    assert (first.source, first.language_host) == ("downloaded", "vendor")
    assert first.bin_dirs == [tmp_path / "cache" / "engine" / "v3.255.0" / "bin"]
    assert (first.bin_dirs[0] / "pulumi-language-python").read_bytes() == PROGRAM
