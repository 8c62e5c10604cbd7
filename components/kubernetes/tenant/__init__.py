"""A tenant of a cluster: its namespaces, and what separates it from everybody else."""

import pulumi

from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes.tenant.admission import admission_policies
from falaj.components.kubernetes.tenant.arguments import (
    TenantArgs,
    TenantEgressArgs,
    TenantNamespaceArgs,
    TenantSpec,
    check,
)
from falaj.components.kubernetes.tenant.namespaces import (
    budget_alerts,
    local_queue,
    namespace,
    quotas,
    service_accounts,
)
from falaj.components.kubernetes.tenant.network_policies import network_policies
from falaj.components.kubernetes.tenant.roles import roles
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Tenant", "TenantArgs", "TenantEgressArgs", "TenantNamespaceArgs", "check", "manifests"]


class Tenant(pulumi.ComponentResource):
    """A tenant of a cluster.

    ::

        tenant = Tenant("acme", {
            "distribution": "eks", "region": "me-central-1", "registry": registry,
            "tenant": "acme", "owner": "ml@acme.example", "data_class": "restricted",
            "cost_center": "ai-42", "acknowledge_degraded": "2026-04-30",
            "training": {"devices": {"nvidia.com/gpu": 32}},
            "serving": {"devices": {"nvidia.com/mig-1g.18gb": 14}},
            "egress": {"file-system": {"cidrs": ["10.20.0.0/20"], "ports": [988]}},
            "monthly_budget_usd": 120000,
        })

    Makes the namespaces ``<tenant>-training`` and ``<tenant>-serving``: pods meet the restricted
    standard, nothing comes in or goes out that isn't named, quotas bound what is asked for, and
    every GPU that isn't given is refused. Roles by duty are bound to the groups
    ``<tenant>:trainers``, ``:deployers``, ``:auditors`` and ``:admins`` of the identity provider.

    Nobody both trains and deploys: the same subject in both duties is refused here; who is in both
    groups at the identity provider, which RBAC would add up, is refused every change by a policy
    of the API server; and serving namespaces have no quota for jobs.

    Whoever may start a pod can mount every secret of its namespace. Keep those of serving out of
    the training namespace.
    """

    namespaces: list[str]
    """Names of the namespaces."""
    training_namespace: str
    """``<tenant>-training``."""
    serving_namespace: str
    """``<tenant>-serving``."""

    def __init__(
        self, name: str, args: TenantArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("Tenant"), name, engine_inputs(args), opts)
        for note in spec.notes:
            pulumi.log.warn(note, self)
        declare(self, name, manifests(spec))
        self.namespaces = [each.name for each in spec.namespaces]
        self.training_namespace = f"{spec.placed.tenant}-training"
        self.serving_namespace = f"{spec.placed.tenant}-serving"
        self.register_outputs({
            "namespaces": self.namespaces,
            "trainingNamespace": self.training_namespace,
            "servingNamespace": self.serving_namespace,
        })  # fmt: skip


def manifests(spec: TenantSpec) -> list[Manifest]:
    """The objects of a tenant."""
    placed, name = spec.placed, spec.name
    found: list[Manifest] = []
    for each in spec.namespaces:
        found.append(
            namespace(
                placed,
                name,
                each.name,
                each.purpose,
                pod_security_version=spec.pod_security_version,
                budget_usd=spec.monthly_budget_usd,
                mesh=spec.mesh,
            )
        )
        client = spec.client_ids.get(each.purpose, "")
        found += service_accounts(placed, name, each.name, each.purpose, client)
        found += quotas(
            placed, name, each.name, each.purpose, quota=each.quota, priorities=spec.priorities
        )
        found += network_policies(
            placed,
            name,
            each.name,
            each.purpose,
            egress=spec.egress,
            serving_ports=spec.serving_ports,
            monitoring=spec.monitoring_namespace,
            gateway=spec.gateway_namespace,
        )
        found.append(local_queue(placed, name, each.name, placed.tenant, spec.queue_weight))
    listed = [(each.name, each.purpose) for each in spec.namespaces]
    found += roles(placed, name, listed, spec.members)
    found += admission_policies(placed, name, spec.members, spec.priorities, spec.devices)
    if spec.monthly_budget_usd is not None:
        names = [each for each, _ in listed]
        found.append(
            budget_alerts(placed, name, names, spec.monthly_budget_usd, spec.monitoring_namespace)
        )
    return found
