"""Where Pulumi keeps state and how it encrypts secrets, unless the person decided otherwise."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.folders import data_home, make_private

OWN_BACKEND = ("PULUMI_BACKEND_URL", "PULUMI_ACCESS_TOKEN")
"""A person who set one of these chose their own backend."""
OWN_PASSPHRASE = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")

PASSPHRASE_BYTES = 32


def ensure_backend(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that name the backend and the passphrase file, both made on first use.

    Empty where the person chose their own backend by PULUMI_BACKEND_URL or PULUMI_ACCESS_TOKEN:
    its secrets are theirs as well. Without PULUMI_CONFIG_PASSPHRASE_FILE where they gave a
    passphrase. The passphrase itself is never returned: 256 random bits in a file of mode 0600.
    Raises EngineError when the data folder cannot be used.
    """
    given = os.environ if environ is None else environ
    if any(name in given for name in OWN_BACKEND):
        return {}
    home = data_home(given)
    try:
        make_private(home)
        folder = make_private(home / "backend")
        found = {"PULUMI_BACKEND_URL": folder.as_uri()}
        if not any(name in given for name in OWN_PASSPHRASE):
            found["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(ensure_passphrase(home / "passphrase"))
    except OSError as error:
        raise explain_os_error(error, f"preparing the backend in {home}") from error
    return found


def ensure_passphrase(path: Path) -> Path:
    """Make the passphrase file unless it is there; of two runs at once, one file wins whole."""
    if path.exists():
        _check_passphrase(path)
        return path
    handle, temporary = tempfile.mkstemp(prefix=".passphrase-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(PASSPHRASE_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # unlike a rename, never replaces one that is in use
        except FileExistsError:
            _check_passphrase(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def _check_passphrase(path: Path) -> None:
    if not path.is_file() or path.stat().st_size == 0:
        raise EngineError(
            f"{path} should hold the passphrase of your stacks, but is empty or no file; "
            "restore it from a backup, or remove it if you have no stacks yet"
        )
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
