"""A platform and a team's workloads on a control plane, from nothing to nothing.

What `make up STACK=onprem-cluster SANDBOX=1 CLUSTER=1` and its like do: the shipped stacks as they
are, with all packs, on an API server that judges each object; pods are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.engine.controlplane import ControlPlane, start
from falaj.engine.controlplane.addons import BARE_DEFINITIONS
from falaj.engine.controlplane.machines import Site
from falaj.engine.controlplane.objects import wait_for
from tests.cluster.inventory import inventory
from tests.cluster.tenancy import counted
from tests.ports import free_port
from tests.stacks.clouds import counts
from tests.stacks.conftest import Project, copy_project

pytestmark = [
    pytest.mark.cluster, pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(1800),
]  # fmt: skip

CLUSTER, WORKLOADS = "onprem-cluster", "onprem-workloads"


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """A control plane on which nothing of a platform runs, with machines of the stack's site."""
    with start(
        nodes="h200=2,cpu=3", controllers=(), crds=BARE_DEFINITIONS, webhooks=False,
        site=Site("abudhabi-dc1", ("abudhabi-dc1-1",), "existing"),
    ) as plane:  # fmt: skip
        yield plane


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, charts: Path) -> Iterator[Project]:
    """A copy of the project. Its state is written at the end of each run only.

    With the definitions of whole charts it is megabytes, and steps are hundreds.
    """
    folder = tmp_path_factory.mktemp("falaj")
    (folder / "home").mkdir()
    made = Project(copy_project(folder / "project"), folder / "home", CLUSTER, free_port())
    assert any(charts.iterdir())
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
        yield made
    made.sweep()


def _edit(project: Project, stack: str, edit: Callable[[dict[str, Any]], object]) -> None:
    project.stack = stack
    document = yaml.safe_load(project.file.read_text())
    edit(document["config"])
    project.file.write_text(yaml.safe_dump(document))


def test_platform_and_workloads_from_nothing_to_nothing(
    bare: ControlPlane, project: Project
) -> None:
    def run(command: str, stack: str) -> str:
        project.stack = stack
        where = ["--sandbox", "--cluster", str(bare.kubeconfig)]
        done = project.falaj(command, *where, seconds=900)
        assert done.returncode == 0, done.stdout
        return done.stdout

    before = inventory(bare.objects)
    printed = run("up", CLUSTER)
    assert counts(printed)["created"] > 500
    assert f"--sandbox --cluster {bare.kubeconfig}" in printed, "how to go on, with this cluster"
    namespaces = {each["metadata"]["name"] for each in bare.objects.list("v1", "Namespace")}
    assert {"kueue-system", "cert-manager", "acme-training", "acme-serving"} <= namespaces
    # The quota controller looks for kinds that are new, and counts them, every half minute.
    wait_for(lambda: counted(bare, "acme-training"), "job sets are counted", 120)
    assert set(counts(run("up", WORKLOADS))) == {"created"}
    assert bare.objects.get("apps/v1", "Deployment", "credit-v7", "acme-serving")
    assert bare.objects.get("jobset.x-k8s.io/v1alpha2", "JobSet", "credit", "acme-training")

    # All packs have judged all of it; what follows is about the cluster alone.
    for stack in (CLUSTER, WORKLOADS):
        _edit(project, stack, _fewer_packs)
    _edit(project, CLUSTER, _more_quota)
    changed = counts(run("up", CLUSTER))
    assert set(changed) == {"updated", "unchanged"}
    assert changed["updated"] < 10, "what nobody changed stays"
    quotas = bare.objects.list("v1", "ResourceQuota", "acme-serving")
    assert any(each["spec"]["hard"].get("requests.cpu") == "96" for each in quotas)

    run("down", WORKLOADS)
    run("down", CLUSTER)
    wait_for(lambda: not inventory(bare.objects) ^ before, "nothing is left", 60)


def _fewer_packs(config: dict[str, Any]) -> None:
    config["falaj:policies"]["packs"] = ["governance"]


def _more_quota(config: dict[str, Any]) -> None:
    config["falaj:tenants"]["acme"]["serving"]["cpu"] = 96
