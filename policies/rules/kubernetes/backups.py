"""Backups: a schedule of them alone says nothing of whether anything comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    indeterminate,
    is_true,
    is_unknown,
    items,
    rule,
    text,
    violation,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.kubernetes import all_manifests, kinds, manifests
from falaj.policies.reading.pods import pods

_CHART: Final = "kubernetes:helm.sh/*:Chart"
#: The program that rehearses, of the images that Falaj builds (workloads/restoring).
_PROGRAM: Final = "falaj.workloads.restoring"


@rule(
    "kubernetes-backup-rehearsed",
    "Restores of scheduled backups are rehearsed",
    Severity.MEDIUM,
    kinds("velero.io:Schedule") | {_CHART},
    ("iso27001:A.8.13", "uae-ia:T3.5.1", "pdpl:20", "gdpr:32"),
    "Give the add-on velero the option rehearsal; where something else rehearses, waive the rule "
    "and say what.",
)
def backup_rehearsed(resource: Resource, context: Context) -> Iterator[Finding]:
    """A schedule of Velero's needs a CronJob in the same stack that restores what it backs up."""
    for path, value in _schedules(resource):
        if is_unknown(value):
            yield indeterminate(path, f"which backups are made {value.reason}")
        elif context.stack is None:
            yield indeterminate(path, "whether its restore is rehearsed, the whole stack says")
        elif not _is_rehearsed(context.stack):
            yield violation(
                path, f"no CronJob of the stack runs {_PROGRAM}: nobody sees whether it comes back"
            )


def _schedules(resource: Resource) -> Iterator[tuple[str, Any]]:
    """What schedules backups, with its path: an object of Velero's, or what its chart is given."""
    if resource.kind.startswith("kubernetes:helm.sh/"):
        if text(resource.get("chart")).rstrip("/").rpartition("/")[2] == "velero":
            given = resource.get("values.schedules")
            if is_unknown(given) or (isinstance(given, Mapping) and given):
                yield "values.schedules", given
        return
    for manifest in manifests(resource):
        is_schedule = manifest.group == "velero.io" and manifest.kind == "Schedule"
        if is_schedule and not is_true(manifest.get("spec.paused")):
            yield manifest.path("spec.schedule"), manifest.get("spec.schedule")


@remembered(2)
def _is_rehearsed(stack: Stack) -> bool:
    for manifest in all_manifests(stack):
        if manifest.kind != "CronJob" or is_true(manifest.get("spec.suspend")):
            continue
        for pod in pods(manifest):
            for container in pod.containers:
                words = (*items(container.get("command")), *items(container.get("args")))
                if _PROGRAM in [text(each) for each in words]:
                    return True
    return False


RULES: tuple[Rule, ...] = (backup_rehearsed,)
