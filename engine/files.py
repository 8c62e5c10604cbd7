"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace_file(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Write a file so that readers see the old content or the new one, never a part.

    The content goes to a file beside it, is forced to the disk and renamed over `path`; when that
    fails, nothing is left behind. Workloads and the components of one machine have functions of
    their own for this, for they know no other package.

    Args:
        path: in a folder that exists. What a symbolic link leads to is left alone.
        content: text is written as UTF-8.
        mode: exact permissions. Default: those of the file that is replaced, and of a new file
            what the umask leaves of 0666.

    Raises:
        OSError: it can't be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if mode is None and path.is_file():
        mode = path.stat().st_mode & 0o7777
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        # Never wider than it will be, not even while it is empty.
        descriptor = os.open(
            staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode & 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        staged.replace(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
