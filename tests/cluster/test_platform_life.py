"""A platform and a team's workloads on a control plane, from nothing to nothing.

The commands are those of the page about it, in an environment that they made themselves: the
shipped stacks as they are, with all packs, on an API server that judges each object; pods are
simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import wait_for
from tests.cluster.inventory import inventory
from tests.cluster.tenancy import counted
from tests.newcomer import documents
from tests.newcomer.machine import ORDINARY_USER, Machine, newcomer
from tests.stacks.clouds import counts

pytestmark = [
    pytest.mark.cluster, pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(1800),
]  # fmt: skip

CLUSTER, WORKLOADS = "onprem-cluster", "onprem-workloads"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A fresh clone and an empty home. State is written at the end of each run only.

    With the definitions of whole charts it is megabytes, and steps are hundreds.
    """
    with newcomer(tmp_path_factory.mktemp("life")) as made:
        made.variables["PULUMI_SKIP_CHECKPOINTS"] = "true"
        yield made


def _edit(machine: Machine, stack: str, edit: Callable[[dict[str, Any]], object]) -> None:
    file = machine.clone / "stacks" / f"Pulumi.{stack}.yaml"
    document = yaml.safe_load(file.read_text())
    edit(document["config"])
    file.write_text(yaml.safe_dump(document))


def test_platform_and_workloads_from_nothing_to_nothing(
    machine: Machine, judged: Callable[[ControlPlane], None]
) -> None:
    start, up, down, end = documents.commands("cluster")
    assert CLUSTER in up

    def of_workloads(command: str) -> str:
        return command.replace(CLUSTER, WORKLOADS)

    assert "ready: export KUBECONFIG=" in machine.run(start)
    bare = ControlPlane(machine.data / "cluster")
    before = inventory(bare.objects)
    assert counts(machine.run(up))["created"] > 500
    namespaces = {each["metadata"]["name"] for each in bare.objects.list("v1", "Namespace")}
    assert {"kueue-system", "cert-manager", "acme-training", "acme-serving"} <= namespaces
    # The quota controller looks for kinds that are new, and counts them, every half minute.
    wait_for(lambda: counted(bare, "acme-training"), "job sets are counted", 120)
    printed = machine.run(of_workloads(up))
    assert set(counts(printed)) == {"created"}
    assert "SANDBOX=1 CLUSTER=1" in printed, "how to go on, with this cluster"
    assert bare.objects.get("apps/v1", "Deployment", "credit-v7", "acme-serving")
    assert bare.objects.get("jobset.x-k8s.io/v1alpha2", "JobSet", "notes", "acme-training")

    # All packs have judged all of it; what follows is about the cluster alone.
    for stack in (CLUSTER, WORKLOADS):
        _edit(machine, stack, _fewer_packs)
    _edit(machine, CLUSTER, _more_quota)
    changed = counts(machine.run(up))
    assert set(changed) == {"updated", "unchanged"}
    assert changed["updated"] < 10, "what nobody changed stays"
    quotas = bare.objects.list("v1", "ResourceQuota", "acme-serving")
    assert any(each["spec"]["hard"].get("requests.cpu") == "96" for each in quotas)

    assert "is down" in machine.run(of_workloads(down))
    assert "is down" in machine.run(down)
    wait_for(lambda: not inventory(bare.objects) ^ before, "nothing is left", 60)
    judged(bare)
    assert "ended" in machine.run(end)
    assert machine.processes() == []


def _fewer_packs(config: dict[str, Any]) -> None:
    config["falaj:policies"]["packs"] = ["governance"]


def _more_quota(config: dict[str, Any]) -> None:
    config["falaj:tenants"]["acme"]["serving"]["cpu"] = 96


def test_who_can_have_no_real_machines_is_told_and_has_simulated_ones(machine: Machine) -> None:
    start, *_, end = documents.commands("real")
    machine.prefix = ORDINARY_USER
    printed = machine.run(start, 2)
    assert "machines are simulated: this computer lacks" in printed
    assert "has no real machines, and simulated ones pull no images" in printed
    assert "ready: export KUBECONFIG=" in printed
    assert "ended" in machine.run(end)
    assert machine.processes() == []
