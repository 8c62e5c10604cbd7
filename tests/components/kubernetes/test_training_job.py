"""Training jobs: what is refused, and what the pods of one GPU, a machine and many get."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pulumi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.components.kubernetes._pods import USER
from falaj.components.kubernetes.training_job import check
from falaj.workloads.training.command import build_parser
from tests.components.kubernetes.cluster_parts import difference, same_as_golden
from tests.components.kubernetes.training_jobs import (
    CPU,
    DIGEST,
    GOLDEN,
    HOROVOD,
    OTHER_DIGEST,
    REGISTRY,
    arguments,
    container_of,
    env_of,
    findings,
    job,
    pod_of,
    shown,
    the,
)
from tests.examples import examples

PAIR: dict[str, Any] = {"nodes": 2, "gpus_per_node": 8}
GROWING: dict[str, Any] = {
    "nodes": 2, "gpus_per_node": 2, "elastic": {"min_nodes": 1, "max_nodes": 4},
}  # fmt: skip
AWAY: dict[str, Any] = {"queue": "burst", "further_regions": ["uaenorth"]}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"nodes": 0}, "nodes: given 0; allowed: a whole number from 1 to 512"),
    ({"nodse": 2}, "did you mean 'nodes'?"),
    ({"checkpoints": None}, "checkpoints: missing"),
    ({"dataset": None}, "dataset: missing"),
    ({"dataset": "../other-tenant/rows"}, "a path below the claim"),
    ({"flavor": "cpu-x86-64", "gpus_per_node": 1}, "have no GPUs"),
    ({"gpus_per_node": 0}, "are for GPUs"),
    ({"flavor": "h200-mig-1g.18gb", "gpus_per_node": 2}, "only one fraction of a GPU"),
    ({"flavor": "h200-mig-1g.18gb", "fabric": "infiniband"}, "which is for whole GPUs"),
    ({"gpus_per_node": 4, "processes_per_node": 8}, "each process has one GPU"),
    ({"memory_gib": 2}, "/dev/shm counts as memory"),
    ({"fabric": "efa"}, "allowed: none, infiniband"),
    ({"machine": "p5en.48xlarge"}, "is for fabric 'efa' alone"),
    ({"priority": "highest"}, "falaj-low, falaj-normal"),
    ({"topology": {"level": "shelf"}}, "topology.level: given 'shelf'"),
    ({"topology": {"levle": "rack"}}, "did you mean 'level'?"),
    ({"topology": {"level": "rack", "mode": "strict"}}, "required, preferred"),
    ({"elastic": {"min_nodes": 2, "max_nodes": 4}}, "nodes: given 1; allowed: 2 to 4"),
    ({"elastic": {"min_nodes": 1, "max_nodes": 1}}, "at least 2"),
    (
        {"elastic": {"min_nodes": 1, "max_nodes": 4}, "topology": {"level": "rack"}},
        "Kueue places gangs of a fixed size only",
    ),
    ({"spot": True, "data_class": "restricted"}, "not for data_class 'restricted'"),
    ({"spot": False, "flavor": "h200-spot"}, "has spot machines alone"),
    ({"grace_seconds": 4_000}, "a whole number from 10 to 3600"),
    ({"env": {"PET_NNODES": "3"}}, "is set by the component"),
    ({"env": {"2ND": "x"}}, "first no digit"),
    ({"image": "team/train:latest"}, "@sha256:"),
    ({"image": "team/train:latest@sha256:12"}, "@sha256:"),
    ({"images": {}}, "falaj-training"),
    ({"arguments": ["--output", "/tmp/x"]}, "set by the component"),
    ({"arguments": ["--resume=never"]}, "set by the component"),
    ({"arguments": ["--res", "never"]}, "set by the component"),
    ({"arguments": ["--code", "models"]}, "name them as 'image' and 'program'"),
    ({"arguments": ["--opt=width=8"]}, "a folder of code doesn't travel to pods"),
    ({"arguments": ["--keyring", "/keys"]}, "pods have no key ring but that of key_secret"),
    ({"key_secret": "bank/training-keys"}, "key_secret: given 'bank/training-keys'; allowed: "),
    ({"key_secret": "acme/../bank/keys"}, "entries of the tenant: acme/"),
    ({"key_secret": ""}, "key_secret: "),
    ({"key_secret": 3}, "key_secret: "),
    ({"secret_store": "falaj"}, "is where key_secret is"),
    ({"key_secret": "acme/keys", "secret_store": "No Store"}, "secret_store"),
    ({"key_secret": "acme/keys", **AWAY}, "the keys stay where they are"),
    ({"key_secret": "acme/keys", "env": {"FALAJ_KEYRING": "/x"}}, "is set by the component"),
    ({"arguments": ["--keyr=/keys"]}, "pods have no key ring"),
    ({"arguments": "--epochs 3"}, "one for each word"),
    ({"framework": "tensorflow"}, "a team brings its own"),
    ({"framework": "caffe"}, "pytorch, tensorflow"),
    ({"framework": "horovod"}, "a team brings its own"),
    ({**HOROVOD, "image": None}, "image: missing; needed for framework 'horovod'"),
    ({**HOROVOD, "images": {}}, "images.falaj-inference: no digest of"),
    ({**HOROVOD, "nodes": 33, "gpus_per_node": 8}, "nodes: given 33; allowed: at most 32 of 8"),
    ({**HOROVOD, "gpus_per_node": 4, "processes_per_node": 2}, "each process has one GPU"),
    ({**HOROVOD, "elastic": {"min_nodes": 1, "max_nodes": 4}}, "has a driver that starts"),
    ({**HOROVOD, "env": {"HOROVOD_RANK": "0"}}, "is set by the component"),
    ({**HOROVOD, "arguments": ["--epochs", "3"]}, "has its own arguments"),
    ({**HOROVOD, "parameter_servers": 2}, "is for framework 'parameter-server'"),
    ({"program": ["python", "train.py"]}, "has its own arguments"),
    ({"ttl_hours": 24, "program": ["x"], "dataset": None}, "would run once more"),
    ({"parameter_servers": 2}, "is for framework 'parameter-server'"),
    ({"queue": "burst"}, "further_regions: missing; queue 'burst' sends the job to another"),
    ({"further_regions": ["westeurope"]}, "that is azure/westeurope"),
    ({"further_regions": ["us"]}, "the beginning of regions abroad"),
    ({"further_regions": "uaenorth"}, "a list of texts"),
    ({**AWAY, "topology": {"level": "rack"}}, "levels are of one cluster's nodes"),
    ({**AWAY, "elastic": {"min_nodes": 1, "max_nodes": 4}}, "the Service by whose name its pods"),
    ({**AWAY, "zones": ["dxb-1a"]}, "are of one region; leave them out"),
    ({"parallel": 2}, "parallel: given 2; allowed: an object with data, pipeline, shard, tensor"),
    ({**PAIR, "parallel": {"shards": 8}}, "parallel.shards: is not an option of ParallelArgs"),
    ({**PAIR, "parallel": {"shard": 0}}, "parallel.shard: given 0; allowed: a whole number"),
    ({**PAIR, "parallel": {"shard": 2.5}}, "parallel.shard: given 2.5; allowed: a whole number"),
    ({**PAIR, "parallel": {"tensor": 3}}, "parallel.tensor: given 3; allowed: a divisor of 8"),
    ({**PAIR, "parallel": {"pipeline": 0}}, "parallel.pipeline: given 0; allowed: a whole number"),
    (
        {**PAIR, "parallel": {"shard": 3}},
        "parallel: given shard 3 x tensor 1 x pipeline 1 = 3, but the training has 16 process(es)",
    ),
    ({"parallel": {"shard": 2}}, "but the training has 1 process(es); allowed: numbers whose"),
    (
        {**PAIR, "parallel": {"data": 4, "shard": 8}},
        "parallel: given data 4 x shard 8 x tensor 1 x pipeline 1 = 8, which is 32 in all, but",
    ),
    (
        {**CPU, "nodes": 2, "parallel": {"tensor": 2}},
        "parallel.tensor: given 2; allowed: a divisor of 1, the processes of a pod; what a layer",
    ),
    (
        {**GROWING, "parallel": {"shard": 4}},
        "allowed: numbers whose product divides 2, the processes of a pod, so that an elastic job",
    ),
    (
        {**GROWING, "parallel": {"data": 2, "shard": 2}},
        "parallel.data: given 2, but an elastic job has as many processes as it has pods",
    ),
    ({"compile": "maybe"}, "compile: given 'maybe'; allowed: auto, always, never"),
    (
        {**PAIR, "compile": "always", "parallel": {"shard": 8, "tensor": 2}},
        "compile: given 'always' beside tensor 2; allowed: auto, never there",
    ),
    ({"arguments": ["--compile=never"]}, "set by the component"),
    ({"recompute": "all"}, "recompute: given 'all'; allowed: none, layers"),
    ({**PAIR, "compression": "zip"}, "compression: given 'zip'; allowed: none, float16, bfloat16"),
    ({"compression": "powersgd"}, "compression: given 'powersgd', but the training has 1 process"),
    (
        {**PAIR, "compression": "float16", "parallel": {"shard": 8, "tensor": 2}},
        "compression: given 'float16' beside shard 8, tensor 2; allowed: none there",
    ),
    ({**HOROVOD, "parallel": {"shard": 1}}, "parallel: is of Falaj's own training: a program of"),
    ({**HOROVOD, "recompute": "layers"}, "recompute: is of Falaj's own training"),
    (
        {"program": ["x"], "dataset": None, "compression": "float16"},
        "compression: is of Falaj's own training",
    ),
    ({"arguments": ["--shard", "8"]}, "set by the component"),
    ({"arguments": ["--tensor=2"]}, "set by the component"),
    ({"arguments": ["--pipe", "2"]}, "set by the component"),
    ({"arguments": ["--recompute=layers"]}, "set by the component"),
    ({"arguments": ["--compr", "float16"]}, "set by the component"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[str(each[0]) for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check("fraud", arguments(**changes))
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["", "Fraud", "a" * 37, "fraud-", "1st"])
def test_a_name_that_no_pod_could_have_is_refused(name: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="1 to 36"):
        check(name, arguments())


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check("fraud", arguments(nodes=0, priority="x", fabric="efa", dataset=None))
    for argument in ("nodes", "priority", "fabric", "dataset"):
        assert f"  {argument}: " in str(refused.value)


def test_one_gpu_is_one_process_without_a_rendezvous() -> None:
    manifests = job(arguments=["--epochs", "20", "--width", "20"])
    container = container_of(manifests)
    assert container["command"] == [
        "python", "-m", "falaj.workloads.training", "run", "--dataset", "/data/digits/3fa0",
        "--output", "/runs/fraud", "--processes", "1", "--device", "cuda", "--progress", "json",
        "--metrics", "$(POD_IP):9464", "--epochs", "20", "--width", "20",
    ]  # fmt: skip
    assert not [name for name in env_of(manifests) if name.startswith("PET_")]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["image"] == f"{REGISTRY}/falaj/training:0.1.0@{DIGEST}"


def _options(**changes: Any) -> list[str]:
    """What the program is told after what it is told of a model that isn't divided."""
    plain = {each: changes[each] for each in ("nodes", "gpus_per_node", "elastic", "flavor")
             if each in changes}  # fmt: skip
    before, told = (container_of(job(**each))["command"] for each in (plain, changes))
    assert told[: len(before)] == before
    return told[len(before) :]


def test_a_model_is_divided_by_options_of_the_program() -> None:
    assert _options(**PAIR, parallel={"shard": 8, "tensor": 2}) == [
        "--shard", "8", "--tensor", "2",
    ]  # fmt: skip
    assert _options(
        **PAIR, parallel={"data": 2, "shard": 2, "pipeline": 4}, recompute="layers"
    ) == ["--shard", "2", "--pipeline", "4", "--recompute", "layers"]
    assert _options(**PAIR, compile="never") == ["--compile", "never"]
    assert _options(**PAIR, compression="bfloat16") == ["--compression", "bfloat16"]
    assert _options(**GROWING, parallel={"shard": 2}) == ["--shard", "2"]
    assert _options(**GROWING, compression="float16") == ["--compression", "float16"]


def test_what_divides_nothing_leaves_a_job_as_it_is() -> None:
    usual = {"parallel": {"data": 16, "shard": 1, "tensor": 1}, "recompute": "none"}
    usual["compile"] = "auto"
    assert job(**PAIR, **usual, compression="none") == job(**PAIR)
    assert job(**PAIR, parallel=None) == job(**PAIR, parallel={}) == job(**PAIR)


def test_the_program_takes_the_options_of_a_divided_model() -> None:
    asked: dict[str, Any] = {"parallel": {"shard": 4, "tensor": 2}, "recompute": "layers"}
    command = container_of(job(**PAIR, **asked))["command"]
    found = build_parser().parse_args(command[3:])
    assert (found.shard, found.tensor, found.pipeline) == (4, 2, 1)
    assert (found.recompute, found.compression) == ("layers", "none")
    assert findings(job(**PAIR, **asked)) == []


def test_the_objects_of_a_divided_model_differ_as_reviewed() -> None:
    plain, divided = (
        shown([the("JobSet", job(**PAIR, telemetry=False, **more))])
        for more in ({}, {"parallel": {"shard": 8, "tensor": 2}, "recompute": "layers"})
    )
    same_as_golden("training-parallel.diff", difference(plain, divided))


def test_without_gpus_the_image_has_no_cuda() -> None:
    manifests = job(**CPU)
    assert (
        container_of(manifests)["image"] == f"{REGISTRY}/falaj/training-cpu:0.1.0@{OTHER_DIGEST}"
    )
    assert not [name for name in env_of(manifests) if "NCCL" in name]
    assert not [name for name in container_of(manifests)["resources"]["limits"] if "/" in name]


def test_a_fraction_of_a_gpu_is_asked_for_by_its_own_name() -> None:
    for flavor, resource in (
        ("h200-mig-1g.18gb", "nvidia.com/mig-1g.18gb"),
        ("l4-time-slicing-4", "nvidia.com/gpu.shared"),
        ("h200-mig-3g.71gb-capacity-block", "nvidia.com/mig-3g.71gb"),
    ):
        manifests = job(flavor=flavor)
        limits = container_of(manifests)["resources"]["limits"]
        assert {name: limits[name] for name in limits if "/" in name} == {resource: "1"}
        assert pod_of(manifests)["spec"]["nodeSelector"]["falaj.io/flavor"] == flavor


def test_efa_interfaces_are_those_of_the_machine() -> None:
    full = job("eks", nodes=2, gpus_per_node=8, fabric="efa")
    half = job("eks", nodes=2, gpus_per_node=4, fabric="efa")
    for manifests, count in ((full, "16"), (half, "8")):  # p5en.48xlarge has 16 for 8 GPUs
        limits = container_of(manifests)["resources"]["limits"]
        assert limits["vpc.amazonaws.com/efa"] == count
        assert limits["hugepages-2Mi"] == "5120Mi"
    with pytest.raises(pulumi.InputPropertiesError, match="leaves none for 1"):
        check("fraud", arguments("eks", flavor="l40s", fabric="efa", machine="g6e.12xlarge"))
    with pytest.raises(pulumi.InputPropertiesError, match="machine"):
        check("fraud", arguments("eks", fabric="efa", machine="p5.48xlarge"))


def test_a_job_for_several_clusters_names_their_regions_and_no_other() -> None:
    pinned = pod_of(job())["spec"]
    assert pinned["nodeSelector"]["topology.kubernetes.io/region"] == "dxb-1"
    sent = pod_of(job(**AWAY))["spec"]
    assert "topology.kubernetes.io/region" not in sent["nodeSelector"]
    required = sent["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    region = {"key": "topology.kubernetes.io/region", "operator": "In"}
    assert {**region, "values": ["dxb-1", "uaenorth"]} in term["matchExpressions"]
    assert findings(job(**AWAY)) == []
    # Of the packs' own accord: a site that nobody allowed is refused there as well.
    assert "kubernetes-placement-abroad" in str(findings(job(further_regions=["dxb-9"])))


def test_infiniband_has_one_interface_for_each_gpu() -> None:
    manifests = job("aks", nodes=2, gpus_per_node=8, fabric="infiniband")
    assert container_of(manifests)["resources"]["limits"]["rdma/ib"] == "8"
    assert env_of(manifests)["NCCL_SOCKET_IFNAME"] == "eth0"
    assert env_of(manifests)["NCCL_IB_DISABLE"] == "0"


def test_a_spot_job_has_no_more_time_than_the_cloud_gives() -> None:
    assert pod_of(job("aks", spot=True))["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod_of(job("eks", spot=True))["spec"]["terminationGracePeriodSeconds"] == 120
    with pytest.raises(pulumi.InputPropertiesError, match="from 10 to 30"):
        check("fraud", arguments("aks", spot=True, grace_seconds=60))
    assert "affinity" not in pod_of(job(spot=True))["spec"]
    assert "spot" in str(pod_of(job())["spec"]["affinity"])


def test_a_request_to_stop_reaches_the_program_and_leaves_it_time() -> None:
    pod = pod_of(job(grace_seconds=300))
    assert pod["spec"]["containers"][0]["command"][0] == "python"  # no shell that keeps signals
    assert env_of(job(grace_seconds=300))["FALAJ_GRACE_SECONDS"] == "300"


def test_an_elastic_job_is_of_the_kind_that_kueue_resizes() -> None:
    manifests = job(**CPU, nodes=2, elastic={"min_nodes": 1, "max_nodes": 4})
    found, service = the("Job", manifests), the("Service", manifests)
    assert found["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true"
    assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (2, 2)
    assert "suspend" not in found["spec"]  # Kueue's own
    assert service["spec"]["clusterIP"] == "None"
    assert env_of(manifests)["PET_NNODES"] == "1:4"
    assert env_of(manifests)["PET_RDZV_ENDPOINT"] == "fraud-0.fraud:29400"
    assert service["metadata"]["name"] == pod_of(manifests)["spec"]["subdomain"]


def test_tensorflow_finds_its_workers_by_jobset_names() -> None:
    own: dict[str, Any] = {
        "framework": "tensorflow", "program": ["python", "-m", "team.train"], "dataset": None,
        "image": f"team/train@{DIGEST}",
    }  # fmt: skip
    assert "TF_CONFIG" not in env_of(job(**own, gpus_per_node=8))  # MirroredStrategy needs none
    text = env_of(job(**own, nodes=2))["TF_CONFIG"]
    assert text == (
        '{"cluster": {"worker": ["fraud-node-0-0.fraud:2222", "fraud-node-0-1.fraud:2222"]}, '
        '"task": {"type": "worker", "index": $(NODE_RANK)}}'
    )
    manifests = job(**{**own, "framework": "parameter-server"}, nodes=3, parameter_servers=2)
    roles = the("JobSet", manifests)["spec"]["replicatedJobs"]
    counts = {each["name"]: each["template"]["spec"]["completions"] for each in roles}
    assert counts == {"chief": 1, "worker": 2, "ps": 2}
    policy = the("JobSet", manifests)["spec"]["successPolicy"]
    assert policy["targetReplicatedJobs"] == ["chief"]


def test_variables_refer_only_to_those_before_them() -> None:
    """The kubelet leaves ``$(NAME)`` as it is where NAME comes later."""
    for manifests in (job(nodes=2), job(**CPU, elastic={"min_nodes": 1, "max_nodes": 2})):
        seen: set[str] = set()
        for entry in container_of(manifests)["env"]:
            value = entry.get("value", "")
            for reference in (part.partition(")")[0] for part in value.split("$(")[1:]):
                assert reference in seen, entry
            assert entry["name"] not in seen
            seen.add(entry["name"])


def _final(manifests: list[Any]) -> set[int]:
    """Exit statuses after which a gang isn't started again."""
    (template,) = the("JobSet", manifests)["spec"]["replicatedJobs"]
    rules = template["template"]["spec"]["podFailurePolicy"]["rules"]
    failing = {code for each in rules for code in each.get("onExitCodes", {}).get("values", ())}
    policy = the("JobSet", manifests)["spec"]["failurePolicy"]["rules"]
    ending = [each for each in policy if each["action"] == "FailJobSet"]
    patterns = [text for each in ending for text in each["onJobFailureMessagePatterns"]]
    # pkg/controller/job/pod_failure_policy.go of Kubernetes
    said = (
        "Container train for pod acme/x failed with exit code {} matching FailJob rule at index 1"
    )
    return {
        code for code in failing if any(re.search(each, said.format(code)) for each in patterns)
    }


@pytest.mark.parametrize("changes", [{}, HOROVOD, {"nodes": 4, "gpus_per_node": 8}])
def test_only_what_was_refused_ends_a_gang_at_once(changes: dict[str, Any]) -> None:
    """1 is what Python and torchrun end with whatever the cause, a broken GPU among them."""
    assert _final(job(**changes)) == {2}
    policy = the("JobSet", job(max_restarts=7))["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 7


def test_an_elastic_job_replaces_pods_that_ended_with_an_unknown_cause() -> None:
    manifests = job(**CPU, nodes=2, max_restarts=5, elastic={"min_nodes": 1, "max_nodes": 4})
    spec = the("Job", manifests)["spec"]
    (ending,) = [each for each in spec["podFailurePolicy"]["rules"] if each["action"] == "FailJob"]
    assert ending["onExitCodes"]["values"] == [2]
    assert spec["backoffLimit"] == 20  # five for each pod that there may be


@pytest.mark.parametrize("place", ["eks", "aks"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes": 2, "gpus_per_node": 8, "topology": {"level": "rack"}},
        {**CPU, "nodes": 2, "elastic": {"min_nodes": 1, "max_nodes": 4}},
        {"flavor": "h200-mig-1g.18gb", "telemetry": False},
    ],
)
def test_every_policy_pack_is_met(place: str, changes: dict[str, Any]) -> None:
    assert findings(job(place, **changes)) == []


@pytest.mark.parametrize("place", ["eks", "aks", "existing"])
def test_the_rendered_objects_are_those_that_were_reviewed(place: str) -> None:
    fabric = {"eks": "efa"}.get(place, "infiniband")
    manifests = job(
        place, nodes=2, gpus_per_node=8, fabric=fabric, topology={"level": "rack"},
        telemetry=False, arguments=["--epochs", "20"],
    )  # fmt: skip
    path = GOLDEN / f"training-{place}.yaml"
    assert shown([the("JobSet", manifests)]) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("missing", ["distribution", "region", "registry", "tenant"])
@pytest.mark.parametrize("fabric", ["efa", "none"])
def test_what_is_null_is_missing_and_nothing_stands_on_it(missing: str, fabric: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=f"{missing}: missing"):
        job("eks", fabric=fabric, gpus_per_node=8, nodes=2, **{missing: None})


def test_platforms_differ_only_in_what_they_are() -> None:
    """Region, fabric's devices and settings, topology's labels: nothing else."""
    lines: dict[str, list[str]] = {}
    for place in ("eks", "aks", "existing"):
        text = (GOLDEN / f"training-{place}.yaml").read_text(encoding="utf-8")
        lines[place] = [line.strip() for line in text.splitlines()]
    words = ("region", "fabric", "efa", "rdma", "hugepages", "NCCL", "topology", "value:")
    words += ("FI_EFA", "me-central-1", "uaenorth", "dxb-1")
    common = set(lines["eks"]) & set(lines["aks"]) & set(lines["existing"])
    for place, found in lines.items():
        other = [line for line in found if line not in common]
        assert other, place
        assert all(any(word in line for word in words) for line in other), (place, other)


@given(
    words=st.lists(st.text(min_size=1, max_size=12), max_size=4),
    value=st.text(max_size=40),
    nodes=st.integers(-2, 600),
)
@settings(max_examples=examples(60), deadline=None)
def test_any_text_is_rendered_as_it_is_or_refused(
    words: list[str], value: str, nodes: int
) -> None:
    try:
        manifests = job(nodes=nodes, arguments=words, env={"NOTE": value})
    except pulumi.InputPropertiesError as error:
        assert "TrainingJob 'fraud' was refused" in str(error)
        return
    command = container_of(manifests)["command"]
    assert command[len(command) - len(words) :] == words
    assert env_of(manifests)["NOTE"] == value
    assert the("JobSet", manifests)["spec"]["replicatedJobs"][0]["template"]["spec"][
        "parallelism"
    ] == nodes  # fmt: skip


def test_the_c_library_finds_who_a_pod_runs_as(tmp_path: Path) -> None:
    made = job()
    pod, container = pod_of(made), container_of(made)
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    items = volumes["users"]["downwardAPI"]["items"]
    files = {each["path"]: tmp_path / each["path"] for each in items}
    for each in items:
        annotation = each["fieldRef"]["fieldPath"].split("'")[1]
        files[each["path"]].write_text(pod["metadata"]["annotations"][annotation], "utf-8")
    mounts = {
        each["mountPath"]: each["subPath"]
        for each in container["volumeMounts"]
        if each["name"] == "users"
    }
    assert mounts == {"/etc/passwd": "passwd", "/etc/group": "group"}

    security, variables = pod["spec"]["securityContext"], env_of(made)
    user = next(one for one in _entries(files["passwd"], "passwd") if one.uid == USER)
    assert (user.uid, user.gid) == (security["runAsUser"], security["runAsGroup"])
    assert user.name.decode() == variables["USER"] == variables["LOGNAME"]
    assert user.home.decode() == variables["HOME"]
    groups = {one.gid: one.name.decode() for one in _entries(files["group"], "group")}
    assert groups[user.gid] == variables["USER"]


class _User(ctypes.Structure):
    """``struct passwd`` of Linux: getpwent(3)."""

    _fields_: ClassVar = [
        ("name", ctypes.c_char_p), ("password", ctypes.c_char_p),
        ("uid", ctypes.c_uint32), ("gid", ctypes.c_uint32),
        ("about", ctypes.c_char_p), ("home", ctypes.c_char_p), ("shell", ctypes.c_char_p),
    ]  # fmt: skip


class _Group(ctypes.Structure):
    """``struct group`` of Linux without its members: getgrent(3)."""

    _fields_: ClassVar = [
        ("name", ctypes.c_char_p), ("password", ctypes.c_char_p), ("gid", ctypes.c_uint32),
    ]  # fmt: skip


def _entries(path: Path, what: str) -> Iterator[Any]:
    """The entries of a file as the C library reads them, one after the other."""
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    library.fclose.argtypes = [ctypes.c_void_p]
    kind, read = {
        "passwd": (_User, library.fgetpwent), "group": (_Group, library.fgetgrent),
    }[what]  # fmt: skip
    read.argtypes, read.restype = [ctypes.c_void_p], ctypes.POINTER(kind)
    stream = library.fopen(str(path).encode(), b"r")
    try:
        while entry := read(stream):
            yield entry.contents
    finally:
        library.fclose(stream)


def test_pods_have_the_key_ring_in_memory_and_seal_with_it() -> None:
    objects = job(key_secret="acme/training-keys")
    ring = the("ExternalSecret", objects)
    assert ring["metadata"]["labels"]["falaj.io/protected"] == "true"
    [data] = ring["spec"]["data"]
    assert (data["secretKey"], data["remoteRef"]["key"]) == ("keyring.tar", "acme/training-keys")
    pod = pod_of(objects)["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["secret"]["secret"]["secretName"] == ring["spec"]["target"]["name"]
    assert volumes["keys"]["emptyDir"]["medium"] == "Memory"
    [first] = pod["initContainers"]
    container = container_of(objects)
    assert first["image"] == container["image"]
    assert first["command"][-4:] == [
        "--path", "/run/falaj/keys/keyring", "--from", "/run/falaj/secret/keyring.tar"
    ]  # fmt: skip
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert not mounted["/run/falaj/keys"].get("readOnly")
    assert "/run/falaj/secret" not in mounted
    command = container["command"]
    assert command[command.index("--keyring") + 1] == "/run/falaj/keys/keyring"


def test_a_program_of_the_team_s_own_finds_the_key_ring_by_a_variable() -> None:
    own = {
        "program": ["python", "train.py"],
        "image": f"team/train@{DIGEST}",
        "dataset": None,
        "images": HOROVOD["images"],
    }
    objects = job(key_secret="acme/training-keys", **own)
    container = container_of(objects)
    assert container["command"] == own["program"]
    assert env_of(objects)["FALAJ_KEYRING"] == "/run/falaj/keys/keyring"
    [first] = pod_of(objects)["spec"]["initContainers"]
    assert first["image"] != container["image"]
    assert "/inference" in first["image"]


def test_elastic_and_horovod_s_pods_have_it_as_well() -> None:
    elastic = {"nodes": 2, "elastic": {"min_nodes": 1, "max_nodes": 4}}
    for changes, names in ((elastic, ["keys"]), (HOROVOD, ["launcher", "keys"])):
        objects = job(key_secret="acme/training-keys", **changes)
        assert [each["name"] for each in pod_of(objects)["spec"]["initContainers"]] == names
        assert "--keyring" in container_of(objects)["command"] or changes is HOROVOD


def test_without_a_key_secret_nothing_of_it_is_there() -> None:
    objects = job()
    assert "initContainers" not in pod_of(objects)["spec"]
    assert "--keyring" not in container_of(objects)["command"]
    assert not [each for each in objects if each["kind"] == "ExternalSecret"]
