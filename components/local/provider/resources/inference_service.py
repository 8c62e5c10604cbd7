"""InferenceService: serves a published model, kept running by a supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from falaj.components.local import machine
from falaj.components.local.arguments.inference_service import (
    InferenceServiceArgs,
    JobArgs,
    ShadowArgs,
)
from falaj.components.local.machine import InvalidInput, InvalidInputsError
from falaj.components.local.provider.daemons import say_what_ends_it
from falaj.components.local.provider.fields import (
    flag,
    text,
    whole,
)
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.components.local.provider.service import (
    CANDIDATE,
    SHADOW,
    Rollout,
    ServiceFiles,
    configuration,
    promoted,
)
from falaj.components.local.supervision import KINDS, Supervisor, choose
from falaj.components.specification.arguments import stated_in
from falaj.components.specification.property_names import camel
from falaj.components.specification.workload_bounds import bound
from falaj.wire.values import Values

_PORT_LIMIT_S = 15.0


class InferenceServiceHandler(Handler):
    """Starts, rolls and stops a server; another version is rolled to without a failed request."""

    type_name: ClassVar[str] = "InferenceService"
    summary: ClassVar[str] = "A server of the Open Inference Protocol v2 over TLS 1.3."
    # A service of another name is another service, and two can't listen on one port.
    delete_before_replace: ClassVar[bool] = True
    arguments: ClassVar[type] = InferenceServiceArgs
    outputs: ClassVar[Mapping[str, str]] = {
        "endpoint": "Base URL of the service.",
        "servedVersion": "The version that is really served (a rollback changes it).",
        "status": "serving, or what it is instead.",
        "pid": "Process id of the server.",
        "keptBy": "systemd or supervisord.",
        "tokenKeyPath": "File of the key that signs access tokens.",
        "configPath": "The server's configuration.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """What is for jobs, a shadow or an experiment needs them, of which there is one beside
        what serves; where gRPC is answered, bodies are smaller."""
        checked = super().check(given, old)
        refused: list[InvalidInput] = []
        if checked["jobs"] is False:
            reason = "but no jobs are taken; set jobs to true, or leave it out"
            refused = [
                InvalidInput(key, f"given {given[key]!r}, {reason}")
                for key in map(camel, stated_in(InferenceServiceArgs, JobArgs))
                if given.get(key) is not None
            ]
        if checked["shadow"] is False:
            reason = "but there is no shadow; set shadow to true, or leave it out"
            refused += [
                InvalidInput(key, f"given {given[key]!r}, {reason}")
                for key in map(camel, stated_in(InferenceServiceArgs, ShadowArgs))
                if given.get(key) not in (None, False)
            ]
        if checked.get("experimentKey") is None:
            reason = "but there is no experiment; give experimentKey, or leave it out"
            refused += [
                InvalidInput(key, f"given {given[key]!r}, {reason}")
                for key in (
                    "experimentShare",
                    "experimentName",
                    "experimentTimeoutMs",
                    "experimentFirst",
                )
                if given.get(key) not in (None, False)
            ]
        elif checked["shadow"] is True:
            reason = "but a server has one version beside the one that serves; leave out shadow"
            refused.append(
                InvalidInput("experimentKey", f"given {given['experimentKey']!r}, {reason}")
            )
        body, most = checked.get("maxBodyBytes"), bound("grpc", "max_body_bytes")
        if checked.get("grpc") is True and isinstance(body, int | float) and body > most.high:
            allowed = f"a whole number {most.description} where grpc is true, as it is by default"
            refused.append(InvalidInput("maxBodyBytes", f"given {body}; allowed: {allowed}"))
        if refused:
            raise InvalidInputsError(refused)
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """A service that doesn't run (a reboot, a killed supervisor) is started again."""
        service = self._files(state)
        rollout = Rollout(service, self._supervisor(state), Context("diff"))
        return {} if rollout.is_healthy() else {"status": Change(is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """Where it will be is known; what it serves only afterwards."""
        expected = super().preview(inputs, state)
        expected["endpoint"] = endpoint(inputs)
        if isinstance(inputs.get("keyring"), str):
            expected["tokenKeyPath"] = str(Path(text(inputs, "keyring")) / "tokens.pem")
        if isinstance(inputs.get("site"), str):
            expected["configPath"] = str(self._files(inputs).config)
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Start the service, adopting one that an interrupted deployment has started."""
        service = self._files(inputs)
        if service.read_state().get("port") != inputs["port"] or service.master() is None:
            choose(text(inputs, "supervisor")).remove(service.program())
            machine.require_free_port(text(inputs, "host"), whole(inputs, "port"))
        return text(inputs, "name"), self._roll_out(context, inputs, None)

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when its configuration is; else what it really does."""
        service = self._files(state)
        if not service.config.is_file():
            return None
        rollout = Rollout(service, self._supervisor(state), Context("refresh"))
        return {**state, **rollout.observed()}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Roll to what is wanted; when that fails, the service is as it was."""
        moved = any(inputs[key] != state.get(key) for key in ("host", "port"))
        if moved:
            # The port must be free for us before the old place is given up.
            machine.require_free_port(text(inputs, "host"), whole(inputs, "port"))
        outputs = self._roll_out(context, inputs, state)
        if moved:
            machine.wait_for_free_port(text(state, "host"), whole(state, "port"), _PORT_LIMIT_S)
        return outputs

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Stop it; returns when processes are gone, the port is free and nothing is left."""
        service = self._files(state)
        port, host = whole(state, "port"), text(state, "host")
        ours = service.read_state().get("port") == port and service.master() is not None
        context.status("finishing requests and stopping")
        self._supervisor(state).remove(service.program())
        if ours:
            machine.wait_for_free_port(host, port, _PORT_LIMIT_S)
        machine.remove_tree(service.folder)

    def _roll_out(self, context: Context, inputs: Values, state: Values | None) -> Values:
        service = self._files(inputs)
        supervisor = choose(text(inputs, "supervisor"))
        if state is not None and text(state, "keptBy") != supervisor.kind:
            KINDS[text(state, "keptBy")]().remove(service.program())
        machine.make_folder(service.folder)
        machine.make_folder(service.logs)
        rollout = Rollout(service, supervisor, context)
        wanted = configuration(context, service, inputs, self.site_of(inputs))
        version = whole(inputs, "version")
        if state is not None and whole(state, "version") == version:
            # Nobody asked for another one: what a person has rolled back to stays.
            version = promoted(wanted) or version
        elif (alias := _stands_by(inputs)) and (served := promoted(wanted)) not in (None, version):
            rollout.stand_by(wanted, served or version, version, alias)
            version = None
        if version is not None:
            rollout.reach(wanted, version)
        say_what_ends_it(context, supervisor)
        token_key = Path(text(inputs, "keyring")) / "tokens.pem"
        return {
            **inputs,
            **rollout.observed(),
            "endpoint": endpoint(inputs),
            "keptBy": supervisor.kind,
            "tokenKeyPath": str(token_key),
            "configPath": str(service.config),
        }

    def _files(self, values: Values) -> ServiceFiles:
        return ServiceFiles(self.site_of(values).services / text(values, "name"))

    def _supervisor(self, state: Values) -> Supervisor:
        return KINDS[text(state, "keptBy")]()


def _stands_by(inputs: Values) -> str | None:
    """The alias of a new version that doesn't serve at once; None: it does."""
    if flag(inputs, "shadowFirst"):
        return SHADOW
    return CANDIDATE if flag(inputs, "experimentFirst") else None


def endpoint(inputs: Values) -> str:
    """Base URL under which a client on this machine reaches the service."""
    host = text(inputs, "host")
    # An address that means every interface is not one to connect to.
    shown = {"0.0.0.0": "localhost", "::": "localhost", "127.0.0.1": "localhost"}.get(host, host)  # noqa: S104
    return f"https://{f'[{shown}]' if ':' in shown else shown}:{whole(inputs, 'port')}"
