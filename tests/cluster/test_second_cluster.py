"""Jobs that another cluster in the country runs, and whose regions they may name.

Two whole control planes with Kueue and JobSet: one's own with a machine of eight GPUs, and one in
the cloud's region with two. Both refuse what `Residency` has them refuse. The one sends jobs to
the other by MultiKueue, with the account that the other gave it. Machines are simulated. Times
are printed, with ``-s``, and never judged.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.cluster.residency_cluster import refusal
from tests.cluster.second_cluster import (
    CLOUD,
    JOBSETS,
    NAMESPACE,
    WORKLOADS,
    Clusters,
    clusters,
    job,
    moved,
    pods,
    state,
)
from tests.cluster.tenancy import (
    SITE,
    condition,
    eventually,
    members,
    pod_spec,
    simulated,
    waits,
    workload,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

FORBIDDEN = 403
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
