"""``falaj up``, ``preview``, ``down`` and ``shell``: the life of a stack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from engine.folders import data_home
from stacks.command.console import say, step
from stacks.command.project import ROOT, StackFile
from stacks.command.pulumi import INTERRUPTED, Pulumi
from stacks.command.summary import summary
from stacks.errors import StackError


def up(stack: StackFile) -> int:
    """Validate the settings, get the engine, and bring the stack to what its file says."""
    _prepare_file(stack)
    with step(1, 3, "engine"):
        pulumi = Pulumi(stack)
        say(f"      pulumi {pulumi.engine.version} ({pulumi.engine.source}): {pulumi.engine.path}")
    with step(2, 3, "backend"):
        pulumi.ensure_stack()
        pulumi.settle_interrupted()
        say(f"      {pulumi.environment.get('PULUMI_BACKEND_URL', 'as logged in')}")
    say(f"[3/3] pulumi up of stack {stack.name}")
    started = time.monotonic()
    status = pulumi.stream(["up", "--yes", "--skip-preview", "-s", stack.name, *_display()])
    if status != 0:
        _explain(stack, "up", status)
        return status
    say(f"[3/3] pulumi up of stack {stack.name}: done in {time.monotonic() - started:.1f} s")
    say()
    say(summary(pulumi.outputs(), stack))
    return 0


def preview(stack: StackFile) -> int:
    """Show what ``up`` would change, and change nothing."""
    _prepare_file(stack)
    pulumi = Pulumi(stack)
    pulumi.ensure_stack()
    return pulumi.stream(["preview", "-s", stack.name, *_display()])


def down(stack: StackFile) -> int:
    """Destroy everything of the stack, then forget the stack; what it retains stays."""
    if not stack.path.exists():
        say(f"stack {stack.name} has no file; nothing runs")
        return 0
    retain = _retains(stack)
    pulumi = Pulumi(stack)
    pulumi.ensure_stack()
    pulumi.settle_interrupted()
    status = pulumi.stream(["destroy", "--yes", "--skip-preview", "-s", stack.name, *_display()])
    if status != 0:
        _explain(stack, "down", status)
        return status
    pulumi.capture(["stack", "rm", stack.name, "--yes", "--preserve-config"])
    if not retain:
        _remove_leftovers(stack)
    if not pulumi.other_stacks():
        _remove_backend(pulumi, stack)
    say(f"stack {stack.name} is down")
    if stack.site.exists():
        say(f"  retained, as the stack says: {stack.site}")
    return 0


def shell(stack: StackFile) -> int:
    """A shell in which plain ``pulumi up -s local`` works."""
    _prepare_file(stack)
    pulumi = Pulumi(stack)
    pulumi.ensure_stack()
    program = os.environ.get("SHELL") or "/bin/sh"
    say(f"pulumi {pulumi.engine.version} is ready; try: pulumi preview -s {stack.name}")
    say("leave with: exit")
    environment = {**pulumi.environment, "VIRTUAL_ENV": sys.prefix}
    return subprocess.run([program], cwd=ROOT, env=environment, check=False).returncode


def new(stack: StackFile, template: str) -> int:
    """Make a stack's file from a template."""
    source = ROOT / "stacks" / "templates" / f"{template}.yaml"
    if not source.is_file():
        names = ", ".join(sorted(path.stem for path in source.parent.glob("*.yaml")))
        raise StackError(f"template: given {template!r}; allowed: {names}")
    if stack.path.exists():
        raise StackError(
            f"{stack.path.relative_to(ROOT)} exists already; it was not touched\n"
            "  choose another name, or edit that file"
        )
    stack.create_from(source)
    say(f"made {stack.path.relative_to(ROOT)}; edit it, then: make up STACK={stack.name}")
    return 0


def _prepare_file(stack: StackFile) -> None:
    if stack.ensure():
        say(f"made {stack.path.relative_to(ROOT)} from its template; it is yours to edit")
    stack.settings()


def _display() -> list[str]:
    # Without a terminal the engine prints a line for each event; with one it draws a live table.
    return [] if sys.stdout.isatty() else ["--non-interactive"]


def _explain(stack: StackFile, target: str, status: int) -> None:
    if status < 0 or status == INTERRUPTED:
        say(f"interrupted; run `make {target} STACK={stack.name}` again to go on from here")
    else:
        say(
            f"not finished (exit {status}); put right what is named above, then run "
            f"`make {target} STACK={stack.name}` again"
        )


def _retains(stack: StackFile) -> bool:
    try:
        return stack.settings().retain
    except StackError:
        # A file that became invalid must not stop its stack from being destroyed; keep the data.
        return True


def _remove_leftovers(stack: StackFile) -> None:
    """The folder of a workspace whose creation was interrupted before it was recorded.

    One with keys in it was kept because the stack retained them when it was last brought up, even
    if its file says otherwise by now.
    """
    if stack.site.exists() and not (stack.site / "keyring").exists():
        shutil.rmtree(stack.site)
    _remove_empty(stack.site.parent)


def _remove_backend(pulumi: Pulumi, stack: StackFile) -> None:
    """The embedded backend and its passphrase, when no stack is left in them."""
    home = data_home()
    if pulumi.environment.get("PULUMI_BACKEND_URL") != (home / "backend").as_uri():
        return
    if "secure:" in stack.path.read_text(encoding="utf-8"):
        say(f"  kept {home / 'passphrase'}: {stack.path.name} holds values encrypted with it")
        return
    shutil.rmtree(home / "backend", ignore_errors=True)
    (home / "passphrase").unlink(missing_ok=True)
    stack.forget_passphrase()
    _remove_empty(home)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
