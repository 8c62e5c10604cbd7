"""Pipelines on a real control plane: what the starter's account may make, and what it starts."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes import pipeline
from falaj.components.kubernetes._objects import RBAC_GROUP, Manifest
from falaj.components.kubernetes._rights import role
from falaj.components.kubernetes.admission import pipelines as admission
from falaj.components.kubernetes.admission import secrets as secrets_admission
from falaj.components.kubernetes.admission.policy import ClusterScope
from falaj.components.kubernetes.admission.policy import manifests as policy_manifests
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects, wait_for
from falaj.stacks.command.pipelines import job_of
from falaj.stacks.command.pods import Cluster, client_of_file
from falaj.stacks.errors import StackError
from falaj.workloads.api_requests import ApiServer
from falaj.workloads.api_server import Account, ApiError
from falaj.workloads.pipelines.asking import Asking, Request
from falaj.workloads.pipelines.starting import LABEL, TEMPLATE_LABEL, Snapshot, owner_of, run_of
from tests.cluster.tenancy import (
    active,
    claim,
    counted,
    eventually,
    platform_of,
    queue_objects,
    refused,
    tenant_objects,
    waits,
)
from tests.cluster.type_checks import types_checked
from tests.components.kubernetes.test_pipeline import PIPELINE, PUBLISH, given, pods

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE, ACCOUNT = "acme-training", "credit-pipeline"
SERVING, REQUESTS = "acme-serving", "credit-pipeline-drift"
SETS = ("jobset.x-k8s.io/v1alpha2", "JobSet")
PATH = f"/apis/{SETS[0]}/namespaces/{NAMESPACE}/jobsets"
FLAVOR = "cpu-x86-64"
FOLLOWED_SECONDS = 60
"""Until the API server goes by a policy, or no longer does."""
SNAPSHOT = Snapshot("credit-2026-10", "5" * 64, datetime(2026, 10, 1, tzinfo=UTC))


def rendered(name: str, **changes: Any) -> list[Manifest]:
    """One that nothing but these tests starts."""
    quiet: dict[str, Any] = {
        **PIPELINE, "on_up": False, "new_data": None, "schedule": None, "data": "runs",
        "cpus": 0.5, "memory_gib": 2, "telemetry": False, "publish": {**PUBLISH, "model": name},
        **changes,
    }  # fmt: skip
    objects = pipeline.manifests(pipeline.check(name, given(**quiet)))
    return [each for each in objects if each["kind"] != "ExternalSecret"]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane, "cpu=2") as found:
        found.apply(tenant_objects("acme", training={"cpu": 100, "memory_gib": 200, "pods": 50}))
        pools = {FLAVOR: {"nodes": 2, "cpu": 30, "memory_gib": 120}}
        quotas = {FLAVOR: {"cpu": 8, "memory_gib": 64}}
        found.apply(queue_objects(pools, {"acme": {"quotas": quotas}}))
        found.apply(claim("runs", NAMESPACE))
        eventually("quotas are counted", lambda: counted(found, NAMESPACE))
        eventually("the queues are active", lambda: active(found, "acme"))
        scope = ClusterScope(placed=pipeline.check("credit", given()).run.placed)
        # Of the platform's policies also the one about secrets in what a starter makes.
        of_secrets = [
            each for each in secrets_admission.policies(scope)
            if each.name == "secret-use-job-sets"
        ]  # fmt: skip
        policies = (*admission.policies(scope), *of_secrets)
        found.apply(list(policy_manifests(policies, {}, {})))
        for name in ("credit", "fraud"):
            found.apply(rendered(name))
        yield found


@pytest.fixture(scope="module")
def template(cluster: ControlPlane) -> dict[str, Any]:
    found = cluster.objects.get(*SETS, "credit", NAMESPACE)
    assert found
    return found


@pytest.fixture(scope="module")
def user(cluster: ControlPlane) -> Iterator[Objects]:
    """What the account may do, by its token: runs are owned by whom that names."""
    found = of_account(cluster, ACCOUNT)
    yield found
    found.close()


def of_account(plane: ControlPlane, account: str) -> Objects:
    settings = copy.copy(plane.objects.client.configuration)
    settings.cert_file = settings.key_file = None
    settings.api_key = {"authorization": f"Bearer {token_of(plane, NAMESPACE, account)}"}
    return Objects(ApiClient(configuration=settings))


def owner(plane: ControlPlane, account: str = ACCOUNT) -> dict[str, Any]:
    found = plane.objects.get("v1", "ServiceAccount", account, NAMESPACE)
    assert found
    return owner_of(account, found["metadata"]["uid"])


@pytest.fixture(scope="module")
def a_run(cluster: ControlPlane, template: dict[str, Any]) -> dict[str, Any]:
    return run_of(template, "credit-1", "schedule", SNAPSHOT, owner(cluster))


def made(a_run: dict[str, Any], name: str = "credit-1") -> dict[str, Any]:
    found = copy.deepcopy(a_run)
    found["metadata"]["name"] = name
    return found


def first(job_set: dict[str, Any]) -> dict[str, Any]:
    """The pod of the gang."""
    return pods(job_set)[0]["spec"]


def container(job_set: dict[str, Any]) -> dict[str, Any]:
    return first(job_set)["containers"][0]


def job(job_set: dict[str, Any]) -> dict[str, Any]:
    return job_set["spec"]["replicatedJobs"][0]["template"]["spec"]


def about(job_set: dict[str, Any]) -> dict[str, Any]:
    return job_set["metadata"]


def notes(job_set: dict[str, Any]) -> dict[str, Any]:
    return pods(job_set)[0]["metadata"]["annotations"]


def owned(job_set: dict[str, Any]) -> dict[str, Any]:
    return about(job_set)["ownerReferences"][0]


OTHER = "registry.acme.example/falaj/other@sha256:" + "6" * 64
ATTACKS: dict[str, Any] = {
    "another image": lambda it: container(it).update(image=OTHER),
    "another command": lambda it: container(it).update(command=["sh", "-c", "id"]),
    "one word more": lambda it: container(it)["command"].append("--x"),
    "another variable": lambda it: container(it)["env"].append({"name": "A", "value": "b"}),
    "another order of variables": lambda it: container(it)["env"].reverse(),
    "another account": lambda it: first(it).update(serviceAccountName=ACCOUNT),
    "a token": lambda it: first(it).update(automountServiceAccountToken=True),
    "a folder of the node": lambda it: first(it)["volumes"].append(
        {"name": "host", "hostPath": {"path": "/"}}
    ),
    "another secret": lambda it: first(it)["volumes"].append(
        {"name": "s", "secret": {"secretName": "fraud-publish-keys"}}
    ),
    "the node's network": lambda it: first(it).update(hostNetwork=True),
    "another user": lambda it: first(it)["securityContext"].update(runAsUser=0),
    "a container more": lambda it: first(it)["containers"].append(
        {"name": "more", "image": OTHER}
    ),
    "a first container more": lambda it: first(it).setdefault("initContainers", []).append(
        {"name": "more", "image": OTHER}
    ),
    "other machines": lambda it: first(it).update(nodeSelector={}),
    "what publishes, changed": lambda it: pods(it)[1]["spec"]["containers"][0].update(image=OTHER),
    "more pods": lambda it: job(it).update(parallelism=2, completions=2),
    "a deadline": lambda it: job(it).update(activeDeadlineSeconds=1),
    "more jobs": lambda it: it["spec"]["replicatedJobs"][0].update(replicas=2),
    "another job": lambda it: it["spec"]["replicatedJobs"].append(
        {**copy.deepcopy(it["spec"]["replicatedJobs"][0]), "name": "more"}
    ),
    "no gate": lambda it: it["spec"]["replicatedJobs"].pop(),
    "publishing at once": lambda it: it["spec"]["replicatedJobs"][1].pop("dependsOn"),
    "without an end": lambda it: it["spec"].pop("ttlSecondsAfterFinished"),
    "more restarts": lambda it: it["spec"]["failurePolicy"].update(maxRestarts=99),
    "another subdomain": lambda it: it["spec"]["network"].update(subdomain="fraud"),
    "volumes of its own": lambda it: it["spec"].update(volumeClaimPolicies=[]),
    "another queue": lambda it: about(it)["labels"].update({"kueue.x-k8s.io/queue-name": "burst"}),
    "another priority": lambda it: about(it)["labels"].update(
        {"kueue.x-k8s.io/priority-class": "falaj-high"}
    ),
    "another tenant's label": lambda it: about(it)["labels"].update({"falaj.io/tenant": "bank"}),
    "a label more": lambda it: about(it)["labels"].update({"a": "b"}),
    "a label less": lambda it: about(it)["labels"].pop("falaj.io/cost-center"),
    "no label to be compared by": lambda it: about(it)["labels"].pop(LABEL),
    "a template of its own": lambda it: about(it)["labels"].update({TEMPLATE_LABEL: "true"}),
    "another pipeline's label": lambda it: about(it)["labels"].update({LABEL: "fraud"}),
    "an annotation more": lambda it: about(it)["annotations"].update(
        {"alpha.jobset.sigs.k8s.io/exclusive-topology": "x"}
    ),
    "an annotation of pods": lambda it: notes(it).update({"a": "b"}),
    "other users": lambda it: notes(it).update({"falaj.io/passwd": "root:x:0:0::/:/bin/sh"}),
    "another dataset": lambda it: notes(it).update({"falaj.io/dataset": "fraud-2026-10"}),
    "a dataset above": lambda it: notes(it).update({"falaj.io/dataset": "credit-/../../x"}),
    "another dataset for what publishes": lambda it: pods(it)[1]["metadata"]["annotations"].update(
        {"falaj.io/dataset": "credit-other"}
    ),
    "no dataset": lambda it: notes(it).pop("falaj.io/dataset"),
    "a label of pods": lambda it: pods(it)[0]["metadata"]["labels"].update({"a": "b"}),
    "the template's name": lambda it: about(it).update(name="credit-template"),
    "no number": lambda it: about(it).update(name="credit-"),
    "the number 0": lambda it: about(it).update(name="credit-0"),
    "a number in front": lambda it: about(it).update(name="1-credit-1"),
    "another pipeline's run": lambda it: about(it).update(name="fraud-1"),
    "a name of the server's": lambda it: (about(it).pop("name"),
                                          about(it).update(generateName="credit-")),
    "what keeps it": lambda it: about(it).update(finalizers=["acme.example/kept"]),
    "no owner": lambda it: about(it).pop("ownerReferences"),
    "another owner beside": lambda it: about(it)["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "ConfigMap", "name": ACCOUNT, "uid": "x"}
    ),
    "an owner of another kind": lambda it: owned(it).update(kind="ConfigMap"),
    "an owner of another group": lambda it: owned(it).update(
        apiVersion=f"{RBAC_GROUP}/v1", kind="Role"
    ),
    "another account as owner": lambda it: owned(it).update(name="fraud-pipeline"),
    "a UID that isn't its own": lambda it: owned(it).update(uid=str(uuid.uuid4())),
    "a controller": lambda it: owned(it).update(controller=True),
    "an owner that doesn't wait": lambda it: owned(it).pop("blockOwnerDeletion"),
    "an owner that needn't wait": lambda it: owned(it).update(blockOwnerDeletion=False),
}  # fmt: skip


def denied(what: Callable[[], object]) -> str:
    try:
        what()
    except ApiException as error:
        return str(error.body)
    return ""


def refusal(user: Objects, body: dict[str, Any]) -> str:
    return denied(lambda: user.request("POST", PATH, body, dryRun="All"))


def test_the_account_makes_its_run_and_no_other(
    cluster: ControlPlane, user: Objects, template: dict[str, Any], a_run: dict[str, Any]
) -> None:
    def held() -> str:
        body = made(a_run)
        container(body)["image"] = OTHER
        return refusal(user, body)

    # Policies hold a moment after they were made.
    assert "cluster-pipeline-run" in wait_for(held, "the policy to hold", FOLLOWED_SECONDS)
    assert refusal(user, made(a_run)) == ""
    # Where nothing else keeps it from naming owners that would wait, the policy does.
    named = {"name": "waiting", "namespace": NAMESPACE}
    rights = {"apiGroups": ["*"], "resources": ["*/finalizers"], "verbs": ["update"]}
    cluster.apply(role(named, [rights], [
        {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    ]))  # fmt: skip

    def waits_for_others() -> bool:
        body = made(a_run)
        owned(body).update(name="fraud-pipeline")
        return "cluster-pipeline-run" in refusal(user, body)

    eventually("it may have others wait", waits_for_others)
    passed: list[str] = []
    for attack, change in ATTACKS.items():
        body = made(a_run)
        change(body)
        said = refusal(user, body)
        if not re.search("cluster-(pipeline-(run|starter)|secret-use)|Invalid value", said):
            passed.append(f"{attack}: {said}")
    assert passed == []
    # A pipeline that is another's, as its own account makes it, isn't one of this account's.
    of_fraud = owner(cluster, "fraud-pipeline")
    other = run_of(user_of(template, "fraud"), "fraud-1", "schedule", SNAPSHOT, of_fraud)
    assert re.search("cluster-(pipeline-run|secret-use)", refusal(user, other))
    for kind in ("RoleBinding", "Role"):
        cluster.objects.delete(f"{RBAC_GROUP}/v1", kind, "waiting", NAMESPACE)


def test_what_secrets_a_run_has_is_its_templates_affair(
    cluster: ControlPlane, user: Objects, a_run: dict[str, Any]
) -> None:
    """An account with the rights to make JobSets, but no template, brings no secret in."""
    run = made(a_run)
    used = json.dumps(run)
    assert "credit-keys" in used
    assert "credit-publish-keys" in used
    assert refusal(user, run) == ""
    # Of the name that a starter has, which somebody made who may make accounts and roles.
    [role] = [each for each in rendered("credit") if each["kind"] == "Role"]
    rules = [each for each in role["rules"] if each["apiGroups"] == ["jobset.x-k8s.io"]]
    name = "astray-pipeline"
    about = {"name": name, "namespace": NAMESPACE}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    rbac = "rbac.authorization.k8s.io"
    cluster.apply([
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": about, "rules": rules},
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": about,
         "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name}, "subjects": [subject]},
    ])  # fmt: skip
    astray = cluster.as_user(f"system:serviceaccount:{NAMESPACE}:{name}")
    for label in ("credit", "astray"):
        body = json.loads(json.dumps(run))
        body["metadata"]["labels"][LABEL] = label
        del body["metadata"]["ownerReferences"]
        said = wait_for(lambda body=body: refusal(astray, body), "its rights", FOLLOWED_SECONDS)
        assert "cluster-secret-use" in said, said
    # A right that no API has is given by nobody who doesn't hold it.
    admins = cluster.as_user("admin@acme.example", ["acme:admins"])
    rules = [each for each in role["rules"] if each["apiGroups"] == ["falaj.io"]]
    assert rules
    given_away = {"apiVersion": f"{rbac}/v1", "kind": "Role",
                  "metadata": {**about, "name": "given-away"}, "rules": rules}  # fmt: skip
    refused(lambda: admins.request("POST", f"/apis/{rbac}/v1/namespaces/{NAMESPACE}/roles",
                                   given_away))  # fmt: skip


def test_a_template_goes_by_who_may_read_what_its_runs_use(
    cluster: ControlPlane, a_run: dict[str, Any]
) -> None:
    """While another one is left, its account would be held by nothing."""
    trainers = cluster.as_user("trainer@acme.example", ["acme:trainers"])
    bare = {"metadata": {"labels": {TEMPLATE_LABEL: None}}}
    falsified = {"metadata": {"labels": {TEMPLATE_LABEL: "false"}}}
    kind = "application/merge-patch+json"
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
    attempts: list[Callable[[], object]] = [
        lambda: trainers.request("DELETE", f"{PATH}/credit", options),
        *(
            lambda change=change: trainers.request(
                "PATCH", f"{PATH}/credit", change, kind, dryRun="All"
            )
            for change in (bare, falsified)
        ),
    ]
    for attempt in attempts:
        said = wait_for(lambda attempt=attempt: denied(attempt), "a refusal", FOLLOWED_SECONDS)
        assert "cluster-pipeline-template" in said
    # What they have a right to is theirs still, and so is the platform's owners'.
    cluster.objects.request("POST", PATH, made(a_run, "credit-97"))
    trainers.request("DELETE", f"{PATH}/credit-97")
    eventually("it is removed", lambda: not cluster.objects.get(*SETS, "credit-97", NAMESPACE))
    cluster.objects.request("DELETE", f"{PATH}/credit", options)


def user_of(template: dict[str, Any], name: str) -> dict[str, Any]:
    """The template of another pipeline, as far as one who can't read it would guess."""
    text = json.dumps(template).replace("credit", name)
    return json.loads(text)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/acme-serving/jobsets"),
        ("POST", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"),
        ("GET", f"{PATH}/fraud"),
        ("PATCH", f"{PATH}/credit"),
        ("DELETE", f"{PATH}/credit"),
        ("DELETE", PATH),
        ("POST", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"),
        ("POST", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"),
        ("PATCH", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{ACCOUNT}"),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/credit-publish-keys"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps"),
        ("PATCH", f"/api/v1/namespaces/{NAMESPACE}/configmaps/fraud-pipeline"),
        ("PATCH", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/{ACCOUNT}"),
        ("GET", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"),
    ],
)
def test_the_account_may_do_nothing_else(user: Objects, method: str, path: str) -> None:
    body: dict[str, Any] | None = None if method in {"GET", "DELETE"} else {}
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    refused(lambda: user.request(method, path, body, kind))


def test_the_api_server_has_nothing_against_the_policies(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """It knows the schema of all, what is compared and what it is compared with."""

    def checked() -> list[dict[str, Any]]:
        found = [
            each
            for each in cluster.objects.list(
                "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
            )
            if each["metadata"]["name"].startswith("falaj-pipeline-")
        ]
        assert len(found) == 3
        return (
            found if all("observedGeneration" in each.get("status", {}) for each in found) else []
        )

    with types_checked(cluster, tmp_path):
        found = wait_for(checked, "expressions to be checked", 120)
    for each in found:
        assert not each["status"].get("typeChecking", {}).get("expressionWarnings")


def test_nobody_elses_job_waits_until_the_server_knows_what_runs_are_compared_with(
    cluster: ControlPlane, a_run: dict[str, Any]
) -> None:
    """It refuses what a policy matches for seconds after each start; this kind never comes."""
    placed = pipeline.check("x", given()).run.placed
    policies = admission.policies(ClusterScope(placed=placed))
    (runs,) = (each for each in policies if each.compared)
    assert runs.compared
    unknown = replace(runs.compared, api_version="nowhere.example/v1", kind="Nothing")
    lost = list(policy_manifests((replace(runs, name="pipeline-lost", compared=unknown),), {}, {}))
    ours, others = made(a_run, "credit-7"), made(a_run, "others")
    del others["metadata"]["labels"][LABEL]
    cluster.apply(lost)
    try:
        said = wait_for(
            lambda: refusal(cluster.objects, ours) or None,
            "the policy to be followed",
            FOLLOWED_SECONDS,
        )
        assert "failed to find resource referenced by paramKind" in said
        assert not refusal(cluster.objects, others)
    finally:
        for each in lost:
            cluster.objects.delete(each["apiVersion"], each["kind"], each["metadata"]["name"])
        wait_for(
            lambda: not refusal(cluster.objects, ours) or None,
            "the policy to be gone",
            FOLLOWED_SECONDS,
        )


def test_the_template_gets_no_quota_and_no_pods(cluster: ControlPlane) -> None:
    eventually("Kueue lets it wait", lambda: waits(cluster, "credit", NAMESPACE))
    assert cluster.objects.list("batch/v1", "Job", NAMESPACE) == []
    assert cluster.objects.list("v1", "Pod", NAMESPACE) == []


def token_of(plane: ControlPlane, namespace: str, account: str) -> str:
    """As the kubelet asks for a pod's."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
             "spec": {"expirationSeconds": 3600}}  # fmt: skip
    return str(plane.objects.request("POST", path, asked)["status"]["token"])


class Starter:
    """The starter as its pod would run, with a token of its account."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        (folder / "token").write_text(token_of(plane, NAMESPACE, ACCOUNT), "ascii")
        self.data = folder / "data"
        self.data.mkdir()
        self._command = [
            sys.executable, "-m", "falaj.workloads.pipelines", "start", "--pipeline", "credit",
            "--namespace", NAMESPACE, "--data", str(self.data), "--token", str(folder / "token"),
            "--authority", str(plane.files.authority),
            "--server", plane.objects.client.configuration.host,
        ]  # fmt: skip

    def snapshot(self, name: str, digest: str, created: str) -> None:
        (self.data / name).mkdir()
        said = {"digest": digest * 64, "created": created}
        (self.data / name / "dataset.json").write_text(json.dumps(said), "utf-8")

    def process(self, reason: str, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, "--reason", reason, *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def start(self, reason: str, *more: str) -> dict[str, Any]:
        return self.outcome(self.process(reason, *more))

    def outcome(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        with process:
            out, complaints = process.communicate(timeout=120)
        assert (process.returncode, complaints) == (0, ""), complaints
        return json.loads(out)


def ended(cluster: ControlPlane, name: str, exit_code: int = 0) -> None:
    """As kubelets report pods that are done, until JobSet says that the run is."""
    phase = "Failed" if exit_code else "Succeeded"

    def over() -> bool:
        of = f"jobset.sigs.k8s.io/jobset-name={name}"
        for each in cluster.objects.list("v1", "Pod", NAMESPACE, of):
            if each["status"].get("phase") == "Running":
                ended = {"terminated": {"exitCode": exit_code, "reason": "Completed"}}
                container = {"name": each["spec"]["containers"][0]["name"], "image": "x",
                             "imageID": "x", "ready": False, "restartCount": 0,
                             "state": ended}  # fmt: skip
                said = {"status": {"phase": phase, "containerStatuses": [container]}}
                cluster.objects.patch(
                    "v1", "Pod", each["metadata"]["name"], said, NAMESPACE, part="status"
                )
        found = cluster.objects.get(*SETS, name, NAMESPACE)
        return bool(found and found.get("status", {}).get("terminalState"))

    eventually(f"{name} is over", over)


def test_runs_are_started_one_at_a_time_and_for_new_data(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    starter = Starter(cluster, tmp_path)
    assert "there is no snapshot credit-*" in starter.start("new-data")["why"]
    starter.snapshot("credit-2026-09", "3", "2026-09-01T00:00:00+00:00")
    starter.snapshot("fraud-2026-11", "4", "2026-11-01T00:00:00+00:00")
    done = starter.start("new-data")
    assert (done["started"], done["dataset"]) == ("credit-1", "credit-2026-09")

    def running() -> list[dict[str, Any]]:
        found = cluster.objects.list(
            "v1", "Pod", NAMESPACE, "jobset.sigs.k8s.io/jobset-name=credit-1"
        )
        return [each for each in found if each["status"].get("phase") == "Running"]

    # Kueue gives it quota, JobSet makes its pods, and they know which run they are of.
    eventually("its gang runs", lambda: len(running()) == 1)
    [pod] = running()
    assert pod["metadata"]["annotations"]["falaj.io/dataset"] == "credit-2026-09"
    assert pod["spec"]["serviceAccountName"] == "trainer"
    assert starter.start("schedule")["why"] == "credit-1 is still on"
    ended(cluster, "credit-1")
    assert "was the last run's" in starter.start("new-data")["why"]
    starter.snapshot("credit-2026-10", "5", "2026-10-01T00:00:00+00:00")
    assert starter.start("new-data")["started"] == "credit-2"
    ended(cluster, "credit-2", exit_code=2)
    # What failed on these data would fail again: people start it.
    assert "was the last run's" in starter.start("new-data")["why"]
    # Runs that were removed after their days keep their numbers.
    for name in ("credit-1", "credit-2"):
        cluster.objects.delete(*SETS, name, NAMESPACE)
    outcomes = [starter.outcome(each) for each in [starter.process("by-hand") for _ in range(3)]]
    assert [each["started"] for each in outcomes if each["started"]] == ["credit-3"]
    state = cluster.objects.get("v1", "ConfigMap", ACCOUNT, NAMESPACE)
    assert state
    last = json.loads(state["data"]["last.json"])
    assert (last["name"], last["reason"], last["digest"]) == ("credit-3", "by-hand", "5" * 64)
    # An update of the stack takes nothing of that away.
    cluster.apply(rendered("credit"))
    assert cluster.objects.get("v1", "ConfigMap", ACCOUNT, NAMESPACE) == state


def test_who_watches_drift_asks_for_a_run_and_makes_nothing(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    for each in cluster.objects.list(*SETS, NAMESPACE, f"{LABEL}=credit,!{TEMPLATE_LABEL}"):
        ended(cluster, str(each["metadata"]["name"]))
    starter = Starter(cluster, tmp_path)
    starter.snapshot("credit-2026-11", "7", "2026-11-01T00:00:00+00:00")
    asks = ("drift", "--requests", REQUESTS, "--if-asked")
    kinds = ("ConfigMap", "Role", "RoleBinding")
    objects = [
        each for each in rendered("credit", on_drift={"service": "credit"})
        if each["kind"] in kinds
    ]  # fmt: skip
    cluster.apply(objects)
    account = {"name": "credit-watch", "namespace": SERVING}
    cluster.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}])
    token = tmp_path / "watch-token"
    token.write_text(token_of(cluster, SERVING, "credit-watch"), "ascii")
    api = ApiServer(
        cluster.objects.client.configuration.host, Account(cluster.files.authority, token), "watch"
    )
    asking = Asking(api, "credit", NAMESPACE, REQUESTS)
    # The API server goes by rights a moment after they are made.
    assert wait_for(lambda: _may(asking.asked), "its rights", FOLLOWED_SECONDS)
    assert asking.asked() is None
    assert starter.start(*asks)["why"] == "nobody asks for a run"
    asking.ask(Request("a" * 64, {"model": "credit"}))
    done = starter.start(*asks)
    assert done["dataset"] == "credit-2026-11"
    name = str(done["started"])
    run = cluster.objects.get(*SETS, name, NAMESPACE)
    assert run
    assert run["metadata"]["annotations"]["falaj.io/reason"] == "drift"
    last = asking.started(ACCOUNT, "last.json")
    assert (last["name"], last["asked"]) == (name, "a" * 64)
    maps = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    for attempt in (
        lambda: api.create(PATH, run),
        lambda: api.create(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", {}),
        lambda: api.merge(f"{maps}/{ACCOUNT}", {"data": {"last.json": None}}),
        lambda: api.merge(f"{maps}/kube-root-ca.crt", {"data": {"a": "b"}}),
        lambda: api.items(maps),
        lambda: api.get(f"{PATH}/credit"),
        lambda: api.items(f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        lambda: api.delete(f"{maps}/{REQUESTS}"),
        lambda: api.items(f"/api/v1/namespaces/{SERVING}/pods"),
    ):
        with pytest.raises(ApiError) as refused_:
            attempt()
        assert refused_.value.status == 403
    # What is asked for outlives an update of the stack, until it is withdrawn.
    cluster.apply(objects)
    found = asking.asked()
    assert found
    assert found.signal == "a" * 64
    asking.withdraw()
    assert asking.asked() is None
    ended(cluster, name)
    assert starter.start(*asks)["why"] == "nobody asks for a run"


def _may(what: Callable[[], object]) -> bool:
    try:
        what()
    except ApiError as error:
        assert error.status == 403
        return False
    return True


def test_people_start_runs_by_their_own_rights(cluster: ControlPlane) -> None:
    """What `falaj pipelines` asks, as somebody of each duty."""

    def of(duty: str) -> Cluster:
        user = cluster.user_kubeconfig(f"{duty}@acme.example", [f"acme:{duty}"])
        return Cluster(client_of_file(str(user), None))

    for duty in ("trainers", "auditors"):
        found = of(duty).job_sets(NAMESPACE, f"{LABEL}=credit")
        assert "credit" in [each["metadata"]["name"] for each in found]
    job = job_of(of("trainers").cron_job(NAMESPACE, ACCOUNT), "drift")
    with pytest.raises(StackError, match="who logs in here has no right to it"):
        of("auditors").start_job(NAMESPACE, job)
    name = of("trainers").start_job(NAMESPACE, job)
    made = cluster.objects.get("batch/v1", "Job", name, NAMESPACE)
    assert made
    assert name.startswith(f"{ACCOUNT}-hand-")
    pod = made["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == ACCOUNT
    assert pod["containers"][0]["command"][-3:] == ["drift", "--data", "/data"]
    # Kueue has it wait for its quota as every job.
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    cluster.objects.delete("batch/v1", "Job", name, NAMESPACE)


def test_runs_go_with_their_pipeline_and_before_what_they_need(cluster: ControlPlane) -> None:
    """Deleted as Pulumi does: what was made last goes first, and each until it is gone."""
    template = cluster.objects.get(*SETS, "fraud", NAMESPACE)
    assert template
    account = of_account(cluster, "fraud-pipeline")
    run = run_of(template, "fraud-1", "schedule", SNAPSHOT, owner(cluster, "fraud-pipeline"))
    account.request("POST", PATH, run)
    account.close()
    trainer = cluster.user_kubeconfig("trainer@acme.example", ["acme:trainers"])
    people = Cluster(client_of_file(str(trainer), None))
    people.start_job(NAMESPACE, job_of(people.cron_job(NAMESPACE, "fraud-pipeline"), "by-hand"))

    def pods() -> list[dict[str, Any]]:
        return cluster.objects.list(
            "v1", "Pod", NAMESPACE, "jobset.sigs.k8s.io/jobset-name=fraud-1"
        )

    def jobs() -> list[str]:
        names = [each["metadata"]["name"] for each in cluster.objects.list(
            "batch/v1", "Job", NAMESPACE
        )]  # fmt: skip
        return [each for each in names if each.startswith("fraud")]

    eventually("the run is on", lambda: bool(pods()))
    steps = pipeline.in_steps(rendered("fraud"))
    for step in reversed(steps[1:]):
        for each in step:
            about = each["metadata"]
            named = each["apiVersion"], each["kind"], about["name"], NAMESPACE
            path = f"{cluster.objects.path_of(each)}"
            cluster.objects.request("DELETE", path, propagationPolicy="Foreground")
            eventually(f"{named} is gone", lambda named=named: not cluster.objects.get(*named))
    # No wait any more: the account was there as long as the run and its pods.
    assert cluster.objects.get(*SETS, "fraud-1", NAMESPACE) is None
    assert pods() == []
    needed = cluster.objects.get("networking.k8s.io/v1", "NetworkPolicy", "fraud", NAMESPACE)
    assert needed
    # What people started by hand goes with the CronJob.
    eventually("its jobs are gone", lambda: not jobs())
    cluster.apply(rendered("fraud"))


def test_without_its_template_the_account_makes_nothing(
    cluster: ControlPlane, user: Objects, a_run: dict[str, Any]
) -> None:
    cluster.objects.request("POST", PATH, made(a_run, "credit-98"))
    for name in ("credit", "fraud"):
        cluster.objects.delete(*SETS, name, NAMESPACE)
    said = wait_for(lambda: refusal(user, made(a_run)), "templates to be gone", 60)
    assert "falaj-pipeline-runs" in said
    # Everybody else makes what they like, template or not.
    plain = made(a_run, "credit-99")
    del plain["metadata"]["labels"][LABEL]
    assert refusal(cluster.objects, plain) == ""
    # Runs that are there are ended by controllers, as JobSet does after their days.
    cluster.objects.request("DELETE", f"{PATH}/credit-98", propagationPolicy="Foreground")
    eventually("it is removed", lambda: not cluster.objects.get(*SETS, "credit-98", NAMESPACE))
    for name in ("credit", "fraud"):
        cluster.apply(rendered(name))
