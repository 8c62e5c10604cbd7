"""``falaj up``, ``preview``, ``refresh``, ``down``, ``shell`` and ``new``: the life of a stack."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

from falaj.engine.sandbox import activation
from falaj.stacks.command import made_for, service
from falaj.stacks.command.beneath import bring_up_beneath
from falaj.stacks.command.cloud import closing, prepare_cloud
from falaj.stacks.command.console import display, say, step
from falaj.stacks.command.judged import judged
from falaj.stacks.command.leftovers import remove_leftovers
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import INTERRUPTED, Pulumi
from falaj.stacks.command.shadow import forget_stack
from falaj.stacks.command.summary import summary
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings, LocalSettings, Settings


@dataclass(frozen=True)
class Call:
    """A command's stack, and whether it goes to the sandbox."""

    stack: StackFile
    sandbox: bool

    def settings(self) -> Settings:
        """The stack's settings; its file is made from its template first where that is needed."""
        if self.stack.ensure():
            say(f"made {self.stack.shown_path} from its template; it is yours to edit")
        found = self.stack.settings()
        if self.sandbox and isinstance(found, LocalSettings):
            raise StackError(
                f"--sandbox: stack {self.stack.name} is of the platform local; allowed: stacks in "
                "a cloud\n  a local stack needs no credentials: run it without --sandbox"
            )
        return found

    def sandboxed(self, settings: Settings) -> bool:
        """Whether the command goes to the sandbox, because of the call or of the stack's file."""
        return self.sandbox or (isinstance(settings, CloudSettings) and settings.sandbox)

    def engine(self, settings: Settings) -> Pulumi:
        """The engine for the stack, in the sandbox where that is asked for."""
        local = isinstance(settings, LocalSettings)
        return Pulumi(self.stack, sandbox=self.sandboxed(settings), plugins=not local)

    def again(self, target: str) -> str:
        """How to call a target of make for this stack."""
        return f"make {target} STACK={self.stack.name}" + (" SANDBOX=1" if self.sandbox else "")


def up(call: Call) -> int:
    """Validate the settings, get the engine, and bring the stack to what its file says."""
    settings = call.settings()
    stack = call.stack
    if isinstance(settings, CloudSettings):
        prepare_cloud(call.stack, settings, sandbox=call.sandboxed(settings))
    with step(1, 3, "engine"):
        pulumi = call.engine(settings)
        say(f"      pulumi {pulumi.engine.version} ({pulumi.engine.source}): {pulumi.engine.path}")
    with step(2, 3, "backend"):
        pulumi.ensure_stack()
        if isinstance(settings, LocalSettings):
            pulumi.settle_interrupted()
        say(f"      {pulumi.environment.get('PULUMI_BACKEND_URL', 'as logged in')}")
    if isinstance(settings, CloudSettings):
        if not pulumi.sandbox:
            pulumi.refuse_made_up()
        bring_up_beneath(pulumi, settings)
    if pulumi.sandbox:
        made_for.forget(stack)
    say(f"[3/3] pulumi up of stack {stack.name}")
    started = time.monotonic()
    with judged(call.stack, settings, pulumi) as (packs, environment):
        arguments = ["up", "--yes", *(packs or ["--skip-preview"]), "-s", stack.name]
        status = pulumi.stream([*arguments, *display()], environment)
    if status != 0:
        _explain(call, "up", status)
        return status
    say(f"[3/3] pulumi up of stack {stack.name}: done in {time.monotonic() - started:.1f} s")
    say()
    if isinstance(settings, LocalSettings):
        say(summary(pulumi.outputs(), stack))
    else:
        say(closing(pulumi.outputs(), stack, sandbox=pulumi.sandbox))
    return 0


def preview(call: Call) -> int:
    """Show what ``up`` would change, and change nothing."""
    settings = call.settings()
    if isinstance(settings, CloudSettings):
        prepare_cloud(call.stack, settings, sandbox=call.sandboxed(settings))
    pulumi = call.engine(settings)
    pulumi.ensure_stack()
    if isinstance(settings, CloudSettings):
        bring_up_beneath(pulumi, settings)
    with judged(call.stack, settings, pulumi) as (packs, environment):
        arguments = ["preview", *packs, "-s", call.stack.name]
        return pulumi.stream([*arguments, *display()], environment)


def refresh(call: Call) -> int:
    """Read what is really there into the stack's state, so that the next ``up`` mends drift."""
    settings = call.settings()
    pulumi = call.engine(settings)
    pulumi.ensure_stack()
    return pulumi.stream(["refresh", "--yes", "-s", call.stack.name, *display()])


def down(call: Call) -> int:
    """Destroy everything of the stack, then forget the stack; what it retains stays."""
    stack = call.stack
    if not stack.path.exists():
        say(f"stack {stack.name} has no file; nothing runs")
        return 0
    settings = _settings_or_none(stack)
    local = settings if isinstance(settings, LocalSettings) else None
    sandboxed = call.sandbox or (settings is not None and call.sandboxed(settings))
    clouds = isinstance(settings, CloudSettings)
    pulumi = Pulumi(stack, sandbox=sandboxed, plugins=clouds)
    pulumi.ensure_stack()
    if not isinstance(settings, CloudSettings) and not sandboxed:
        pulumi.settle_interrupted()
    if pulumi.sandbox:
        # Nothing real is kept in the sandbox; on a cloud a person lifts the protection.
        pulumi.release()
    status = pulumi.stream(["destroy", "--yes", "--skip-preview", "-s", stack.name, *display()])
    if status != 0:
        _explain(call, "down", status)
        return status
    pulumi.capture(["stack", "rm", stack.name, "--yes", "--preserve-config"])
    if pulumi.sandbox:
        forget_stack(stack, activation.cloud_file(pulumi.environment))
        made_for.forget(stack)
        _remove_what_was_made_for(call, settings)
    if not isinstance(settings, CloudSettings) and not pulumi.sandbox:
        # A file that became invalid must not stop its stack from being destroyed; keep the data.
        remove_leftovers(pulumi, stack, retain=local is None or local.retain)
    say(f"stack {stack.name} is down")
    if stack.site.exists():
        say(f"  retained, as the stack says: {stack.site}")
    return 0


def status(call: Call) -> int:
    """Show what runs and where; of a stack in a cloud, what it last came to."""
    settings = _settings_or_none(call.stack)
    if not isinstance(settings, CloudSettings):
        return service.status(call.stack)
    pulumi = call.engine(settings)
    outputs = pulumi.outputs() if pulumi.exists() else {}
    if not outputs:
        say(f"stack {call.stack.name} is not up; start it with: {call.again('up')}")
        return 0
    say(closing(outputs, call.stack, sandbox=pulumi.sandbox))
    return 0


def shell(call: Call) -> int:
    """A shell in which plain ``pulumi up -s NAME`` works."""
    settings = call.settings()
    pulumi = call.engine(settings)
    pulumi.ensure_stack()
    program = os.environ.get("SHELL") or "/bin/sh"
    say(f"pulumi {pulumi.engine.version} is ready; try: pulumi preview -s {call.stack.name}")
    if pulumi.sandbox:
        say(f"this shell is in the sandbox's copy of the project: {pulumi.folder}")
    say("leave with: exit")
    environment = {**pulumi.environment, "VIRTUAL_ENV": sys.prefix}
    return subprocess.run([program], cwd=pulumi.folder, env=environment, check=False).returncode


def new(call: Call, template: str) -> int:
    """Make a stack's file from a template."""
    stack = call.stack
    templates = stack.project.templates
    if template not in templates:
        raise StackError(f"template: given {template!r}; allowed: {', '.join(templates)}")
    if stack.path.exists():
        raise StackError(
            f"{stack.shown_path} exists already; it was not touched\n"
            "  choose another name, or edit that file"
        )
    stack.create_from(templates[template])
    say(f"made {stack.shown_path}; edit it, then: make up STACK={stack.name}")
    return 0


def _remove_what_was_made_for(call: Call, settings: Settings | None) -> None:
    """Destroy what the sandbox made for the stack to stand on, once nobody stands on it."""
    name = settings.beneath if isinstance(settings, CloudSettings) else None
    if name is not None and made_for.leave(call.stack.sibling(name), call.stack.name):
        say(f"{name} was made for {call.stack.name} only: it goes as well")
        down(Call(call.stack.sibling(name), sandbox=True))


def _explain(call: Call, target: str, status: int) -> None:
    if status < 0 or status == INTERRUPTED:
        say(f"interrupted; run `{call.again(target)}` again to go on from here")
    else:
        say(
            f"not finished (exit {status}); put right what is named above, then run "
            f"`{call.again(target)}` again"
        )


def _settings_or_none(stack: StackFile) -> Settings | None:
    try:
        return stack.settings()
    except StackError:
        return None
