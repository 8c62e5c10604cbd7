"""Sweeps: what is refused, and a job whose indexes are trials."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes import sweep
from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.training.command import build_parser
from falaj.workloads.training.sweep import spaces
from tests.components.kubernetes.cluster_parts import difference, same_as_golden, shown
from tests.components.kubernetes.training_jobs import (
    CPU,
    PLACES,
    arguments,
    container_of,
    findings,
    the,
)

SEARCH = {"learning_rate": "1e-4..1e-1:log", "width": "8|16|32"}


def rendered(place: str = "existing", **changes: Any) -> list[Manifest]:
    given = {**arguments(place, **CPU), "search": SEARCH, **changes}
    return sweep.manifests(sweep.check("tuning", given))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"search": None}, "search: missing"),
        ({"search": {}}, "at least one parameter"),
        ({"search": {"learning rate": "1..2"}}, "1e-4..1e-1"),
        ({"search": {"width": " "}}, "8|16|32"),
        ({"search": {"width": "8"}}, "8|16|32"),
        ({"trials": 0}, "from 1 to 1000"),
        ({"parallel": 129}, "from 1 to 128"),
        ({"pruner": "random"}, "median, hyperband, none"),
        ({"trails": 3}, "did you mean 'trials'?"),
        ({"nodes": 2}, "is not an argument of SweepArgs"),
        ({"recompute": "layers"}, "is not an argument of SweepArgs"),
        ({"parallel": {"shard": 2}}, "parallel: given {'shard': 2}; allowed: a whole number"),
        ({"arguments": ["--output", "x"]}, "set by the component"),
        ({"arguments": ["--outp=x"]}, "set by the component"),
        ({"arguments": ["--keyring", "/keys"]}, "pods have no key ring"),
        ({"key_secret": "bank/training-keys"}, "entries of the tenant: acme/"),
        ({"secret_store": "falaj"}, "is where key_secret is"),
        ({"arguments": ["--seed=3"]}, "argument 'seed' of a sweep"),
        ({"arguments": ["--see", "3"]}, "argument 'seed' of a sweep"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        rendered(**changes)
    assert reason in str(refused.value)


def test_trials_have_the_key_ring_in_memory_and_seal_with_it() -> None:
    objects = rendered(key_secret="acme/training-keys")
    [data] = the("ExternalSecret", objects)["spec"]["data"]
    assert data["remoteRef"]["key"] == "acme/training-keys"
    pod = the("Job", objects)["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["keys"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["keys"]["emptyDir"]["medium"] == "Memory"
    assert volumes["secret"]["secret"]["secretName"] == "tuning-keys"
    command = container_of(objects)["command"]
    of_run = command[command.index("--") :]
    assert of_run[of_run.index("--keyring") + 1] == "/run/falaj/keys/keyring"
    assert findings(objects) == []
    assert "--keyring" not in container_of(rendered())["command"]


def test_each_index_is_a_trial_that_fails_alone() -> None:
    job = the("Job", rendered(trials=12, parallel=3, retries=1))
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"]) == (12, 3)
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (1, 12)
    assert "backoffLimit" not in spec
    actions = [rule["action"] for rule in spec["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "Ignore", "FailIndex"]
    assert job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] == "1"


def test_no_more_run_at_a_time_than_there_are() -> None:
    assert the("Job", rendered(trials=2, parallel=8))["spec"]["parallelism"] == 2


def test_the_command_is_one_that_the_training_understands() -> None:
    command = container_of(rendered(arguments=["--epochs", "20"]))["command"]
    assert command[:3] == ["python", "-m", "falaj.workloads.training"]
    options = build_parser().parse_args(command[3:])
    assert set(spaces(options.search)) == set(SEARCH)
    assert options.run_options[-2:] == ["--epochs", "20"]
    run = ["run", "--dataset", "d", "--output", "o", *options.run_options]
    assert build_parser().parse_args(run).epochs == 20


def test_the_manifests_are_the_reviewed_ones_and_platforms_differ_where_they_must() -> None:
    here = shown(rendered())
    same_as_golden("sweep-existing.yaml", here)
    for place in ("eks", "aks"):
        same_as_golden(f"sweep-{place}.diff", difference(here, shown(rendered(place))))


@pytest.mark.parametrize("place", PLACES)
def test_every_policy_pack_is_met(place: str) -> None:
    assert findings(rendered(place)) == []
