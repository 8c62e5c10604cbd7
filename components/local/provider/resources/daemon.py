"""Daemon: a program of the stack's own, kept running by a supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from falaj.components.local import machine
from falaj.components.local.arguments.daemon import DaemonArgs
from falaj.components.local.machine import InvalidInput, InvalidInputsError, LocalError
from falaj.components.local.provider.daemons import (
    DaemonFiles,
    say_what_ends_it,
)
from falaj.components.local.provider.fields import (
    text,
    whole,
)
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.components.local.supervision import KINDS, Supervisor, choose, is_on_lines
from falaj.wire.values import Values


class DaemonHandler(Handler):
    """Starts a program and keeps it; another command is another start."""

    type_name: ClassVar[str] = "Daemon"
    summary: ClassVar[str] = "A program of the stack's own that a supervisor keeps running."
    arguments: ClassVar[type] = DaemonArgs
    outputs: ClassVar[Mapping[str, str]] = {
        "status": "running or stopped.",
        "pid": "Process id.",
        "keptBy": "systemd or supervisord.",
        "log": "File of what it prints.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """The program has to be named by its whole path, for nobody searches it."""
        checked = super().check(given, old)
        command = checked.get("command")
        if isinstance(command, list):
            first = command[0] if command else ""
            if isinstance(first, str) and not first.startswith("/"):
                reason = f"given {first!r} to run; allowed: an absolute path, then arguments"
                raise InvalidInputsError([InvalidInput("command", reason)])
            for part in command:
                if isinstance(part, str) and is_on_lines(part):
                    reason = (
                        f"given {part!r}; allowed: texts without line breaks and zero bytes, "
                        "which no supervisor's file can say; put what has some into a file"
                    )
                    raise InvalidInputsError([InvalidInput("command", reason)])
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """A program that doesn't run (a reboot, a killed supervisor) is started again."""
        running = self._observed(state, KINDS[text(state, "keptBy")]())["status"] == "running"
        return {} if running else {"status": Change(is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """What it does is known once it runs."""
        expected = super().preview(inputs, state)
        if isinstance(inputs.get("site"), str):
            expected["log"] = str(self._files(inputs).log)
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Start it, in the place of one that an interrupted deployment has started."""
        return text(inputs, "name"), self._start(context, inputs)

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when what is to run isn't noted any more; else what it really does."""
        del resource_id
        if not self._files(state).record.is_file():
            return None
        return {**state, **self._observed(state, KINDS[text(state, "keptBy")]())}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Start it anew where its command is another one.

        Not while this deployment is the program's own: to end the program would be to end the
        deployment, and each would wait for the other. It goes on as it was, and so does the state,
        so that the next deployment which somebody else begins starts it anew.
        """
        del resource_id
        if self._runs_this(state):
            context.say(
                "it goes on as it was started, as this deployment is its own: bring the stack up "
                "yourself to start it anew"
            )
            return {**state, **self._observed(state, KINDS[text(state, "keptBy")]())}
        wanted = choose(text(inputs, "supervisor"))
        if text(state, "keptBy") != wanted.kind or inputs["command"] != state.get("command"):
            # By what is noted now: a new command would not find the old process.
            KINDS[text(state, "keptBy")]().remove(self._files(state).program())
        return self._start(context, inputs)

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Stop it; returns when its processes are gone and nothing is left.

        Raises:
            LocalError: this deployment is the program's own, or it doesn't end.
        """
        del resource_id
        if self._runs_this(state):
            raise LocalError(
                f"{text(state, 'name')} can't be removed by a deployment of its own, which would "
                "end with it: bring the stack up, or down, yourself"
            )
        files = self._files(state)
        context.status("stopping")
        KINDS[text(state, "keptBy")]().remove(files.program())
        machine.remove_tree(files.folder)

    def _start(self, context: Context, inputs: Values) -> Values:
        files = self._files(inputs)
        command = inputs["command"]
        parts = tuple(str(each) for each in command) if isinstance(command, list) else ()
        files.write(parts, whole(inputs, "stopSeconds"))
        supervisor = choose(text(inputs, "supervisor"))
        context.status("starting")
        supervisor.start(files.program())
        say_what_ends_it(context, supervisor)
        return {
            **inputs,
            **self._observed(inputs, supervisor),
            "keptBy": supervisor.kind,
            "log": str(files.log),
        }

    def _observed(self, values: Values, supervisor: Supervisor) -> Values:
        found = supervisor.status(self._files(values).program())
        return {"status": "running" if found.running else "stopped", "pid": found.pid}

    def _runs_this(self, state: Values) -> bool:
        """Whether the deployment is one that the program itself began."""
        program = self._files(state).program()
        found = KINDS[text(state, "keptBy")]().status(program)
        return machine.is_below(found.pid, program.process_marks)

    def _files(self, values: Values) -> DaemonFiles:
        return DaemonFiles(self.site_of(values).daemons / text(values, "name"))
