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
import resource
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

    Takes them for a moment.

    Raises:
        EngineError: this process may not have so many files open, which holds for those that it
            starts as well, or the kernel gives none for another reason.
    """
    if sys.platform != "linux":
        return True
    library = ctypes.CDLL(None, use_errno=True)
    taken: list[int] = []
    lacks_files = False
    try:
        while len(taken) < wanted:
            descriptor = library.inotify_init1(os.O_CLOEXEC)
            if descriptor < 0:
                number = ctypes.get_errno()
                if number == errno.EMFILE:
                    lacks_files = not _may_open_a_file()
                    break
                raise EngineError(f"the kernel gives no watcher of files: {os.strerror(number)}")
            taken.append(descriptor)
    finally:
        for each in taken:
            os.close(each)
    if lacks_files:
        raise _too_few_files(wanted)
    return len(taken) == wanted


def _may_open_a_file() -> bool:
    """Whether this process may: the limits of watchers and of its files are told by one error."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _too_few_files(wanted: int) -> EngineError:
    """https://man7.org/linux/man-pages/man2/getrlimit.2.html on RLIMIT_NOFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_open = len([*Path("/proc/self/fd").iterdir()]) - 1  # without the folder itself
    needed = is_open + wanted
    if hard == resource.RLIM_INFINITY or needed <= hard:
        remedy = f"raise it in the shell that this is started from: ulimit -n {needed}"
    else:
        remedy = (
            f"it can't be raised beyond {hard} by who isn't root: raise nofile in "
            "/etc/security/limits.conf and log in anew, or LimitNOFILE where systemd starts this"
        )
    return EngineError(
        f"this process may have {soft} files open (RLIMIT_NOFILE) and has {is_open}, which leaves "
        f"no room for {wanted} watchers of files (instances of inotify), each of which is one; "
        f"{remedy}"
    )


def ensure(wanted: int, *, raise_limit: bool) -> None:
    """See to it that so many instances can be had.

    Args:
        wanted: how many.
        raise_limit: whether a limit below `ENOUGH` is raised to that, which root may: a setting of
            the whole computer. Pods and whoever comes later need instances as well.

    Raises:
        EngineError: there are fewer, or this process may not open so many files, with what to do.
    """
    refused = dict(_raise_limits()) if raise_limit and sys.platform == "linux" else {}
    if available(wanted):
        return
    limit = min(map(_read, LIMITS))
    refusals = "".join(
        f" ({file}: {why})" for file, why in refused.items() if _read(file) < ENOUGH
    )
    raise EngineError(
        f"the kernel doesn't give {wanted} watchers of files (instances of inotify) more: its "
        f"limit for a user is {limit}{refusals}, and other programs have most of them; end some "
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
