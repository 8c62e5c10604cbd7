"""Whether a folder lies in memory, as plain models must."""

from __future__ import annotations

import re
from pathlib import Path

from falaj.workloads.errors import WorkloadError

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system_of(path: Path) -> str:
    """Return the type of the file system that ``path`` is, or would be, in.

    Raises:
        WorkloadError: the system doesn't say.
    """
    place = path.absolute()
    while not place.exists():
        place = place.parent
    place = place.resolve()
    found = ""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError as error:
        raise WorkloadError(f"can't read {_MOUNTS}: {error.strerror}") from error
    longest = -1
    for line in lines:
        # proc_pid_mountinfo(5): the mount point is the fifth field, the type follows " - ".
        front, _, back = line.partition(" - ")
        point = Path(_ESCAPE.sub(lambda hit: chr(int(hit[1], 8)), front.split(" ")[4]))
        # Of two mounts on one point the later one covers the earlier.
        if place.is_relative_to(point) and len(point.parts) >= longest:
            longest, found = len(point.parts), back.split(" ")[0]
    if not found:
        raise WorkloadError(f"can't tell which file system {path} is in")
    return found


def require_memory(path: Path) -> None:
    """Refuse a folder that isn't in a memory file system.

    Raises:
        WorkloadError: it is on a disk.
    """
    kind = file_system_of(path)
    if kind not in _IN_MEMORY:
        raise WorkloadError(
            f"{path} is in a file system of type {kind}, and a model may be written in plain to "
            f"memory only ({', '.join(sorted(_IN_MEMORY))}): mount one there, or give --allow-disk"
        )
