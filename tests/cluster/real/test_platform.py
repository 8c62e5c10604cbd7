"""A platform whose controllers, trainings and services are containers on real machines.

The stack `real-cluster` as it ships: Kueue and JobSet are pods under the platform's policies. The
images are those that `falaj cluster load` makes; everything is pulled by digest from the registry
beside the control plane.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.controlplane.addons import REAL_DEFINITIONS
from falaj.engine.controlplane.machine_network import MACHINES
from falaj.engine.controlplane.objects import wait_for
from falaj.sandbox.activation import CLUSTER_VARIABLE
from tests.cluster.real.platform import (
    FLAVOR,
    STACK,
    Operators,
    Platform,
    claims,
    load_images,
    module,
    packed,
    tenants_pod,
    token,
    workloads,
)
from tests.cluster.real.realm import probe, realm_with
from tests.ports import free_port
from tests.stacks.conftest import Project, copy_project

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]
TRAINING, SERVING, OTHERS = "acme-training", "acme-serving", "bank-serving"
ISSUER = "https://login.example.ae"
EPOCHS = 60


@pytest.fixture(scope="module")
def platform(
    tmp_path_factory: pytest.TempPathFactory, charts_of_modules: Path
) -> Generator[Platform]:
    folder = tmp_path_factory.mktemp("platform")
    (folder / "home").mkdir()
    project = Project(copy_project(folder / "project"), folder / "home", "local", free_port())
    with (
        realm_with(folder / "plane", machines=2, crds=REAL_DEFINITIONS) as realm,
        pytest.MonkeyPatch.context() as patched,
    ):
        made = Platform(realm, project, folder)
        patched.setenv(CLUSTER_VARIABLE, str(realm.plane.kubeconfig))
        patched.setenv("FALAJ_CHARTS", str(charts_of_modules))
        patched.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
        load_images(made)
        made.up(STACK)
        yield made
        project.sweep()


def test_controllers_run_under_the_platform_s_policies(platform: Platform) -> None:
    for namespace in ("kueue-system", "jobset-system"):
        pods = platform.plane.objects.list("v1", "Pod", namespace)
        assert len(pods) == 2
        platform.realm.wait_ready(
            *(each["metadata"]["name"] for each in pods), namespace=namespace
        )
        for each in pods:
            [container] = each["spec"]["containers"]
            assert "@sha256:" in container["image"]
            assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert "created" not in platform.up(STACK).partition("resources: ")[2].split("\n")[0]


def test_an_api_that_pods_serve_is_asked_by_the_api_server(platform: Platform) -> None:
    """Else no namespace could ever be deleted."""

    def available() -> bool:
        states = [
            condition["status"]
            for each in platform.plane.objects.list("apiregistration.k8s.io/v1", "APIService")
            if "visibility.kueue.x-k8s.io" in each["metadata"]["name"]
            for condition in each.get("status", {}).get("conditions", [])
            if condition["type"] == "Available"
        ]
        return len(states) == 2 and set(states) == {"True"}

    wait_for(available, "Kueue's own API is available", 60)


@pytest.fixture(scope="module")
def ring(platform: Platform) -> Path:
    """A key ring of the team's, outside of the cluster."""
    path = platform.folder / "ring"
    module(platform.project, "registry", "keyring", "create", "--path", str(path))
    return path


@pytest.fixture(scope="module")
def dataset(platform: Platform, ring: Path) -> str:
    """A sealed snapshot in the claim `data`; its folder's name."""
    platform.plane.apply(claims(TRAINING, ("data", "runs")))
    told = module(
        platform.project, "training", "dataset", "--source", "digits", "--json",
        "--keyring", str(ring), "--output", str(platform.folder / "snapshots"),
    )  # fmt: skip
    snapshot = Path(json.loads(told)["path"])
    assert list(snapshot.glob("*.sealed"))
    held = volume(platform, "data")
    shutil.copytree(snapshot, held / snapshot.name)
    for path in (held / snapshot.name, *(held / snapshot.name).iterdir()):
        os.chown(path, 65532, 65532)
    return snapshot.name


def volume(platform: Platform, claim: str) -> Path:
    """The folder behind a claim."""

    def name() -> str | None:
        found = platform.plane.objects.get("v1", "PersistentVolumeClaim", claim, TRAINING)
        return found and found["spec"].get("volumeName")

    wait_for(lambda: name() is not None, f"the claim {claim} has a volume")
    return platform.plane.files.folder / "volumes" / str(name())


def ended(platform: Platform, pod: str, namespace: str, seconds: float = 120) -> None:
    """Wait until a pod has succeeded."""

    def phase() -> str:
        return str(platform.realm.pod(pod, namespace).get("status", {}).get("phase"))

    try:
        wait_for(lambda: phase() in ("Succeeded", "Failed"), f"{pod} has ended", seconds)
    except TimeoutError as error:
        state = platform.realm.state(pod, namespace)
        raise AssertionError(f"{error}: {state}\n{platform.realm.events(namespace)}") from error
    assert phase() == "Succeeded", platform.realm.log(pod, namespace)


def gang(platform: Platform, attempt: int) -> dict[str, str]:
    """Machines of the pods of an attempt, by the pods' names."""
    key = "jobset.sigs.k8s.io/restart-attempt"
    return {
        each["metadata"]["name"]: each["spec"].get("nodeName", "")
        for each in platform.plane.objects.list("v1", "Pod", TRAINING)
        if each["metadata"].get("labels", {}).get(key) == str(attempt)
    }


def events(platform: Platform, pods: dict[str, str]) -> list[dict[str, Any]]:
    """What the first process of a gang has told so far."""
    [first] = [each for each in pods if each.startswith("digits-node-0-0-")] or [""]
    lines = platform.realm.log(first, TRAINING).splitlines() if first else []
    return [json.loads(each) for each in lines if each.startswith("{") and each.endswith("}")]


MODEL = "digits"


@pytest.fixture(scope="module")
def keys(platform: Platform, ring: Path) -> Generator[None]:
    """The secret store's entries of the team's ring: for who trains and serves, and who signs."""
    entries = {
        "acme/training-keys": packed(platform.project, ring),
        "acme/publishing-keys": packed(platform.project, ring, "--signs"),
    }
    with Operators(platform.plane, entries):
        yield


def training(
    platform: Platform, dataset: str, epochs: int, *, name: str = "digits", **publish: Any
) -> None:
    """Bring the team's stack up with a job of two pods that publishes what it trained.

    Other parameters are another run, in a folder of its own: the job's name.
    """
    job = {
        "keySecret": "acme/training-keys",
        "dataset": dataset, "data": "data", "checkpoints": "runs", "flavor": FLAVOR, "nodes": 2,
        "cpus": 0.5, "memoryGib": 2, "sharedMemoryGib": 0.5, "scratchGib": 1,
        "arguments": ["--epochs", str(epochs), "--patience", str(epochs), "--threads", "1"],
        "publish": {
            "model": MODEL, "keySecret": "acme/publishing-keys", "leastAccuracy": 0.8,
            "cpus": 0.5, "memoryGib": 2, "scratchGib": 1,
            "registryCidrs": [f"{MACHINES[1]}/32"],
            "registryAuthority": platform.plane.files.authority.read_text(),
            **publish,
        },
    }  # fmt: skip
    platform.write("real-training", workloads(platform, trainingJobs={name: job}))
    platform.up("real-training")


def of_publication(platform: Platform) -> list[dict[str, Any]]:
    """The pods that judge, sign and send."""
    key = "jobset.sigs.k8s.io/replicatedjob-name"
    return [
        each for each in platform.plane.objects.list("v1", "Pod", TRAINING)
        if each["metadata"].get("labels", {}).get(key) == "publish"
    ]  # fmt: skip


def delivered(platform: Platform, version: int) -> dict[str, Any]:
    """Wait until a version was delivered; what its pod said of it."""

    def said() -> dict[str, Any] | None:
        for pod in of_publication(platform):
            name = pod["metadata"]["name"]
            assert pod["status"].get("phase") != "Failed", [
                platform.realm.log(name, TRAINING, container=each)
                for each in ("keys", "optimise", "signing-keys", "publish")
            ]
            lines = platform.realm.log(name, TRAINING, container="publish").splitlines()
            for line in lines:
                if line.startswith("{") and json.loads(line)["version"] == version:
                    return json.loads(line)
        return None

    wait_for(lambda: said() is not None, f"version {version} is delivered", 300)
    found = said()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def trained(platform: Platform, dataset: str, keys: None) -> dict[str, Any]:
    """Two pods train, one of them is taken away, the gang goes on, and version 1 is delivered."""
    training(platform, dataset, EPOCHS)

    def epoch(attempt: int) -> int:
        return max(
            (each["epoch"] for each in events(platform, gang(platform, attempt))), default=0
        )

    def trained() -> bool:
        states = [
            platform.realm.pod(each, TRAINING).get("status", {}) for each in gang(platform, 0)
        ]
        assert not [each for each in states if each.get("phase") == "Failed"], states
        return epoch(0) >= 3

    wait_for(trained, "three epochs are done", 240)
    pods = gang(platform, 0)
    assert len(set(pods.values())) == 2, pods
    [second] = [each for each in pods if each.startswith("digits-node-0-1-")]
    reached = epoch(0)
    assert of_publication(platform) == []
    platform.realm.api.delete_namespaced_pod(second, TRAINING, grace_period_seconds=0)

    def finished() -> bool:
        told = events(platform, gang(platform, 1))
        return bool(told) and told[-1]["event"] == "finished"

    wait_for(finished, "the gang is done", 300)
    told = events(platform, gang(platform, 1))
    return {"reached": reached, "told": told, "version": delivered(platform, 1)}


def test_a_gang_on_two_machines_goes_on_where_it_was_killed(
    platform: Platform, trained: dict[str, Any]
) -> None:
    first, last = trained["told"][0], trained["told"][-1]
    assert first["event"] == "resume"
    assert trained["reached"] - 2 <= first["epoch"] < EPOCHS, first
    assert first["epoch"] > 0
    assert last["epoch"] == EPOCHS
    assert last["accuracy"] > 0.9
    run = volume(platform, "runs") / "digits"
    assert {path.name for path in run.glob("*.sealed")} == {"checkpoint.sealed", "model.sealed"}
    assert not list(run.glob("*.pt*"))


def told(said: str) -> dict[str, Any]:
    """The object that a command printed, after what it said meanwhile."""
    found: dict[str, Any] = json.loads(said[said.index("{") :])
    return found


def test_what_the_gang_trained_is_signed_and_in_the_registry(
    platform: Platform, ring: Path, trained: dict[str, Any]
) -> None:
    assert trained["version"]["created"]
    words = ("--stack", STACK, "--json")
    listed = platform.falaj("models", "aliases", platform.registry, MODEL, *words, "--verify-key",
                            str(ring / "signing.pub.pem"))  # fmt: skip
    [alias] = told(listed)["aliases"]
    assert (alias["alias"], alias["version"], alias["expired"]) == ("candidate", 1, False)
    assert alias["image"] == trained["version"]["packageDigest"]
    verified = platform.falaj("models", "verify", platform.registry, MODEL, *words, "--keyring",
                              str(ring))  # fmt: skip
    assert told(verified)["version"] == 1
    jobs = platform.plane.objects.list("jobset.x-k8s.io/v1alpha2", "JobSet", TRAINING)
    wait_for(
        lambda: any(
            each["type"] == "Completed" and each["status"] == "True"
            for each in platform.plane.objects.get(
                "jobset.x-k8s.io/v1alpha2", "JobSet", jobs[0]["metadata"]["name"], TRAINING
            )["status"]["conditions"]
        ),
        "the set of jobs is done",
        60,
    )


_ASK = """
import json, signal, socket, ssl, sys, time, urllib.error, urllib.request
context = ssl.create_default_context(cadata=CA)
context.minimum_version = ssl.TLSVersion.TLSv1_3
headers = {"Authorization": "Bearer " + TOKEN} if TOKEN else {}
inputs = [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}]
def ask():
    request = urllib.request.Request(
        "https://digits.acme-serving.svc:8443/v2/models/digits/infer",
        json.dumps({"inputs": inputs}).encode(), headers)
    try:
        with urllib.request.urlopen(request, context=context, timeout=5) as answer:
            return [answer.status, json.load(answer)["model_version"]]
    except urllib.error.HTTPError as error:
        return [error.code, ""]
    except OSError as error:
        return [0, repr(error)]
"""
_ONCE = "print(json.dumps(ask()))"
_ALWAYS = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
while True:
    print(json.dumps(ask()))
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def served(platform: Platform, ring: Path, trained: dict[str, Any]) -> dict[str, Any]:
    """Version 1, which the cluster trained and published, is served; its service's settings."""
    service = {
        "model": MODEL, "packageName": f"models/{MODEL}", "keySecret": "acme/training-keys",
        "tokenIssuer": ISSUER, "cpus": 0.5, "memoryMib": 512, "minReplicas": 1,
        "callers": [{"namespace": SERVING, "serviceAccount": "scoring"}],
        "versions": [{"version": 1, "weight": 100, "packageDigest": f"sha256:{'0' * 64}",
                      "keysDigest": f"sha256:{'0' * 64}"}],
    }  # fmt: skip
    platform.write("real-serving", workloads(platform, inferenceServices={"digits": service}))
    account = {"name": "scoring", "namespace": SERVING}
    platform.plane.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}])
    serve_candidate(platform, ring)
    return service


def serve_candidate(platform: Platform, ring: Path) -> None:
    """Let the service have what the alias stands for, and bring it up."""
    platform.falaj(
        "models", "pin", platform.registry, MODEL, "--alias", "candidate", "--verify-key",
        str(ring / "signing.pub.pem"), "--stack", "real-serving",
    )  # fmt: skip
    platform.up("real-serving")


def caller(platform: Platform, name: str, namespace: str, token: str, program: str) -> None:
    authority = platform.plane.files.authority.read_text()
    text = f"CA = {authority!r}\nTOKEN = {token!r}\n{_ASK}\n{program}"
    account = {"serviceAccountName": "scoring"} if namespace == SERVING else {}
    pod = probe(
        name, namespace, platform.image("falaj-inference"), text, command=("python", "-c"),
        **account,
    )  # fmt: skip
    platform.plane.apply([tenants_pod(pod)])


def answers(platform: Platform, name: str, namespace: str) -> list[list[Any]]:
    lines = platform.realm.log(name, namespace).splitlines()
    return [json.loads(each) for each in lines if each.startswith("[") and each.endswith("]")]


def valid(platform: Platform, ring: Path) -> str:
    return token(platform.project, ring, ISSUER, "falaj:acme:digits")


def test_who_may_call_gets_answers_and_nobody_else(
    platform: Platform, ring: Path, served: dict[str, Any]
) -> None:
    right = valid(platform, ring)
    wrong = token(platform.project, ring, ISSUER, "falaj:bank:digits")
    for name, namespace, given in (
        ("scoring", SERVING, right),
        ("nameless", SERVING, ""),
        ("astray", SERVING, wrong),
        ("foreign", OTHERS, right),
    ):
        caller(platform, name, namespace, given, _ONCE)
        ended(platform, name, namespace)
    assert answers(platform, "scoring", SERVING) == [[200, "1"]]
    assert answers(platform, "nameless", SERVING) == [[401, ""]]
    assert answers(platform, "astray", SERVING) == [[401, ""]]
    # By the network: it doesn't even get a connection.
    [[status, said]] = answers(platform, "foreign", OTHERS)
    assert status == 0
    assert "refused" in said or "timed out" in said


def test_another_version_takes_over_without_a_failed_request(
    platform: Platform, ring: Path, dataset: str, served: dict[str, Any]
) -> None:
    caller(platform, "always", SERVING, valid(platform, ring), _ALWAYS)
    wait_for(lambda: answers(platform, "always", SERVING), "the first is answered", 60)
    training(platform, dataset, 12, name="digits-again")
    assert delivered(platform, 2)["created"]
    serve_candidate(platform, ring)
    wait_for(
        lambda: answers(platform, "always", SERVING)[-1] == [200, "2"], "version 2 answers", 60
    )
    time.sleep(3)
    told = answers(platform, "always", SERVING)
    counted = Counter((status, said) for status, said in told)
    assert set(counted) == {(200, "1"), (200, "2")}, counted
    assert told == sorted(told), "nobody goes back to the older version"
    platform.realm.api.delete_namespaced_pod("always", SERVING, grace_period_seconds=1)


def test_a_model_that_does_not_pass_the_gate_is_not_delivered(
    platform: Platform, dataset: str, ring: Path, served: dict[str, Any]
) -> None:
    training(platform, dataset, 1, name="digits-hasty", leastAccuracy=0.99)

    def failed() -> str:
        for pod in of_publication(platform):
            if pod["status"].get("phase") == "Failed":
                return platform.realm.log(pod["metadata"]["name"], TRAINING, container="optimise")
        return ""

    wait_for(lambda: bool(failed()), "the gate refuses", 240)
    assert "doesn't pass the gate: held-out accuracy" in failed()
    listed = platform.falaj("models", "list", platform.registry, MODEL, "--json", "--stack", STACK)
    [model] = told(listed)["models"]
    assert len(model["versions"]) == 2


def test_nothing_of_it_is_left_but_what_is_the_teams(
    platform: Platform, served: dict[str, Any]
) -> None:
    platform.down("real-training")
    platform.down("real-serving")
    left = platform.plane.objects.list("apps/v1", "Deployment", SERVING)
    assert left == []
    pods = platform.plane.objects.list("v1", "Pod", SERVING)
    assert not [each for each in pods if each["metadata"]["name"].startswith("digits-")]


def test_the_platform_goes_with_the_namespaces_of_its_tenants(
    platform: Platform, served: dict[str, Any]
) -> None:
    platform.down(STACK)
    names = [
        each["metadata"]["name"]
        for group, kind in (("v1", "Namespace"), ("apiregistration.k8s.io/v1", "APIService"))
        for each in platform.plane.objects.list(group, kind)
    ]
    gone = (TRAINING, SERVING, OTHERS, "kueue-system", "v1beta1.visibility.kueue.x-k8s.io")
    assert not set(gone) & set(names)
