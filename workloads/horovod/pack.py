"""The launcher in one file, for images that don't have this package."""

from __future__ import annotations

import zipfile
from pathlib import Path

from falaj.workloads.errors import WorkloadError

#: Not resolved: in a clone `falaj/workloads` is a link, and its name is what is imported.
_ABOVE = Path(__file__).parents[3]
_SHARED = (
    "falaj/__init__.py",
    "falaj/workloads/__init__.py",
    "falaj/workloads/errors.py",
    "falaj/workloads/statuses.py",
)
_MAIN = """import sys
from falaj.workloads.horovod.command import main
sys.exit(main(sys.argv[1:]))
"""


def pack(target: Path) -> None:
    """Write the launcher to a file that ``python3 FILE run …`` runs.

    Python looks in that file alone for it, so a program's own modules and ``PYTHONPATH`` stay as
    they are.

    Raises:
        WorkloadError: the file can't be written.
    """
    sources = [_ABOVE / name for name in _SHARED] + sorted(Path(__file__).parent.glob("*.py"))
    try:
        with zipfile.ZipFile(target, "w") as archive:
            _add(archive, "__main__.py", _MAIN)
            for path in sources:
                name = path.relative_to(_ABOVE).as_posix()
                _add(archive, name, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkloadError(f"can't write {target}: {error.strerror or error}") from None


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    """One file, without the time of its copying: the same bytes each time."""
    about = zipfile.ZipInfo(name)
    about.external_attr = 0o644 << 16
    archive.writestr(about, text)
