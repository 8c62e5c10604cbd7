"""Files of the site: written atomically, private, and shredded when they held a secret."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from falaj.components.local.machine.errors import LocalError

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SECRET_SUFFIXES: Final = {".key", ".pem"}


def make_folder(path: Path) -> None:
    """Make a folder that only its owner may enter; those above that are missing likewise.

    Who may write to the folder above could put another one in its place, whatever its own mode.

    Raises:
        LocalError: it can't be made.
    """
    try:
        for each in (*reversed(path.parents), path):
            # With `parents=True` those above would have the mode that the umask leaves.
            if each == path or not each.exists():
                each.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
    except FileExistsError:
        raise LocalError(f"{path} is a file, but a folder is needed there; move it away") from None
    except OSError as error:
        raise _explain(error, f"making the folder {path}") from error


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole: readers see the old content or the new, never a part.

    Raises:
        LocalError: it can't be written; nothing half written is left.
    """
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            staged.unlink()
        raise _explain(error, f"writing {path}") from error


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
    return document if isinstance(document, dict) else None


def shred(path: Path) -> None:
    """Overwrite a file with random bytes and remove it; one that is gone is fine.

    Overwriting reaches the medium only where the file system writes in place; what protects the
    data on others (copy on write, flash) is that the sealed files can't be read without the key.

    Raises:
        LocalError: it can't be removed.
    """
    try:
        details = path.lstat()
        if stat.S_ISREG(details.st_mode) and details.st_size:
            with path.open("r+b", buffering=0) as file:
                file.write(secrets.token_bytes(details.st_size))
                os.fsync(file.fileno())
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _explain(error, f"shredding {path}") from error


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it, shredding keys first; one that is gone is fine.

    Raises:
        LocalError: something can't be removed.
    """
    if path.is_symlink() or not path.is_dir():
        return
    for file in sorted(path.rglob("*")):
        if file.suffix in _SECRET_SUFFIXES and not file.is_symlink() and file.is_file():
            shred(file)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        # Someone else removed a part meanwhile; what is left goes in the second pass.
        shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        raise _explain(error, f"removing {path}") from error


def _explain(error: OSError, what: str) -> LocalError:
    if error.errno in _FULL:
        return LocalError(f"no space left while {what}; free space and run again")
    reason = error.strerror or str(error)
    return LocalError(f"{what} failed: {reason}; check the folder's owner and rights")
