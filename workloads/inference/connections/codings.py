"""Content codings of request bodies (RFC 9110, 8.4): gzip and deflate, undone as they arrive.

What comes out is handed on in pieces, so that whoever takes it stops where a body becomes too
large: a few kilobytes can stand for gigabytes. The other way round, a megabyte that stands for
nothing can cost as much as four that say something (0.1 s, measured with empty blocks that have
tables of their own), and is refused as well. A body is one gzip member or one zlib stream, whole
and alone. More of them one behind the other (RFC 1952, 2.2) are refused, because programs on the
way to here have read only the first of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from falaj.workloads.inference.errors import RequestError, bad_request

IDENTITY: Final = "identity"
CODINGS: Final = ("gzip", "deflate")
"""What is undone; what `deflate` names is zlib's form (RFC 1950), not the bare one."""
ACCEPTED: Final = b"Accept-Encoding: " + ", ".join(CODINGS).encode()
"""The header line of a refusal that says what would have been taken (RFC 9110, 12.5.3)."""
PIECE_BYTES: Final = 64 * 1024
STRETCH_BYTES: Final = 64 * 1024
MOST_FOR_ONE: Final = 16
"""Coded bytes for one of what they stand for, at most, in each stretch of so many. Packers make
about one of one that doesn't get smaller, and seven where they flush after each byte."""
_WINDOWS: Final = {
    "gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS,
}  # fmt: skip


class Decoder:
    """One body on its way.

    Args:
        coding: its name, for messages.
        window: what zlib is told of the form.
    """

    __slots__ = ("_coding", "_given", "_inflate", "_taken")

    def __init__(self, coding: str, window: int) -> None:
        self._coding = coding
        self._inflate = zlib.decompressobj(window)
        # Of the stretch that is being read: coded bytes, and those that they stand for.
        self._taken = self._given = 0

    @property
    def is_complete(self) -> bool:
        """Whether the end has come, and what it says of the whole was right."""
        return self._inflate.eof

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes stand for, `PIECE_BYTES` at a time.

        Raises:
            RequestError: 400, it isn't well-formed, stands for next to nothing, or something
                follows the end.
        """
        inflate = self._inflate
        after = data if inflate.eof else b""
        while not inflate.eof:
            try:
                piece = inflate.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise bad_request(
                    f"the body isn't well-formed {self._coding}, as its Content-Encoding says"
                ) from error
            if piece:
                yield piece
            self._require_substance(len(data) - len(inflate.unconsumed_tail), len(piece))
            data, after = inflate.unconsumed_tail, inflate.unused_data
            # A full piece may leave some behind, even where all bytes are taken.
            if not data and len(piece) < PIECE_BYTES:
                break
        if after:
            raise bad_request(
                f"bytes follow the end of the {self._coding} body; send all of it as one member"
            )

    def _require_substance(self, taken: int, given: int) -> None:
        self._taken += taken
        self._given += given
        if self._taken < STRETCH_BYTES:
            return
        if self._given * MOST_FOR_ONE < self._taken:
            raise bad_request(
                f"{self._taken} bytes of the {self._coding} body stand for {self._given} bytes: "
                f"more than {MOST_FOR_ONE} for each; pack it with fewer flushes, or send it as "
                "it is"
            )
        self._taken = self._given = 0

    def cut_short(self) -> RequestError:
        """Return the refusal of a body whose end hasn't come."""
        return bad_request(f"the {self._coding} body ends before its end; send all of it")


def decoder(given: bytes) -> Decoder | None:
    """Return what undoes a `Content-Encoding`; None where nothing is to be undone.

    Raises:
        RequestError: 415, the coding isn't one that is known here, or they are several.
    """
    coding = given.decode("ascii", "replace").lower()
    if coding == IDENTITY:
        return None
    window = _WINDOWS.get(coding)
    if window is None:
        raise RequestError(
            415,
            f"bodies with the Content-Encoding '{coding[:80]}' are not taken; send it as it is, "
            f"or with one of {', '.join(CODINGS)}",
            headers=(ACCEPTED,),
        )
    return Decoder(coding, window)
