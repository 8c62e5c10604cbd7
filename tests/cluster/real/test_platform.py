"""A platform whose controllers, trainings and services are containers on real machines.

The stack `real-cluster` as it ships: Kueue, JobSet and Trainer are pods under the platform's
policies. The images are those that `falaj cluster load` makes; everything is pulled by digest from
the registry beside the control plane.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.real.platform import STACK, Platform, token
from tests.cluster.real.realm import wait_for
from tests.cluster.real.team import (
    ALWAYS,
    AUDIT,
    DRIFTING,
    EPOCHS,
    FAILING,
    ISSUER,
    MODEL,
    ONCE,
    OTHERS,
    PASSING,
    SERVING,
    TEAM,
    TRAINING,
    answers,
    caller,
    delivered,
    ended,
    of_publication,
    propose,
    told,
    training,
    valid,
    volume,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


def test_controllers_run_under_the_platform_s_policies(platform: Platform) -> None:
    for namespace in ("kueue-system", "jobset-system", "kubeflow-system"):
        pods = platform.plane.objects.list("v1", "Pod", namespace)
        assert len(pods) == 2
        platform.realm.wait_ready(
            *(each["metadata"]["name"] for each in pods), namespace=namespace
        )
        for each in pods:
            [container] = each["spec"]["containers"]
            assert "@sha256:" in container["image"]
            assert not container["securityContext"]["allowPrivilegeEscalation"]
    again = platform.preview(STACK)
    assert "unchanged" in again
    assert "to create" not in again


def test_images_that_are_there_are_neither_built_nor_pushed_again(platform: Platform) -> None:
    again = platform.falaj("cluster", "load", "--stack", STACK)
    assert again.count("is there: sha256:") == 5, again
    assert "nothing had to be pushed" in again
    assert "building" not in again


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

    wait_for(available, "Kueue's own API is available")


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
    )


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
        caller(platform, name, namespace, given, ONCE)
        ended(platform, name, namespace)
    assert answers(platform, "scoring", SERVING) == [[200, "1"]]
    assert answers(platform, "nameless", SERVING) == [[401, ""]]
    assert answers(platform, "astray", SERVING) == [[401, ""]]
    # By the network: it doesn't even get a connection.
    [[status, said]] = answers(platform, "foreign", OTHERS)
    assert status == 0
    assert "refused" in said or "timed out" in said


def of_serving(platform: Platform, component: str) -> list[str]:
    """Names of the pods beside the service's replicas that are there for something."""
    return [
        each["metadata"]["name"]
        for each in platform.plane.objects.list("v1", "Pod", SERVING)
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component
    ]


def test_a_pod_beside_the_service_tells_that_what_is_asked_has_drifted(
    platform: Platform, ring: Path, served: dict[str, Any]
) -> None:
    [watch] = of_serving(platform, "watch")
    platform.realm.wait_ready(watch, namespace=SERVING)
    caller(platform, "drifting", SERVING, valid(platform, ring), DRIFTING)

    def told_of() -> list[list[str]]:
        lines = platform.realm.log(watch, SERVING).splitlines()
        events = [json.loads(each) for each in lines if each.startswith("{")]
        return [each["drifted"] for each in events if each["event"] == "drift"]

    try:
        wait_for(told_of, "the watch tells of it")
    except TimeoutError as error:
        said = platform.realm.log(watch, SERVING)
        raise AssertionError(f"{error}\n{said}\n{platform.realm.events(SERVING)}") from error
    assert {"input image: mean", "answers"} < set(told_of()[0])
    asked = answers(platform, "drifting", SERVING)
    platform.realm.api.delete_namespaced_pod("drifting", SERVING, grace_period_seconds=0)
    assert [status for status, _ in asked] == [200] * len(asked)
    kept = volume(platform, AUDIT, SERVING) / MODEL / "watch" / "own"
    assert (kept / "signal.json").is_file()


@pytest.fixture(scope="module")
def candidate(platform: Platform, served: dict[str, Any], swept: dict[str, Any]) -> int:
    """A version of what the best trial of a sweep tried, which nobody serves yet."""
    training(platform, 12, "digits-again", swept["best"]["arguments"])
    assert delivered(platform, 2)["created"]
    return 2


@pytest.fixture(scope="module")
def tried(platform: Platform, ring: Path, candidate: int) -> int:
    """The next `up`, whatever it is for, tries the candidate; somebody calls all the while."""
    caller(platform, "always", SERVING, valid(platform, ring), ALWAYS)
    wait_for(lambda: answers(platform, "always", SERVING), "the first is answered")
    training(platform, 1, "digits-hasty", leastAccuracy=0.99)
    return candidate


def test_a_judge_withdraws_a_canary_whose_requests_fail(
    platform: Platform, ring: Path, tried: int
) -> None:
    """No gateway gives requests out here: the test calls each version's own service."""
    caller(platform, "failing", SERVING, valid(platform, ring), FAILING)
    try:
        said = judged(platform)
    finally:
        platform.realm.api.delete_namespaced_pod("failing", SERVING, grace_period_seconds=0)
    assert (said["verdict"], said["alias"], said["version"]) == ("withdrawn", "candidate", 1)
    assert said["why"].startswith("missed errors")
    words = ("--stack", STACK, "--json", "--verify-key", str(ring / "signing.pub.pem"))
    listed = told(platform.falaj("models", "aliases", platform.registry, MODEL, *words))
    assert [each["version"] for each in listed["aliases"] if each["alias"] == "candidate"] == [1]


def judged(platform: Platform) -> dict[str, Any]:
    """What the judge's pod said of the canary that is tried."""
    [judge] = of_serving(platform, "judge")
    ended(platform, judge, SERVING, 200)
    said: dict[str, Any] = json.loads(platform.realm.log(judge, SERVING).splitlines()[-1])
    return said


def test_a_canary_earns_its_requests_and_takes_over_without_a_failed_one(
    platform: Platform, ring: Path, tried: int
) -> None:
    """Who proposes it once more has it begin anew: with a tenth of the requests, then four."""
    propose(platform, ring, tried)
    caller(platform, "passing", SERVING, valid(platform, ring), PASSING)
    first = judged(platform)
    assert (first["verdict"], first["alias"], first["share"]) == ("raised", "candidate", 40)
    assert f"version {tried} of digits (candidate) has 40 %, version 1" in platform.up(TEAM)
    second = judged(platform)
    assert (second["verdict"], second["alias"]) == ("promoted", "production"), second
    assert second["version"] == tried
    platform.realm.api.delete_namespaced_pod("passing", SERVING, grace_period_seconds=0)
    platform.up(TEAM)
    wait_for(lambda: answers(platform, "always", SERVING)[-1] == [200, "2"], "version 2 answers")
    time.sleep(3)
    told = answers(platform, "always", SERVING)
    counted = Counter((status, said) for status, said in told)
    assert set(counted) == {(200, "1"), (200, "2")}, counted
    assert told == sorted(told), "nobody goes back to the older version"
    platform.realm.api.delete_namespaced_pod("always", SERVING, grace_period_seconds=1)


def test_a_model_that_does_not_pass_the_gate_is_not_delivered(
    platform: Platform, tried: int
) -> None:
    def failed() -> str:
        for pod in of_publication(platform):
            if pod["status"].get("phase") == "Failed":
                return platform.realm.log(pod["metadata"]["name"], TRAINING, container="optimise")
        return ""

    wait_for(lambda: bool(failed()), "the gate refuses")
    assert "doesn't pass the gate: held-out accuracy" in failed()
    listed = platform.falaj("models", "list", platform.registry, MODEL, "--json", "--stack", STACK)
    [model] = told(listed)["models"]
    assert len(model["versions"]) == 2
