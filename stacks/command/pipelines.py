"""``falaj pipelines``: what starts a team's runs, what they came to, and a start by hand.

All of it by the rights of whoever calls. A start by hand is a Job of the pipeline's own CronJob,
as ``kubectl create job --from`` makes one, so that it is held to the template as every other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from falaj.components.catalogue.clusters import USUAL_TIME_ZONE
from falaj.components.catalogue.pipelines import ACCOUNT_ENDING, LABEL, RUN_NOTES, TEMPLATE_LABEL
from falaj.stacks.command.console import say, table
from falaj.stacks.command.options import sandbox_options, stack_option, the_stack
from falaj.stacks.errors import StackError
from falaj.wire.documents import mapping, sequence

if TYPE_CHECKING:
    from falaj.stacks.command.pods import Cluster

_BY_HAND: Final = ("by-hand", "drift")
_OPTION: Final = "--reason"
_NUMBER: Final = re.compile(r"-([0-9]+)$")
_KEPT_SECONDS: Final = 24 * 3600
"""What was started by hand is looked at, and goes."""


@dataclass(frozen=True)
class _Pipeline:
    """One of a stack's pipelines."""

    name: str
    namespace: str
    section: Any


@click.group()
def pipelines() -> None:
    """See what trains a model again and again in a cluster, and start a run of it."""


@pipelines.command("list")
@stack_option
@sandbox_options
def list_(stack: str | None, project: Path | None, sandbox: bool, cluster: str | None) -> int:
    """List a stack's pipelines: what starts them, and their last run."""
    asked, found = _found(None, stack, project, sandbox, cluster)
    rows = [("pipeline", "by the clock", "for new data", "last run", "")]
    for each in found:
        runs = _runs(asked, each)
        name, state = (_name(runs[-1]), _state(runs[-1])) if runs else ("none", "")
        rows.append((each.name, _clock(each.section), _data(each.section), name, state))
    say(table(rows) if len(rows) > 1 else "the stack has no pipelines")
    return 0


@pipelines.command()
@click.argument("name")
@stack_option
@sandbox_options
def status(
    *, name: str, stack: str | None, project: Path | None, sandbox: bool, cluster: str | None
) -> int:
    """Show a pipeline's runs: why each was started, on which data, and what became of it.

    The exit status is 1 where the last one failed.
    """
    asked, [found] = _found(name, stack, project, sandbox, cluster)
    runs = _runs(asked, found)
    digest, reason = RUN_NOTES
    rows = [("run", "started", "because of", "data", "state")]
    for each in runs:
        about = mapping(each["metadata"])
        notes = mapping(about.get("annotations"))
        data = str(notes.get(digest, ""))[:16]
        rows.append((
            _name(each), str(about.get("creationTimestamp", "")), str(notes.get(reason, "")),
            data or "its own", _state(each),
        ))  # fmt: skip
    say(f"{name}: by the clock {_clock(found.section)}, for new data {_data(found.section)}")
    say(table(rows) if runs else "no run is there: those that ended go after keepDays")
    return int(bool(runs) and _state(runs[-1]).startswith("failed"))


@pipelines.command()
@click.argument("name")
@stack_option
@sandbox_options
@click.option(
    "--reason", type=click.Choice(_BY_HAND), default=_BY_HAND[0], show_default=True,
    help="What stands on the run.",
)  # fmt: skip
def run(
    *, name: str, stack: str | None, project: Path | None, sandbox: bool, cluster: str | None,
    reason: str,
) -> int:  # fmt: skip
    """Start a run of a pipeline now, whether its data are new or not; none while one is on."""
    asked, [found] = _found(name, stack, project, sandbox, cluster)
    on = [_name(each) for each in _runs(asked, found) if _state(each) == "is on"]
    if on:
        raise StackError(
            f"NAME: given {name!r}, of which {', '.join(on)} is still on; wait for its end, or "
            f"look with: falaj logs {name}"
        )
    cron = asked.cron_job(found.namespace, f"{name}{ACCOUNT_ENDING}")
    made = asked.start_job(found.namespace, job_of(cron, reason))
    say(
        f"{made} starts the run; it waits for quota as every job does: falaj pipelines status "
        f"{name}"
    )
    return 0


def job_of(cron: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """The Job that starts a run by hand, of what the CronJob would make.

    Args:
        cron: the pipeline's, as it is in the cluster.
        reason: what stands on the run.

    Raises:
        StackError: somebody changed what the CronJob starts.
    """
    name = str(cron["metadata"]["name"])
    template = mapping(mapping(cron.get("spec")).get("jobTemplate"))
    about, spec = mapping(template.get("metadata")), mapping(template.get("spec"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    containers = sequence(pod.get("containers"))
    first = mapping(next(iter(containers), None))
    command = [str(each) for each in sequence(first.get("command"))]
    if len(containers) != 1 or _OPTION not in command[:-1]:
        raise StackError(
            f"the CronJob {name} isn't as the stack makes it: bring the stack up again"
        )
    command[command.index(_OPTION) + 1] = reason
    changed = {**pod, "containers": [{**containers[0], "command": command}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "generateName": f"{name}-hand-",
            "namespace": cron["metadata"]["namespace"],
            "labels": dict(mapping(about.get("labels"))),
            "annotations": dict(mapping(about.get("annotations"))),
            # With the pipeline it goes; another controller than its own would count it as its own.
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": name,
                    "uid": cron["metadata"]["uid"],
                }
            ],
        },
        "spec": {
            **spec,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {**mapping(spec.get("template")), "spec": changed},
        },
    }


def _found(
    name: str | None, stack: str | None, project: Path | None, sandbox: bool, cluster: str | None
) -> tuple[Cluster, list[_Pipeline]]:
    """The cluster, and the stack's pipelines; the one of a name where it is given.

    Raises:
        StackError: it is no stack of workloads, or there is none of that name.
    """
    from falaj.stacks.command import in_cluster, pods, testplane  # noqa: PLC0415 - the API's client
    from falaj.stacks.command.call import Call  # noqa: PLC0415 - loads the settings' models
    from falaj.stacks.settings import WorkloadsSettings  # noqa: PLC0415 - so does it

    found = the_stack(stack, project)
    if cluster is not None:
        testplane.use_cluster(cluster, sandbox=sandbox)
    call = Call(found, sandbox)
    settings = call.settings() if found.is_in_cloud else None
    if not isinstance(settings, WorkloadsSettings):
        raise StackError(
            f"stack {found.name} has no pipelines; allowed: stacks of the blueprint workloads"
        )
    chosen = pods.named(
        [each for each in pods.workloads(settings) if each.kind == "pipeline"],
        name, found.shown_path, argument="NAME", none="as it has no pipelines",
    )  # fmt: skip
    return in_cluster.connect(call, settings), [
        _Pipeline(each.name, each.namespace, settings.pipelines[each.name]) for each in chosen
    ]


def _runs(cluster: Cluster, pipeline: _Pipeline) -> list[dict[str, Any]]:
    """Its runs, in the order of their numbers."""
    of = f"{LABEL}={pipeline.name},!{TEMPLATE_LABEL}"
    found = cluster.job_sets(pipeline.namespace, of)
    return sorted(found, key=_number)


def _number(run: Mapping[str, Any]) -> int:
    """Its number; 0 of what somebody gave the label of a run without one."""
    ending = _NUMBER.search(_name(run))
    return int(ending[1]) if ending is not None else 0


def _name(run: Mapping[str, Any]) -> str:
    return str(run["metadata"]["name"])


def _state(run: Mapping[str, Any]) -> str:
    """In words."""
    state = mapping(run.get("status"))
    if not state.get("terminalState"):
        return "is on"
    if state["terminalState"] == "Completed":
        return "is done"
    conditions = [each for each in sequence(state.get("conditions")) if each["type"] == "Failed"]
    return f"failed: {conditions[0].get('message', '')}" if conditions else "failed"


def _clock(section: Any) -> str:
    if not section.schedule:
        return "no"
    return f"{section.schedule} ({section.timezone or USUAL_TIME_ZONE})"


def _data(section: Any) -> str:
    return "yes" if section.new_data is not None else "no"
