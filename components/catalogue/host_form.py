"""How a host is written that settings and options name."""

from __future__ import annotations

from typing import Final

#: A host in small letters, with port and path where it has them, or all hosts below one.
HOST_PATTERN: Final = r"^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d+)?(/[\w./-]*)?$"
