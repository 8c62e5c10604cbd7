"""``falaj pipelines``: what it says of runs, what it starts, and what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from click.testing import CliRunner

from falaj.stacks.command import in_cluster, pipelines
from falaj.stacks.command.call import Call
from falaj.stacks.command.pipelines import job_of
from falaj.stacks.errors import StackError
from falaj.stacks.settings import WorkloadsSettings, validate
from falaj.workloads.pipelines.__main__ import build_parser
from tests.components.kubernetes.test_pipeline import rendered
from tests.stacks.in_mocks import ROOT, shipped
from tests.stacks.test_in_cluster_settings import PIPELINE


def run(name: str, state: str = "", message: str = "", **notes: str) -> dict[str, Any]:
    status: dict[str, Any] = {"terminalState": state} if state else {}
    if message:
        status["conditions"] = [{"type": "Failed", "status": "True", "message": message}]
    about = {
        "name": name, "creationTimestamp": "2026-10-02T23:00:07Z",
        "annotations": {"falaj.io/data-digest": "5" * 64, "falaj.io/reason": "schedule", **notes},
    }  # fmt: skip
    return {"metadata": about, "status": status}


def cron_job() -> dict[str, Any]:
    [found] = [
        each
        for each in rendered()
        if each["kind"] == "CronJob" and each["metadata"]["name"] == "credit-pipeline"
    ]
    found = copy.deepcopy(dict(found))
    found["metadata"]["uid"] = "3f"
    return found


class Cluster:
    """What the cluster has, and what it is told."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.made: list[dict[str, Any]] = []

    def job_sets(self, namespace: str, labels: str) -> list[dict[str, Any]]:
        assert namespace == "acme-training"
        assert labels.endswith(",!falaj.io/pipeline-template")
        return self.runs

    def cron_job(self, namespace: str, name: str) -> dict[str, Any]:
        assert (namespace, name) == ("acme-training", "again-pipeline")
        return cron_job()

    def start_job(self, namespace: str, job: dict[str, Any]) -> str:
        self.made.append(job)
        return "again-pipeline-hand-x7k2p"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    config = {
        **shipped("onprem-workloads"),
        "falaj:pipelines": {"again": {**PIPELINE, "schedule": "0 3 * * *"}},
    }
    settings = validate(config, ROOT, stack="dev")
    assert isinstance(settings, WorkloadsSettings)
    monkeypatch.setattr(Call, "settings", lambda _: settings)
    monkeypatch.setattr(in_cluster, "connect", lambda *_: found)
    return found


def called(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(
        pipelines.pipelines, [*words, "--stack", "onprem-workloads"], standalone_mode=False
    )
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.output


def test_they_are_listed_with_their_last_run(cluster: Cluster) -> None:
    cluster.runs = [run("again-10"), run("again-9", "Completed")]
    _, said = called("list")
    assert "0 3 * * * (Asia/Dubai)" in said
    assert "again-10" in said
    assert "is on" in said
    cluster.runs = []
    assert "none" in called("list")[1]


def test_runs_are_shown_in_their_order_and_a_failure_is_told(cluster: Cluster) -> None:
    cluster.runs = [run("again-10", "Failed", "publish: the gate"), run("again-9", "Completed")]
    code, said = called("status", "again")
    assert code == 1
    assert said.index("again-9") < said.index("again-10")
    assert "failed: publish: the gate" in said
    assert "5" * 16 in said
    cluster.runs = [run("again-11"), run("again-10", "Failed"), run("somebodys", "Failed")]
    assert called("status", "again")[0] == 0


def test_a_run_is_started_by_the_starters_own_job(cluster: Cluster) -> None:
    _, said = called("run", "again", "--reason", "drift")
    assert "again-pipeline-hand-x7k2p starts the run" in said
    [job] = cluster.made
    made = cron_job()["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod = job["spec"]["template"]["spec"]
    options = build_parser().parse_args(pod["containers"][0]["command"][3:])
    assert options.reason == "drift"
    # Of the CronJob, all else: account, image, limits.
    pod["containers"][0]["command"] = made["containers"][0]["command"]
    assert pod == made
    assert job["spec"]["ttlSecondsAfterFinished"] == 24 * 3600
    [owner] = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("CronJob", "credit-pipeline", "3f")
    assert "controller" not in owner
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"


def test_none_is_started_while_one_is_on(cluster: Cluster) -> None:
    cluster.runs = [run("again-3")]
    with pytest.raises(StackError, match="again-3 is still on"):
        called("run", "again")
    assert cluster.made == []


def test_a_name_that_is_not_there_is_refused_with_the_nearest(cluster: Cluster) -> None:
    with pytest.raises(StackError, match=r"given 'agin', .*; did you mean 'again'"):
        called("run", "agin")


def test_a_stack_of_another_kind_has_none() -> None:
    with pytest.raises(StackError, match="has no pipelines; allowed: stacks of the blueprint"):
        CliRunner().invoke(
            pipelines.pipelines, ["list", "--stack", "onprem-cluster"],
            standalone_mode=False, catch_exceptions=False,
        )  # fmt: skip


def test_a_cron_job_that_somebody_changed_starts_nothing() -> None:
    for change in (
        lambda pod: pod["containers"].append({"name": "more"}),
        lambda pod: pod["containers"][0].update(command=["sh"]),
        lambda pod: pod.update(containers=[]),
    ):
        changed = cron_job()
        change(changed["spec"]["jobTemplate"]["spec"]["template"]["spec"])
        with pytest.raises(StackError, match="isn't as the stack makes it"):
            job_of(changed, "by-hand")
