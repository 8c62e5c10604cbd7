"""Objects of shipped stacks inside clusters, with the children of those charts that can be had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from falaj.components.kubernetes import federated_training, sweep
from falaj.components.kubernetes._objects import Manifest
from falaj.sandbox.charts import groups
from falaj.sandbox.charts.groups import Capabilities
from falaj.sandbox.charts.library import short_name
from tests.components.kubernetes.test_federated_training import COORDINATOR, SITE
from tests.components.kubernetes.test_sweep import SEARCH
from tests.components.kubernetes.training_jobs import CPU, arguments
from tests.stacks.in_mocks import declare, shipped

DEFINITION = "CustomResourceDefinition"
#: By distribution: the stack of the platform, and that of a team.
STACKS = {
    "existing": ("onprem-cluster", "onprem-workloads"),
    "eks": ("aws-platform", "aws-workloads"),
    "aks": ("azure-platform", "azure-workloads"),
}


@dataclass
class Contents:
    """What stacks inside a cluster are made of."""

    region: str
    registry: str
    objects: list[Manifest] = field(default_factory=list[Manifest])
    """Declared objects, and the children of charts."""
    policies: list[Manifest] = field(default_factory=list[Manifest])
    """Policies of admission with their bindings: the cluster's, and its tenants'."""
    absent: set[str] = field(default_factory=set[str])
    """Charts that this machine can't have."""

    def of_kind(self, *kinds: str) -> list[Manifest]:
        """Objects of some kinds."""
        return [each for each in self.objects if each["kind"] in kinds]

    def one(self, kind: str, name: str) -> Manifest:
        """The object of a kind and name."""
        (found,) = [each for each in self.of_kind(kind) if each["metadata"]["name"] == name]
        return found


def contents(*stacks: str, definitions: bool = True) -> Contents:
    """The objects of shipped stacks of one cluster; charts are rendered by helm.

    Args:
        stacks: their names, the platform's first.
        definitions: with the definitions of charts, which take most of the time.
    """
    config = shipped(stacks[0])
    found = Contents(config["falaj:region"], config["falaj:registry"])
    for stack in stacks:
        for each in declare(shipped(stack), stack).resources:
            if each.type == groups.CHART:
                inputs = {**each.inputs, "skipCrds": not definitions}
                made = groups.build(each.type, each.name, inputs, Capabilities())
                children = [one.manifest for one in made.objects]
                found.objects += [
                    one for one in children if definitions or one["kind"] != DEFINITION
                ]
                if not made.objects:
                    found.absent.add(short_name(str(each.inputs["chart"])))
            elif each.type.startswith("kubernetes:"):
                is_policy = str(each.inputs["kind"]).startswith("ValidatingAdmissionPolicy")
                (found.policies if is_policy else found.objects).append(each.inputs)
    return found


def of_teams(place: str, like: Contents) -> list[Manifest]:
    """Workloads that no shipped stack has: a sweep, and both sides of a federation."""
    at = {"region": like.region, "registry": like.registry}
    given: Any = {**arguments(place, **CPU), **at}
    federation = federated_training
    coordinator = {key: each for key, each in COORDINATOR.items() if key != "address"}
    if place == "existing":
        coordinator = COORDINATOR
    return [
        *sweep.manifests(sweep.check("tuning", {**given, "search": SEARCH})),
        *federation.manifests(federation.check("claims", {**given, **coordinator})),
        *federation.manifests(federation.check("branch", {**given, **SITE})),
    ]
