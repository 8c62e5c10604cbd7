"""Settings of stacks inside a cluster: what names the cluster, and what components refuse."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from falaj.stacks.errors import SettingsError
from falaj.stacks.image_digests import digests
from falaj.stacks.settings import InClusterSettings, PlatformSettings, WorkloadsSettings, validate
from falaj.stacks.validation import validate_in_cluster
from tests.stacks.in_mocks import CLUSTERS, IN_CLUSTER, declare, shipped

ROOT = Path(__file__).resolve().parents[2]


WORKSPACE: dict[str, Any] = {
    "user": "alice@acme.example", "tokenSecret": "acme/workspace-alice", "flavor": "cpu-x86-64",
    "hours": 4,
}  # fmt: skip
SWEEP: dict[str, Any] = {
    "dataset": "credit-2026-10", "flavor": "cpu-x86-64", "checkpoints": "falaj-files",
    "search": {"learning_rate": "1e-4..1e-1:log", "width": "8|16|32"},
}  # fmt: skip
PIPELINE: dict[str, Any] = {
    "dataset": "credit-*", "flavor": "cpu-x86-64", "checkpoints": "falaj-files", "nodes": 2,
    "keySecret": "acme/training-keys", "controlPlaneCidrs": ["10.60.0.0/24"], "newData": {},
    "publish": {
        "model": "credit", "keySecret": "acme/publishing-keys", "registryCidrs": ["10.20.0.5/32"],
    },
}  # fmt: skip

SITE: dict[str, Any] = {
    "role": "site", "dataset": "claims-2026-10", "flavor": "cpu-x86-64",
    "checkpoints": "falaj-files", "certificateSecret": "claims-tls",
    "tokenSecret": "claims-token", "coordinator": "claims.health.example.ae:8470",
    "peerRanges": ["10.60.0.0/16"],
}  # fmt: skip
COORDINATOR: dict[str, Any] = {
    "role": "coordinator", "dataset": "claims-reference", "flavor": "cpu-x86-64",
    "checkpoints": "falaj-files", "certificateSecret": "claims-tls",
    "sites": {"dubai": "a" * 64, "sharjah": "b" * 64}, "peerRanges": ["10.60.0.0/16"],
    "address": "10.50.0.9",
}  # fmt: skip


def settings(config: dict[str, Any]) -> InClusterSettings:
    found = validate(config, ROOT, stack="dev")
    assert isinstance(found, InClusterSettings)
    return found


def check(config: dict[str, Any]) -> None:
    found = settings(config)
    validate_in_cluster(found, digests(found, ROOT, sandboxed=True).by_name)


@pytest.mark.parametrize("stack", IN_CLUSTER)
def test_shipped_stacks_are_of_their_kind_and_are_refused_nothing(stack: str) -> None:
    found = settings(shipped(stack))
    kind = WorkloadsSettings if stack.endswith("-workloads") else PlatformSettings
    assert isinstance(found, kind)
    cloud = stack.partition("-")[0]
    assert found.distribution == {"aws": "eks", "azure": "aks", "onprem": "existing"}[cloud]
    assert found.upstream == (None if cloud == "onprem" else f"{cloud}-cluster")
    check(shipped(stack))


@pytest.mark.parametrize(
    ("stack", "changes", "said"),
    [
        ("onprem-cluster", {"falaj:context": None}, "falaj:context: missing; expected the kubeco"),
        ("onprem-cluster", {"falaj:region": None}, "falaj:region: missing; expected the site"),
        ("onprem-cluster", {"falaj:cluster": "aws-cluster"}, "falaj:cluster: given 'aws-cluster'"),
        ("onprem-cluster", {"falaj:blueprint": "smb"}, "given 'smb'; allowed on the platform kub"),
        ("onprem-cluster", {"falaj:registry": "Not A Host"}, "falaj:registry: given 'Not A Host'"),
        ("onprem-cluster", {"falaj:registry": None}, "falaj:registry: missing"),
        ("onprem-cluster", {"falaj:residncy": {}}, "falaj:residncy: unknown key; did you mean"),
        ("aws-platform", {"falaj:cluster": None}, "falaj:cluster: missing; expected the stack"),
        ("aws-platform", {"falaj:context": "dc1"}, "falaj:context: given 'dc1', but a cluster on"),
        ("aws-platform", {"falaj:region": "eu-west-1"}, "falaj:region: "),
        (
            "aws-workloads",
            {"falaj:platform": None, "falaj:region": None, "falaj:placement": ["azure/uaenorth"]},
            "falaj:placement: given [azure/uaenorth]; a stack inside a cluster is where",
        ),
        (
            "aws-workloads",
            {"falaj:trainingJobs": {"notes": {"dataset": "d", "flavour": "h200"}}},
            "falaj:trainingJobs.notes.flavour: unknown key; did you mean flavor?",
        ),
        (
            "aws-workloads",
            {"falaj:trainingJobs": {"Credit": {"dataset": "d"}}},
            "falaj:trainingJobs.Credit",
        ),
        (
            "onprem-workloads",
            {"falaj:sweeps": {"notes": SWEEP}},
            "falaj:sweeps.notes: given 'notes', which is the name of a training job, too",
        ),
        (
            "onprem-workloads",
            {"falaj:sweeps": {"rates": SWEEP}, "falaj:federatedTrainings": {"rates": SITE}},
            "falaj:federatedTrainings.rates: given 'rates', which is the name of a sweep, too",
        ),
        (
            "onprem-workloads",
            {"falaj:federatedTrainings": {"notes": SITE}},
            "falaj:federatedTrainings.notes: given 'notes', which is the name of a training job",
        ),
        (
            "onprem-workloads",
            {
                "falaj:sweeps": {"alice-workspace": SWEEP},
                "falaj:workspaces": {"alice": WORKSPACE},
            },
            "falaj:sweeps.alice-workspace: given 'alice-workspace', as which the objects of",
        ),
        (
            "onprem-workloads",
            {"falaj:pipelines": {"notes": PIPELINE}},
            "falaj:pipelines.notes: given 'notes', which is the name of a training job, too",
        ),
        (
            "onprem-workloads",
            {"falaj:sweeps": {"a-pipeline": SWEEP}, "falaj:pipelines": {"a": PIPELINE}},
            "falaj:sweeps.a-pipeline: given 'a-pipeline', as which the objects of pipeline 'a'",
        ),
        (
            "onprem-workloads",
            {"falaj:workspaces": {"alice": {**WORKSPACE, "idleMinute": 5}}},
            "falaj:workspaces.alice.idleMinute: unknown key; did you mean idleMinutes?",
        ),
    ],
)
def test_what_names_no_cluster_is_refused(stack: str, changes: dict[str, Any], said: str) -> None:
    config = {**shipped(stack), **changes}
    with pytest.raises(SettingsError) as caught:
        settings({key: value for key, value in config.items() if value is not None})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("stack", "path", "value", "said"),
    [
        (
            "onprem-cluster",
            ["falaj:installation", "addons", "kerve"],
            True,
            "falaj:installation.addons.kerve: unknown key; did you mean kserve?",
        ),
        (
            "onprem-cluster",
            ["falaj:queues", "tenants", "acme", "quotas", "h200", "devices"],
            {"nvidia.com/gpu": 65},
            "65",
        ),
        (
            "aws-workloads",
            ["falaj:inferenceServices", "credit", "versions"],
            [{"version": 7, "weight": 90, "packageDigest": "sha256:" + "0" * 64}],
            "100",
        ),
        ("onprem-workloads", ["falaj:trainingJobs", "notes", "fabric"], "efa", "efa"),
        (
            "onprem-workloads",
            ["falaj:sweeps"],
            {"rates": {**SWEEP, "search": {"learning_rate": ""}}},
            "falaj:sweeps.rates.search",
        ),
        ("aws-workloads", ["falaj:trainingJobs", "notes", "fabric"], "infiniband", "infiniband"),
        (
            "onprem-workloads",
            ["falaj:federatedTrainings"],
            {"claims": {**SITE, "rounds": 3}},
            "falaj:federatedTrainings.claims.rounds: is the coordinator's",
        ),
        (
            "onprem-workloads",
            ["falaj:workspaces"],
            {"alice": {**WORKSPACE, "hours": 48}},
            "falaj:workspaces.alice.hours: given 48; allowed: a whole number from 1 to 24",
        ),
        (
            "onprem-workloads",
            ["falaj:workspaces"],
            {"alice": {**WORKSPACE, "tokenSecret": "globex/alice"}},
            "falaj:workspaces.alice.tokenSecret: given 'globex/alice'; allowed: entries of the",
        ),
        (
            "onprem-workloads",
            ["falaj:pipelines"],
            {"again": {**PIPELINE, "newData": {"everyMinutes": 1}}},
            "falaj:pipelines.again.newData.everyMinutes: given 1; allowed: a whole number from 5",
        ),
        (
            "aws-platform",
            ["falaj:acknowledgeDegraded"],
            None,
            "falaj:acknowledgeDegraded: region me-c",
        ),
    ],
)
def test_what_components_refuse_is_refused_before_the_engine(
    stack: str, path: list[str], value: Any, said: str
) -> None:
    config = copy.deepcopy(shipped(stack))
    *way, last = path
    at: Any = config
    for key in way:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    with pytest.raises(SettingsError) as caught:
        check(config)
    assert said in str(caught.value)


@pytest.mark.parametrize("page", ["parallel-training.md", "training.md"])
def test_the_divided_job_of_the_documents_is_taken(page: str) -> None:
    text = (ROOT / "docs/how-to" / page).read_text(encoding="utf-8")
    blocks = [part.partition("```")[0] for part in text.split("```yaml\n")[1:]]
    [jobs] = [yaml.safe_load(each) for each in blocks if "tensor: 2}" in each and "nodes" in each]
    config = {**shipped("onprem-workloads"), **jobs}
    check(config)
    made = declare(config)
    [job] = [each.inputs for each in made.resources if each.type.endswith(":JobSet")]
    [node] = job["spec"]["replicatedJobs"]
    [container] = node["template"]["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    assert words[words.index("--shard") :][:4] == ["--shard", "8", "--tensor", "2"]


def test_a_sweep_is_declared() -> None:
    made = declare({**shipped("onprem-workloads"), "falaj:sweeps": {"rates": SWEEP}})
    [job] = [each.inputs for each in made.resources if each.type == "kubernetes:batch/v1:Job"]
    assert job["metadata"]["name"] == "rates"
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert "learning_rate=1e-4..1e-1:log" in container["command"]


def test_a_pipeline_is_declared() -> None:
    config = {**shipped("onprem-workloads"), "falaj:pipelines": {"again": PIPELINE}}
    check(config)
    made = declare(config)
    named = {
        f"{each.inputs['kind']}/{each.inputs['metadata']['name']}": each.inputs
        for each in made.resources
        if "kind" in each.inputs
    }
    template = named["JobSet/again"]
    assert template["spec"]["managedBy"] == "falaj.io/pipeline-template"
    [container] = named["CronJob/again-pipeline-data"]["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["command"][2] == "falaj.workloads.pipelines"
    assert named["CronJob/again-pipeline"]["spec"]["suspend"] is True
    assert "RoleBinding/again-pipeline" in named


@pytest.mark.parametrize("role", [SITE, COORDINATOR], ids=lambda each: each["role"])
def test_a_side_of_a_federation_is_declared(role: dict[str, Any]) -> None:
    config = {**shipped("onprem-workloads"), "falaj:federatedTrainings": {"claims": role}}
    check(config)
    made = declare(config)
    [container] = [
        each.inputs["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
            "containers"
        ][0]
        for each in made.resources
        if each.inputs.get("kind") == "JobSet" and each.inputs["metadata"]["name"] == "claims"
    ]
    assert container["command"][2:4] == ["falaj.workloads.federation", role["role"]]


def test_a_workspace_is_declared() -> None:
    made = declare({**shipped("onprem-workloads"), "falaj:workspaces": {"alice": WORKSPACE}})
    [pod] = [each.inputs for each in made.resources if each.type == "kubernetes:core/v1:Pod"]
    assert pod["metadata"]["name"] == "alice-workspace"
    assert pod["spec"]["activeDeadlineSeconds"] == 4 * 3600 + 300
    plain = declare(shipped("onprem-workloads"))
    assert not [each for each in plain.resources if each.type == "kubernetes:core/v1:Pod"]


@pytest.mark.parametrize(
    ("version", "refused"), [("1.34", True), ("1.35", False), (None, False)], ids=str
)
def test_a_cluster_that_mounts_no_images_keeps_none_on_its_nodes(
    version: str | None, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own stack says which version it is; a stack of before says none."""
    outputs = {**CLUSTERS["aws"], **({"kubernetesVersion": version} if version else {})}
    monkeypatch.setitem(CLUSTERS, "aws", outputs)
    config = copy.deepcopy(shipped("aws-platform"))
    config["falaj:queues"]["pools"]["h200"]["prefetchImages"] = ["falaj-training"]
    if refused:
        with pytest.raises(pulumi.RunError, match=r"given '1\.34'; allowed: 1\.35 or later"):
            declare(config, "aws-platform")
        return
    made = [each.inputs for each in declare(config, "aws-platform").resources]
    (kept,) = [each for each in made if each.get("kind") == "DaemonSet"]
    (container,) = kept["spec"]["template"]["spec"]["containers"]
    assert "/falaj/inference:" in container["image"]


def test_an_image_without_digest_is_for_the_sandbox_only(tmp_path: Path) -> None:
    found = settings(shipped("onprem-workloads"))
    assert digests(found, ROOT, sandboxed=True).made_up
    real = digests(found, ROOT, sandboxed=False)
    assert not real.by_name
    with pytest.raises(SettingsError, match="falaj images pin"):
        validate_in_cluster(found, real.by_name)
    lock = tmp_path / "images.lock.yaml"
    digest = "sha256:" + "5" * 64
    lock.write_text(
        "images:\n"
        + "".join(
            f"  {name}: {{reference: 'r.example.ae/{name}:1', digest: '{digest}', "
            "seen: '2026-11-21'}\n"
            for name in ("falaj-training", "falaj-inference")
        )
        + "charts: {}\n"
    )
    locked = settings({**shipped("onprem-workloads"), "falaj:images": str(lock)})
    pinned = digests(locked, ROOT, sandboxed=False)
    assert pinned.by_name == {"falaj-training": digest, "falaj-inference": digest}
    validate_in_cluster(locked, pinned.by_name)
