"""Sends what was seen and done by mail: over TLS alone, to a server that was judged.

Mail is submitted (RFC 6409) either over TLS from the first byte (RFC 8314) or after STARTTLS (RFC
3207); a server that offers neither gets no word of the message, nor a password. Where the server
sends the mail on, it decides: it is to be one's own.
"""

from __future__ import annotations

import contextlib
import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final, Literal

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import check_private
from falaj.workloads.watching.exchange import (
    UndeliveredError,
    cut_off,
    judged_addresses,
    tls_context,
)

_SECONDS: Final = 15.0
"""For each answer of the server."""
_ALL_SECONDS: Final = 60.0
"""For all of them: a server that says a word now and then would never end."""
_REFUSED: Final = range(500, 600)
"""Replies that the same try gets again (RFC 5321, 4.2.1)."""
_GREETING: Final = 220
_LONGEST: Final = 200

Security = Literal["starttls", "tls"]


class MailError(UndeliveredError):
    """A mail that the server didn't take."""


class _UnreachedError(MailError):
    """Nobody was there, so that nothing was said."""


@dataclass(frozen=True)
class Mail:
    """Where mails go, and by whom.

    Attributes:
        host: of the server that takes them.
        port: likewise.
        security: ``tls`` from the first byte, or ``starttls``.
        sender: address that they come from.
        recipients: addresses that they go to.
        user: who submits them; None: the server asks nobody.
        password: reads the user's. It raises OSError or WorkloadError where it can't be had.
        refused: why nothing may be sent to a host, by its name; None where it may.
        is_private: whether a name or an address is of one's own networks.
        authority: PEM file of whom to trust; None: whom the machine trusts.
    """

    host: str
    port: int
    security: Security
    sender: str
    recipients: Sequence[str]
    user: str | None
    password: Callable[[], str]
    refused: Callable[[str], str | None]
    is_private: Callable[[str], bool]
    authority: Path | None

    def send(self, message: Mapping[str, Any], delivery: str, now: float) -> None:
        """Send a message; returns once the server has taken it.

        Args:
            message: plain JSON, with ``event``, ``stack`` and ``text``.
            delivery: names it, over all tries.
            now: Unix time in seconds.

        Raises:
            MailError: it wasn't taken.
        """
        if reason := self.refused(self.host):
            raise MailError(f"no mail is sent to {self.host}: {reason}", for_good=True)
        try:
            context = tls_context(self.authority, "the mail's authority")
            addresses = judged_addresses(self.host, self.port, self.is_private)
        except UndeliveredError as error:
            raise MailError(
                f"the mail server {self.shown}: {error}", for_good=error.for_good
            ) from None
        secret = self._secret()
        written = self.written(message, delivery, now)
        # A host may have an address that nobody listens at.
        for address in addresses[:-1]:
            with contextlib.suppress(_UnreachedError):
                self._submit(address, context, secret, written)
                return
        self._submit(addresses[-1], context, secret, written)

    @property
    def shown(self) -> str:
        """The server for people."""
        return f"{self.host}:{self.port}"

    def written(self, message: Mapping[str, Any], delivery: str, now: float) -> EmailMessage:
        """The mail: a sentence, and the figures as JSON."""
        found = EmailMessage(policy=POLICY)
        found["From"] = self.sender
        found["To"] = ", ".join(self.recipients)
        subject = f"[falaj] {message.get('stack')}: {message.get('event')}"
        found["Subject"] = "".join(each if each.isprintable() else " " for each in subject)[
            :_LONGEST
        ]
        found["Date"] = formatdate(now)
        found["Message-ID"] = f"<{delivery}@{self.sender.rpartition('@')[2]}>"
        # No absent colleague's machine answers it (RFC 3834, 5).
        found["Auto-Submitted"] = "auto-generated"
        figures = json.dumps(message, ensure_ascii=False, sort_keys=True, indent=1)
        found.set_content(f"{message.get('text')}\n\n{figures}\n")
        return found

    def _secret(self) -> str:
        if self.user is None:
            return ""
        try:
            return self.password()
        except Exception as error:
            raise MailError(
                f"the mail's password can't be read: {error}", for_good=False
            ) from None

    def _submit(
        self, address: str, context: ssl.SSLContext, secret: str, written: EmailMessage
    ) -> None:
        session = _Session(self, address, context)
        timer = threading.Timer(_ALL_SECONDS, session.cut)
        timer.daemon = True
        timer.start()
        try:
            session.begin()
            if self.user is not None:
                session.login(self.user, secret)
            left_out = session.send_message(written, self.sender, list(self.recipients))
            with contextlib.suppress(smtplib.SMTPException, OSError):
                session.quit()
        except (smtplib.SMTPException, OSError, ValueError) as error:
            if session.late.is_set():
                raise MailError(
                    f"the mail server {self.shown}: no end within {_ALL_SECONDS:g} s",
                    for_good=False,
                ) from None
            raise self._failed(error) from None
        finally:
            timer.cancel()
            session.close()
        if left_out:
            raise MailError(
                f"the mail server {self.shown} took the mail, but not for "
                f"{', '.join(sorted(left_out))}",
                for_good=True,
            )

    def _failed(self, error: Exception) -> MailError:
        """What a failure means, without a word of what was sent."""
        where = f"the mail server {self.shown}"
        if isinstance(error, ssl.SSLCertVerificationError):
            text = f"its certificate isn't trusted: {error.verify_message}"
            return MailError(f"{where}: {text}", for_good=False)
        if isinstance(error, ssl.SSLError):
            return MailError(f"{where}: TLS failed: {error.reason or error}", for_good=False)
        if isinstance(error, smtplib.SMTPNotSupportedError):
            text = "it offers no STARTTLS" if "STARTTLS" in str(error) else str(error)
            return MailError(f"{where}: {text}; nothing was sent", for_good=False)
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            # Of each address its own reply; one that may be taken later is tried again.
            codes = [code for code, _ in error.recipients.values()]
            text = f"it refuses every recipient ({', '.join(map(str, sorted(set(codes))))})"
            return MailError(f"{where}: {text}", for_good=all(each in _REFUSED for each in codes))
        if isinstance(error, smtplib.SMTPResponseException):
            reply = error.smtp_error
            words = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
            shown = "".join(each if each.isprintable() else " " for each in words)[:_LONGEST]
            return MailError(
                f"{where}: it says {error.smtp_code} {shown}",
                for_good=error.smtp_code in _REFUSED,
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return MailError(f"{where}: the connection broke: {reason}", for_good=False)


class _Session(smtplib.SMTP):
    """A session with the one address that was judged, whatever DNS says by now."""

    def __init__(self, mail: Mail, address: str, context: ssl.SSLContext) -> None:
        super().__init__(timeout=_SECONDS, local_hostname="localhost")
        self._mail = mail
        self._address = address
        self._context = context
        # What `starttls` checks the certificate against.
        self._host = mail.host
        self.late = threading.Event()

    def begin(self) -> None:
        """Connect, up to TLS.

        Raises:
            MailError: nobody is there.
            SMTPException, OSError: it doesn't come to TLS.
        """
        code, reply = self.connect(self._mail.host, self._mail.port)
        if code != _GREETING:
            raise smtplib.SMTPConnectError(code, reply)
        if self._mail.security == "starttls":
            self.starttls(context=self._context)

    def cut(self) -> None:
        """End it: its time is over."""
        self.late.set()
        if self.sock is not None:
            cut_off(self.sock, self.late)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        try:
            plain = socket.create_connection((self._address, port), timeout)
        except OSError as error:
            raise _UnreachedError(
                f"the mail server {self._mail.shown}: it can't be reached: "
                f"{error.strerror or error}",
                for_good=False,
            ) from None
        if self._mail.security == "starttls":
            return plain
        try:
            return self._context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise


def password_of(path: Path) -> str:
    """The password in a file that only its owner can read: its first line.

    Raises:
        WorkloadError: it is missing, open to others, or empty.
    """
    check_private(path, "the mail's password")
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0]:
        raise WorkloadError(f"{path} is empty; write the password into its first line")
    return lines[0]
