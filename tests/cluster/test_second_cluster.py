"""Jobs that another cluster in the country runs, and whose regions they may name.

Two whole control planes with Kueue and JobSet: one's own with a machine of eight GPUs, and one in
the cloud's region with two. Both refuse what `Residency` has them refuse. The one sends jobs to
the other by MultiKueue, with the account that the other gave it. Machines are simulated. Times
are printed, with ``-s``, and never judged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects, wait_for
from tests.cluster.residency_cluster import refusal
from tests.cluster.second_cluster import (
    ACCOUNT,
    CLOUD,
    CLOUD_REGISTRY,
    HOME_REGISTRY,
    JOBSETS,
    LOST_SECONDS,
    NAMESPACE,
    SERVING,
    WORKLOADS,
    Clusters,
    account_of,
    burst_queue,
    clusters,
    denied,
    job,
    moved,
    pods,
    secret_of,
    state,
    worker_is,
)
from tests.cluster.second_registry import Registries, registries
from tests.cluster.tenancy import (
    SITE,
    condition,
    eventually,
    members,
    pod_spec,
    refused,
    simulated,
    waits,
    workload,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

FORBIDDEN = 403
RENEW_SECONDS = 30
ASKED_AGAIN_SECONDS = 420
"""Kueue's five minutes, and what a loaded machine needs."""
REGION = "topology.kubernetes.io/region"


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, trainer_definitions: list[dict[str, Any]]
) -> Iterator[Clusters]:
    with clusters(tmp_path_factory.mktemp("clusters"), trainer_definitions) as found:
        yield found


@pytest.fixture
def pair(both: Clusters) -> Generator[Clusters]:
    """With nothing running before, and nothing left afterwards."""
    yield both
    for each in both.home.objects.list(*JOBSETS, NAMESPACE):
        both.home.objects.delete(*JOBSETS, each["metadata"]["name"], NAMESPACE)

    def idle() -> bool:
        return not any(
            plane.objects.list(*kind, NAMESPACE)
            for plane in (both.home, both.cloud)
            for kind in (JOBSETS, WORKLOADS, ("v1", "Pod"))
        )

    eventually("what the test started is gone from both", idle)


def sent_to(pair: Clusters, name: str) -> str:
    """The cluster that a job's workload says that it is in."""
    found = workload(pair.home, name, NAMESPACE) or {}
    return str(found.get("status", {}).get("clusterName", ""))


def seconds(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"


def test_a_job_that_finds_no_room_at_home_runs_in_the_cloud_and_its_state_comes_back(
    pair: Clusters,
) -> None:
    trainer = members(pair.home, "acme", "trainers")
    for each in simulated(job("first")):
        trainer.apply([each]) if each["kind"] == "JobSet" else pair.home.apply([each])
    eventually("the first has the machine", lambda: len(pods(pair.home, "first")) == 1)
    pair.home.apply(job("second"))
    eventually("the second waits", lambda: waits(pair.home, "second", NAMESPACE))
    since = time.monotonic()
    moved(pair.home, "second", simulated(job("second", queue="burst"), duration="5s"))
    eventually("it runs in the cloud", lambda: len(pods(pair.cloud, "second")) == 1)
    print(f"\nfrom the decision to pods in the cloud: {seconds(since)}")
    (pod,) = pods(pair.cloud, "second")
    assert pod["spec"]["nodeSelector"]["topology.kubernetes.io/region"] == CLOUD.region
    eventually("home knows where", lambda: sent_to(pair, "second") == "cloud")
    eventually("its state comes back", lambda: state(pair.home, "second") == "Completed")
    print(f"from the decision to its end, as home knows it: {seconds(since)}")
    eventually(
        "nothing of it is left in the cloud",
        lambda: (
            not any(pair.cloud.objects.list(*kind, NAMESPACE) for kind in (JOBSETS, WORKLOADS))
        ),
    )
    # Neither ran twice, nor here: the tenant's own queue went on as if nothing had been.
    assert not pods(pair.home, "second")
    assert len(pods(pair.home, "first")) == 1
    assert condition(workload(pair.home, "first", NAMESPACE), "Evicted") != "True"


def _in(*regions: str) -> dict[str, Any]:
    demand = {"key": REGION, "operator": "In", "values": list(regions)}
    return {"nodeSelectorTerms": [{"matchExpressions": [demand]}]}


def _required(*regions: str) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": _in(*regions)}
    return {"nodeSelector": {}, "affinity": {"nodeAffinity": required}}


def _wished(region: str) -> dict[str, Any]:
    (preference,) = _in(region)["nodeSelectorTerms"]
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": preference},
    ]}  # fmt: skip
    return {"nodeSelector": {REGION: CLOUD.region}, "affinity": {"nodeAffinity": wish}}


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({"nodeSelector": {REGION: CLOUD.region}}, True),
        ({"nodeSelector": {REGION: SITE.region}}, False),
        (_required(CLOUD.region), True),
        (_required(SITE.region, CLOUD.region), True),
        (_required(SITE.region), False),
        (_required(CLOUD.region, "dxb-9"), False),
        (_required(CLOUD.region, SITE.region, "westeurope"), False),
        (_wished(SITE.region), False),
    ],
    ids=str,
)
def test_a_partner_is_named_beside_ones_own_region_and_nowhere_else(
    both: Clusters, changes: dict[str, Any], taken: bool
) -> None:
    spec = pod_spec({"cpu": "1", "memory": "1Gi"}, tolerations=[], **changes)
    template = {"metadata": {}, "spec": spec}
    about = {"name": "case", "namespace": NAMESPACE}
    case = {"apiVersion": "batch/v1", "kind": "Job", "metadata": about,
            "spec": {"template": template}}  # fmt: skip
    said = refusal(both.cloud, case)
    assert ("kubernetes-placement-abroad" in said) is not taken, said
    assert bool(said) is not taken, said


def test_a_partners_node_is_none_of_ones_own(both: Clusters) -> None:
    node = {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "stranger", "labels": {REGION: SITE.region}}}  # fmt: skip
    assert "the node says that it is elsewhere" in refusal(both.cloud, node)


#: What the sender's account may do in the worker: verbs by kind, everywhere and in a namespace of
#: a tenant whose jobs it sends. Written down by hand, so that a right more is seen here.
EVERYWHERE = {
    ("", "pods"): {"watch"},
    ("apps", "statefulsets"): {"watch"},
    ("batch", "jobs"): {"watch"},
    ("jobset.x-k8s.io", "jobsets"): {"watch"},
    ("trainer.kubeflow.org", "trainjobs"): {"watch"},
    ("kueue.x-k8s.io", "workloads"): {"list", "watch"},
}
OF_THE_TENANT = {
    ("batch", "jobs"): {"create", "delete", "get"},
    ("jobset.x-k8s.io", "jobsets"): {"create", "delete", "get"},
    ("trainer.kubeflow.org", "trainjobs"): {"create", "delete", "get"},
    ("kueue.x-k8s.io", "workloads"): {"create", "delete", "get", "patch", "update"},
    ("kueue.x-k8s.io", "workloads/status"): {"patch", "update"},
}
#: What Kubernetes lets everybody ask about oneself.
_ABOUT_ONESELF = {"authorization.k8s.io", "authentication.k8s.io"}


def rights(who: Objects, namespace: str) -> dict[tuple[str, str], set[str]]:
    """All that somebody may do in a namespace, by the API server's own word."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    answer = who.request(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {**review, "spec": {"namespace": namespace}},
    )["status"]  # fmt: skip
    assert not answer["incomplete"], answer
    found: dict[tuple[str, str], set[str]] = {}
    for rule in answer["resourceRules"]:
        assert not rule.get("resourceNames"), rule
        for group in set(rule["apiGroups"]) - _ABOUT_ONESELF:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


@pytest.mark.parametrize(
    "namespace", [NAMESPACE, "acme-serving", "kueue-system", "kube-system", "default", "legacy"]
)
def test_the_senders_account_has_these_rights_and_no_other(both: Clusters, namespace: str) -> None:
    expected = {kind: set(verbs) for kind, verbs in EVERYWHERE.items()}
    if namespace == NAMESPACE:
        for kind, verbs in OF_THE_TENANT.items():
            expected.setdefault(kind, set()).update(verbs)
    assert rights(both.account, namespace) == expected


_TRAINING = f"/namespaces/{NAMESPACE}"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_ROLES = f"/apis/rbac.authorization.k8s.io/v1{_TRAINING}"
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
_SUBJECTS = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kueue-system"}]
_QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/acme"


def _named(kind: str, version: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "attempt"}, **fields}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/api/v1{_TRAINING}/secrets", None),
        ("GET", "/api/v1/namespaces/kueue-system/secrets", None),
        ("GET", "/api/v1/secrets", None),
        ("GET", f"/api/v1{_TRAINING}/configmaps", None),
        ("GET", f"/api/v1{_TRAINING}/pods", None),
        ("GET", f"/api/v1{_TRAINING}/persistentvolumeclaims", None),
        ("GET", "/api/v1/nodes", None),
        ("GET", "/api/v1/namespaces", None),
        ("GET", _ADMISSION, None),
        ("GET", _QUEUE, None),
        ("POST", f"/api/v1{_TRAINING}/pods",
         _named("Pod", "v1", spec=pod_spec({"cpu": "1", "memory": "1Gi"}))),
        ("POST", f"/api/v1{_TRAINING}/secrets", _named("Secret", "v1")),
        ("POST", f"/api/v1/namespaces/kueue-system/serviceaccounts/{ACCOUNT}/token",
         {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ("POST", f"/api/v1{_TRAINING}/serviceaccounts/trainer/token",
         {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ("POST", "/apis/batch/v1/namespaces/acme-serving/jobs", _named("Job", "batch/v1")),
        ("POST", "/apis/batch/v1/namespaces/kueue-system/jobs", _named("Job", "batch/v1")),
        ("POST", "/apis/apps/v1/namespaces/acme-training/deployments",
         _named("Deployment", "apps/v1")),
        ("POST", f"{_ROLES}/rolebindings",
         _named("RoleBinding", "rbac.authorization.k8s.io/v1", roleRef=_ROLE, subjects=_SUBJECTS)),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
         _named("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", roleRef=_ROLE,
                subjects=_SUBJECTS)),
        ("POST", _ADMISSION,
         _named("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", spec={})),
        ("DELETE", f"{_ADMISSION}/falaj-burst-own-jobs", None),
        ("DELETE", "/api/v1/nodes/h200-0", None),
        ("DELETE", "/api/v1/namespaces/acme-training", None),
        ("DELETE", _QUEUE, None),
        ("DELETE", f"/apis/batch/v1{_TRAINING}/jobs", None),
        ("DELETE", f"/apis/kueue.x-k8s.io/v1beta2{_TRAINING}/workloads", None),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_the_senders_account_is_refused_all_else(
    both: Clusters, method: str, path: str, body: Any
) -> None:
    assert denied(lambda: both.account.request(method, path, body)) == FORBIDDEN


def _bare_job(name: str, origin: str = "") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "default"}
    if origin:
        labels["kueue.x-k8s.io/multikueue-origin"] = origin
    changes = {"nodeSelector": {REGION: CLOUD.region}}
    spec = pod_spec({"cpu": "1", "memory": "1Gi"}, tolerations=[], **changes)
    return {"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"template": {"metadata": {}, "spec": spec}}}  # fmt: skip


@pytest.mark.parametrize("origin", ["", "dxb-2"])
def test_the_senders_account_makes_and_removes_nothing_in_anothers_name(
    pair: Clusters, origin: str
) -> None:
    assert "accepts" in refused(lambda: pair.account.create(_bare_job("foreign", origin)))
    pair.cloud.apply([_bare_job("foreign", origin)])
    path = pair.account.path_of(_bare_job("foreign"))
    try:
        assert "accepts" in refused(lambda: pair.account.request("DELETE", path))
        eventually("it is queued", lambda: bool(workload(pair.cloud, "foreign", NAMESPACE)))
        found = workload(pair.cloud, "foreign", NAMESPACE) or {}
        own = pair.account.path_of(found)
        label = {"metadata": {"labels": {"kueue.x-k8s.io/multikueue-origin": SITE.region}}}
        for part, change in (("", label), ("/status", {"status": {"conditions": []}})):
            said = refused(
                lambda part=part, change=change: pair.account.request(
                    "PATCH", f"{own}{part}", change, "application/merge-patch+json"
                )
            )
            assert "accepts" in said
        assert "accepts" in refused(lambda: pair.account.request("DELETE", own))
    finally:
        pair.cloud.objects.delete("batch/v1", "Job", "foreign", NAMESPACE)


def runs_in_the_cloud(pair: Clusters, name: str, **notes: str) -> dict[str, Any]:
    """Send a job there; its pod, once it runs."""
    pair.home.apply(simulated(job(name, queue="burst"), **notes))
    eventually("it runs in the cloud", lambda: len(pods(pair.cloud, name)) == 1)
    eventually("home knows where", lambda: sent_to(pair, name) == "cloud")
    return pods(pair.cloud, name)[0]


def uid(found: dict[str, Any]) -> str:
    return str(found["metadata"]["uid"])


def is_running(plane: ControlPlane, name: str, pod: dict[str, Any]) -> bool:
    """Whether this very pod of a job runs."""
    return uid(pod) in {uid(each) for each in pods(plane, name)}


def test_the_senders_account_admits_nothing_that_it_sent(pair: Clusters) -> None:
    runs_in_the_cloud(pair, "sent")
    found = workload(pair.cloud, "sent", NAMESPACE) or {}
    forged = {"status": {"admission": {"clusterQueue": "acme-burst"}}}
    said = refused(
        lambda: pair.account.request(
            "PATCH", f"{pair.account.path_of(found)}/status", forged,
            "application/merge-patch+json",
        )
    )  # fmt: skip
    assert "own Kueue admits" in said


def test_the_senders_account_removes_what_it_sent_though_it_is_admitted(pair: Clusters) -> None:
    """Kueue does so with what has no job yet: that held its quota, as nobody else removed it."""
    runs_in_the_cloud(pair, "sent")
    found = workload(pair.cloud, "sent", NAMESPACE) or {}
    assert condition(found, "Admitted") == "True"
    pair.account.request("DELETE", pair.account.path_of(found))
    # And what is left of a job that is gone, as when it is removed while it is being sent.
    about = {"name": "orphan", "namespace": NAMESPACE, "labels": found["metadata"]["labels"]}
    left = {**{key: found[key] for key in ("apiVersion", "kind", "spec")}, "metadata": about}
    pair.account.create(left)
    eventually(
        "Kueue clears it up",
        lambda: "orphan" not in left_in_the_cloud(pair),
    )


def given_back(plane: ControlPlane, name: str) -> bool:
    """Whether a job that was sent has no cluster any more and isn't admitted."""
    found = workload(plane, name, NAMESPACE)
    return condition(found, "Admitted") == "False" and not (found or {})["status"].get(
        "clusterName"
    )


def left_in_the_cloud(pair: Clusters) -> list[str]:
    """Jobs, workloads and pods that are there."""
    kinds = (JOBSETS, WORKLOADS, ("v1", "Pod"))
    found = [each for kind in kinds for each in pair.cloud.objects.list(*kind, NAMESPACE)]
    return [each["metadata"]["name"] for each in found]


def reached_again(pair: Clusters) -> None:
    """Renew the token: Kueue tries at once then, instead of after minutes."""
    pair.home.apply([secret_of(account_of(pair.cloud, pair.line))])
    eventually("the worker is reached", lambda: worker_is(pair.home, "True"))


def test_a_worker_that_is_cut_off_goes_on_and_its_job_is_taken_up_again(pair: Clusters) -> None:
    """Whether the job waits again meanwhile, or stays admitted, is Kueue's: 0.19.2 does both."""
    pod = runs_in_the_cloud(pair, "cut")
    pair.line.cut()
    since = time.monotonic()
    try:
        eventually("home takes the worker for lost", lambda: worker_is(pair.home, "False"))
        print(f"\nfrom the cut until home knows: {seconds(since)}")
        time.sleep(2 * LOST_SECONDS)
        print(f"its job waits again: {given_back(pair.home, 'cut')}")
        assert is_running(pair.cloud, "cut", pod)
    finally:
        pair.line.mend()
    since = renewed = time.monotonic()
    reached_again(pair)

    def sent_again() -> bool:
        """Under load Kueue was seen to miss one renewal of the token.

        It was once seen to let four minutes pass as well: a worker that took nothing is asked
        again after five.
        """
        nonlocal renewed
        if time.monotonic() - renewed > RENEW_SECONDS:
            renewed = time.monotonic()
            reached_again(pair)
        return sent_to(pair, "cut") == "cloud"

    wait_for(sent_again, "home knows where", ASKED_AGAIN_SECONDS)
    eventually("it runs there", lambda: len(pods(pair.cloud, "cut")) == 1)
    print(f"from the mend until it runs: {seconds(since)}; "
          f"the same pod: {is_running(pair.cloud, 'cut', pod)}")  # fmt: skip


def test_a_job_brought_home_from_a_lost_worker_runs_twice_until_that_is_back(
    pair: Clusters,
) -> None:
    pod = runs_in_the_cloud(pair, "home")
    pair.line.cut()
    since = time.monotonic()
    try:
        eventually("home takes the worker for lost", lambda: worker_is(pair.home, "False"))
        moved(pair.home, "home", simulated(job("home")))
        eventually("it runs at home", lambda: len(pods(pair.home, "home")) == 1)
        print(f"\nfrom the cut to pods at home: {seconds(since)}")
        # The risk that the page names: nobody can tell the other cluster.
        assert is_running(pair.cloud, "home", pod)
        (at_home,) = pods(pair.home, "home")
    finally:
        pair.line.mend()
    since = time.monotonic()
    reached_again(pair)
    eventually("what was left in the cloud is removed", lambda: not left_in_the_cloud(pair))
    print(f"from the mend until the copy is gone: {seconds(since)}")
    assert is_running(pair.home, "home", at_home)


def test_a_renewed_kubeconfig_is_taken_under_a_running_job_and_a_bad_one_is_told(
    pair: Clusters,
) -> None:
    pod = runs_in_the_cloud(pair, "renewed")
    good = account_of(pair.cloud, pair.line)
    known = json.loads(good)
    known["users"][0]["user"]["token"] = "expired." * 3
    pair.home.apply([secret_of(json.dumps(known))])
    try:
        eventually("a bad token is told", lambda: worker_is(pair.home, "False"))
        found = pair.home.objects.get("kueue.x-k8s.io/v1beta2", "MultiKueueCluster", "cloud")
        (said,) = [each for each in (found or {})["status"]["conditions"]
                   if each["type"] == "Active"]  # fmt: skip
        assert said["reason"] == "ClientConnectionFailed"
        assert "provide credentials" in said["message"], said
    finally:
        pair.home.apply([secret_of(good)])
    eventually("the new one is taken", lambda: worker_is(pair.home, "True"))
    assert is_running(pair.cloud, "renewed", pod)
    assert sent_to(pair, "renewed") == "cloud"
    reached_again(pair)
    assert is_running(pair.cloud, "renewed", pod)


def serving(
    region: str, replicas: int, package: str = "", registry: str = ""
) -> list[dict[str, Any]]:
    """A service with its pods, as it stands in both clusters.

    Args:
        region: the cluster's.
        replicas: how many.
        package: digest of the package that it mounts; none by default.
        registry: the cluster's own, where that is.
    """
    image = {"reference": f"{registry}/models/credit@{package}", "pullPolicy": "IfNotPresent"}
    volumes = [{"name": "package", "image": image}] if package else []
    labels = {"app": "serving"}
    spec = pod_spec({"cpu": "1", "memory": "1Gi"}, tolerations=[], restartPolicy="Always",
                    serviceAccountName="default", nodeSelector={REGION: region},
                    volumes=volumes)  # fmt: skip
    return [{
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "serving", "namespace": SERVING},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": spec}},
    }]  # fmt: skip


def ready(plane: ControlPlane) -> int:
    found = plane.objects.get("apps/v1", "Deployment", "serving", SERVING) or {}
    return int(found.get("status", {}).get("readyReplicas", 0))


@pytest.fixture
def stored(tmp_path: Path) -> Generator[Registries]:
    with registries(tmp_path) as found:
        yield found


def test_home_is_lost_and_what_is_in_the_worker_goes_on_until_home_is_back(
    pair: Clusters, stored: Registries
) -> None:
    package = stored.publish("first")
    done = stored.copy()
    assert done["recoveryPointSeconds"] == 0
    print(f"\na package copied to the second registry: {done['seconds']:.1f} s")
    for plane, region, registry in (
        (pair.home, SITE.region, HOME_REGISTRY), (pair.cloud, CLOUD.region, CLOUD_REGISTRY),
    ):  # fmt: skip
        plane.apply(serving(region, 1, package, registry))
        eventually("it serves", lambda plane=plane: ready(plane) == 1)
    pod = runs_in_the_cloud(pair, "lasting", duration="15s")
    # Published after the last copy: what the loss costs.
    newer = stored.publish("second")
    behind = stored.copy("--dry-run", status=3)
    print(f"recovery point when home is lost: {behind['recoveryPointSeconds']:.1f} s")
    since = time.monotonic()
    pair.home.take_away()
    stored.lose_the_first()
    try:
        assert is_running(pair.cloud, "lasting", pod)
        assert ready(pair.cloud) == 1
        pair.cloud.apply(serving(CLOUD.region, 2, package, CLOUD_REGISTRY))
        eventually("more serve in the cloud", lambda: ready(pair.cloud) == 2)
        opened = stored.opened_at_the_second(package)
        assert (opened.version, opened.read("model.onnx")) == (1, b"weightsfirst")
        print(f"from the loss of home to its package, opened elsewhere: {seconds(since)}")
        assert stored.has_lost_the_first()
        assert not stored.is_at_the_second(newer)
        print(f"\nfrom the loss of home to another pod that serves elsewhere: {seconds(since)}")
        eventually("the job ends", lambda: state(pair.cloud, "lasting") == "Completed")
        print(f"from the loss of home to the end of its job in the worker: {seconds(since)}")
    finally:
        since = time.monotonic()
        pair.home.bring_back()
    print(f"until home is back: {seconds(since)}")
    eventually("its state comes back", lambda: state(pair.home, "lasting") == "Completed")
    print(f"until home knows how its job ended: {seconds(since)}")
    eventually("home serves as before", lambda: ready(pair.home) == 1)
    assert not pods(pair.home, "lasting")
    for plane in (pair.home, pair.cloud):
        plane.objects.delete("apps/v1", "Deployment", "serving", SERVING)


def test_a_worker_is_lost_and_its_job_runs_at_home_and_once_when_it_is_back(
    pair: Clusters,
) -> None:
    runs_in_the_cloud(pair, "killed")
    since = time.monotonic()
    pair.cloud.take_away()
    try:
        eventually("home takes the worker for lost", lambda: worker_is(pair.home, "False"))
        moved(pair.home, "killed", simulated(job("killed")))
        eventually("it runs at home", lambda: len(pods(pair.home, "killed")) == 1)
        print(f"\nfrom the loss of the worker to pods at home: {seconds(since)}")
        (at_home,) = pods(pair.home, "killed")
    finally:
        since = time.monotonic()
        pair.cloud.bring_back()
    reached_again(pair)
    eventually("what was left in the cloud is removed", lambda: not left_in_the_cloud(pair))
    print(f"from the worker's return until nothing of it is left there: {seconds(since)}")
    assert is_running(pair.home, "killed", at_home)


def test_a_worker_is_drained_before_it_is_taken_away(pair: Clusters) -> None:
    pod = runs_in_the_cloud(pair, "drained")
    try:
        pair.home.apply(burst_queue("Hold"))
        pair.home.apply(simulated(job("held", queue="burst")))
        eventually("no more is sent", lambda: waits(pair.home, "held", NAMESPACE))
        assert is_running(pair.cloud, "drained", pod)
        pair.home.apply(burst_queue("HoldAndDrain"))
        eventually("it waits", lambda: waits(pair.home, "drained", NAMESPACE))
        eventually("nothing of it is left in the cloud", lambda: not left_in_the_cloud(pair))
    finally:
        pair.home.apply(burst_queue("None"))
    for name in ("drained", "held"):
        eventually("it is sent", lambda name=name: len(pods(pair.cloud, name)) == 1)
