"""How a value that was given is shown in a message."""

from __future__ import annotations

import re
from typing import Final

_USER: Final = re.compile(r"(?<=//)[^\s@'\"]+@")


def without_user(text: str) -> str:
    """A text whose addresses have lost what stands before an ``@``: it may be a password."""
    return _USER.sub("…@", text)
