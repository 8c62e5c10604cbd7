"""Budgets: somebody hears of it when a stack costs more than was meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    View,
    indeterminate,
    rule,
    violation,
)
from falaj.policies.model.resource import REFERENCE
from falaj.policies.reading.remembered import remembered
from falaj.policies.reading.types import azure

#: What costs money for as long as it stands, whether used or not.
_COSTLY: Final = azure(
    "app:ManagedEnvironment", "batch:Pool", "compute:VirtualMachine",
    "compute:VirtualMachineScaleSet", "containerservice:AgentPool",
    "containerservice:ManagedCluster", "cosmosdb:DatabaseAccount", "databricks:Workspace",
    "dbformysql:Server", "dbforpostgresql:Server", "kusto:Cluster",
    "machinelearningservices:Compute", "network:ApplicationGateway", "network:AzureFirewall",
    "redis:Redis", "redisenterprise:RedisEnterprise", "sql:Database", "sql:ManagedInstance",
    "web:AppServicePlan",
) | {
    "aws:autoscaling/group:Group", "aws:docdb/clusterInstance:ClusterInstance",
    "aws:ec2/fleet:Fleet", "aws:ec2/instance:Instance", "aws:ecs/service:Service",
    "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup",
    "aws:elasticache/replicationGroup:ReplicationGroup", "aws:emr/cluster:Cluster",
    "aws:msk/cluster:Cluster", "aws:neptune/clusterInstance:ClusterInstance",
    "aws:opensearch/domain:Domain", "aws:rds/clusterInstance:ClusterInstance",
    "aws:rds/instance:Instance", "aws:redshift/cluster:Cluster",
    "aws:sagemaker/endpoint:Endpoint", "aws:sagemaker/notebookInstance:NotebookInstance",
}  # fmt: skip
_BUDGETS: Final = {
    "aws": ("aws:budgets/budget:Budget",),
    "azure-native": tuple(sorted(azure("consumption:Budget", "costmanagement:Budget"))),
}
#: A stack that stands on another one may have its budget there, for the whole account.


@rule(
    "governance-budget",
    "Somebody is told when a stack costs more than was meant",
    Severity.LOW,
    _COSTLY,
    ("iso27001:A.5.9", "iso27001:A.5.23", "uae-ia:T6.3.1"),
    "Add a budget (aws.budgets.Budget, azure_native.consumption.Budget) with people to notify, in "
    "this stack or in the one of the account, which this one then refers to.",
)
def budget(resource: Resource, view: View) -> Iterator[Finding]:
    """One finding a stack and cloud, at the first resource that costs money."""
    if view.stack is None:
        yield indeterminate("", "whether the stack has a budget isn't known yet")
        return
    if view.stack.of_kind(REFERENCE, *_BUDGETS.get(resource.package, ())):
        return
    costly = _costly(view.stack).get(resource.package, [])
    if costly and costly[0].urn == resource.urn:
        yield violation("", f"{len(costly)} resources cost money by the hour; no budget watches")


@remembered(2)
def _costly(stack: Stack) -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for each in stack.resources:
        if each.kind in _COSTLY:
            found.setdefault(each.package, []).append(each)
    return found


RULES: tuple[Rule, ...] = (budget,)
