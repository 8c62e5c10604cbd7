"""Sends what was seen and done to one address: signed, to nobody abroad, never followed on.

The body is signed as ``Falaj-Signature: t=SECONDS,v1=HEX``, where HEX is HMAC-SHA256 of SECONDS, a
dot and the body (RFC 2104), under the key in a file of the watch's: whoever gets it can
tell that it is ours, and by the time that it is no repetition of somebody's.
``Falaj-Delivery`` is the same for each try of one message.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import write_atomic
from falaj.workloads.watching.exchange import (
    ExchangeError,
    Peer,
    UndeliveredError,
    ask_first,
    judged_addresses,
    tls_context,
)

_SECONDS: Final = 15.0
_MOST_BYTES: Final = 64 << 10
#: Of those that a later try may change (RFC 9110, 15.5.9; RFC 6585, 4).
_AGAIN: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class WebhookError(UndeliveredError):
    """A message that the webhook didn't take."""


@dataclass(frozen=True)
class Webhook:
    """Where messages go.

    Attributes:
        url: the address.
        refused: why nothing may be sent to a host, by its name; None where it may.
        is_private: whether a name or an address is of one's own networks.
        authority: PEM file of whom to trust; None: whom the machine trusts.
        key: reads the key that signs. It raises OSError where it can't be had.
    """

    url: str
    refused: Callable[[str], str | None]
    is_private: Callable[[str], bool]
    authority: Path | None
    key: Callable[[], bytes]

    def send(self, message: Mapping[str, Any], delivery: str, now: float) -> None:
        """Send a message; returns once it was taken.

        Args:
            message: plain JSON.
            delivery: names it, over all tries.
            now: Unix time in seconds.

        Raises:
            WebhookError: it wasn't taken.
        """
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or 443
        if reason := self.refused(host):
            raise WebhookError(f"nothing is sent to {host}: {reason}", for_good=True)
        try:
            context = tls_context(self.authority, "the watch's webhookAuthority")
            addresses = judged_addresses(host, port, self.is_private)
        except UndeliveredError as error:
            raise WebhookError(
                f"the webhook {self.shown}: {error}", for_good=error.for_good
            ) from None
        peers = [Peer(each, port, host, context, _SECONDS, _MOST_BYTES) for each in addresses]
        body = json.dumps(message, ensure_ascii=False, sort_keys=True).encode()
        stamp = str(int(now))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Falaj-Delivery": delivery,
            "Falaj-Signature": f"t={stamp},v1={signature(self._key(), stamp, body)}",
        }
        try:
            status, _, onward = ask_first(peers, "POST", path, headers, body)
        except ExchangeError as error:
            raise WebhookError(f"the webhook {self.shown}: {error}", for_good=False) from None
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            there = urlsplit(onward).hostname or "another place"
            raise WebhookError(
                f"the webhook {self.shown} sends on to {there}, which nobody has judged: give the "
                "address that takes messages itself",
                for_good=True,
            )
        raise WebhookError(
            f"the webhook {self.shown} answers with status {status}",
            for_good=status < 500 and status not in _AGAIN,
        )

    @property
    def shown(self) -> str:
        """The address for people: paths and queries of webhooks are often as good as passwords."""
        return urlsplit(self.url).netloc

    def _key(self) -> bytes:
        try:
            return self.key()
        except OSError as error:
            raise WebhookError(
                f"the key that signs messages, {error.filename}, can't be read or made: "
                f"{error.strerror or error}; make it a file that is private to you, or move it "
                "away to have another one made",
                for_good=False,
            ) from None


def signing_key(path: Path) -> bytes:
    """The key that signs messages.

    Raises:
        OSError: it can't be read, or is empty.
    """
    if not (key := path.read_bytes().strip()):
        # Under an empty one everybody could sign.
        raise OSError(errno.EINVAL, "it is empty", str(path))
    return key


def own_signing_key(path: Path) -> bytes:
    """The key that signs messages, 256 random bits in hexadecimal; made where it is missing.

    Raises:
        OSError: it can't be read or written, or is empty.
    """
    if not path.is_file():
        try:
            write_atomic(path, secrets.token_hex(32).encode() + b"\n")
        except WorkloadError as error:
            raise OSError(errno.EIO, str(error), str(path)) from None
    return signing_key(path)


def signature(key: bytes, stamp: str, body: bytes) -> str:
    """HMAC-SHA256 of a body that was sent at a time, in hexadecimal."""
    return hmac.new(key, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
