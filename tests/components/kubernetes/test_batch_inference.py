"""Batch inference: what is refused, and a job whose indexes are shares of the rows."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes import batch_inference
from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.batch.command import parser
from falaj.workloads.registry.__main__ import parser as registry_parser
from tests.components.kubernetes.cluster_parts import difference, same_as_golden, shown
from tests.components.kubernetes.training_jobs import (
    COMMON,
    DIGEST,
    OTHER_DIGEST,
    PLACES,
    container_of,
    findings,
    the,
)

BATCH: dict[str, Any] = {
    "flavor": "cpu-x86-64",
    "inputs": ["customers/2026-11", "more.csv"],
    "data": "rows",
    "results": "scores",
    "model": "churn",
    "version": 7,
    "package_digest": DIGEST,
    "key_secret": "acme/batch-keys",
}


def rendered(place: str = "existing", **changes: Any) -> list[Manifest]:
    entry = {"key_secret": "acme--batch-keys"} if place == "aks" else {}
    given = {**COMMON, **PLACES[place], **BATCH, **entry, **changes}
    spec = batch_inference.check("scores", given)  # pyright: ignore[reportArgumentType]
    return batch_inference.manifests(spec)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"inputs": None}, "inputs: missing"),
        ({"inputs": []}, "name at least one file or folder"),
        ({"inputs": ["../other"]}, "without '..'"),
        ({"inputs": ["/etc/passwd"]}, "a path below the claim"),
        ({"data": "Not A Name"}, "data: given 'Not A Name'"),
        ({"results": "_"}, "results: given '_'"),
        ({"model": "Churn"}, "model: given 'Churn'"),
        ({"model": "a/../b"}, "model: given 'a/../b'"),
        ({"version": 0}, "version: given 0"),
        ({"package_digest": "latest"}, "a tag could be moved"),
        ({"package_digest": None}, "package_digest"),
        ({"keys_digest": "sha256:1"}, "keys_digest"),
        ({"key_secret": None}, "key_secret"),
        ({"key_secret": "bank/batch-keys"}, "entries of the tenant: acme/"),
        ({"format": "xlsx"}, "csv, jsonl, parquet"),
        ({"decimal": "dot"}, "point, comma"),
        ({"encoding": "utf 8; rm"}, "the name of an encoding"),
        ({"shares": 1_001}, "from 1 to 1000"),
        ({"parallel": 0}, "from 1 to 128"),
        ({"retries": 21}, "from 0 to 20"),
        ({"flavor": "h200"}, "nodes without GPUs"),
        ({"skip_bad_rows": "yes"}, "skip_bad_rows"),
        ({"shards": 2}, "is not an argument of BatchInferenceArgs"),
        ({"plain": True}, "is not an argument of BatchInferenceArgs"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        rendered(**changes)
    assert reason in str(refused.value)


def test_each_index_is_a_share_that_goes_on_alone() -> None:
    job = the("Job", rendered(shares=12, parallel=3, retries=1))
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"]) == (12, 3)
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (1, 12)
    rules = spec["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["Ignore", "Ignore", "FailIndex"]
    assert {r["onExitCodes"]["containerName"] for r in rules[1:]} == {"predict"}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert the("Job", rendered(shares=2, parallel=8))["spec"]["parallelism"] == 2


def test_the_commands_are_ones_that_the_workloads_understand() -> None:
    objects = rendered(
        keep=["id", "-x", "$(NODE_RANK)", "*"], encoding="windows-1256", decimal="comma",
        skip_bad_rows=True, shares=3, keys_digest=OTHER_DIGEST, format="csv",
    )  # fmt: skip
    command = container_of(objects)["command"]
    assert command[:3] == ["python", "-m", "falaj.workloads.batch"]
    options = parser().parse_args(command[3:])
    assert [str(each) for each in options.inputs] == ["/data/customers/2026-11", "/data/more.csv"]
    assert str(options.output) == "/runs/scores/share-$(NODE_RANK).csv"
    assert options.shard == "$(NODE_RANK)/3"
    assert (options.keep, options.skip_bad_rows) == (["id", "-x", "$$(NODE_RANK)", "*"], True)
    assert not options.plain
    names = [each["name"] for each in container_of(objects)["env"]]
    assert "NODE_RANK" in names
    pod = the("Job", objects)["spec"]["template"]["spec"]
    keys, package = pod["initContainers"]
    assert keys["name"] == "keys"
    taken = registry_parser().parse_args(package["command"][3:])
    assert (taken.version, str(taken.keys)) == (7, "/package-keys/keys.json")
    assert str(taken.keyring) == str(options.keyring)
    assert str(taken.registry) == str(options.registry)


def test_the_package_comes_by_its_digest_and_input_is_read_only() -> None:
    pod = the("Job", rendered())["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    reference = volumes["package"]["image"]["reference"]
    assert reference == f"registry.acme.example/falaj/models/churn@{DIGEST}"
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "rows", "readOnly": True}
    assert volumes["keys"]["emptyDir"]["medium"] == "Memory"
    [container] = pod["containers"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts["/data"]["readOnly"] is True
    assert "/package" not in mounts


def test_pods_reach_nothing_but_names() -> None:
    policy = the("NetworkPolicy", rendered())["spec"]
    assert policy["ingress"] == []
    assert len(policy["egress"]) == 1


def test_the_manifests_are_the_reviewed_ones_and_platforms_differ_where_they_must() -> None:
    here = shown(rendered())
    same_as_golden("batch-inference-existing.yaml", here)
    for place in ("eks", "aks"):
        same_as_golden(f"batch-inference-{place}.diff", difference(here, shown(rendered(place))))


@pytest.mark.parametrize("place", PLACES)
def test_every_policy_pack_is_met(place: str) -> None:
    assert findings(rendered(place)) == []
