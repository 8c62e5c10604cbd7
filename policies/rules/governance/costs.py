"""Ceilings of what may be spent: budgets, and machines of GPU pools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.clusters import GPU
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    get,
    indeterminate,
    is_true,
    is_unknown,
    items,
    leaves,
    number,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import KARPENTER_POOL, azure
from falaj.wire import STACK_REFERENCE
from falaj.wire.documents import is_mapping

#: Families with accelerators: GPUs (p, g), Trainium, Inferentia, Gaudi
#: (https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html).
_AWS_GPUS: Final = re.compile(r"(?:ml\.)?(?:p\d|g\d|gr\d|trn\d|inf\d|dl\d)[a-z0-9-]*\.[a-z0-9-]+")
#: Azure's N series: NC, ND, NG, NP and NV
#: (https://learn.microsoft.com/azure/virtual-machines/sizes/overview).
_AZURE_GPUS: Final = re.compile(r"(?:standard_)?n[cdgpv]\w*")


def has_gpu(name: str) -> bool:
    """Whether machines of a type have accelerators, by its name on AWS or Azure."""
    lower = name.strip().lower()
    return bool(_AWS_GPUS.fullmatch(lower) or _AZURE_GPUS.fullmatch(lower))


# Budgets: somebody hears of it when a stack costs more than was meant.

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
def budget(resource: Resource, context: Context) -> Iterator[Finding]:
    """One finding a stack and cloud, at the first resource that costs money."""
    if context.stack is None:
        yield indeterminate("", "whether the stack has a budget isn't known yet")
        return
    if context.stack.of_kind(STACK_REFERENCE, *_BUDGETS.get(resource.package, ())):
        return
    costly = _costly(context.stack).get(resource.package, [])
    if costly and costly[0].urn == resource.urn:
        yield violation("", f"{len(costly)} resources cost money by the hour; no budget watches")


@remembered(2)
def _costly(stack: Stack) -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for each in stack.resources:
        if each.kind in _COSTLY:
            found.setdefault(each.package, []).append(each)
    return found


# Pools of GPUs: how many machines they may grow to.

_NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
_SCALING: Final = "aws:autoscaling/group:Group"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
_CONFIGURATION: Final = "aws:ec2/launchConfiguration:LaunchConfiguration"
_POOL: Final = azure("containerservice:AgentPool")
_CLUSTER: Final = azure("containerservice:ManagedCluster")
_SURGE: Final = "upgradeSettings.maxSurge"
"""Machines of an upgrade, beside the others: a number, or percent of the pool, rounded up.
https://learn.microsoft.com/azure/aks/upgrade-options"""
_SET: Final = azure("compute:VirtualMachineScaleSet")
_COMPUTE: Final = azure("machinelearningservices:Compute")


@rule(
    "governance-gpu-ceiling",
    "Pools of GPUs have a ceiling",
    Severity.MEDIUM,
    _POOL | _CLUSTER | _SET | _COMPUTE | {_NODE_GROUP, _SCALING},
    ("iso27001:A.5.9", "iso27001:A.5.23", "uae-ia:T6.3.1"),
    "Set the most machines that the pool may have (maxSize, maxCount …), no more than the "
    "setting mostGpuMachines allows.",
)
def gpu_ceiling(resource: Resource, context: Context) -> Iterator[Finding]:
    """The setting ``mostGpuMachines`` is the highest ceiling that a pool may have.

    On AKS with what it has more while it is upgraded, where that is stated. EKS adds machines by
    itself, whose number no property of a node group states.
    """
    most = context.settings.most_gpu_machines
    if resource.kind in _CLUSTER:
        for where, pool in entries(resource.get("agentPoolProfiles"), "agentPoolProfiles"):
            yield from _pool(pool, where + ".", most)
    elif resource.kind in _POOL:
        yield from _pool(resource.properties, "", most)
    elif resource.kind in _SET:
        yield from _plain(resource, "sku.name", "sku.capacity", most)
    elif resource.kind in _COMPUTE:
        scale = "properties.properties.scaleSettings.maxNodeCount"
        if text(resource.get("properties.computeType")).lower() in {"", "amlcompute"}:
            yield from _plain(resource, "properties.properties.vmSize", scale, most)
    else:
        path = "scalingConfig.maxSize" if resource.kind == _NODE_GROUP else "maxSize"
        yield from _grown(resource, context, path, most)


def _limited(value: Any, path: str, most: int, gpu: bool | None) -> Iterator[Finding]:
    """`gpu` is None where the machines' type can't be seen."""
    if gpu is False:
        return
    ceiling = number(value)
    if is_unknown(value):
        yield indeterminate(path, f"how far the pool of GPUs grows can't be seen; {most} at most")
    elif ceiling is not None and ceiling <= most:
        return
    elif gpu is None:
        yield indeterminate(path, "whether these machines have GPUs can't be seen")
    elif ceiling is None:
        yield violation(path, f"the pool of GPUs has no ceiling; {most} machines at most")
    else:
        yield violation(
            path, f"the pool may grow to {ceiling:g} machines with GPUs; {most} at most"
        )


def _gpu(names: list[Any]) -> bool | None:
    if any(has_gpu(text(each)) for each in names):
        return True
    return None if any(is_unknown(each) for each in names) else False


def _plain(resource: Resource, size: str, ceiling: str, most: int) -> Iterator[Finding]:
    yield from _limited(resource.get(ceiling), ceiling, most, _gpu([resource.get(size)]))


def _pool(pool: Any, base: str, most: int) -> Iterator[Finding]:
    """A pool of AKS: scaled up to maxCount, or of count machines, which is 1 by default."""
    gpu = _gpu([get(pool, "vmSize")])
    scaled = get(pool, "enableAutoScaling")
    if is_true(scaled) or is_unknown(scaled):
        path, ceiling = "maxCount", get(pool, "maxCount")
    else:
        path, ceiling = "count", get(pool, "count")
        ceiling = 1 if ceiling is ABSENT else ceiling
    found = list(_limited(ceiling, base + path, most, gpu))
    yield from found
    if not found and gpu is not False:
        surge = get(pool, _SURGE)
        yield from _upgraded(surge, number(ceiling), base + _SURGE, most, gpu)


def _upgraded(
    surge: Any, ceiling: float | None, path: str, most: int, gpu: bool | None
) -> Iterator[Finding]:
    """What a pool has beyond its ceiling while it is upgraded: a number, or percent of it."""
    if is_unknown(surge):
        yield indeterminate(
            path, f"how many machines an upgrade adds can't be seen; {most} at most"
        )
        return
    if ceiling is None or surge is ABSENT:
        return
    stated = text(surge)
    part = number(stated.removesuffix("%") if stated else surge)
    if part is None:
        yield indeterminate(path, "what an upgrade adds is neither a number nor percent")
        return
    # Rounded up by Azure, which changes nothing here: ceilings are whole numbers.
    more = ceiling * part / 100 if stated.endswith("%") else part
    if ceiling + more <= most:
        return
    if gpu is None:
        yield indeterminate(path, "whether these machines have GPUs can't be seen")
    else:
        yield violation(
            path,
            f"an upgrade adds {stated or format(part, 'g')} to {ceiling:g} machines with GPUs; "
            f"{most} at most",
        )


def _grown(resource: Resource, context: Context, path: str, most: int) -> Iterator[Finding]:
    """Node groups and Auto Scaling groups, whose machines may be a template's."""
    names = [each for _, each in select(resource.properties, "instanceTypes")]
    mixed = "mixedInstancesPolicy.launchTemplate"
    names += [each for _, each in select(resource.properties, f"{mixed}.overrides.instanceType")]
    if not names and (gpu := _of_image(resource)) is not None:
        names = [gpu]
    templates = (
        "launchTemplate.id",
        "launchTemplate.name",
        "launchConfiguration",
        f"{mixed}.launchTemplateSpecification.launchTemplateId",
        f"{mixed}.launchTemplateSpecification.launchTemplateName",
    )
    if not names:
        if context.stack is None and any(resource.get(each) is not ABSENT for each in templates):
            if not _within(resource.get(path), most):
                yield indeterminate(
                    path, "what machines the launch template makes isn't known yet"
                )
            return
        for template in templates:
            for each in context.referred(resource, template):
                if each.kind in {_TEMPLATE, _CONFIGURATION}:
                    names += items(each.get("instanceType"))
    yield from _limited(resource.get(path), path, most, _gpu(names))


def _within(value: Any, most: int) -> bool:
    ceiling = number(value)
    return ceiling is not None and ceiling <= most


def _of_image(resource: Resource) -> str | None:
    """A machine with GPUs where a node group's image is for these."""
    kind = text(resource.get("amiType")).upper()
    return "p5.48xlarge" if "GPU" in kind or "NVIDIA" in kind or "NEURON" in kind else None


_GPU_WORDS: Final = (GPU, "instance-gpu", "gpu.nvidia.com")


@rule(
    "governance-gpu-pool-limits",
    "Karpenter's pools of GPUs have limits",
    Severity.MEDIUM,
    frozenset((KARPENTER_POOL,)),
    ("iso27001:A.5.9", "iso27001:A.5.23", "uae-ia:T6.3.1"),
    'Set spec.limits with a number for "nvidia.com/gpu" (or cpu) that the team can pay for.',
)
def gpu_pool_limits(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without limits a pool grows as long as pods wait: https://karpenter.sh/docs/concepts/
    nodepools/#speclimits."""
    if not _is_for_gpus(resource.get("spec.template")):
        return
    limits = resource.get("spec.limits")
    if is_unknown(limits):
        yield indeterminate("spec.limits", "how far the pool of GPUs grows can't be seen")
    elif not is_mapping(limits) or not set(limits) & {GPU, "cpu"}:
        yield violation("spec.limits", "the pool of GPUs has no limit of GPUs or CPUs")


def _is_for_gpus(template: Any) -> bool:
    """Whether its machines, taints or labels speak of GPUs."""
    for path, value in leaves(template):
        given = text(value).lower()
        keys = "/".join(str(each) for each in path)
        if has_gpu(given) or any(each in given or each in keys for each in _GPU_WORDS):
            return True
    families = select(template, "spec.requirements.values")
    return any(has_gpu(f"{text(each)}.large") for _, each in families if "." not in text(each))


RULES: tuple[Rule, ...] = (
    budget,
    gpu_ceiling,
    gpu_pool_limits,
)
