"""What a stack stands on has to be there first; the sandbox makes what it hasn't got."""

from __future__ import annotations

from falaj.stacks.command import advice, operation, ownership
from falaj.stacks.command.cloud import prepare_cloud
from falaj.stacks.command.console import say
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings


def bring_up_upstream(pulumi: Pulumi, settings: CloudSettings) -> None:
    """Make sure that the stack which this one refers to is there; in the sandbox, make it.

    What that one stands on in turn comes before it.

    Raises:
        StackError: it isn't there, or can't be made.
    """
    name = settings.upstream
    if name is None:
        return
    stack = pulumi.stack.sibling(name)
    other = Pulumi(stack, sandbox=pulumi.sandbox)
    if other.exists() and other.outputs():
        if pulumi.sandbox:
            ownership.keep(stack, pulumi.stack.name)
        return
    if not pulumi.sandbox:
        raise StackError(
            f"stack {name} is not up, and {pulumi.stack.name} stands on it\n"
            f"  bring it up first with: {advice.command('up', stack)}"
        )
    say(f"{pulumi.stack.name} stands on {name}, which the sandbox hasn't got: making it there")
    if stack.ensure():
        say(f"made {stack.shown_path} from its template; it is yours to edit")
    found = stack.settings()
    if not isinstance(found, CloudSettings):
        raise StackError(
            f"{pulumi.stack.name} stands on {name!r}, a stack of the platform local; allowed: a "
            "stack of the blueprint foundation or cluster"
        )
    prepare_cloud(stack, found, sandbox=True)
    other.ensure_stack()
    bring_up_upstream(other, found)
    # The packs judge it when it is brought up, or checked, as itself.
    arguments = ["up", "--yes", "--skip-preview", "-s", stack.name]
    outcome = operation.run(other, arguments, f"making {name}")
    if outcome.was_interrupted:
        raise KeyboardInterrupt
    if outcome.status != 0:
        raise StackError(f"stack {name} could not be made in the sandbox (exit {outcome.status})")
    say(f"{name}: {operation.counted(outcome.changes, planned=False)}")
    ownership.begin(stack, pulumi.stack.name)
