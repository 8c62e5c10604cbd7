"""Have a Pulumi engine: an installed one, else the vendor's release, else one built here."""

from __future__ import annotations

import hashlib
import http.client
import os
import platform
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from falaj.engine import launchers
from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.files import cache_home, exclusive
from falaj.engine.gobuild import GoModule, compile_commands
from falaj.engine.progress import Report, size, step, to_stderr
from falaj.engine.versions import Version, pins

# Build the engine from its Go module, for networks that reach nothing but a Go module proxy.

MODULE = Path(__file__).with_name("gomodule")


def build_engine(target: Path, report: Report) -> None:
    """Compile the pinned engine into the file `target`.

    Raises EngineError: no usable Go, modules that cannot be had, a compilation that fails.
    """
    pinned = pins()
    module = GoModule(
        MODULE,
        f"the engine, pulumi {pinned.version}",
        pinned.go_toolchain,
        {pinned.go_version_variable: f"v{pinned.version}"},
    )
    compile_commands(module, {target.name: pinned.go_package}, target.parent, report)


# Download the vendor's release of the engine and check it before anything of it is used.
#
# What the checksum protects against. For the platforms in `versions.json` the archive's SHA-256
# is pinned in this repository: neither a broken download nor a changed file on the vendor's site
# or on a mirror is accepted. For other platforms the checksum comes from the vendor's checksum
# file, over HTTPS and from the same site: that detects broken and truncated downloads and a
# tampered cache in between, not a site that was taken over.

SITE_VARIABLE = "FALAJ_ENGINE_RELEASES"
"""Names a mirror of the vendor's release site; unset means the vendor's own."""

CONNECT_SECONDS = 5
READ_SECONDS = 20
CHUNK_BYTES = 1 << 20
MAX_ARCHIVE_BYTES = 1 << 30

_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class UnreachableError(EngineError):
    """The release site does not answer, or does not have the release: another way may work."""


class ChecksumMismatchError(EngineError):
    """The archive is not what was pinned."""


def machine_name() -> str:
    """This machine as the vendor names it: "linux-x64", "darwin-arm64".

    Raises UnreachableError when the vendor releases nothing for it.
    """
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in ("linux", "darwin") or machine not in _MACHINES:
        raise UnreachableError(f"the vendor releases no engine for {system} on {machine}")
    return f"{system}-{_MACHINES[machine]}"


def download_engine(folder: Path, report: Report) -> None:
    """Put the pinned release's programs into `folder` (empty, in the caller's temporary place).

    Raises UnreachableError, ChecksumMismatchError; EngineError: damaged archive, full disk.
    """
    pinned, machine = pins(), machine_name()
    site = release_site()
    name = pinned.archive.format(
        version=pinned.version, system=machine.split("-")[0], machine=machine.split("-")[1]
    )
    expected = pinned.sha256.get(machine) or _vendor_checksum(site, name)
    archive = folder / "archive.tar.gz"
    host = urllib.parse.urlsplit(site).hostname
    with step(report, f"downloading {name} from {host}") as progress:
        try:
            with _open(f"{site}/{name}") as answer, archive.open("xb") as file:
                total = int(answer.headers.get("Content-Length") or 0)
                digest, got = hashlib.sha256(), 0
                while chunk := _read(answer):
                    got += len(chunk)
                    if got > MAX_ARCHIVE_BYTES:
                        raise EngineError(f"{name} is larger than {size(MAX_ARCHIVE_BYTES)}")
                    digest.update(chunk)
                    file.write(chunk)
                    progress.update(size(got) + (f" of {size(total)}" if total else ""))
        except OSError as error:
            raise explain_os_error(error, f"saving {name}") from error
        if total and got != total:
            raise UnreachableError(f"{name} broke off after {size(got)} of {size(total)}")
    if digest.hexdigest() != expected:
        raise ChecksumMismatchError(
            f"{site}/{name} has the SHA-256 {digest.hexdigest()}, but {expected} is expected; "
            "it was not used. A proxy may have changed it, or the pinned release was altered: "
            f"try again, or install pulumi {pinned.minimum} or newer yourself"
        )
    _unpack(archive, folder)
    archive.unlink()


def release_site() -> str:
    """The site to download from; a mirror must be https, but on this machine itself."""
    site = (os.environ.get(SITE_VARIABLE) or pins().release_site).rstrip("/")
    parts = urllib.parse.urlsplit(site)
    if parts.scheme == "https" and parts.hostname:
        return site
    if parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1"):
        return site
    raise EngineError(
        f"{SITE_VARIABLE} is {site!r}; it must be an https:// address, "
        f"such as {pins().release_site}"
    )


def _vendor_checksum(site: str, name: str) -> str:
    url = f"{site}/{pins().checksum_file.format(version=pins().version)}"
    with _open(url) as answer:
        text = b"".join(iter(lambda: _read(answer), b"")).decode("ascii", "replace")
    match = re.search(rf"^([0-9a-f]{{64}})\s+\*?{re.escape(name)}$", text, re.MULTILINE)
    if match is None:
        raise UnreachableError(f"{url} names no checksum for {name}")
    return match[1]


def _open(url: str) -> http.client.HTTPResponse:
    """Open `url`, giving up soon when nothing answers, so that closed networks lose no time."""
    parts = urllib.parse.urlsplit(url)
    if not urllib.request.getproxies():
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
        except OSError as error:
            raise UnreachableError(f"{parts.hostname} cannot be reached: {error}") from error
    try:
        return urllib.request.urlopen(url, timeout=READ_SECONDS)  # noqa: S310  see release_site
    except urllib.error.HTTPError as error:
        raise UnreachableError(f"{url} answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(f"{parts.hostname} cannot be reached: {reason}") from error


def _read(answer: IO[bytes] | Any) -> bytes:
    try:
        return answer.read(CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"the download broke off: {error}") from error


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the archive's `pulumi/` folder into `folder`."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                parts = Path(member.name).parts
                if not member.isfile() or len(parts) != 2 or parts[0] != "pulumi":
                    continue  # the vendor's archives are one flat folder of programs
                source = tar.extractfile(member)
                if source is None or parts[1] in ("..", "archive.tar.gz"):
                    continue
                target = folder / parts[1]
                with source, target.open("xb") as file:
                    shutil.copyfileobj(source, file)
                target.chmod(0o755 if member.mode & 0o100 else 0o644)
    except (tarfile.TarError, EOFError) as error:
        raise EngineError(f"the downloaded archive is damaged: {error}") from error
    except OSError as error:
        raise explain_os_error(error, "unpacking the engine") from error
    if not (folder / "pulumi").is_file():
        raise EngineError("the downloaded archive holds no pulumi program")


QUESTION_SECONDS = 60
_TEMPORARY = "unfinished-"

Source = Literal["installed", "downloaded", "built"]


@dataclass(frozen=True)
class Engine:
    """A usable engine.

    `language_host` tells whose Python language host it will start; `bin_dirs` is what has to come
    first on the PATH for `pulumi` to be this engine with that host.
    """

    path: Path
    version: str
    source: Source
    language_host: Literal["vendor", "falaj"]
    bin_dirs: list[Path] = field(default_factory=list[Path])


def ensure_engine(report: Report = to_stderr) -> Engine:
    """Return an engine that is new enough, getting one first if need be.

    In this order: `pulumi` on the PATH, one that was got before, a download, a build. Two calls at
    once get one engine; an interrupted one leaves nothing that a later one could mistake for an
    engine. Raises EngineError when no way works, with the reason of each.
    """
    if installed := installed_engine(report):
        return _with_language_host(installed[0], "installed", installed[1])
    folder = engine_home()
    if kept := kept_engine(folder):
        return _with_language_host(*kept)
    try:
        with exclusive(folder.parent / f"{folder.name}.lock", report, "the engine"):
            # Another run may have got it meanwhile.
            found = kept_engine(folder) or _get(folder, report)
    except OSError as error:
        raise explain_os_error(error, f"getting the engine into {folder.parent}") from error
    return _with_language_host(*found)


def engine_home() -> Path:
    """The folder in the user's cache that holds the pinned engine, keyed by its version."""
    return cache_home() / "engine" / f"v{pins().version}"


def engine_version(path: Path) -> Version:
    """What `path version` answers. Raises EngineError when it answers nothing sensible."""
    try:
        answer = subprocess.run(
            [str(path), "version"],
            capture_output=True,
            text=True,
            timeout=QUESTION_SECONDS,
            check=True,
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
        return Version.parse(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineError(f"{path} does not tell its version: {error}") from error


def installed_engine(report: Report) -> tuple[Path, Version] | None:
    """`pulumi` on the PATH when it is new enough and not one of ours."""
    ours = cache_home().resolve()
    for folder in os.get_exec_path():
        found = shutil.which("pulumi", path=folder)
        if found is None or Path(found).resolve().is_relative_to(ours):
            continue
        path = Path(found).absolute()
        try:
            version = engine_version(path)
        except EngineError as error:
            report(f"{error}; looking for another engine")
            continue
        if version.at_least(pins().minimum):
            return path, version
        report(f"{path} is version {version}, older than {pins().minimum}; not using it")
    return None


def kept_engine(folder: Path) -> tuple[Path, Source] | None:
    """The engine that an earlier run put into `home`, which appears there whole or not at all."""
    path, note = folder / "bin" / "pulumi", folder / "source"
    if not (os.access(path, os.X_OK) and note.is_file()):
        return None
    source = note.read_text(encoding="utf-8").strip()
    return path, "downloaded" if source == "downloaded" else "built"


def _get(folder: Path, report: Report) -> tuple[Path, Source]:
    """Download or build into a temporary folder, try the result, and move it into place."""
    for left in folder.parent.glob(f"{_TEMPORARY}*"):  # we hold the lock: nobody uses it
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)  # incomplete, or `kept_engine` would have taken it
    reasons: list[str] = []
    ways: list[tuple[Source, Callable[[Path, Report], None]]] = [
        ("downloaded", download_engine),
        ("built", lambda target, report: build_engine(target / "pulumi", report)),
    ]
    for source, way in ways:
        work = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder.parent))
        try:
            (work / "bin").mkdir()
            way(work / "bin", report)
            version = engine_version(work / "bin" / "pulumi")
            if version != pins().version:
                raise EngineError(f"got pulumi {version} where {pins().version} was expected")
            (work / "source").write_text(f"{source}\n", encoding="utf-8")
            work.chmod(0o755)
            work.rename(folder)
        except EngineError as error:
            reasons.append(f"{'download' if source == 'downloaded' else 'build'}: {error}")
            if source == "downloaded":
                report(f"{error}; building the engine instead")
        else:
            return folder / "bin" / "pulumi", source
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise EngineError(
        f"no Pulumi engine could be had. Install pulumi {pins().minimum} or newer "
        "(https://www.pulumi.com/docs/install/), or see to one of these:\n  "
        + "\n  ".join(reasons)
    )


def _with_language_host(path: Path, source: Source, found: Version | None = None) -> Engine:
    version = str(found or pins().version)  # what we got is what is pinned
    if launchers.vendor_host(path) is not None:
        return Engine(path, version, source, "vendor", [path.parent])
    # Beside an engine of ours the engine finds it without a warning; we do not write elsewhere.
    folder = path.parent if source != "installed" else cache_home() / "languagehost"
    launchers.install(folder)
    return Engine(path, version, source, "falaj", list(dict.fromkeys([path.parent, folder])))
