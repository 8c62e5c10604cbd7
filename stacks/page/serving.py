"""Runs the page until somebody ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Final

from aiohttp import web

from falaj.stacks.command.console import say
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.page.app import HOSTS, Door, Page, opened

_GRACE: Final = 2.0
"""Seconds that answers under way get at the end."""


def serve(stack: StackFile, port: int, *, browser: bool, model: str | None = None) -> int:
    """Serve the page of a stack on loopback until Ctrl-C; returns the exit status.

    Args:
        stack: one machine's, which serves a model.
        port: the page's; 0 for a free one.
        browser: whether to open one, if there is one.
        model: which of the server's is shown first. Default: the stack's own.

    Raises:
        StackError: the port can't be had.
    """
    with _listening(port) as listening:
        return asyncio.run(_serve(stack, listening, browser=browser, model=model))


def _listening(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Else a port of connections that have just ended is taken for a minute.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOSTS[0], port))
        made.listen()
    except OSError as error:
        made.close()
        raise StackError(
            f"--port: given {port}, which can't be had: {error.strerror}; allowed: a port of "
            f"{HOSTS[0]} that nobody holds, or 0 for any such one"
        ) from None
    return made


async def _serve(
    stack: StackFile, listening: socket.socket, *, browser: bool, model: str | None
) -> int:
    door = Door(listening.getsockname()[1])
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    runner = web.AppRunner(
        Page(stack, door, model).application(), access_log=None, shutdown_timeout=_GRACE
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        say(f"the page of stack {stack.name}, for one browser: {door.link}")
        say("end it with Ctrl-C")
        with tempfile.TemporaryDirectory(prefix="falaj-open-") as folder:
            if browser and _has_screen():
                await asyncio.to_thread(_show, opened(Path(folder), door))
            await stopped.wait()
    finally:
        await runner.cleanup()
    say("\nthe page is closed; the server goes on")
    return 0


def _has_screen() -> bool:
    """Whether a browser would have a window: one in a terminal would take the terminal away."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _show(path: Path) -> None:
    if not webbrowser.open(path.as_uri()):
        say("no browser was found: open the link by hand")
