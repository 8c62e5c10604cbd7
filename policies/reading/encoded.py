"""What texts hold in base64, also packed with gzip, and one within the other: bounded.

>>> import base64
>>> texts_in(base64.b64encode(b"https://ingest.example.com").decode())
('https://ingest.example.com',)
>>> texts_in("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
()
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

#: Sixteen letters hold twelve of plain text: less names no host, no ARN and no command. Lines may
#: be broken, as ``base64`` breaks them after 76 letters.
_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2}"
)
_BREAKS: Final = re.compile(r"[\r\n]")
_GZIP: Final = b"\x1f\x8b"
#: How long a text or document may be, packed or not, how deep encodings may stand within one
#: another, and how many of one text are read: no configuration or policy has more, and each
#: resource is read at each update.
LONGEST: Final = 1_000_000
_MOST_DEPTH: Final = 4
_MOST_RUNS: Final = 4096
#: Letters that plain texts don't have.
_NOT_PLAIN: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def texts_in(value: str) -> tuple[str, ...]:
    """The plain texts that a text holds in base64, as a whole or in parts, at any depth.

    What decodes to no text (a digest, a key, an id) isn't one. Never raises.
    """
    return _texts_in(value) if 16 <= len(value) <= LONGEST else ()


@lru_cache(maxsize=1024)
def _texts_in(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_within(value, _MOST_DEPTH)))


def _within(value: str, depth: int) -> Iterator[str]:
    for index, found in enumerate(_RUN.finditer(value)):
        if index >= _MOST_RUNS or depth == 0:
            return
        if plain := _plain(found[0]):
            yield plain
            yield from _within(plain, depth - 1)


def plain_of(value: str) -> str:
    """The text that a value in base64 is; empty where it is none.

    >>> plain_of("aGk=")
    'hi'
    """
    return _plain(value) if len(value) <= LONGEST else ""


def _plain(run: str) -> str:
    given = _BREAKS.sub("", run).rstrip("=").translate(_URL_SAFE)
    try:
        data = base64.b64decode(given + "=" * (-len(given) % 4), validate=True)
        if data.startswith(_GZIP):
            data = zlib.decompressobj(wbits=31).decompress(data, LONGEST)
        plain = data.decode("utf-8")
    except (binascii.Error, ValueError, zlib.error):
        return ""
    return "" if _NOT_PLAIN.search(plain) else plain


_URL_SAFE: Final = str.maketrans("-_", "+/")
