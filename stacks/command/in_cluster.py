"""``falaj logs`` and ``falaj status`` of stacks whose workloads are pods in a cluster."""

from __future__ import annotations

import os

from falaj.sandbox.activation import CLUSTER_VARIABLE
from falaj.stacks.command import kubeconfig, pods, testplane
from falaj.stacks.command.call import Call
from falaj.stacks.command.console import say, table
from falaj.stacks.command.pods import Cluster, Workload
from falaj.stacks.errors import StackError
from falaj.stacks.settings import Settings, WorkloadsSettings


def connect(call: Call, settings: WorkloadsSettings) -> Cluster:
    """The cluster that the stack's objects are in, by the rights of whoever calls.

    Raises:
        StackError: the sandbox's stand-ins have no pods, or nothing leads to the cluster.
    """
    if call.sandboxed(settings):
        if not testplane.is_used():
            raise StackError(
                "--sandbox: given without --cluster; allowed: a test control plane, whose pods "
                "run, or the real cluster\n  stand-ins run no pods: start real machines with "
                "`falaj cluster up --real 2`"
            )
        return Cluster(pods.client_of_file(os.environ[CLUSTER_VARIABLE], None))
    if settings.cluster is None:
        return Cluster(pods.client_of_file(settings.kubeconfig, settings.context))
    return Cluster(pods.client_of_text(kubeconfig.of_cloud(call.stack, settings)))


def logs(call: Call, settings: Settings, workload: str | None, lines: int) -> int:
    """Print the last lines of what the stack's pods wrote, and why others write nothing."""
    if not isinstance(settings, WorkloadsSettings):
        raise StackError(
            f"stack {call.stack.name} has no logs of its own; allowed: stacks of one machine, and "
            "those of the blueprint workloads"
        )
    chosen = pods.named(pods.workloads(settings), workload, call.stack.shown_path)
    cluster = connect(call, settings)
    for each in chosen:
        _say_logs(cluster, each, lines)
    return 0


def _say_logs(cluster: Cluster, workload: Workload, lines: int) -> None:
    found = cluster.pods(workload)
    if not found:
        say(f"==> {workload}: {_without_pods(cluster, workload)}")
    for pod in found:
        if why := pods.unplaced(pod):
            say(f"==> {workload}: {pod['metadata']['name']} has no machine: {why}")
        for container in pods.containers(pod):
            say(f"==> {workload}: {container.place}")
            if container.has_begun and lines > 0:
                for line in cluster.log(workload, container, lines):
                    say(f"  {line}")


def state_of(cluster: Cluster, workload: Workload) -> str:
    """What the pods of a workload do, in a few words."""
    found = cluster.pods(workload)
    return pods.summary(found) if found else _without_pods(cluster, workload)


def _without_pods(cluster: Cluster, workload: Workload) -> str:
    why = cluster.why_it_waits(workload)
    return f"waits for its quota: {why}" if why else "no pods"


def say_status(call: Call, settings: WorkloadsSettings) -> None:
    """Print what the stack's workloads are doing.

    Raises:
        StackError: the cluster can't be asked, or refuses it.
    """
    cluster = connect(call, settings)
    rows = [("workload", "namespace", "pods")]
    for each in pods.workloads(settings):
        rows.append((str(each), each.namespace, state_of(cluster, each)))
    if len(rows) > 1:
        say(table(rows))
