"""Brings a service to a version: promote, wait until it is served, go back when it isn't."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from components.local.machine import files
from components.local.machine.errors import LocalError
from components.local.provider import workloads
from components.local.provider.fields import text, whole
from components.local.provider.handler import Context
from components.local.provider.service_process import ServiceFiles
from components.local.provider.site import Site
from components.local.provider.values import Values
from components.local.supervision.program import Status, Supervisor

ALIAS: Final = "production"
_REGISTRY: Final = "workloads.registry"
#: Loading, verifying, decrypting and warming up takes seconds; a busy machine takes longer.
_SERVED_LIMIT_S: Final = 180.0
_POLL_S: Final = 0.1


@dataclass(frozen=True)
class Rollout:
    """One service on its way to a version.

    Attributes:
        service: its files.
        keeper: who keeps it running.
        context: for progress and cancellation.
    """

    service: ServiceFiles
    keeper: Supervisor
    context: Context

    def is_healthy(self) -> bool:
        """Whether the supervisor keeps it and it serves."""
        return self.observed()["status"] == "serving"

    def observed(self) -> Values:
        """What is true of the service now."""
        state = self.service.read_state()
        status = self.keeper.status(self.service.program())
        alive = self.service.master() is not None
        if not alive or not status.running:
            return {"status": "stopped", "servedVersion": None, "pid": None}
        pid = state.get("pid")
        version = state.get("version")
        said = str(state.get("status"))
        return {
            # One that drains an old version is serving the new one.
            "status": "serving" if said in {"serving", "draining"} else said,
            "servedVersion": int(version) if version is not None else None,
            "pid": pid if isinstance(pid, int) else None,
        }

    def reach(self, version: int, before: Mapping[str, Any], renewed: bool) -> None:
        """Serve this version with the configuration as it is written now.

        Args:
            version: the version of the model.
            before: the configuration before; empty for a new service. It is put back on failure.
            renewed: whether the certificate was renewed under the same name.

        Raises:
            LocalError: it isn't served; the service is as it was before.
        """
        previous = self._promoted()
        try:
            started = self._start(version, before, renewed)
            self._wait(version, started)
        except BaseException:
            self._go_back(previous, before)
            raise

    def _start(self, version: int, before: Mapping[str, Any], renewed: bool) -> float:
        """Set off what leads to the version; the moment after which the server's words count."""
        config = self.service.read_config()
        running = self.is_healthy()
        if self._promoted() != version:
            self.context.status(f"promoting version {version}")
            self._registry("promote", "--version", str(version))
        started = time.time()
        moved = any(before.get(key) != config.get(key) for key in ("host", "port"))
        if running and not moved:
            master = self.service.master()
            if renewed and master is not None:
                # The files have changed under the same names: the server can't see that.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(master, signal.SIGHUP)
            self.keeper.start(self.service.program())
            return started
        self.context.status("starting the service")
        self.service.state.unlink(missing_ok=True)
        self.keeper.restart(self.service.program())
        return started

    def _wait(self, version: int, started: float) -> None:
        self.context.status(f"waiting until version {version} is loaded, verified and warm")
        deadline = time.monotonic() + _SERVED_LIMIT_S
        while True:
            self.context.stop_if_cancelled("the roll-out")
            state = self.service.read_state()
            status = self.keeper.status(self.service.program())
            if self._serves(state, version):
                self.context.say(f"version {version} is served on port {state.get('port')}")
                return
            self._refuse_failure(state, status, started)
            if time.monotonic() > deadline:
                raise LocalError(
                    f"version {version} was not served within {_SERVED_LIMIT_S:.0f} s; the "
                    f"service says {state.get('status', 'nothing')!r}; its log is "
                    f"{self.service.logs / 'server.log'}"
                )
            time.sleep(_POLL_S)

    def _serves(self, state: Mapping[str, Any], version: int) -> bool:
        config = self.service.read_config()
        return (
            state.get("status") in {"serving", "draining"}
            and str(state.get("version")) == str(version)
            and state.get("port") == config.get("port")
            and self.service.master() is not None
        )

    def _refuse_failure(self, state: Mapping[str, Any], status: Status, started: float) -> None:
        """End the waiting when the server has said why it can't, or is gone for good.

        Raises:
            LocalError: with the server's own reason.
        """
        error = state.get("error")
        if error and self.service.state.stat().st_mtime >= started:
            raise LocalError(str(error))
        if not status.running and status.exit_status is not None:
            raise LocalError(
                f"the service ended with status {status.exit_status} before it served: "
                f"{error or self._last_words() or status.detail}"
            )

    def _last_words(self) -> str:
        try:
            log = (self.service.logs / "server.log").read_text("utf-8", "replace")
        except OSError:
            return ""
        lines = [line for line in log.splitlines() if line.strip()]
        return "\n".join(lines[-5:])

    def _go_back(self, previous: int | None, before: Mapping[str, Any]) -> None:
        """Put alias and configuration back; the version that served goes on serving."""
        # The first failure is what the person must see, not a second one from putting back.
        with contextlib.suppress(LocalError):
            if not before:
                self.keeper.remove(self.service.program())
                return
            files.write_json(self.service.config, before)
            if previous is not None and self._promoted() != previous:
                quiet = Rollout(self.service, self.keeper, Context(self.context.name))
                quiet._registry("promote", "--version", str(previous))
            if not self.is_healthy():
                self.keeper.restart(self.service.program())

    def _promoted(self) -> int | None:
        config = self.service.read_config()
        path = _model_folder(config) / "aliases.json"
        alias = (files.read_json(path) or {}).get(ALIAS)
        version = alias.get("version") if isinstance(alias, Mapping) else None
        return int(version) if version is not None else None

    def _registry(self, command: str, *more: str) -> None:
        config = self.service.read_config()
        arguments = [
            command, "--registry", str(config["registry"]), "--model", str(config["model"]),
            "--alias", ALIAS, *more, "--json",
        ]  # fmt: skip
        workloads.run(self.context, _REGISTRY, arguments)


def write_config(service: ServiceFiles, inputs: Values, site: Site) -> None:
    """Write ``service.json`` when it differs: the server rolls to a changed one by itself.

    Raises:
        LocalError: it can't be written.
    """
    wanted = _config(service, inputs, site)
    if service.read_config() != wanted:
        files.write_json(service.config, wanted)


def _model_folder(config: Mapping[str, Any]) -> Path:
    return Path(str(config.get("registry"))) / str(config.get("model"))


def _config(service: ServiceFiles, inputs: Values, site: Site) -> dict[str, Any]:
    return {
        "format": "falaj.service/1",
        "name": text(inputs, "name"),
        "host": text(inputs, "host"),
        "port": whole(inputs, "port"),
        "workers": whole(inputs, "workers"),
        "threads": whole(inputs, "threads"),
        "registry": str(site.registry),
        "model": text(inputs, "model"),
        "alias": ALIAS,
        "keyring": text(inputs, "keyring"),
        "tls": {
            "certificate": text(inputs, "certificate"),
            "private_key": text(inputs, "privateKey"),
            "client_ca": text(inputs, "clientCa"),
        },
        "auth": {
            "issuer": text(inputs, "issuer"),
            "audience": text(inputs, "audience"),
            "jwks": str(site.keyring / "tokens.jwks.json"),
            "clients": inputs.get("clients") or {},
        },
        "limits": {
            "max_body_bytes": whole(inputs, "maxBodyBytes"),
            "max_rows": whole(inputs, "maxRows"),
            "drain_seconds": whole(inputs, "drainSeconds"),
        },
        "logs": str(service.logs),
        "state": str(service.state),
    }
