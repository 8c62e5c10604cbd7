"""Files on the user's disk: where Falaj keeps them, how they are replaced, who may make them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from falaj.engine.progress import Report, duration


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


# Where Falaj keeps things on the user's disk.


def _home(environ: Mapping[str, str], own: str, base: str, default: str) -> Path:
    if given := environ.get(own):
        return Path(given).expanduser().absolute()
    # The XDG base directory specification: a relative path in these variables is to be ignored.
    above = Path(environ.get(base, ""))
    return (above if above.is_absolute() else Path.home() / default) / "falaj"


def data_home(environ: Mapping[str, str] | None = None) -> Path:
    """Folder of state and secrets.

    $FALAJ_HOME, else $XDG_DATA_HOME/falaj, else ~/.local/share/falaj.
    """
    return _home(environ or os.environ, "FALAJ_HOME", "XDG_DATA_HOME", ".local/share")


def cache_home(environ: Mapping[str, str] | None = None) -> Path:
    """Folder of things that can be made again.

    $FALAJ_CACHE, else $XDG_CACHE_HOME/falaj, else ~/.cache/falaj.
    """
    return _home(environ or os.environ, "FALAJ_CACHE", "XDG_CACHE_HOME", ".cache")


#: The name of Falaj's own project, whose stacks lie where one machine's always did.
OWN_PROJECT = "falaj"


def stack_home(project: str, stack: str, environ: Mapping[str, str] | None = None) -> Path:
    """Folder of what a stack on this machine keeps: keys, data, models, its server's files."""
    home = data_home(environ)
    if project == OWN_PROJECT:
        return home / "stacks" / stack
    return home / "projects" / project / stack


def make_private(folder: Path) -> Path:
    """Make `folder` (0700) unless it is there; its missing parents get the usual mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


# One run at a time gets something that others wait for.

WAIT_STEP_SECONDS = 5.0


@contextmanager
def exclusive(path: Path, report: Report, what: str) -> Generator[None]:
    """Hold the lock file `path`, saying every few seconds that another run is getting `what`."""
    # `environment.py` imports this file before any package is there.
    from filelock import FileLock, Timeout  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    lock, waited = FileLock(path), 0.0
    while True:
        try:
            lock.acquire(timeout=WAIT_STEP_SECONDS)
        except Timeout:
            waited += WAIT_STEP_SECONDS
            report(f"waiting for another run that is getting {what} ({duration(waited)})")
        else:
            break
    try:
        yield
    finally:
        lock.release()
