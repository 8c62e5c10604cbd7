"""A stack of one machine, as `falaj up` leaves it, with a real server and a page of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from cryptography.x509.oid import ExtendedKeyUsageOID

from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.page.app import Door, Page
from tests.workloads.inference.serving import Site

Result = TypeVar("Result")


def make_stack(root: Path, model: str) -> tuple[StackFile, Site]:
    """A stack `shop` that lies below a home folder, which FALAJ_HOME has to name."""
    project = root / "project"
    project.mkdir(parents=True)
    (project / "Pulumi.yaml").write_text(f"name: {model}\nruntime: python\n")
    (project / "Pulumi.shop.yaml").write_text("config:\n  falaj:platform: local\n")
    stack = StackFile("shop", Project.find(project))
    stack.site.parent.mkdir(parents=True)
    site = Site(stack.site)
    site.pki.issue("operator", "operator", ExtendedKeyUsageOID.CLIENT_AUTH)
    site.config.unlink()
    site.config = stack.site / "service" / model / "service.json"
    site.config.parent.mkdir(parents=True)
    site.document["auth"]["clients"]["operator"] = ["predict", "observe"]
    site.write(model=model, alias="production")
    return stack, site


def publish_run(site: Site, output: Path, *, promote: bool = True) -> int:
    """Publish what the optimisation wrote into a folder; the version."""
    files = {name: (output / name).read_bytes() for name in ("model.onnx", "card.html")}
    fields = json.loads((output / "fields.json").read_text())
    name = site.document["model"]
    done = site.store.publish(name, files, fields, site.keyring)
    if promote:
        site.store.promote(name, done.version)
    return done.version


class Running:
    """The page, served in a thread; `do` runs something in its loop."""

    def __init__(self, page: Page, loop: asyncio.AbstractEventLoop) -> None:
        self.page = page
        self.door = page.door
        self._loop = loop

    def do(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


@contextmanager
def serving(stack: StackFile) -> Iterator[Running]:
    """Serve the page of a stack until the block's end."""
    listening = socket.create_server(("127.0.0.1", 0))
    loop = asyncio.new_event_loop()
    made: list[tuple[Page, web.AppRunner]] = []

    async def begin() -> None:
        page = Page(stack, Door(listening.getsockname()[1]))
        runner = web.AppRunner(page.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        made.append((page, runner))

    loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    page, runner = made[0]
    running = Running(page, loop)
    try:
        yield running
    finally:
        running.do(runner.cleanup())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
