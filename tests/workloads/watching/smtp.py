"""A server of mail on loopback (RFC 5321, 3207, 4954), which does as a test says."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.workloads.inference.serving import Pki


@dataclass
class MailServer:
    """Takes mails until the ``with`` ends.

    Attributes:
        pki: of its certificate.
        security: ``tls``, ``starttls``, or ``none``: it offers no TLS.
        replies: what it says to a verb instead of what is usual, such as ``{"DATA": "554 no"}``.
        refused: recipients that it refuses.
        users: passwords by name; empty: nobody is asked.
        heard: verbs, with `` plain`` where they came without TLS.
        mails: what was taken: sender, recipients, content.
    """

    pki: Pki
    security: str = "starttls"
    replies: dict[str, str] = field(default_factory=dict[str, str])
    refused: set[str] = field(default_factory=set[str])
    users: dict[str, str] = field(default_factory=dict[str, str])
    heard: list[str] = field(default_factory=list[str])
    mails: list[tuple[str, list[str], bytes]] = field(
        default_factory=list[tuple[str, list[str], bytes]]
    )
    port: int = 0

    def __enter__(self) -> MailServer:
        self._loop = asyncio.new_event_loop()
        began = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(began,), daemon=True)
        self._thread.start()
        assert began.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self, began: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve(began))
        self._loop.close()

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder: Path = self.pki.folder
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        return context

    async def _serve(self, began: threading.Event) -> None:
        self._ended = asyncio.Event()
        context = self._context() if self.security == "tls" else None
        server = await asyncio.start_server(self._session, "127.0.0.1", 0, ssl=context)
        self.port = int(server.sockets[0].getsockname()[1])
        began.set()
        await self._ended.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def _offers(self, *, secure: bool) -> str:
        offers = ["AUTH PLAIN"] if self.users and secure else []
        offers += ["STARTTLS"] if self.security == "starttls" and not secure else []
        return "\r\n".join([*(f"250-{each}" for each in ("mail.test", *offers)), "250 HELP"])

    async def _session(self, reader: Any, writer: Any) -> None:
        secure = self.security == "tls"
        sender, recipients = "", list[str]()
        replies = {"RSET": "250 ok"} | self.replies

        def say(text: str) -> None:
            writer.write(text.encode() + b"\r\n")

        try:
            say(replies.get("greeting", "220 mail.test"))
            while line := (await reader.readline()).decode().rstrip("\r\n"):
                verb, _, rest = line.partition(" ")
                verb = verb.upper()
                self.heard.append(verb if secure else f"{verb} plain")
                if verb in replies:
                    say(replies[verb])
                elif verb == "EHLO":
                    say(self._offers(secure=secure))
                elif verb == "STARTTLS":
                    say("220 go on")
                    await writer.drain()
                    await writer.start_tls(self._context())
                    secure = True
                elif verb == "AUTH":
                    _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                    known = self.users.get(user) == password
                    say("235 welcome" if known else "535 wrong")
                elif verb == "MAIL":
                    sender = rest.partition(":<")[2].partition(">")[0]
                    say("250 ok")
                elif verb == "RCPT":
                    to = rest.partition(":<")[2].partition(">")[0]
                    recipients += [] if to in self.refused else [to]
                    say("550 nobody" if to in self.refused else "250 ok")
                elif verb == "DATA":
                    say("354 go on")
                    content = await reader.readuntil(b"\r\n.\r\n")
                    self.mails.append((sender, recipients, content[:-3]))
                    say("250 taken")
                elif verb == "QUIT":
                    say("221 bye")
                    return
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
