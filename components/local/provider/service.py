"""An inference service on the machine: its files, its process, and rolling it to a version."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.components.local import machine
from falaj.components.local.arguments.inference_service import DRAIN
from falaj.components.local.machine import LocalError
from falaj.components.local.provider import workloads
from falaj.components.local.provider.daemons import daemons
from falaj.components.local.provider.fields import flag, number, optional, text, texts, whole
from falaj.components.local.provider.handler import Context, Site
from falaj.components.local.supervision import KINDS, Program, Supervisor
from falaj.components.specification.property_names import snake
from falaj.wire.documents import mapping, sequence
from falaj.wire.values import Values

# An inference service as it is on the machine: its files, its process, what it says of itself.

#: Time beyond the drain in which the master ends its workers and leaves.
_DRAIN_S: Final = DRAIN.default
_LEAVE_S: Final = 10


@dataclass(frozen=True)
class ServiceFiles:
    """Where the files of a service are.

    Attributes:
        folder: the service's own folder.
    """

    folder: Path

    @property
    def config(self) -> Path:
        """What the server reads."""
        return self.folder / "service.json"

    @property
    def state(self) -> Path:
        """What the server says of itself."""
        return self.folder / "state.json"

    @property
    def logs(self) -> Path:
        """Folder of its logs."""
        return self.folder / "logs"

    def read_config(self) -> dict[str, Any]:
        """The configuration as written; empty when there is none."""
        return machine.read_json(self.config) or {}

    def read_state(self) -> dict[str, Any]:
        """What the server last said; empty when it never did."""
        return machine.read_json(self.state) or {}

    def master(self) -> int | None:
        """Process id of the server, if it lives."""
        pid = self.read_state().get("pid")
        found = pid if isinstance(pid, int) else None
        return found if machine.is_process_running(found, self.process_marks) else None

    @property
    def process_marks(self) -> tuple[str, ...]:
        """What the server's command line holds."""
        return ("falaj.workloads.inference", "serve", str(self.config))

    def program(self) -> Program:
        """What the supervisor is to keep running."""
        limits = self.read_config().get("limits")
        drain = mapping(limits).get("drain_seconds")
        command = (sys.executable, "-P", "-m", "falaj.workloads.inference", "serve", "--config")
        return Program(
            name=self.folder.name,
            folder=self.folder,
            command=(*command, str(self.config)),
            directory=self.folder,
            stop_seconds=int(_DRAIN_S if drain is None else drain) + _LEAVE_S,
            process_marks=self.process_marks,
            environment=workloads.environment(),
        )


def services(site: Site) -> list[ServiceFiles]:
    """Every service that has a folder in the site."""
    if not site.services.is_dir():
        return []
    return [ServiceFiles(folder) for folder in sorted(site.services.iterdir()) if folder.is_dir()]


# Brings a service to a version: promote, wait until it is served, go back when it isn't.

ALIAS: Final = "production"
SHADOW: Final = "shadow"
"""Stands for the version that gets copies of requests."""
CANDIDATE: Final = "candidate"
"""Stands for the version that answers a share of the requests, in an experiment."""
_INFERENCE: Final = "falaj.workloads.inference"
#: Loading, verifying, decrypting and warming up takes seconds; a busy machine takes longer.
_SERVED_LIMIT_S: Final = 180.0
_POLL_S: Final = 0.1


@dataclass(frozen=True)
class Rollout:
    """One service on its way to a version.

    Attributes:
        service: its files.
        supervisor: keeps it running.
        context: for progress and cancellation.
    """

    service: ServiceFiles
    supervisor: Supervisor
    context: Context

    def is_healthy(self) -> bool:
        """Whether the supervisor keeps it and it serves."""
        return self.observed()["status"] == "serving"

    def observed(self) -> Values:
        """What is true of the service now."""
        state = self.service.read_state()
        status = self.supervisor.status(self.service.program())
        alive = self.service.master() is not None
        if not alive or not status.running:
            return {"status": "stopped", "servedVersion": None, "pid": None}
        pid = state.get("pid")
        version = state.get("version")
        reported = str(state.get("status"))
        return {
            "status": reported,
            "servedVersion": int(version) if version is not None else None,
            "pid": pid if isinstance(pid, int) else None,
        }

    def reach(self, wanted: Mapping[str, Any], version: int) -> None:
        """Serve this version by this configuration.

        Args:
            wanted: the content of ``service.json``.
            version: the version of the model.

        Raises:
            LocalError: it isn't served; the service is as it was before.
        """
        before = self.service.read_config()
        previous = promoted(wanted)
        workers = self._workers() if before != wanted or previous != version else frozenset[int]()
        started = time.time()
        try:
            # First the alias: the server then finds both changes at once, and rolls once.
            if previous != version:
                self.context.status(f"promoting version {version}")
                self._promote(wanted, version)
            if before != wanted:
                machine.write_json(self.service.config, wanted)
            self._run()
            self._wait(wanted, version, started, workers)
        except BaseException:
            self._go_back(before, wanted, previous)
            raise

    def _run(self) -> None:
        """Have the supervisor keep it; a server that runs follows its files by itself."""
        state = self.service.read_state()
        alive = self.service.master() is not None and state.get("status") != "failed"
        program = self.service.program()
        if alive and self.supervisor.status(program).running:
            return
        self.context.status("starting the service")
        self.service.state.unlink(missing_ok=True)
        self.supervisor.restart(program)

    def _wait(
        self, wanted: Mapping[str, Any], version: int, started: float, before: frozenset[int]
    ) -> None:
        self.context.status(f"waiting until version {version} is loaded, verified and warm")
        deadline = time.monotonic() + _SERVED_LIMIT_S
        while True:
            self.context.stop_if_cancelled("the roll-out")
            state = self.service.read_state()
            if (
                self._serves(state, wanted, version)
                and not (before & self._workers())
                and self._has_candidate(state, wanted)
            ):
                self.context.say(f"version {version} is served on port {state.get('port')}")
                self._tell_models(state)
                return
            self._refuse_failure(state, started)
            if time.monotonic() > deadline:
                raise LocalError(
                    f"version {version} was not served within {_SERVED_LIMIT_S:.0f} s; the "
                    f"service says {state.get('status', 'nothing')!r}; its log is "
                    f"{self.service.logs / 'server.log'}"
                )
            time.sleep(_POLL_S)

    def _tell_models(self, state: Mapping[str, Any]) -> None:
        """Say which further models can't be asked: what serves isn't kept from it by them."""
        for name, each in mapping(state.get("models")).items():
            if error := mapping(each).get("error"):
                self.context.say(f"the model {name} is {each.get('state')}: {error}")

    def _serves(self, state: Mapping[str, Any], wanted: Mapping[str, Any], version: int) -> bool:
        return (
            state.get("status") == "serving"
            and state.get("version") == version
            and state.get("port") == wanted["port"]
            and self.service.master() is not None
        )

    def _has_candidate(self, state: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Whether an experiment's candidate answers, where the registry has one for it.

        Raises:
            LocalError: it can't answer, with the server's own reason.
        """
        candidate = promoted(wanted, CANDIDATE) if "experiment" in wanted else None
        if candidate is None or candidate == state.get("version"):
            return True
        said = mapping(state.get("experiment"))
        if said.get("version") != candidate:
            return False
        if said.get("error"):
            raise LocalError(
                f"version {candidate}, the experiment's candidate, can't answer: {said['error']}"
            )
        return said.get("state") == "ready"

    def _workers(self) -> frozenset[int]:
        """Process ids of the workers that take new connections."""
        workers = self.service.read_state().get("workers")
        return frozenset(
            entry["pid"] for entry in sequence(workers) if entry.get("state") == "serving"
        )

    def _refuse_failure(self, state: Mapping[str, Any], started: float) -> None:
        """End the waiting when the server has said why it can't, or is gone for good.

        Raises:
            LocalError: with the server's own reason.
        """
        error = state.get("error")
        if error and self.service.state.stat().st_mtime >= started:
            raise LocalError(str(error))
        status = self.supervisor.status(self.service.program())
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

    def _go_back(
        self, before: Mapping[str, Any], wanted: Mapping[str, Any], previous: int | None
    ) -> None:
        """Put alias and configuration back; the version that served goes on serving."""
        # The first failure is what the person must see, not a second one from putting back.
        with contextlib.suppress(LocalError):
            if not before:
                self.supervisor.remove(self.service.program())
                self.service.config.unlink(missing_ok=True)
                return
            if previous is not None and promoted(wanted) != previous:
                # `rollback` takes the refused version out of the alias's history, so that no later
                # rollback goes to it. Also when the deployment is being cancelled, which a new
                # context doesn't know.
                back = Rollout(self.service, self.supervisor, Context(self.context.name))
                back._turn_alias("rollback", wanted)
            machine.write_json(self.service.config, before)
            self._run()

    def stand_by(self, wanted: Mapping[str, Any], served: int, version: int, alias: str) -> None:
        """Serve a version by this configuration, with another one beside it.

        Args:
            wanted: the content of ``service.json``.
            served: the version that serves.
            version: the one beside it.
            alias: what that one is there for.

        Raises:
            LocalError: the registry refuses, or it isn't served so; all is as it was before.
        """
        self.context.status(f"version {version} is the {alias} beside the one that serves")
        before = promoted(wanted, alias)
        self._turn_alias("promote", wanted, "--version", str(version), alias=alias)
        try:
            self.reach(wanted, served)
        except BaseException:
            # As in `_go_back`.
            with contextlib.suppress(LocalError):
                back = Rollout(self.service, self.supervisor, Context(self.context.name))
                verb = ("withdraw",) if before is None else ("promote", "--version", str(before))
                back._turn_alias(verb[0], wanted, *verb[1:], alias=alias)
            raise

    def _promote(self, wanted: Mapping[str, Any], version: int) -> None:
        self._turn_alias("promote", wanted, "--version", str(version))

    def _turn_alias(
        self, verb: str, wanted: Mapping[str, Any], *options: str, alias: str = ALIAS
    ) -> None:
        arguments = [
            verb, "--registry", str(wanted["registry"]), "--model", str(wanted["model"]),
            "--alias", alias, "--keyring", str(wanted["keyring"]), *options, "--json",
        ]  # fmt: skip
        workloads.run(self.context, workloads.REGISTRY, arguments, what=f"the registry's {verb}")


def promoted(config: Mapping[str, Any], name: str = ALIAS) -> int | None:
    """The version that an alias of a service's model points to, by default the one that is served;
    None when there is none."""
    path = Path(str(config["registry"])) / str(config["model"]) / "aliases.json"
    alias = (machine.read_json(path) or {}).get(name)
    version = mapping(alias).get("version")
    return int(version) if version is not None else None


def configuration(
    context: Context, service: ServiceFiles, inputs: Values, site: Site
) -> dict[str, Any]:
    """The content of ``service.json``, as the server itself puts it together and checks it.

    Raises:
        LocalError: the server would refuse it.
    """
    options: dict[str, object] = {
        "config": service.config,
        "name": text(inputs, "name"),
        "host": text(inputs, "host"),
        "port": whole(inputs, "port"),
        "workers": whole(inputs, "workers"),
        "threads": whole(inputs, "threads"),
        "registry": site.registry,
        "model": text(inputs, "model"),
        "alias": ALIAS,
        "keyring": text(inputs, "keyring"),
        "certificate": text(inputs, "certificate"),
        "private-key": text(inputs, "privateKey"),
        "client-ca": text(inputs, "clientCa"),
        "issuer": text(inputs, "issuer"),
        "audience": text(inputs, "audience"),
        "jwks": site.keyring / "tokens.jwks.json",
        "revoked": service.folder / "revoked.json",
        "max-body-bytes": whole(inputs, "maxBodyBytes"),
        "max-rows": whole(inputs, "maxRows"),
        "max-tokens": whole(inputs, "maxTokens"),
        "keep-seconds": whole(inputs, "keepSeconds"),
        "drain-seconds": whole(inputs, "drainSeconds"),
        "drift-window-rows": whole(inputs, "driftWindowRows"),
        "drift-window-seconds": whole(inputs, "driftWindowSeconds"),
        "drift-alpha": number(inputs, "driftAlpha"),
        "logs": service.logs,
        "state": service.state,
    }
    if (tokens := optional(inputs, "tokensPerMinute")) is not None:
        options["tokens-per-minute"] = tokens
    if (memory := optional(inputs, "modelsMemoryBytes")) is not None:
        options["models-memory-bytes"] = memory
    if further := mapping(inputs.get("models")):
        options["models"] = json.dumps({name: _further(each) for name, each in further.items()})
    if flag(inputs, "jobs"):
        options |= {
            "jobs-keep-hours": whole(inputs, "jobsKeepHours"),
            "jobs-most": whole(inputs, "jobsMost"),
            "jobs-most-bytes": whole(inputs, "jobsMostBytes"),
        }
    if flag(inputs, "shadow"):
        options |= {"shadow-percent": number(inputs, "shadowPercent"), "shadow-alias": SHADOW}
    if (key := optional(inputs, "experimentKey")) is not None:
        options |= {
            "experiment-key": key, "experiment-alias": CANDIDATE,
            "experiment-share": number(inputs, "experimentShare"),
            "experiment-timeout-ms": whole(inputs, "experimentTimeoutMs"),
        }  # fmt: skip
        if (named := optional(inputs, "experimentName")) is not None:
            options["experiment-name"] = named
    clients = inputs.get("clients")
    granted = mapping(clients)
    # In one word each: a text that starts with a "-" is no option.
    arguments = [f"--{name}={value}" for name, value in options.items()]
    arguments.append("--grpc" if flag(inputs, "grpc") else "--no-grpc")
    arguments += [f"--client={name}={','.join(texts(granted, name))}" for name in granted]
    arguments += [] if flag(inputs, "drift") else ["--no-drift"]
    arguments += ["--batching"] if flag(inputs, "batching") else []
    arguments += ["--priorities"] if flag(inputs, "priorities") else []
    arguments += ["--jobs"] if flag(inputs, "jobs") else []
    command = ["configure", *arguments, "--json"]
    return workloads.run(context, _INFERENCE, command, what="the service's configuration")


def _further(given: object) -> dict[str, Any]:
    """A further model as ``service.json`` has it."""
    return {
        # The engine knows no whole numbers.
        snake(key): int(value) if isinstance(value, float) else value
        for key, value in mapping(given).items()
    }


# What an interrupted deployment has left running in a site.


def end_leftovers(site: Site) -> int:
    """End every daemon, service and workload process of a site that is still there.

    Returns:
        How many processes ran.

    Raises:
        LocalError: one doesn't end.
    """
    # The separator keeps a site whose name only begins like this one's out of it.
    words = ("workloads.", f"{site.path}/")
    running = machine.find_processes(words)
    for each in (*daemons(site), *services(site)):
        for make in KINDS.values():
            make().remove(each.program())
    for pid in machine.find_processes(words):
        machine.end_process(pid, words, patience_s=60)
    return len(running)


def holds_port(site: Site, port: int) -> bool:
    """Whether a service of this very site listens on the port."""
    return any(
        service.read_state().get("port") == port and service.master() is not None
        for service in services(site)
    )
