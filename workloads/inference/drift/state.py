"""What is kept of drift over a restart: counts and verdicts of one version, sealed in one file.

They are of use to the same version of the same model with the same settings alone: anything else,
and what is damaged, begins anew and says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import make_private_folder, reading_errors
from falaj.workloads.inference.drift.windows import Drift
from falaj.workloads.inference.settings import Settings
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import SUFFIX, seal, unseal

KEEP_SECONDS: Final = 60.0
"""Between two writes: what a server that is killed may lose."""
MOST_BYTES: Final = 16 << 20
"""Of the file: a package of 10,000 columns takes 2 MiB."""
_FORMAT: Final = "falaj.drift/1"
_CONTEXT: Final = b"drift"


def forget_others(settings: Settings) -> None:
    """Remove what was kept of further models that a service had, and has no more."""
    folder = settings.drift_folder
    if folder.is_dir() and not folder.is_symlink():
        for path in folder.glob(f"*{SUFFIX}"):
            if path.name.removesuffix(SUFFIX) not in settings.models:
                _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        print(
            f"warning: drift isn't watched, and what was kept of it stays: can't remove {path}: "
            f"{error.strerror or error}",
            file=sys.stderr, flush=True,
        )  # fmt: skip


class DriftState:
    """The file of a service.

    Args:
        settings: of the service; it lies beside its state.
        version: of the model.
        manifest: what its package says that drift is judged by.
        event: writes a line of the audit log.
    """

    def __init__(
        self,
        settings: Settings,
        version: int,
        manifest: Mapping[str, Any],
        event: Callable[..., None],
    ) -> None:
        self._path = settings.drift_file
        self._in_folder = settings.further
        self._keyring = settings.keyring
        self._event = event
        identity = [_FORMAT, settings.model, version, asdict(settings.drift), manifest]
        digest = hashlib.sha256(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS))
        self._of = digest.hexdigest()
        self._kept: dict[str, Any] = {}
        self._told = False

    def restore(self, drift: Drift) -> None:
        """Have a version go on where a server before this one ended."""
        try:
            document = self._read()
            if document is not None:
                drift.restore(document)
        except WorkloadError as error:
            print(f"warning: drift is counted anew: {error}", file=sys.stderr, flush=True)
            self._event("drift.anew", model=drift.model, reason=str(error))

    def forget(self) -> None:
        """Remove what was kept, where nothing is watched any more; that it can't be is told."""
        _remove(self._path)

    def _read(self) -> Any:
        """Return what was kept; None: nothing was."""
        path = self._path
        if not path.is_symlink() and not path.exists():
            return None
        with reading_errors(path, "what is kept of drift"):
            size = path.lstat().st_size
        if path.is_symlink() or size > MOST_BYTES:
            raise IntegrityError(
                f"{path} isn't what was written: a link, or over {MOST_BYTES} bytes"
            )
        document = orjson.loads(unseal(path, KeyRing.open(self._keyring), _CONTEXT))
        if document["of"] != self._of:
            raise IntegrityError(f"{path} is of another version, or of other settings of drift")
        return document["drift"]

    async def keep(self, drift: Drift) -> None:
        """Write what has changed; that it can't be written is told once."""
        found = drift.kept()
        if found == self._kept:
            return
        try:
            await asyncio.to_thread(self._write, found)
        except WorkloadError as error:
            if not self._told:
                self._told = True
                print(f"warning: {error}; drift is counted on", file=sys.stderr, flush=True)
            return
        self._kept, self._told = found, False

    def _write(self, found: dict[str, Any]) -> None:
        document = orjson.dumps({"of": self._of, "drift": found})
        if self._in_folder:
            make_private_folder(self._path.parent)
        seal(self._path, document, KeyRing.open(self._keyring), _CONTEXT)
