"""The stack that a command is called for."""

from __future__ import annotations

from dataclasses import dataclass

from falaj.stacks.command import installation, project
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings, Settings, is_local
from falaj.stacks.settings.source import from_project_and_stack


def no_sandbox(stack: StackFile) -> StackError:
    """The refusal of ``--sandbox`` for a stack on one machine."""
    return StackError(
        f"--sandbox: stack {stack.name} is of the platform local; allowed: stacks in a cloud\n"
        "  a local stack needs no credentials: run it without --sandbox"
    )


@dataclass(frozen=True)
class Call:
    """A command's stack, and whether it goes to the sandbox."""

    stack: StackFile
    sandbox: bool

    def settings(self) -> Settings:
        """The stack's settings; its file is made from its template first where that is needed.

        What the stack's platform needs of Python is there afterwards as well.
        """
        self.stack.ensure()
        project = self.stack.project
        values = from_project_and_stack(self.stack.path, project.root, namespace=project.name)
        installation.require(installation.extras_of_stack(values))
        found = self.stack.settings()
        if self.sandbox and is_local(found):
            raise no_sandbox(self.stack)
        return found

    def sandboxed(self, settings: Settings) -> bool:
        """Whether the command goes to the sandbox, because of the call or of the stack's file."""
        return self.sandbox or (isinstance(settings, CloudSettings) and settings.sandbox)

    def engine(self, settings: Settings) -> Pulumi:
        """The engine for the stack, in the sandbox where that is asked for."""
        local = is_local(settings)
        return Pulumi(self.stack, sandbox=self.sandboxed(settings), plugins=not local)

    def again(self, verb: str) -> str:
        """How to call a command for this stack."""
        return project.command(verb, self.stack, sandbox=self.sandbox)
