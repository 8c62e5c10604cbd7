"""What the pods of one service account may do, without any secret."""

import pulumi
from pulumi_azure_native import managedidentity

from falaj.components.azure._component import component_options, resource_group, titled
from falaj.components.azure._ids import bucket_id
from falaj.components.azure._roles import Grant, grant
from falaj.components.specification.identity import DEPLOYER, TRAINER
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.workload_identity import WorkloadIdentityArgs, check

__all__ = ["WorkloadIdentity", "WorkloadIdentityArgs"]

#: Built-in roles by duty and bucket. The writer's may delete: old checkpoints are removed by
#: training itself, and can be had back.
_RIGHTS = {
    TRAINER: {
        "datasets": "Storage Blob Data Reader",
        "checkpoints": "Storage Blob Data Contributor",
        "models": "Storage Blob Data Contributor",
    },
    DEPLOYER: {"models": "Storage Blob Data Reader"},
}
#: https://learn.microsoft.com/azure/aks/workload-identity-overview
_AUDIENCE = "api://AzureADTokenExchange"


class WorkloadIdentity(pulumi.ComponentResource):
    """An identity for the pods of one service account: trainer or deployer.

    The cluster vouches for its pods: they exchange the token of their service account for one of
    the identity, and no secret exists. A trainer reads datasets and writes checkpoints and models;
    a deployer reads models. Annotate the service account with
    ``azure.workload.identity/client-id: <identity_id>`` and label its pods
    ``azure.workload.identity/use: "true"``.

    Pods exchange tokens at ``login.microsoftonline.com``, which has no private address: the
    network needs it among its ``egress_domains``. Nothing but tokens goes there.

    Example:
        ``trainer = WorkloadIdentity("trainer", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "cluster_id":
        cluster.cluster_id, "issuer_url": cluster.issuer_url, "namespace": "training",
        "service_account": "trainer", "duty": "trainer", "bucket_ids": store.bucket_ids,
        "data_key_id": keys.key_ids["data"]}, opts)``

    Makes: a resource group, a user-assigned identity, a federated credential, and an assignment of
    a built-in role on each container.
    """

    identity_id: pulumi.Output[str]
    """Client id of the identity."""

    def __init__(
        self, name: str, args: WorkloadIdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:WorkloadIdentity",
            name,
            engine_inputs(args),
            component_options(opts),
        )
        children = pulumi.ResourceOptions(parent=self)
        group = resource_group(name, spec.placed, children)
        identity = managedidentity.UserAssignedIdentity(
            f"{name}-identity",
            resource_name_=titled(spec.placed, name),
            resource_group_name=group.name,
            location=spec.placed.region,
            tags=spec.placed.tags(name),
            opts=children,
        )
        credential = managedidentity.FederatedIdentityCredential(
            f"{name}-credential",
            federated_identity_credential_resource_name="cluster",
            resource_name_=identity.name,
            resource_group_name=group.name,
            issuer=args["issuer_url"],
            subject=f"system:serviceaccount:{spec.namespace}:{spec.service_account}",
            audiences=[_AUDIENCE],
            opts=children,
        )
        grants = [
            grant(
                f"{name}-{bucket}",
                Grant(role, bucket_id(args["bucket_ids"], bucket), identity.principal_id),
                children,
            )
            for bucket, role in _RIGHTS[spec.duty].items()
        ]
        # Whoever gets the id may rely on what it allows.
        self.identity_id = pulumi.Output.all(
            identity.client_id, credential.id, *(each.id for each in grants)
        ).apply(lambda found: found[0])
        self.register_outputs({"identityId": self.identity_id})
