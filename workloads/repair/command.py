"""The command line of the repair, and its life: the lease, passes, and what is asked over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from falaj.workloads.api_server import FOLDER, Account, ApiError, address
from falaj.workloads.errors import REFUSED, WorkloadError
from falaj.workloads.repair.api import Api
from falaj.workloads.repair.controller import Controller, NotLeadingError
from falaj.workloads.repair.lease import Lease
from falaj.workloads.repair.settings import Settings, read_settings
from falaj.workloads.repair.watching import Audit, Metrics, Watching

LEASE: Final = "node-repair"
#: A pass that takes longer than so many of its intervals has hung.
_HUNG_PASSES: Final = 20
_LEAST_HUNG_SECONDS: Final = 120.0


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return 0 or one of `falaj.workloads.errors`."""
    options = build_parser().parse_args(list(arguments))
    try:
        settings = read_settings(options.settings)
        if options.check:
            print("the settings can be used")
            return 0
        return asyncio.run(_serve(options, settings))
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.repair",
        description="Take nodes with sick GPUs out of service, drain them, bring them back.",
        epilog="Exit status: 0 stopped; 2 refused. Metrics and health: /metrics and /healthz.",
    )
    add = parser.add_argument
    add("--settings", type=Path, required=True, help="JSON file; falaj.workloads.repair.settings")
    add("--check", action="store_true", help="read the settings, and do nothing")
    add("--namespace", default="node-repair", help="of the lease (default node-repair)")
    add("--holder", default="", help="this replica's name, which no other has (a pod: its name)")
    add("--listen", default="127.0.0.1:8080", help="address:port (default 127.0.0.1:8080)")
    add("--account", type=Path, default=FOLDER, help="folder with token and ca.crt")
    return parser


def _place(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) <= 65535):
        raise WorkloadError(f"--listen is {text!r}: allowed is address:port, port at most 65,535")
    return host.strip("[]"), int(port)


async def _serve(options: argparse.Namespace, settings: Settings) -> int:
    """Work until a signal says to stop; the lease is given back then."""
    if not options.holder:
        raise WorkloadError("--holder is missing: give each replica a name of its own")
    host, port = _place(options.listen)
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    audit = Audit(options.holder, dry_run=settings.dry_run)
    watching = Watching(options.holder, audit, Metrics())
    api = Api.of(address(), Account.of(options.account))
    try:
        lease = Lease(api, (options.namespace, LEASE), options.holder, settings.lease_seconds)
        replica = Replica(api, lease, settings, watching)
        async with _listening(host, port, replica, watching.metrics):
            await replica.run(stop)
        return 0
    finally:
        await api.close()


@contextlib.asynccontextmanager
async def _listening(
    host: str, port: int, replica: Replica, metrics: Metrics
) -> AsyncGenerator[None]:
    """Answer what Prometheus and the kubelet ask."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), content_type="text/plain", charset="utf-8")

    async def health(_: web.Request) -> web.Response:
        good = replica.is_alive
        return web.Response(text="ok\n" if good else "hung\n", status=200 if good else 503)

    app = web.Application()
    app.add_routes([web.get("/metrics", show), web.get("/healthz", health)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise WorkloadError(f"--listen {host}:{port}: {error.strerror or error}") from error
    try:
        yield
    finally:
        await runner.cleanup()


class Replica:
    """One replica: asks for the lease all the time, and works while it has it."""

    def __init__(self, api: Api, lease: Lease, settings: Settings, watching: Watching) -> None:
        self._lease = lease
        self._settings = settings
        self._metrics = watching.metrics
        self._audit = watching.audit
        self._controller = Controller(api, lease, settings, watching)
        self._turned_at = time.monotonic()

    @property
    def is_alive(self) -> bool:
        """Whether it isn't stuck in a pass; an API server out of reach doesn't count."""
        patience = max(_LEAST_HUNG_SECONDS, _HUNG_PASSES * self._settings.pass_seconds)
        return time.monotonic() - self._turned_at < patience

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set."""
        renewing = asyncio.create_task(self._renew())
        try:
            while not stop.is_set():
                self._turned_at = time.monotonic()
                if self._lease.leads:
                    await self._pass()
                pause = self._settings.pass_seconds if self._lease.leads else 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause)
        finally:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
            with contextlib.suppress(ApiError):
                await self._lease.release()
            self._audit.write("stopped")

    async def _pass(self) -> None:
        try:
            await self._controller.look()
        except NotLeadingError:
            self._audit.write("lead-lost")
        except ApiError as error:
            self._metrics.errors.inc()
            self._audit.write("pass-ended", reason=str(error))

    async def _renew(self) -> None:
        led = False
        while True:
            # The API server doesn't answer: the lease runs out by itself.
            with contextlib.suppress(ApiError):
                await self._lease.renew()
            leads = self._lease.leads
            self._metrics.leads.set(leads)
            if leads != led:
                self._audit.write("leads" if leads else "follows")
                if not leads:
                    self._metrics.silent()
            led = leads
            await asyncio.sleep(self._settings.lease_seconds / 4)
