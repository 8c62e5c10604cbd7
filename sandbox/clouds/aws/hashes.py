"""Made-up identifiers: the same for the same seeds, in the forms that AWS uses."""

from __future__ import annotations

import hashlib

MARK = "0000"
"""How every EC2-style id of the sandbox begins, so that it can't be taken for a real one."""


def hexdigits(count: int, *seeds: str) -> str:
    """`count` hexadecimal digits (at most 64) that depend on the seeds alone."""
    return hashlib.sha256("\0".join(seeds).encode()).hexdigest()[:count]


def marked(count: int, *seeds: str) -> str:
    """Hexadecimal digits that begin with the sandbox's mark."""
    return MARK + hexdigits(count - len(MARK), *seeds)


def letters(count: int, *seeds: str) -> str:
    """`count` characters of A-Z and 0-9, as in the ids of IAM and Route 53."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    digest = hashlib.sha512("\0".join(seeds).encode()).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:count])


def digits(count: int, *seeds: str) -> str:
    """`count` decimal digits, the first one not zero."""
    number = str(int(hexdigits(64, *seeds), 16))
    return ("1" + number)[:count]


def uuid(*seeds: str) -> str:
    """A UUID-shaped id that begins with the sandbox's mark."""
    text = marked(32, *seeds)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"
