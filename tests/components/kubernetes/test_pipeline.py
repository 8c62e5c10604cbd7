"""Pipelines: what is refused, a template that nobody runs, and who starts what by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pulumi
import pytest

from falaj.components.catalogue import pipelines as marks
from falaj.components.kubernetes import pipeline, training_job
from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.pipelines import starting
from falaj.workloads.pipelines.__main__ import build_parser
from falaj.workloads.training.command import build_parser as training_parser
from tests.components.kubernetes.cluster_parts import difference, same_as_golden, shown
from tests.components.kubernetes.training_jobs import (
    CPU,
    LAUNCHER_DIGEST,
    PLACES,
    arguments,
    findings,
    the,
)

PUBLISH: dict[str, Any] = {
    "model": "credit", "key_secret": "acme/publishing-keys", "registry_cidrs": ["10.20.0.5/32"],
    "least_accuracy": 0.9,
}  # fmt: skip
PIPELINE: dict[str, Any] = {
    **CPU,
    "dataset": "credit-*",
    "key_secret": "acme/training-keys",
    "publish": PUBLISH,
    "control_plane_cidrs": ["10.20.0.0/28"],
    "schedule": "0 3 * * *",
    "new_data": {},
}
PROGRAM: dict[str, Any] = {
    "program": ["python", "train.py"], "dataset": None, "publish": None, "key_secret": None,
    "new_data": None,
}  # fmt: skip


def given(place: str = "existing", **changes: Any) -> Any:
    found = arguments(place, **PIPELINE)
    found["images"] = {**found["images"], "falaj-inference": LAUNCHER_DIGEST}
    if place == "aks":
        found["key_secret"] = "acme--training-keys"
        found["publish"] = {**PUBLISH, "key_secret": "acme--publishing-keys"}
    return {**found, **changes}


def rendered(place: str = "existing", name: str = "credit", **changes: Any) -> list[Manifest]:
    return pipeline.manifests(pipeline.check(name, given(place, **changes)))


def pods(job_set: Manifest) -> list[dict[str, Any]]:
    return [each["template"]["spec"]["template"] for each in job_set["spec"]["replicatedJobs"]]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schedule": "daily"}, "schedule: given 'daily'; allowed: five fields"),
        ({"schedule": ""}, "five fields"),
        ({"timezone": "Dubai time"}, "timezone: given 'Dubai time'"),
        ({"schedule": None, "timezone": "Asia/Dubai"}, "timezone: is of schedule"),
        ({"dataset": "credit-2026"}, "looks for another snapshot"),
        ({"dataset": "*/credit"}, "a path below the claim of datasets"),
        ({"dataset": "../credit-*"}, "a path below the claim of datasets"),
        ({"dataset": "credit-**"}, "a path below the claim of datasets"),
        ({"new_data": {"every_minutes": 1}}, "new_data.every_minutes: given 1"),
        ({"new_data": {"minutes": 15}}, "new_data.minutes"),
        ({"keep_days": 0}, "keep_days: given 0"),
        ({"on_up": "yes"}, "on_up"),
        ({"publish": None}, "publish: missing"),
        ({"control_plane_cidrs": None}, "control_plane_cidrs: missing"),
        ({"control_plane_cidrs": ["0.0.0.0/0"]}, "private ranges"),
        ({"control_plane_cidrs": ["8.8.8.0/24"]}, "private ranges"),
        ({"starter_flavor": "h200"}, "starter_flavor: given 'h200'"),
        ({"flavor": "h200", **PROGRAM}, "starter_flavor: given 'h200'"),
        ({"queue": "burst", "further_regions": ["dxb-2"]}, "queue: can't be 'burst'"),
        ({"elastic": {"min_nodes": 1, "max_nodes": 2}}, "is not an argument of PipelineArgs"),
        ({"ttl_hours": 3}, "is not an argument of PipelineArgs"),
        ({"env": {"FALAJ_RUN": "x"}}, "is set by the component"),
        ({"arguments": ["--output", "x"]}, "set by the component"),
        ({"parallel": {"shard": 2}}, "but the training has 1 process(es)"),
        ({**PROGRAM, "parallel": {"shard": 2}}, "parallel: is of Falaj's own training"),
        ({"key_secret": "bank/training-keys"}, "entries of the tenant: acme/"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        rendered(**changes)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "name", ["Credit", "credit-", "c" * 29, "credit-pipeline", "1st", "credit-2"]
)
def test_a_name_that_leaves_no_room_or_is_a_runs_is_refused(name: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="name"):
        rendered(name=name)


def test_the_template_is_run_by_nobody() -> None:
    template = the("JobSet", rendered(queue="nightly"))
    about = template["metadata"]
    assert about["name"] == about["labels"][marks.LABEL] == "credit"
    assert about["labels"][marks.TEMPLATE_LABEL] == "true"
    assert about["labels"]["kueue.x-k8s.io/queue-name"] == "pipeline-templates"
    assert about["annotations"][marks.QUEUE_NOTE] == "nightly"
    assert template["spec"]["managedBy"] == "falaj.io/pipeline-template"
    assert template["spec"]["ttlSecondsAfterFinished"] == 14 * 24 * 3600


def test_nothing_of_the_template_says_which_run_it_is() -> None:
    """Two runs differ by name, snapshot and reason alone, so that the cluster can compare them."""
    template = the("JobSet", rendered(nodes=3))
    assert "subdomain" not in template["spec"]["network"]
    for pod in pods(template):
        assert pod["metadata"]["annotations"][marks.DATASET_NOTE] == "credit-*"
        for each in pod["spec"]["containers"]:
            first, second = each["env"][:2]
            assert first["name"] == "FALAJ_RUN"
            path = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
            assert first["valueFrom"]["fieldRef"]["fieldPath"] == path
            assert second["name"] == "FALAJ_DATASET"
    train, publish = (each["spec"] for each in pods(template))
    [container] = train["containers"]
    options = training_parser().parse_args(container["command"][3:])
    assert str(options.dataset) == "/data/$(FALAJ_DATASET)"
    assert str(options.output) == "/runs/$(FALAJ_RUN)"
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["PET_RDZV_ENDPOINT"] == "$(FALAJ_RUN)-node-0-0.$(FALAJ_RUN):29400"
    assert env["PET_RDZV_ID"] == "$(FALAJ_RUN)-$(RESTART_ATTEMPT)"
    optimise = publish["initContainers"][1]["command"]
    assert optimise[optimise.index("--run") + 1] == "/runs/$(FALAJ_RUN)"
    assert optimise[optimise.index("--dataset") + 1] == "/data/$(FALAJ_DATASET)"


def test_a_run_is_the_template_under_another_name() -> None:
    template = the("JobSet", rendered())
    template["metadata"]["annotations"]["pulumi.com/x"] = "y"
    snapshot = starting.Snapshot("credit-2026-10", "5" * 64, datetime(2026, 10, 1, tzinfo=UTC))
    owner = starting.owner_of("credit-pipeline", "7e")
    run = starting.run_of(template, "credit-7", "drift", snapshot, owner)
    about = run["metadata"]
    assert about["name"] == "credit-7"
    assert about["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert about["labels"][marks.LABEL] == "credit"
    assert marks.TEMPLATE_LABEL not in about["labels"]
    assert about["annotations"]["falaj.io/data-digest"] == "5" * 64
    assert about["annotations"]["falaj.io/reason"] == "drift"
    assert not {"pulumi.com/x", marks.QUEUE_NOTE} & about["annotations"].keys()
    assert {*template["spec"]} - {*run["spec"]} == {"managedBy"}
    for made, of in zip(pods(run), pods(template), strict=True):
        assert made["metadata"]["annotations"].pop(marks.DATASET_NOTE) == "credit-2026-10"
        assert of["metadata"]["annotations"].pop(marks.DATASET_NOTE) == "credit-*"
        assert made == of
    # It is a job as any other, so that the packs that judge the template judge runs.
    [plain] = [
        each
        for each in training_job.manifests(
            training_job.check("credit", arguments(**CPU, publish=PUBLISH,
                                                   key_secret="acme/training-keys"))
        )
        if each["kind"] == "JobSet"
    ]  # fmt: skip
    assert [each["name"] for each in run["spec"]["replicatedJobs"]] == [
        each["name"] for each in plain["spec"]["replicatedJobs"]
    ]


def test_the_marks_are_the_same_for_those_who_cannot_import_them() -> None:
    for each in (
        "LABEL", "TEMPLATE_LABEL", "ACCOUNT_ENDING", "QUEUE_LABEL", "QUEUE_NOTE", "DATASET_NOTE",
        "RUN_NOTES",
    ):  # fmt: skip
        assert getattr(starting, each) == getattr(marks, each), each


def test_the_account_may_make_runs_and_read_its_own_template() -> None:
    objects = rendered()
    rules = the("Role", objects)["rules"]
    assert [(each["resources"], each["verbs"], each.get("resourceNames")) for each in rules] == [
        (["jobsets"], ["create", "list"], None),
        (["jobsets"], ["get"], ["credit"]),
        (["pipelines"], ["start"], ["credit"]),
        (["configmaps"], ["get", "patch"], ["credit-pipeline"]),
        (["serviceaccounts/finalizers"], ["update"], ["credit-pipeline"]),
    ]
    [subject] = the("RoleBinding", objects)["subjects"]
    assert (subject["name"], subject["namespace"]) == ("credit-pipeline", "acme-training")


def test_the_starter_reaches_the_api_server_and_the_resolver() -> None:
    [policy] = [
        each
        for each in rendered()
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "credit-pipeline"
    ]
    assert "ingress" not in policy["spec"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    _, server = policy["spec"]["egress"]
    assert server["to"] == [{"ipBlock": {"cidr": "10.20.0.0/28"}}]
    assert [each["port"] for each in server["ports"]] == [443, 6443]
    labels = policy["spec"]["podSelector"]["matchLabels"]
    for each in starters(rendered()):
        assert labels.items() <= each["template"]["metadata"]["labels"].items()
    for pod in pods(the("JobSet", rendered())):
        assert not labels.items() <= pod["metadata"]["labels"].items()


def starters(objects: list[Manifest]) -> list[dict[str, Any]]:
    """Specifications of the jobs that start runs."""
    found = [
        each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each["spec"]
        for each in objects
        if each["kind"] in ("CronJob", "Job")
    ]
    assert found
    return found


def test_each_time_has_its_starter() -> None:
    crons = {
        each["metadata"]["name"]: each["spec"] for each in rendered() if each["kind"] == "CronJob"
    }
    timed, data = crons["credit-pipeline"], crons["credit-pipeline-data"]
    assert (timed["schedule"], timed["timeZone"]) == ("0 3 * * *", "Asia/Dubai")
    assert data["schedule"] == "*/15 * * * *"
    for each in crons.values():
        assert each["concurrencyPolicy"] == "Forbid"
        assert each["startingDeadlineSeconds"] == 600
        assert (each["successfulJobsHistoryLimit"], each["failedJobsHistoryLimit"]) == (3, 3)
        labels = each["jobTemplate"]["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "default"
    reasons: list[str] = []
    for spec in starters(rendered()):
        [container] = spec["template"]["spec"]["containers"]
        options = build_parser().parse_args(container["command"][3:])
        assert (options.pipeline, options.namespace) == ("credit", "acme-training")
        assert str(options.data) == "/data"
        reasons.append(options.reason)
    assert sorted(reasons) == ["new-data", "schedule", "up"]


def test_who_asks_for_no_time_starts_runs_by_hand_alone() -> None:
    objects = rendered(schedule=None, new_data=None, on_up=False, dataset="credit-2026-10")
    assert the("CronJob", objects)["spec"]["suspend"] is True
    assert not [each for each in objects if each["kind"] == "Job"]


def test_a_change_of_a_run_is_another_start_by_up() -> None:
    def name(**changes: Any) -> str:
        return str(the("Job", rendered(**changes))["metadata"]["name"])

    assert name() == name(schedule="0 4 * * *")
    assert name() != name(arguments=["--epochs", "3"])


def test_runs_go_before_what_they_need_and_after_what_starts_them() -> None:
    steps = pipeline.in_steps(rendered(on_drift={"service": "credit"}))
    kinds = [{str(each["kind"]) for each in step} for step in steps]
    assert kinds[1:] == [{"ServiceAccount"}, {"JobSet"}, {"RoleBinding"}, {"CronJob", "Job"}]
    # The owner of the runs, alone: what is made before it goes after it.
    assert [each["metadata"]["name"] for each in steps[1]] == ["credit-pipeline"]
    assert {"ConfigMap", "ExternalSecret", "NetworkPolicy", "Role"} <= kinds[0]


def test_a_program_of_a_teams_own_has_no_dataset_to_look_at() -> None:
    objects = rendered(**PROGRAM)
    [pod] = pods(the("JobSet", objects))
    assert marks.DATASET_NOTE not in pod["metadata"]["annotations"]
    assert pod["spec"]["containers"][0]["env"][0]["name"] == "FALAJ_RUN"
    for spec in starters(objects):
        assert spec["template"]["spec"]["volumes"] == []
        assert "--data" not in spec["template"]["spec"]["containers"][0]["command"]
    assert findings(objects) == []


def test_a_gpus_pipeline_starts_on_nodes_without() -> None:
    publish = {**PUBLISH, "flavor": "cpu-x86-64"}
    for spec in starters(rendered(flavor="h200", publish=publish)):
        assert spec["template"]["spec"]["nodeSelector"]["falaj.io/flavor"] == "cpu-x86-64"
    for spec in starters(rendered(starter_flavor="cpu-arm64")):
        assert spec["template"]["spec"]["nodeSelector"]["falaj.io/flavor"] == "cpu-arm64"


def test_the_manifests_are_the_reviewed_ones_and_platforms_differ_where_they_must() -> None:
    here = shown(rendered())
    same_as_golden("pipeline-existing.yaml", here)
    for place in ("eks", "aks"):
        same_as_golden(f"pipeline-{place}.diff", difference(here, shown(rendered(place))))


@pytest.mark.parametrize("place", PLACES)
def test_every_policy_pack_is_met(place: str) -> None:
    assert findings(rendered(place)) == []
