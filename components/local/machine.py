"""This machine: its files, ports and processes, and errors that a person can act upon."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from falaj.components.specification.workload_bounds import endings
from falaj.wire.documents import is_dictionary

# Errors of the provider that a person can read and act upon.

TABLES: Final = endings("tables")
"""Endings of the files with rows that a dataset may be."""
TEXTS: Final = (*endings("texts"), *endings("conversations"))
"""Endings of the texts that a language model may learn from, and of conversations."""


class LocalError(Exception):
    """A mistake in what a person gave, or a fault that a person can put right.

    The engine shows the message as it is, without a trace: it says what was wrong, what was
    given, what is allowed and what to do.

    Args:
        message: what the person sees.
        details: what only helps to find the cause; it goes to the site's log.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class StoppedError(LocalError):
    """Work was stopped because the deployment was cancelled; what was done so far is kept."""


@dataclass(frozen=True)
class InvalidInput:
    """One input that was refused.

    Attributes:
        property: the input's name as the engine knows it; empty for the resource as a whole.
        reason: what was given and what is allowed.
    """

    property: str
    reason: str


class InvalidInputsError(Exception):
    """Inputs that ``check`` refuses; the engine shows each refusal beside its property."""

    def __init__(self, errors: Sequence[InvalidInput]) -> None:
        super().__init__("; ".join(f"{r.property}: {r.reason}" for r in errors))
        self.errors = tuple(errors)


# Files that a person gives.


def digest_of_files(named: Iterable[tuple[str, Path]], property: str) -> str:
    """SHA-256 over names and contents of files, in the order in which they come.

    Args:
        named: what each counts as, and where it is.
        property: the input that they are of.

    Raises:
        InvalidInputsError: one can't be read.
    """
    whole = hashlib.sha256()
    for name, path in named:
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            reason = f"{path} can't be read: {error.strerror}"
            raise InvalidInputsError([InvalidInput(property, reason)]) from error
        whole.update(f"{name}\0{content}\0".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


# Files of the site: written atomically, private, and shredded when they held a secret.

_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SECRET_SUFFIXES: Final = {".key", ".pem", ".sealed"}
_WRAPPED_KEYS: Final = "keys.json"
"""Of a package, whose files can't be read without."""
_SHREDDED_BYTES: Final = 1 << 20
"""More than a key takes, and the wrapped one at the front of a sealed file."""


def make_folder(path: Path) -> None:
    """Make a folder that only its owner may enter; those above that are missing likewise.

    Who may write to the folder above could put another one in its place, whatever its own mode.

    Raises:
        LocalError: it can't be made.
    """
    try:
        make_missing_folders(path)
        path.chmod(0o700)
    except OSError as error:
        raise _explain_os_error(error, f"making the folder {path}") from error


def make_missing_folders(path: Path) -> None:
    """Make a folder and those above it, as far as they are missing; one that exists is left alone.

    Raises:
        LocalError: they can't be made.
    """
    try:
        for each in (*reversed(path.parents), path):
            # With `parents=True` those above would have the mode that the umask leaves.
            if each == path or not each.exists():
                each.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise LocalError(f"{path} is a file, but a folder is needed there; move it away") from None
    except OSError as error:
        raise _explain_os_error(error, f"making the folder {path}") from error


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole: readers see the old content or the new, never a part.

    Raises:
        LocalError: it can't be written; nothing half written is left.
    """
    staged = _beside(path)
    try:
        _write_out(staged, data, mode)
        staged.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            staged.unlink()
        raise _explain_os_error(error, f"writing {path}") from error


def write_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a folder that only work together, and shred what they held before.

    All are on the disk before the first takes its place, and the old ones are there until the
    last has: a disk that fills up, or a fault, leaves the old ones as they were.

    Args:
        folder: where they are.
        files: contents by name; each is private (mode 0600).

    Raises:
        LocalError: they can't be written.
    """
    staged = {folder / name: _beside(folder / name) for name in files}
    old: dict[Path, Path] = {}
    try:
        for path, beside in staged.items():
            _write_out(beside, files[path.name], 0o600)
        for path in staged:
            kept = _beside(path)
            with contextlib.suppress(FileNotFoundError):
                os.link(path, kept, follow_symlinks=False)
                old[path] = kept
        for path, beside in staged.items():
            beside.replace(path)
        # What is shredded next must not be what a power cut brings back under the name.
        _sync_folder(folder)
    except OSError as error:
        for path, kept in old.items():
            with contextlib.suppress(OSError):
                kept.replace(path)
                # Two names of one file: then nothing is renamed, and one name is left over.
                kept.unlink()
        for path, beside in staged.items():
            with contextlib.suppress(OSError):
                beside.unlink()
                continue
            if path not in old:
                path.unlink(missing_ok=True)
        raise _explain_os_error(error, f"writing {', '.join(map(str, staged))}") from error
    for kept in old.values():
        shred(kept)


def _beside(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(4)}.{path.name}")


def _write_out(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON file as a whole.

    Raises:
        LocalError: it can't be written.
    """
    write_file(path, (json.dumps(document, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None when there is none or it is not an object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if is_dictionary(document) else None


def shred(path: Path) -> None:
    """Overwrite a file with random bytes and remove it; one that is gone is fine.

    Of a large one it is the first MiB, which holds what a sealed file can't be read without.
    Overwriting reaches the medium only where the file system writes in place; what protects the
    data on others (copy on write, flash) is that the sealed files can't be read without the key.

    Raises:
        LocalError: it can't be removed.
    """
    try:
        details = path.lstat()
        if stat.S_ISREG(details.st_mode) and details.st_size:
            # The owner may have taken away the right to write (mode 0400).
            path.chmod(0o600)
            with path.open("r+b", buffering=0) as file:
                file.write(secrets.token_bytes(min(details.st_size, _SHREDDED_BYTES)))
                os.fsync(file.fileno())
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _explain_os_error(error, f"shredding {path}") from error


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it; one that is gone is fine.

    Keys are shredded first, and what is sealed with its wrapped key.

    Raises:
        LocalError: something can't be removed.
    """
    if path.is_symlink() or not path.is_dir():
        return
    for file in sorted(path.rglob("*")):
        secret = file.suffix in _SECRET_SUFFIXES or file.name == _WRAPPED_KEYS
        if secret and not file.is_symlink() and file.is_file():
            shred(file)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        # Someone else removed a part meanwhile; what is left goes in the second pass.
        shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        raise _explain_os_error(error, f"removing {path}") from error


def _explain_os_error(error: OSError, what: str) -> LocalError:
    if error.errno in _NO_SPACE:
        return LocalError(f"no space left while {what}; free space and run again")
    reason = error.strerror or str(error)
    return LocalError(f"{what} failed: {reason}; check the folder's owner and rights")


# Whether a port is free, and who holds it.

#: Set to anything where plans are judged and none is carried out, as by `falaj check`: what runs
#: meanwhile, the same stack above all, says nothing of them.
PLANS_ALONE: Final = "FALAJ_PLANS_ALONE"


def is_port_free(host: str, port: int) -> bool:
    """Whether a server could listen there.

    Raises:
        LocalError: the address is not one of this machine, or the port needs more rights.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier server that linger don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise LocalError(
                f"nothing can listen on {host}:{port}: {error.strerror}; choose an address of "
                "this machine and a port from 1024 to 65535"
            ) from None
    return True


def port_holder(port: int) -> str:
    """Who listens on a port, in words; only processes of this user can be named."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr and connection.laddr.port == port and connection.pid:
                with contextlib.suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return "another program"


def require_free_port(host: str, port: int) -> None:
    """Refuse a port that is held.

    Raises:
        LocalError: it is held; the message says by whom as far as that can be seen.
    """
    if not is_port_free(host, port):
        raise LocalError(
            f"port {port} on {host} is in use by {port_holder(port)}; end it, or choose another "
            "port: pulumi config set --path falaj:service.port PORT"
        )


def wait_for_free_port(host: str, port: int, limit_s: float) -> None:
    """Wait until a port is free.

    Raises:
        LocalError: it is still held after `limit_s` seconds.
    """
    deadline = time.monotonic() + limit_s
    while not is_port_free(host, port):
        if time.monotonic() > deadline:
            raise LocalError(f"port {port} on {host} is still held by {port_holder(port)}")
        time.sleep(0.1)


# Processes left behind by an interrupted deployment: found by pid file, verified, ended.


def read_pid(path: Path) -> int | None:
    """The process id in a file; None when there is none."""
    try:
        pid = int(path.read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if pid > 1 else None


def is_process_running(pid: int | None, marks: Sequence[str]) -> bool:
    """Whether this process lives and its command line holds all of these marks.

    The check of the command line keeps us from taking a stranger that got the same id for ours.
    """
    if pid is None:
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        line = "\0".join(process.cmdline())
    except psutil.Error:
        return False
    return all(mark in line for mark in marks)


def is_below(pid: int | None, marks: Sequence[str]) -> bool:
    """Whether this process was started by that one, or by what it started.

    Likewise by any whose command line holds all of these marks: one whose supervisor is gone, or
    that a person started, is ended as well where those are ended that hold them.
    """
    with contextlib.suppress(psutil.Error):
        above = [each.pid for each in psutil.Process().parents()]
        return pid in above or any(is_process_running(each, marks) for each in above)
    return False


def find_processes(marks: Sequence[str]) -> list[int]:
    """Processes of this user whose command line holds all of these marks."""
    found: list[int] = []
    for process in psutil.process_iter(["pid", "uids"]):
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.uids().real == os.getuid():
                line = "\0".join(process.cmdline())
                if all(mark in line for mark in marks):
                    found.append(process.pid)
    return found


def end_process(pid: int, marks: Sequence[str], *, patience_s: float, group: bool = False) -> None:
    """End a process gracefully, by SIGTERM and then by SIGKILL; one that is gone is fine.

    Args:
        pid: the process; for `group` the leader of its process group.
        marks: what its command line must hold; a stranger is left alone.
        patience_s: how long it may take to leave by itself, in seconds.
        group: signal the whole group.

    Raises:
        LocalError: it belongs to someone else, or doesn't end.
    """
    for number, limit in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        if not is_process_running(pid, marks):
            return
        try:
            if group:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            raise LocalError(
                f"process {pid} ({' '.join(marks)}) belongs to another user and can't be ended; "
                "end it and run again"
            ) from None
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if not is_process_running(pid, marks):
                return
            time.sleep(0.05)
    raise LocalError(f"process {pid} ({' '.join(marks)}) doesn't end; end it and run again")
