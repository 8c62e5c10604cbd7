"""What the command says and checks before and after a stack in a cloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.stacks.command import advice
from falaj.stacks.command.console import say, table
from falaj.stacks.command.project import StackFile
from falaj.stacks.image_digests import digests
from falaj.stacks.placement import choose
from falaj.stacks.sandbox_guard import check_sandbox_guard, made_up
from falaj.stacks.settings import CloudSettings, InClusterSettings
from falaj.stacks.validation import validate_in_cloud, validate_in_cluster


def prepare_cloud(stack: StackFile, settings: CloudSettings, *, sandbox: bool) -> str:
    """Check all that can be known before the engine starts, and say where the stack goes.

    Returns:
        The place, such as ``aws/me-central-1``.

    Raises:
        StackError: the stack isn't meant for this, or no place sells what it asks for.
    """
    check_sandbox_guard(settings, sandboxed=sandbox)
    if isinstance(settings, InClusterSettings):
        _prepare_in_cluster(stack, settings, sandbox=sandbox)
        return settings.places[0]
    choice = choose(settings)
    cloud = choice.place.cloud
    validate_in_cloud(settings, choice.place, made_up(settings, cloud) if sandbox else {})
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
    lines = [f"Stack {stack.name} is in {where}{outputs.get('place', 'its place')}"]
    rows = _machines(outputs)
    if len(rows) > 1:
        lines += ["", table(rows)]
    lines += [
        "",
        f"What it offers: {', '.join(sorted(outputs))}",
        f"Find drift:     {advice.command('refresh', stack, sandbox=sandbox)}",
        f"Change it:      edit {stack.shown_path}, then "
        f"{advice.command('up', stack, sandbox=sandbox)}",
        f"Remove it all:  {advice.command('down', stack, sandbox=sandbox)}",
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
