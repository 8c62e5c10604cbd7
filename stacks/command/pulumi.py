"""Runs the ``pulumi`` command for a stack of a project, on the real cloud or in the sandbox."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from falaj.engine import backend, install, launch
from falaj.sandbox import activation, sdks, store
from falaj.stacks.command.console import say
from falaj.stacks.command.hints import passphrase_hint
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.remains import remains
from falaj.stacks.command.workspace import make_workspace, program_environment
from falaj.stacks.errors import StackError
from falaj.wire.documents import mapping, sequence


class Pulumi:
    """The engine with its environment, for one stack."""

    def __init__(
        self,
        stack: StackFile,
        *,
        sandbox: bool = False,
        plugins: bool = True,
        copied: bool = False,
    ) -> None:
        """Find, download or build the engine, and open the backend.

        Args:
            stack: the stack that commands are for.
            sandbox: let the sandbox's providers answer, with a backend of their own.
            plugins: whether the engine may get the vendor's providers for the SDKs that are
                installed. A local stack needs none of them.
            copied: work on a copy of the stack's file, as the sandbox does. With another backend
                than the stack's own the engine would write the salt of another passphrase into
                it, and nothing could open the stack again. Default: on the file itself.

        Raises:
            EngineError: there is no engine, or our variables are half the sandbox's.
        """
        activation.check()
        self.stack = stack
        self.sandbox = sandbox
        self._copied = copied or sandbox
        self.engine = install.ensure_engine(say)
        if sandbox:
            base = launch.environment(say, self.engine)
            own = sdks.for_program(base, program_environment(stack.project))
            self.environment = activation.activated(own)
            self.folder: Path = make_workspace(stack)
        else:
            self.environment = launch.environment(say, self.engine)
            self.folder = make_workspace(stack) if copied else stack.project.root
        if not plugins:
            self.environment["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] = "true"

    def run(
        self,
        arguments: Sequence[str],
        variables: Mapping[str, str] | None = None,
        *,
        output: IO[bytes] | None = None,
        meanwhile: Callable[[], None] | None = None,
        interrupted: Callable[[], None] | None = None,
    ) -> int:
        """Run a command; returns its exit status.

        Args:
            arguments: of the engine's command.
            variables: further variables of its environment.
            output: where what it prints goes. Default: to the person.
            meanwhile: called several times a second while it runs.
            interrupted: called when it is asked to stop.
        """
        environment = {**self.environment, **(variables or {})}
        return launch.run(
            arguments, self.folder, say, self.engine, environment,
            output=output, meanwhile=meanwhile, interrupted=interrupted,
        )  # fmt: skip

    @contextmanager
    def predicting(self) -> Generator[dict[str, str]]:
        """Variables with which previews in the sandbox know what an update would bring.

        Without the sandbox there are none.
        """
        if not self.sandbox:
            yield {}
            return
        with tempfile.TemporaryDirectory(prefix="falaj-predicted-") as folder:
            copy = Path(folder) / "cloud.sqlite"
            store.copy_without_faults(activation.cloud_file(self.environment), copy)
            yield {activation.PREDICTION_VARIABLE: str(copy)}

    def capture(self, arguments: Sequence[str], given: str | None = None) -> str:
        """Standard output of a command that reads ``given``.

        Raises:
            StackError: it failed; the message is what it printed.
        """
        done = subprocess.run(
            [self._command(), *arguments],
            cwd=self.folder,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            printed = (done.stderr.strip() or done.stdout.strip()).removeprefix("error: ")
            url = self.environment.get("PULUMI_BACKEND_URL", "")
            if (hint := passphrase_hint(printed, self.stack, url)) is not None:
                printed = f"{printed}\n{hint}"
            raise StackError(printed or f"pulumi {arguments[0]} failed")
        return done.stdout

    def exists(self) -> bool:
        """Whether the backend knows the stack."""
        name = self.stack.project.name
        listed = json.loads(self.capture(["stack", "ls", "--json", "--project", name]))
        return any(self._is_own(entry["name"]) for entry in listed)

    def ensure_stack(self) -> None:
        """Make the stack in the backend when it is new, and clear locks of killed engines."""
        backend.clear_stale_locks(self.environment.get("PULUMI_BACKEND_URL", ""), say)
        if not self.exists():
            if not self._copied:
                self.stack.forget_passphrase()
            self.capture(["stack", "init", self.stack.name, "--non-interactive"])

    def settle_interrupted(self, exported: dict[str, Any]) -> None:
        """Drop the record of operations that a killed engine had begun, from the state as well.

        Only for the local platform: its creates adopt what is there already, so the next run can
        simply do them again. On a cloud a person has to look first, as the
        engine's warning says.
        """
        deployment: dict[str, Any] = exported.get("deployment") or {}
        pending: list[Any] = deployment.pop("pending_operations", None) or []
        if not pending:
            return
        for operation in pending:
            name = operation["resource"]["urn"].rpartition("::")[2]
            say(f"the last run was interrupted while {operation['type']} {name}: doing it again")
        self.capture(["stack", "import", "--force", "-s", self.stack.name], json.dumps(exported))

    def refuse_made_up(self) -> None:
        """Refuse to run a real deployment on state that the sandbox wrote.

        Raises:
            EngineError: the state has resources of the sandbox.
        """
        from falaj.sandbox.prediction import refuse_sandbox_state  # noqa: PLC0415 - the whole cloud

        refuse_sandbox_state(self.exported())

    def release(self, exported: dict[str, Any]) -> None:
        """Let a destroy take everything of a sandboxed stack, the protected and retained as well.

        What is retained would stand in the way of what it stands on, such as its subnet. What the
        cloud itself deletes on no request stays retained.
        """
        held = [
            (resource, key)
            for resource in resources_of(exported)
            for key in ("protect", "retainOnDelete")
            if resource.get(key) and (key == "protect" or remains(resource) is None)
        ]
        for resource, key in held:
            del resource[key]
        if held:
            changed = json.dumps(exported)
            self.capture(["stack", "import", "--force", "-s", self.stack.name], changed)

    def exported(self) -> dict[str, Any]:
        """The stack's state as the engine exports it; secrets stay masked."""
        text = self.capture(["stack", "export", "-s", self.stack.name])
        return cast("dict[str, Any]", json.loads(text))

    def resources(self) -> list[dict[str, Any]]:
        """What the stack's state holds; secrets stay masked."""
        return resources_of(self.exported())

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs; secrets stay masked."""
        text = self.capture(["stack", "output", "--json", "-s", self.stack.name])
        return cast("dict[str, Any]", json.loads(text or "{}"))

    def other_stacks(self) -> list[str]:
        """Names of all the other stacks that the backend knows, of any project."""
        listed = json.loads(self.capture(["stack", "ls", "--all", "--json"]))
        names = [cast("str", entry["name"]) for entry in listed]
        return [name for name in names if not self._is_own(name)]

    def _command(self) -> str:
        return str(self.engine.path)

    def _is_own(self, name: str) -> bool:
        """Whether a name that the engine lists is this stack's.

        Those of the project of the folder may come without it; of others it is always there, and
        may have a stack of the same name.
        """
        before, _, stack = name.rpartition("/")
        project = before.rpartition("/")[2]
        return stack == self.stack.name and project in ("", self.stack.project.name)


def resources_of(exported: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a state holds that the engine exported."""
    return sequence(mapping(exported.get("deployment")).get("resources"))
