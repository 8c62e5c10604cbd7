"""A browser without a window, driven over a pipe with its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from falaj.engine.browser import ensure

#: The browser reads commands from descriptor 3 and writes to 4; ours have other numbers.
_START = (
    "import fcntl, os, sys; "
    "ours = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]; "
    "os.dup2(ours[0], 3); os.dup2(ours[1], 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_OPTIONS = (
    "--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
    "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
    "--disable-extensions", "--disable-dev-shm-usage", "--disable-sync",
    "--no-default-browser-check",
    # Keys that come before a page was first painted are for that page, too.
    "--allow-pre-commit-input",
)  # fmt: skip


class Browser:
    """One page of one browser process."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, timeout: float = 60.0, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        end = time.monotonic() + timeout
        while True:
            found = self._read(end)
            if found.get("id") == self._number:
                if "error" in found:
                    raise AssertionError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def _read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0, end - time.monotonic()))
            data = os.read(self._answers, 1 << 20) if ready else b""
            if not data:
                raise AssertionError("the browser doesn't answer")
            self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(first)

    def open(self, path: Path, *, width: int = 1280, height: int = 900) -> None:
        """Show a file in a window of this size, in CSS pixels."""
        self.visit(path.as_uri(), width=width, height=height)

    def visit(self, url: str, *, width: int = 1280, height: int = 900) -> None:
        """Show what is at an address in a window of this size, in CSS pixels."""
        self.size(width, height)
        self.events.clear()
        self.loaded(self.call("Page.navigate", url=url)["loaderId"])

    def loaded(self, loader: str | None = None) -> None:
        """Wait until the page that was asked for is there.

        The page that was there before may still say that it is: what counts comes after this
        ``loader`` began, or after any began.
        """
        end = time.monotonic() + 60
        begun = False
        at = 0
        while True:
            for each in self.events[at:]:
                if each.get("method") == "Page.lifecycleEvent":
                    name, of = each["params"]["name"], each["params"]["loaderId"]
                    begun = begun or (name == "init" and loader in (None, of))
                    if begun and name == "load":
                        return
            at = len(self.events)
            self.events.append(self._read(end))

    def size(self, width: int, height: int = 900) -> None:
        """Change the window's size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip

    def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def before(self, script: str) -> None:
        """Run a script in each page before its own."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def mouse(self, kind: str, x: float, y: float, *, buttons: int = 1) -> None:
        """Press, move or release the mouse; ``kind`` is of the protocol: ``mousePressed`` …"""
        self.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons,
            clickCount=1,
        )  # fmt: skip

    def key(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go; ``code`` is its virtual key code."""
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=code, **(more if kind == "keyDown" else {}),
            )  # fmt: skip

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; a promise's when it is there."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def pdf(self) -> bytes:
        """The page printed as it prints."""
        found = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(found["data"])

    def screenshot(self, *, full: bool = False) -> bytes:
        """A PNG of what the window shows, or of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=full, timeout=120)
        return base64.b64decode(found["data"])

    @property
    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [
            each["params"]["request"]["url"]
            for each in self.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[str]:
        """What the browser wrote to its console, exceptions included."""
        named = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [json.dumps(each) for each in self.events if each.get("method") in named]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of one's own; ended with all of its processes."""
    ours, theirs = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [*_OPTIONS, f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # which it can't have as root
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(ours[0]), str(theirs[1]), str(ensure()), *options],
            pass_fds=(ours[0], theirs[1]), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        try:
            yield Browser(ours[1], theirs[0])
        finally:
            # It ends when its pipe does.
            os.close(ours[1])
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            os.close(theirs[0])
