"""A platform whose controllers, trainings and services are containers on real machines.

The stack `real-cluster` as it ships: Kueue and JobSet are pods under the platform's policies. The
images are those that `falaj cluster load` makes; everything is pulled by digest from the registry
beside the control plane.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.real.platform import STACK, Platform, token
from tests.cluster.real.realm import wait_for
from tests.cluster.real.team import (
    ALWAYS,
    EPOCHS,
    ISSUER,
    MODEL,
    ONCE,
    OTHERS,
    SERVING,
    TRAINING,
    answers,
    caller,
    delivered,
    ended,
    of_publication,
    promote,
    told,
    training,
    valid,
    volume,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


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
    again = platform.preview(STACK)
    assert "unchanged" in again
    assert "to create" not in again


def test_images_that_are_there_are_neither_built_nor_pushed_again(platform: Platform) -> None:
    again = platform.falaj("cluster", "load", "--stack", STACK)
    assert again.count("is there: sha256:") == 4, again
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


def test_another_version_takes_over_without_a_failed_request(
    platform: Platform, ring: Path, served: dict[str, Any], swept: dict[str, Any]
) -> None:
    """What the best trial of a sweep tried is what the other version was trained with."""
    caller(platform, "always", SERVING, valid(platform, ring), ALWAYS)
    wait_for(lambda: answers(platform, "always", SERVING), "the first is answered")
    training(platform, 12, "digits-again", swept["best"]["arguments"])
    assert delivered(platform, 2)["created"]
    promote(platform, ring, 2)
    wait_for(lambda: answers(platform, "always", SERVING)[-1] == [200, "2"], "version 2 answers")
    time.sleep(3)
    told = answers(platform, "always", SERVING)
    counted = Counter((status, said) for status, said in told)
    assert set(counted) == {(200, "1"), (200, "2")}, counted
    assert told == sorted(told), "nobody goes back to the older version"
    platform.realm.api.delete_namespaced_pod("always", SERVING, grace_period_seconds=1)


def test_a_model_that_does_not_pass_the_gate_is_not_delivered(
    platform: Platform, served: dict[str, Any]
) -> None:
    training(platform, 1, "digits-hasty", leastAccuracy=0.99)

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
