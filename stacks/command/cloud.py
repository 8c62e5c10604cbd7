"""Stacks in a cloud: what is said and checked around them, and what they stand on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from falaj.engine.files import data_home, replace_file
from falaj.stacks.command import first_key, operation, project, testplane
from falaj.stacks.command.console import say, table
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.placement import choose
from falaj.stacks.sandbox_guard import PHASE_VARIABLE, check_sandbox_guard, made_up
from falaj.stacks.settings import CloudSettings, InClusterSettings
from falaj.stacks.validation import validate_in_cloud, validate_in_cluster


def prepare_cloud(
    stack: StackFile, settings: CloudSettings, *, sandbox: bool, stores: bool = False
) -> str:
    """Check all that can be known before the engine starts, and say where the stack goes.

    Args:
        stack: the stack.
        settings: what its file says.
        sandbox: whether it goes to the sandbox.
        stores: whether what its machines need may still be missing.

    Returns:
        The place, such as ``aws/me-central-1``.

    Raises:
        StackError: the stack isn't meant for this, or no place sells what it asks for.
    """
    check_sandbox_guard(settings, sandboxed=sandbox, stores=stores)
    if isinstance(settings, InClusterSettings):
        _prepare_in_cluster(stack, settings, sandbox=sandbox)
        return settings.places[0]
    choice = choose(settings)
    stand_ins = made_up(settings, choice.place) if sandbox or stores else {}
    validate_in_cloud(settings, choice.place, stand_ins)
    if sandbox:
        say(f"SANDBOX: nothing real is read or made; stack {stack.name} goes to stand-ins")
    for reason in choice.reasons:
        say(reason)
    status = choice.place.status
    if status.degraded:
        zones = ", ".join(status.impaired_zones) or "not named"
        say(
            f"WARNING: {choice.place.name} was reported as degraded on {status.as_of} "
            f"(zones {zones}); the stack's file accepts that"
        )
    return choice.place.name


def _prepare_in_cluster(stack: StackFile, settings: InClusterSettings, *, sandbox: bool) -> None:
    # The components inside a cluster, which a stack in a cloud has none of.
    from falaj.stacks.image_digests import digests  # noqa: PLC0415

    pinned = digests(settings, stack.project.root, sandboxed=sandbox)
    validate_in_cluster(settings, pinned.by_name)
    named = settings.context or f"stack {settings.cluster}"
    if sandbox:
        say(f"SANDBOX: nothing real is read or made; stack {stack.name} goes to stand-ins")
        if pinned.made_up:
            say(
                f"SANDBOX: {len(pinned.made_up)} images have no digest yet and got a made-up one "
                "(falaj images pin asks the registry)"
            )
    say(f"{settings.places[0]}: the cluster of {named}")


def closing(outputs: Mapping[str, Any], stack: StackFile, *, sandbox: bool) -> str:
    """The closing text of ``up``: where it is, what its machines cost, how to go on."""
    where = "the sandbox's stand-in for " if sandbox else ""
    if sandbox and testplane.is_used():
        where = "the test control plane in place of "
    lines = [f"Stack {stack.name} is in {where}{outputs.get('place', 'its place')}"]
    rows = _machines(outputs)
    if len(rows) > 1:
        lines += ["", table(rows)]
    lines += [
        "",
        f"What it offers: {', '.join(sorted(outputs))}",
        f"Find drift:     {project.command('refresh', stack, sandbox=sandbox)}",
        f"Change it:      edit {stack.shown_path}, then "
        f"{project.command('up', stack, sandbox=sandbox)}",
        f"Remove it all:  {project.command('down', stack, sandbox=sandbox)}",
    ]
    return "\n".join(lines)


def _machines(outputs: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("pool", "machine", "zones", "at least", "at most")]
    pools: dict[str, Mapping[str, Any]] = dict(outputs.get("pools") or {})
    if outputs.get("machine"):
        pools["inference"] = outputs
    for name, pool in pools.items():
        rows.append(
            (
                name,
                str(pool["machine"]),
                ", ".join(pool.get("zones") or []),
                str(pool["costAtMinimum"]),
                str(pool["costAtMaximum"]),
            )
        )
    return rows


# Which foundations the sandbox made by itself, for which stacks: they go with the last one.


def begin(foundation: StackFile, stack: str) -> None:
    """Remember that a foundation was made because ``stack`` stands on it."""
    _write(foundation, [stack])


def keep(foundation: StackFile, stack: str) -> None:
    """Another stack stands on it; one that a person made is left as it is."""
    if _file(foundation).exists():
        _write(foundation, sorted({*_read(foundation), stack}))


def leave(foundation: StackFile, stack: str) -> bool:
    """A stack is gone; True when it was the last one for which the foundation was made."""
    if not _file(foundation).exists():
        return False
    left = [name for name in _read(foundation) if name != stack]
    _write(foundation, left)
    return not left


def forget(foundation: StackFile) -> None:
    """The foundation is gone, or belongs to a person from now on."""
    _file(foundation).unlink(missing_ok=True)


def _file(foundation: StackFile) -> Path:
    folder = data_home() / "sandbox" / "projects" / foundation.project.name
    return folder / f"{foundation.name}.made-for.json"


def _read(foundation: StackFile) -> list[str]:
    return list(json.loads(_file(foundation).read_text(encoding="utf-8")))


def _write(foundation: StackFile, stacks: list[str]) -> None:
    replace_file(_file(foundation), json.dumps(stacks))


# What a stack stands on has to be there first; the sandbox makes what it hasn't got.


def update_in_sandbox(pulumi: Pulumi, settings: CloudSettings) -> None:
    """Bring a stack up that another one stands on.

    Raises:
        KeyboardInterrupt: it was told to stop.
        StackError: it can't be made.
    """
    name = pulumi.stack.name
    # The packs judge it when it is brought up, or checked, as itself.
    arguments = ["up", "--yes", "--skip-preview", "-s", name]
    first = first_key.phase(settings, pulumi)
    for phase in ("",) if first is None else (first, ""):
        variables = {PHASE_VARIABLE: phase}
        outcome = operation.run(pulumi, arguments, f"making {name}", variables)
        require_made(outcome, name)
        say(f"{name}: {operation.counted(outcome.changes, planned=False)}")


def require_made(outcome: operation.Outcome, name: str) -> None:
    """Go on only where what another stack stands on is there.

    Raises:
        KeyboardInterrupt: it was told to stop.
        StackError: it can't be made.
    """
    if outcome.was_interrupted:
        raise KeyboardInterrupt
    if outcome.status != 0:
        raise StackError(f"stack {name} could not be made in the sandbox (exit {outcome.status})")


def bring_up_upstream(
    pulumi: Pulumi,
    settings: CloudSettings,
    make: Callable[[Pulumi, CloudSettings], None] = update_in_sandbox,
) -> None:
    """Make sure that the stack which this one refers to is there; in the sandbox, make it.

    What that one stands on in turn comes before it.

    Args:
        pulumi: the engine of the stack that stands on it.
        settings: what that stack's file says.
        make: makes it in the sandbox.

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
            keep(stack, pulumi.stack.name)
        return
    if not pulumi.sandbox:
        raise StackError(
            f"stack {name} is not up, and {pulumi.stack.name} stands on it\n"
            f"  bring it up first with: {project.command('up', stack)}"
        )
    say(f"{pulumi.stack.name} stands on {name}, which the sandbox hasn't got: making it there")
    stack.ensure()
    found = stack.settings()
    if not isinstance(found, CloudSettings):
        raise StackError(
            f"{pulumi.stack.name} stands on {name!r}, a stack of the platform local; allowed: a "
            "stack of the blueprint foundation or cluster"
        )
    prepare_cloud(stack, found, sandbox=True)
    other.ensure_stack()
    bring_up_upstream(other, found, make)
    make(other, found)
    begin(stack, pulumi.stack.name)
