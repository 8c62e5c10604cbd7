"""Instances of inotify: how many a control plane takes, and whether the kernel still gives them.

Everything here watches its certificates and settings by files, and Linux counts the watchers of a
user: 128 by default, whatever the computer's size. Who finds none left ends hours later, or says
"too many open files" where files aren't meant. So it is looked before anything is started.

https://man7.org/linux/man-pages/man7/inotify.7.html
https://man7.org/linux/man-pages/man7/namespaces.7.html on ``/proc/sys/user``: the limit of the own
namespace of users, the same one where there is no other. It is written by who has CAP_SYS_RESOURCE
there, and the one of the whole computer by the file's owner.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from falaj.engine.errors import EngineError

#: Of an API server, its controllers and the scheduler (13 were seen), and of our controllers.
OF_A_PLANE: Final = 24
#: Of a real machine: its kubelet, containerd and proxy (9 were seen), and of what its pods run.
OF_A_MACHINE: Final = 24
ENOUGH: Final = 1024
"""What a limit that is too low is raised to."""
LIMIT: Final = Path("/proc/sys/user/max_inotify_instances")
"""Of the own namespace of users, below which the one of the whole computer holds as well."""
_SETTING: Final = "fs.inotify.max_user_instances"
LIMITS: Final = (Path("/proc/sys", *_SETTING.split(".")), LIMIT)


def available(wanted: int) -> bool:
    """Whether the kernel gives this user so many instances more; not Linux: it has none to give.

    Takes them for a moment. How many files this process may open counts as well, as it does for
    those that are started.
    """
    if sys.platform != "linux":
        return True
    library = ctypes.CDLL(None, use_errno=True)
    taken: list[int] = []
    try:
        while len(taken) < wanted:
            descriptor = library.inotify_init1(os.O_CLOEXEC)
            if descriptor < 0:
                number = ctypes.get_errno()
                if number == errno.EMFILE:
                    return False
                raise EngineError(f"the kernel gives no watcher of files: {os.strerror(number)}")
            taken.append(descriptor)
    finally:
        for each in taken:
            os.close(each)
    return True


def ensure(wanted: int, *, raise_limit: bool) -> None:
    """See to it that so many instances can be had.

    Args:
        wanted: how many.
        raise_limit: whether a limit below `ENOUGH` is raised to that, which root may: a setting of
            the whole computer. Pods and whoever comes later need instances as well.

    Raises:
        EngineError: there are fewer, with what to do.
    """
    refused = dict(_raise_limits()) if raise_limit and sys.platform == "linux" else {}
    if available(wanted):
        return
    limit = min(map(_read, LIMITS))
    said = "".join(f" ({file}: {why})" for file, why in refused.items() if _read(file) < ENOUGH)
    raise EngineError(
        f"the kernel doesn't give {wanted} watchers of files (instances of inotify) more: its "
        f"limit for a user is {limit}{said}, and other programs have most of them; end some "
        "(containers, other control planes), or as root: "
        f"sysctl -w {_SETTING}={max(ENOUGH, 2 * limit)}"
    )


def _raise_limits() -> Iterator[tuple[Path, str]]:
    """Raise the limits that are too low to `ENOUGH`; those that may not be written, and why."""
    for file in LIMITS:
        if _read(file) < ENOUGH:
            try:
                file.write_text(f"{ENOUGH}\n", encoding="ascii")
            except OSError as error:
                yield file, error.strerror or str(error)


def _read(limit: Path) -> int:
    return int(limit.read_text(encoding="ascii"))
