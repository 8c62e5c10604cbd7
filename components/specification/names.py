"""Names of things in a cloud: readable, short enough, the same in every run."""

from __future__ import annotations

import hashlib
import re


def physical_name(*parts: str, limit: int, separator: str = "-") -> str:
    """Join ``parts``; a name that is too long keeps its beginning and gets a digest.

    Args:
        parts: for example the tenant, the stack and the component's name.
        limit: most characters that the cloud allows.
        separator: ``-``, or an empty text where only letters and digits are allowed.
    """
    whole = separator.join(_plain(part, separator) for part in parts if part)
    if len(whole) <= limit:
        return whole
    return _with_digest(whole, parts, limit, separator)


def unique_name(*parts: str, limit: int, separator: str = "-") -> str:
    """Like `physical_name`, always with a digest: for names that the whole world shares."""
    whole = separator.join(_plain(part, separator) for part in parts if part)
    return _with_digest(whole, parts, limit, separator)


def _plain(part: str, separator: str) -> str:
    allowed = r"[^a-z0-9-]+" if separator else r"[^a-z0-9]+"
    return re.sub(allowed, separator, part.lower()).strip("-")


def _with_digest(whole: str, parts: tuple[str, ...], limit: int, separator: str) -> str:
    # Of the parts as given: two that only look alike once they are cleaned stay apart.
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
    head = whole[: limit - len(digest) - len(separator)].rstrip("-")
    return f"{head}{separator}{digest}"
