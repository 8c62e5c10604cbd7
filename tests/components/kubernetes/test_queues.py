"""Queues: quotas never add up to more than there is, and go where they may only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.components.kubernetes.addons.kueue import FRAMEWORKS
from falaj.components.kubernetes.gpu_queues import check, manifests
from falaj.components.kubernetes.gpu_queues.burst import WATCHED
from falaj.components.kubernetes.gpu_queues.queues import (
    CREDIT,
    WHOLE,
    credits_of,
    transformations,
)
from tests.components.kubernetes.cluster_parts import (
    COMMON,
    PLACES,
    by_key,
    difference,
    findings,
    refusal,
    same_as_golden,
    shown,
)
from tests.examples import examples

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.18gb"
SHARED = "nvidia.com/gpu.shared"
QUEUES: dict[str, Any] = {
    "pools": {
        "h200": {"nodes": 8, "cpu": 180, "memory_gib": 1900, "devices": {GPU: 8}},
        "h200-mig-1g.18gb": {"nodes": 1, "cpu": 180, "memory_gib": 1900, "devices": {MIG: 56}},
        "cpu-x86-64": {"nodes": 20, "cpu": 60, "memory_gib": 240},
    },
    "tenants": {
        "acme": {
            "quotas": {
                "h200": {"devices": {GPU: 32}},
                "cpu-x86-64": {"cpu": 100, "memory_gib": 400},
            },
            "weight": 2,
        },
        "globex": {
            "quotas": {
                "h200": {"devices": {GPU: 16}, "borrow": {GPU: 16}, "lend": {GPU: 8}},
                "h200-mig-1g.18gb": {"devices": {MIG: 28}},
            }
        },
    },
}
WORKER: dict[str, Any] = {
    "name": "dxb-2", "distribution": "existing", "region": "dxb-2", "kubeconfig_secret": "s",
    "endpoint_cidrs": ["10.8.0.0/24"],
}  # fmt: skip
CLOUD: dict[str, Any] = {
    **WORKER, "name": "cloud", "distribution": "aks", "region": "uaenorth",
    "kubeconfig_secret": "t",
}  # fmt: skip
HAS = {"cpu": "100", "memory": "1Ti"}


def _pool(**changes: Any) -> dict[str, Any]:
    return {"pools": {"h200": {**QUEUES["pools"]["h200"], **changes}},
            "tenants": {"acme": {"quotas": {"h200": {}}}}}  # fmt: skip


def _quota(flavor: str = "h200", **changes: Any) -> dict[str, Any]:
    return {"tenants": {"acme": {"quotas": {flavor: changes}}}}


def _burst(*workers: dict[str, Any], **quotas: Any) -> dict[str, Any]:
    return {"burst": {"workers": list(workers), "quotas": quotas}}


def _stopped(policy: object) -> dict[str, Any]:
    return {"burst": {**_burst(WORKER)["burst"], "stop_policy": policy}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"pools": {}}, "pools: given 0 of them; allowed: 1 to 64"),
    ({"tenants": {}}, "tenants: given 0 of them; allowed: at least one"),
    (_pool(nodes=-1), "a whole number from 0"),
    (_pool(node=3), "did you mean 'nodes'?"),
    (_pool(devices={"amd.com/gpu": 8}), "nvidia.com/gpu.shared, or a MIG profile"),
    (_pool(devices={"nvidia.com/mig-9g.1gb": 8}), "or a MIG profile such as"),
    (_pool(capacity="cheap"), "reservation, capacity-block, spot, on-demand"),
    (_pool(topology="rack"), "true or false"),
    (_pool(taints=["x"]), "key=value:Effect"),
    (_pool(tenants=["globex"]), "this one is for globex"),
    (_pool(capacity="spot") | {"data_class": "restricted"}, "neither spot machines nor"),
    (_quota(devices={GPU: 65}), "nvidia.com/gpu: the quotas add up to 65 (acme 65); allowed: 64"),
    (_quota(devices={GPU: 1}, cpu=2000), "cpu: the quotas add up to 2000"),
    (_quota(devices={MIG: 1}), "allowed: nvidia.com/gpu, as h200 has"),
    (_quota(devices={GPU: 1}, borrow={MIG: 1}), "allowed: nvidia.com/gpu, as h200 has"),
    (_quota(flavor="h100"), "the pools of this cluster: h200, h200-mig-1g.18gb, cpu-x86-64"),
    (_quota(flavor="cpu-x86-64"), "cpu: missing; cpu-x86-64 has no devices to go by"),
    ({"tenants": {"acme": {"quotas": {}}}}, "quotas: given 0 of them; allowed: at least one"),
    ({"tenants": {"acme": {"quotas": {"h200": {}}, "strategy": "LIFO"}}}, "StrictFIFO"),
    ({"tenants": {"acme": {"quotas": {"h200": {}}, "weight": 0}}}, "a number above 0"),
    ({"topology_levels": []}, "given 0 of them; allowed: 1 to 16"),
    ({"topology_levels": ["kubernetes.io/hostname", "falaj.io/rack"]}, "as the last one only"),
    ({"preemption": {"reclaim": "Always"}}, "Any, LowerPriority, Never"),
    ({"preemption": {"while_borrowing": True}}, "false, where fair_sharing is true"),
    (_burst(), "given 0 of them; allowed: 1 to 20"),
    (_burst(CLOUD, WORKER), "clusters of one's own before those of clouds"),
    (_burst(WORKER, WORKER), "each only once"),
    (_burst(WORKER, {**CLOUD, "kubeconfig_secret": "s"}), "the same secret is the same cluster"),
    (_burst({**CLOUD, "region": "westeurope"}), "westeurope"),
    (_burst({**WORKER, "region": "westeurope"}), "that is azure/westeurope"),
    (_burst({**WORKER, "region": "eu"}), "the beginning of regions abroad"),
    (_burst({**WORKER, "endpoint_cidrs": []}), "endpoint_cidrs: given 0 of them"),
    (_burst({**WORKER, "endpoint_cidrs": ["10.8.0.1"]}), "a range such as"),
    (_burst({**WORKER, "endpoint_cidrs": ["52.1.0.0/16"]}), "use the private endpoint"),
    (_burst({**WORKER, "endpoint_cidrs": None}), "endpoint_cidrs: missing"),
    (_burst({**WORKER, "kubeconfig_entry": ""}), "burst.workers[0].kubeconfig_entry"),
    (_burst({**WORKER, "kubeconfig": "apiVersion: v1"}), "did you mean 'kubeconfig_"),
    (_burst({**CLOUD, "distribution": "eks", "region": "me-central-1"}), "acknowledge_degraded"),
    (_burst(WORKER, initech={"cpu": "1", "memory": "1Gi"}), "tenants with a queue: acme, globex"),
    (_burst(WORKER, acme={"cpu": "1"}), "missing; every job asks for it"),
    (_burst(WORKER, acme={"cpu": "many", "memory": "1Gi"}), "a quantity such as 32"),
    (_burst(WORKER, acme={**HAS, GPU: "8k"}), "a whole number of GPUs"),
    (_burst(WORKER, acme={**HAS, CREDIT: "1"}), "follows from the GPUs; leave it out"),
    (_stopped("Drain"), "None, Hold, HoldAndDrain"),
    (_stopped([]), "None, Hold, HoldAndDrain"),
    ({"accepts": ["acme"]}, "options by name"),
    ({"accepts": {"dxb-2": []}}, "at least one tenant"),
    ({"accepts": {"dxb-2": ["initech"]}}, "tenants with a queue: acme, globex"),
    ({"accepts": {"DXB 2": ["acme"]}}, "at most 63 of a-z"),
    (_burst(WORKER, acme=HAS) | {"accepts": {"dxb-3": ["acme"]}}, "would send back"),
    ({"provisioning": {"flavors": ["h100"]}}, "the pools of this cluster"),
    ({"provisioning": {"flavors": ["h200"], "class_name": "x"}}, "best-effort-atomic"),
]  # fmt: skip


def arguments(place: str = "existing", **changes: Any) -> dict[str, Any]:
    return {**COMMON, "tenant": "platform", **PLACES[place], **QUEUES, **changes}


def queues(place: str = "existing", **changes: Any) -> dict[str, Any]:
    return by_key(manifests(check("queues", arguments(place, **changes))))  # type: ignore[arg-type]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[str(each[0]) for each in REFUSED])
def test_what_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    assert reason in refusal(check, arguments(**changes))


@pytest.mark.parametrize("place", PLACES)
def test_every_pack_passes(place: str) -> None:
    worker = {**WORKER, "kubeconfig_entry": "platform/dxb-2"}
    found = queues(
        place,
        data_class="restricted",
        admission_fair_sharing=True,
        provisioning={"flavors": ["h200"]},
        accepts={"dxb-3": ["globex"]},
        **_burst(worker, CLOUD, acme={**HAS, GPU: "8"}),
    )
    assert findings(list(found.values())) == []
    assert found["MultiKueueConfig/falaj-burst"]["spec"]["clusters"] == ["dxb-2", "cloud"]
    assert found["LocalQueue/acme-training/burst"]["spec"] == {"clusterQueue": "acme-burst"}
    assert found["LocalQueue/globex-training/burst"]["spec"] == {"clusterQueue": "globex"}
    entry = found["ExternalSecret/kueue-system/s"]["spec"]["data"][0]["remoteRef"]["key"]
    assert entry == "platform/dxb-2"
    assert not any(key.startswith("Secret/") for key in found)
    assert "ExternalSecret/kueue-system/t" not in found


def test_gpus_elsewhere_have_credits_without_which_kueue_admits_none() -> None:
    found = queues(**_burst(CLOUD, acme={**HAS, GPU: "8", MIG: "7"}, globex=HAS))
    (group,) = found["ClusterQueue/acme-burst"]["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", GPU, MIG, CREDIT]
    quota = {each["name"]: each["nominalQuota"] for each in group["flavors"][0]["resources"]}
    assert quota[CREDIT] == str(8 * WHOLE + 7 * 120)
    (plain,) = found["ClusterQueue/globex-burst"]["spec"]["resourceGroups"]
    assert plain["coveredResources"] == ["cpu", "memory"]


def test_only_who_is_named_sends_jobs_and_only_into_namespaces_for_training() -> None:
    assert not any("burst" in key for key in queues())
    found = queues(accepts={"dxb-2": ["acme"], "dxb-3": ["acme", "globex"]})
    roles = {key for key in found if key.startswith("Role/")}
    assert roles == {
        "Role/acme-training/falaj-burst-dxb-2", "Role/acme-training/falaj-burst-dxb-3",
        "Role/globex-training/falaj-burst-dxb-3",
    }  # fmt: skip
    for key in roles:
        for rule in found[key]["rules"]:
            assert not {"pods", "secrets"} & set(rule["resources"])
    for rule in found["ClusterRole/falaj-burst-dxb-2"]["rules"]:
        assert set(rule["verbs"]) <= {"list", "watch"}
    policy = found["ValidatingAdmissionPolicy/falaj-burst-own-jobs"]
    judged = {
        (group, kind)
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
    }
    written = {
        (group, kind)
        for key in roles
        for rule in found[key]["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
    }
    assert judged == written
    # A request for the object itself has none: to ask for it bare is an error, which denies.
    assert "request.subResource" not in json.dumps(policy)
    account = found["ServiceAccount/kueue-system/burst-dxb-2"]
    assert account["automountServiceAccountToken"] is False
    (subject,) = found["RoleBinding/acme-training/falaj-burst-dxb-2"]["subjects"]
    assert subject == {
        "kind": "ServiceAccount",
        "name": "burst-dxb-2",
        "namespace": "kueue-system",
    }


def test_every_kind_that_multikueue_watches_for_our_frameworks_may_be_watched() -> None:
    """It counts a worker as lost that doesn't let it watch one of them."""
    plurals = {
        "batch/job": "jobs", "jobset.x-k8s.io/jobset": "jobsets",
        "trainer.kubeflow.org/trainjob": "trainjobs", "pod": "pods", "statefulset": "statefulsets",
    }  # fmt: skip
    # MultiKueue has no adapter for Deployments: their pods are what it would send.
    assert set(FRAMEWORKS) - {"deployment"} == plurals.keys()
    assert {each for kinds in WATCHED.values() for each in kinds} == set(plurals.values())


def test_the_manifests_are_the_reviewed_ones_and_platforms_differ_where_they_must() -> None:
    texts: dict[str, str] = {}
    for place in PLACES:
        pools = {**QUEUES["pools"], "h200": {**QUEUES["pools"]["h200"], "topology": True}}
        found = queues(place, pools=pools, priority_classes=False)
        texts[place] = shown(list(found.values()))
    same_as_golden("queues-existing.yaml", texts["existing"])
    for place in ("eks", "aks"):
        same_as_golden(f"queues-{place}.diff", difference(texts["existing"], texts[place]))


def test_time_slices_are_of_one_tenant_unless_it_is_allowed() -> None:
    pool = {"nodes": 1, "cpu": 8, "memory_gib": 32, "devices": {SHARED: 4}}
    tenants = {each: {"quotas": {"l4-time-slicing-4": {}}} for each in ("acme", "globex")}
    both = arguments(pools={"l4-time-slicing-4": pool}, tenants=tenants)
    assert "acme, globex would share them" in refusal(check, both)
    both["pools"]["l4-time-slicing-4"] = {**pool, "tenants_share_gpus": True}
    assert check("queues", both).queues  # type: ignore[arg-type]
    both["tenants"]["acme"]["data_class"] = "restricted"
    assert "neither spot machines nor time slices" in refusal(check, both)


def test_jobs_without_gpus_try_pools_without_gpus_and_reserved_machines_come_first() -> None:
    one = QUEUES["pools"]["h200"]
    pools = {
        "h200": one,
        "h200-spot": {**one, "capacity": "spot"},
        "h200-reservation": {**one, "capacity": "reservation"},
        "cpu-x86-64": QUEUES["pools"]["cpu-x86-64"],
    }
    quotas = {each: {} for each in ("h200", "h200-spot", "h200-reservation")}
    quotas["cpu-x86-64"] = {"cpu": 1, "memory_gib": 1}
    found = queues(pools=pools, tenants={"acme": {"quotas": quotas}})
    (group,) = found["ClusterQueue/acme"]["spec"]["resourceGroups"]
    names = [each["name"] for each in group["flavors"]]
    assert names == ["cpu-x86-64", "h200-reservation", "h200-spot", "h200"]
    assert found["ResourceFlavor/h200"]["spec"]["nodeTaints"][0]["key"] == GPU
    assert "nodeTaints" not in found["ResourceFlavor/cpu-x86-64"]["spec"]
    spot = queues("aks", pools=pools, tenants={"acme": {"quotas": quotas}})
    (toleration,) = spot["ResourceFlavor/h200-spot"]["spec"]["tolerations"]
    assert toleration["key"] == "kubernetes.azure.com/scalesetpriority"


def test_the_pools_of_a_queue_all_have_a_topology_or_none_has() -> None:
    """Else Kueue admits jobs that ask for none to pools without one alone."""
    flavors = {
        key: each["spec"].get("topologyName")
        for key, each in queues().items()
        if key.startswith("ResourceFlavor/")
    }
    assert flavors == {
        "ResourceFlavor/h200": "falaj",
        "ResourceFlavor/h200-mig-1g.18gb": "falaj-hosts",
        "ResourceFlavor/cpu-x86-64": "falaj-hosts",
    }
    # Machines that the autoscaler makes later have no place in a topology yet.
    clouds = queues("aks")
    assert not any(key.startswith("Topology/") for key in clouds)
    assert all("topologyName" not in each["spec"] for each in clouds.values()
               if each["kind"] == "ResourceFlavor")  # fmt: skip
    pools = {**QUEUES["pools"]}
    pools["cpu-x86-64"] = {**pools["cpu-x86-64"], "topology": False}
    assert "allowed: all or none" in refusal(check, arguments(pools=pools))


@pytest.mark.parametrize(
    ("place", "levels"),
    [
        ("eks", [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)]),
        ("aks", []),
        ("existing", []),
    ],
)
def test_topologies_have_the_labels_that_nodes_carry_by_themselves(
    place: str, levels: list[str]
) -> None:
    """A node that lacks one label of its topology is never given a gang."""
    pools = {"h200": {**QUEUES["pools"]["h200"], "topology": True}}
    tenants = {"acme": {"quotas": {"h200": {}}}}
    here: dict[str, Any] = {"pools": pools, "tenants": tenants}
    found = queues(place, **here)["Topology/falaj"]["spec"]["levels"]
    host = "kubernetes.io/hostname"
    assert [each["nodeLabel"] for each in found] == [*levels, host]
    named = ["falaj.io/block", "falaj.io/rack", host]
    found = queues(place, **here, topology_levels=named)["Topology/falaj"]["spec"]["levels"]
    assert [each["nodeLabel"] for each in found] == named


def test_fractions_are_worth_what_they_are_of_a_gpu() -> None:
    assert credits_of(GPU) == WHOLE == 840
    assert credits_of(MIG) == 120
    assert credits_of("nvidia.com/mig-3g.71gb") == 420
    assert credits_of("nvidia.com/mig-7g.141gb") == 840
    assert credits_of("cpu") is None
    with pytest.raises(ValueError, match="is no GPU"):
        transformations(["cpu"])
    by_input = {each["input"]: each for each in transformations()}
    assert by_input[MIG] == {"input": MIG, "strategy": "Retain", "outputs": {CREDIT: "120"}}


def _amount(text: str) -> float:
    if text.endswith("m"):
        return int(text[:-1]) / 1000
    return float(text.removesuffix("Gi"))


def _total(found: dict[str, Any], flavor: str, resource: str) -> float:
    """What all queues and the cohort have of a resource together."""
    return sum(
        _amount(one["nominalQuota"])
        for key, each in found.items()
        if key.startswith(("ClusterQueue/", "Cohort/"))
        for group in each["spec"]["resourceGroups"]
        for entry in group["flavors"]
        if entry["name"] == flavor
        for one in entry["resources"]
        if one["name"] == resource
    )


@settings(max_examples=examples(150), deadline=None)
@given(
    nodes=st.integers(0, 200), cpu=st.floats(0.5, 512), memory=st.integers(1, 4096),
    gpus=st.integers(1, 16), parts=st.lists(st.integers(0, 400), min_size=1, max_size=6),
)  # fmt: skip
def test_quotas_add_up_to_what_the_pools_have_and_never_more(
    nodes: int, cpu: float, memory: int, gpus: int, parts: list[int]
) -> None:
    pools = {"h200": {"nodes": nodes, "cpu": cpu, "memory_gib": memory, "devices": {GPU: gpus}}}
    tenants = {f"t{i}": {"quotas": {"h200": {"devices": {GPU: n}}}} for i, n in enumerate(parts)}
    given_ = arguments(pools=pools, tenants=tenants)
    if sum(parts) > nodes * gpus:
        assert "the quotas add up to" in refusal(check, given_)
        return
    found = by_key(manifests(check("queues", given_)))  # type: ignore[arg-type]
    assert _total(found, "h200", GPU) == nodes * gpus
    assert _total(found, "h200", CREDIT) == nodes * gpus * WHOLE
    assert _total(found, "h200", "memory") == nodes * memory
    assert _total(found, "h200", "cpu") == pytest.approx(int(cpu * 1000) * nodes / 1000)
    for key, each in found.items():
        if key.startswith("ClusterQueue/"):
            (group,) = each["spec"]["resourceGroups"]
            for entry in group["flavors"]:
                assert [one["name"] for one in entry["resources"]] == group["coveredResources"]
                assert all(_amount(one["nominalQuota"]) >= 0 for one in entry["resources"])
