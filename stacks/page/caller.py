"""Whose program is at the other end of a connection on loopback.

A browser sends the cookies of 127.0.0.1 to every port of it, so that a server of somebody else's
on the same machine may come to know them. The kernel says whose each connection is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9
"""Columns of the tables: https://www.kernel.org/doc/Documentation/networking/proc_net_tcp.txt"""
_ROOT: Final = 0
NOBODY: Final = -1
"""No user: of a socket that its program has closed, for which the kernel names root."""


def is_foreign(port: int, ours: int) -> bool:
    """Whether a connection is of another user: neither who runs this, nor root.

    Where the system doesn't say whose it is, it isn't taken for foreign.

    Args:
        port: the other end's, on loopback.
        ours: the port that it is connected to.
    """
    return any(user_in(text, port, ours) not in (None, os.geteuid(), _ROOT) for text in _tables())


def _tables() -> list[str]:
    found: list[str] = []
    for path in _TABLES:
        try:
            found.append(path.read_text(encoding="ascii"))
        except OSError:  # another system, or one without that protocol
            continue
    return found


def user_in(table: str, port: int, ours: int) -> int | None:
    """The user of the socket with a port that is connected to ours; None: the table has none.

    `NOBODY` where its program has closed it: whose it was isn't known any more, and nobody waits
    for an answer.

    Args:
        table: text of the kernel's table of sockets.
        port: of that socket.
        ours: the port that it is connected to.
    """
    ends = (f":{port:04X}", f":{ours:04X}")
    for line in table.splitlines()[1:]:
        parts = line.split()
        if (
            len(parts) > _INODE
            and parts[_LOCAL].endswith(ends[0])
            and (parts[_REMOTE].endswith(ends[1]))
        ):
            return NOBODY if parts[_INODE] == "0" else int(parts[_USER])
    return None
