"""Objects of a tenant: datasets, models, checkpoints, audit logs, infrastructure state."""

from dataclasses import dataclass
from typing import Literal

import pulumi
from pulumi_azure_native import storage

from falaj.components.azure._component import compact, component_options, kept, resource_group
from falaj.components.azure._private_endpoint import Door, private_endpoint
from falaj.components.azure._storage import SKUS, Account, blob_service, lifecycle, storage_account
from falaj.components.specification.object_store import ObjectStoreArgs, check
from falaj.components.specification.property_names import engine_inputs

__all__ = ["ObjectStore", "ObjectStoreArgs"]


@dataclass(frozen=True)
class _Store:
    """An account: what it is for decides its key and who comes near it."""

    title: str
    buckets: tuple[str, ...]
    key: Literal["data_key_id", "log_key_id", "state_key_id"]
    """Argument with its key."""


_AUDIT = "audit"
_STORES = (
    _Store("data", ("datasets", "models", "checkpoints"), "data_key_id"),
    _Store(_AUDIT, (_AUDIT,), "log_key_id"),
    _Store("state", ("state",), "state_key_id"),
)


class ObjectStore(pulumi.ComponentResource):
    """Containers for datasets, models, checkpoints, audit logs and the infrastructure's state.

    Three storage accounts, one for each of the keys of data, logs and state, with a container for
    each bucket. Nobody comes in but through private endpoints and with roles of Entra: there are
    no account keys, no public addresses, no anonymous reading. Data are encrypted with our key and
    once more below it. Replaced and deleted objects can be had back for ``old_version_days``.
    Copies go only to accounts with endpoints in the same network, and replicas only into the
    region's pair in the country, if ``geo`` is asked for and both regions are allowed.

    In ``production`` audit logs can't be changed or deleted for ``audit_retention_days``;
    elsewhere they go with their stack. Azure makes this rule unlocked: who may change the account
    may still lift it. Whoever must not be able to locks it (``az storage account update
    --immutability-state Locked``), which can't be undone by anybody.

    Example:
        ``store = ObjectStore("store", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "data_key_id":
        keys.key_ids["data"], "log_key_id": keys.key_ids["logs"], "state_key_id":
        keys.key_ids["state"], "key_identity_id": keys.key_identity_id, "network_id":
        network.network_id, "endpoint_subnet_id": network.endpoint_subnet_ids["1"]}, opts)``

    Makes: a resource group; for each account its blob service settings, its lifecycle, a private
    endpoint with names, and its containers. In ``production`` all of it is protected and retained.
    """

    bucket_names: pulumi.Output[dict[str, str]]
    """Name of the container by purpose."""
    bucket_ids: pulumi.Output[dict[str, str]]
    """Id of the container by purpose."""
    store_ids: pulumi.Output[dict[str, str]]
    """Id of the storage account by purpose."""

    def __init__(
        self, name: str, args: ObjectStoreArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:ObjectStore", name, engine_inputs(args), component_options(opts)
        )
        self._spec = spec
        self._name = name
        self._args = args
        self._opts = pulumi.ResourceOptions(parent=self)
        self._kept = kept(self._opts, spec.placed.retained)
        self._group = resource_group(name, spec.placed, self._opts, stateful=True)
        names: dict[str, pulumi.Output[str]] = {}
        ids: dict[str, pulumi.Output[str]] = {}
        stores: dict[str, pulumi.Output[str]] = {}
        for store in _STORES:
            buckets = [each for each in store.buckets if each in spec.buckets]
            if not buckets:
                continue
            account, ready = self._account(store)
            for bucket in buckets:
                container = self._container(account, bucket, ready)
                names[bucket] = container.name
                ids[bucket] = container.id
                stores[bucket] = account.id
        self.bucket_names = pulumi.Output.all(**names)
        self.bucket_ids = pulumi.Output.all(**ids)
        self.store_ids = pulumi.Output.all(**stores)
        self.register_outputs(
            {
                "bucketNames": self.bucket_names,
                "bucketIds": self.bucket_ids,
                "storeIds": self.store_ids,
            }
        )

    def _account(self, store: _Store) -> tuple[storage.StorageAccount, list[pulumi.Resource]]:
        spec, placed = self._spec, self._spec.placed
        sku = SKUS[spec.redundancy]
        if spec.redundancy == "geo" and not placed.place.zones:
            sku = storage.SkuName.STANDARD_GRS
        audit = store.title == _AUDIT
        account = storage_account(
            f"{self._name}-{store.title}-account",
            placed,
            Account(
                title=compact(placed, "storage", self._name, store.title),
                group=self._group.name,
                key_id=self._args[store.key],
                identity_id=self._args.get("key_identity_id", ""),
                sku=sku,
                tags=placed.tags(self._name),
                # Azure Monitor writes its logs as such a service.
                trusted_services=audit,
                immutable_days=spec.audit_retention_days if audit and placed.retained else None,
            ),
            self._kept,
        )
        service = blob_service(
            f"{self._name}-{store.title}-objects",
            account,
            self._group.name,
            spec.old_version_days,
            self._kept,
        )
        rules = lifecycle(
            f"{self._name}-{store.title}-lifecycle",
            account,
            self._group.name,
            spec.old_version_days,
            # Azure sees one change of an account at a time.
            pulumi.ResourceOptions.merge(self._kept, pulumi.ResourceOptions(depends_on=[service])),
        )
        door = Door(
            self._args.get("network_id", ""),
            self._args.get("endpoint_subnet_id", ""),
            self._group.name,
            placed.region,
            placed.tags(self._name),
        )
        private_endpoint(
            f"{self._name}-{store.title}-endpoint", "blob", account.id, door, self._opts
        )
        return account, [service, rules]

    def _container(
        self, account: storage.StorageAccount, bucket: str, ready: list[pulumi.Resource]
    ) -> storage.BlobContainer:
        return storage.BlobContainer(
            f"{self._name}-{bucket}",
            container_name=bucket,
            account_name=account.name,
            resource_group_name=self._group.name,
            public_access=storage.PublicAccess.NONE,
            opts=pulumi.ResourceOptions.merge(
                self._kept, pulumi.ResourceOptions(depends_on=ready)
            ),
        )
