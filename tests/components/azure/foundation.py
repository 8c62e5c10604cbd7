"""The components of a foundation on Azure, wired as a stack wires them."""

from __future__ import annotations

from typing import Any

import pulumi

from falaj.components.azure import (
    AuditTrail,
    Budget,
    Identity,
    KeyRing,
    Network,
    ObjectStore,
    Registry,
    TrainingFileSystem,
    WorkloadIdentity,
)
from tests.components.azure.conftest import PLACED

Args = dict[str, Any]


class Foundation:
    """Makes components on demand, each with what it stands on.

    Args:
        opts: with the provider.
        placed: changes of what every component takes.
    """

    def __init__(self, opts: pulumi.ResourceOptions, **placed: Any) -> None:
        self._opts = opts
        self._placed: Args = {**PLACED, **placed}
        self._made: dict[str, Any] = {}

    def keys(self, **changes: Any) -> KeyRing:
        """The key ring ``keys``."""
        return self._once("keys", KeyRing, lambda: {}, changes)

    def network(self, **changes: Any) -> Network:
        """The network ``net``."""
        return self._once(
            "net",
            Network,
            lambda: {
                "log_key_id": self.keys().key_ids["logs"],
                "key_identity_id": self.keys().key_identity_id,
                "key_ring_id": self.keys().key_ring_id,
            },
            changes,
        )

    def reached(self) -> Args:
        """Arguments of what is reached through the network."""
        subnets = self.network().endpoint_subnet_ids
        return {
            "network_id": self.network().network_id,
            "endpoint_subnet_id": subnets.apply(lambda found: min(found.values())),
            "key_identity_id": self.keys().key_identity_id,
        }

    def store(self, **changes: Any) -> ObjectStore:
        """The object store ``store``."""
        ids = self.keys().key_ids
        return self._once(
            "store",
            ObjectStore,
            lambda: {
                **self.reached(),
                "data_key_id": ids["data"],
                "log_key_id": ids["logs"],
                "state_key_id": ids["state"],
            },
            changes,
        )

    def registry(self, **changes: Any) -> Registry:
        """The registry ``images``."""
        key = self.keys().key_ids["registry"]
        return self._once(
            "images",
            Registry,
            lambda: {
                **self.reached(),
                "registry_key_id": key,
                "key_ring_id": self.keys().key_ring_id,
            },
            changes,
        )

    def trail(self, **changes: Any) -> AuditTrail:
        """The audit trail ``audit``."""
        return self._once(
            "audit",
            AuditTrail,
            lambda: {
                **self.reached(),
                "log_key_id": self.keys().key_ids["logs"],
                "key_ring_id": self.keys().key_ring_id,
                "audit_bucket_name": self.store().bucket_names["audit"],
                "audit_store_id": self.store().store_ids["audit"],
            },
            changes,
        )

    def files(self, **changes: Any) -> TrainingFileSystem:
        """The file system ``files``."""
        return self._once(
            "files",
            TrainingFileSystem,
            lambda: {
                **self.reached(),
                "key_ring_id": self.keys().key_ring_id,
                "data_key_id": self.keys().key_ids["data"],
                "storage_subnet_ids": self.network().storage_subnet_ids,
                "security_group_id": self.network().security_group_ids["storage"],
            },
            changes,
        )

    def people(self, **changes: Any) -> Identity:
        """The identity component ``people``."""
        return self._once(
            "people",
            Identity,
            lambda: {
                "bucket_ids": self.store().bucket_ids,
                "repository_ids": self.registry().repository_ids,
                "key_ids": self.keys().key_ids,
                "key_ring_id": self.keys().key_ring_id,
            },
            changes,
        )

    def workload(self, duty: str, **changes: Any) -> WorkloadIdentity:
        """The workload identity ``<duty>``."""
        return self._once(
            duty,
            WorkloadIdentity,
            lambda: {
                "cluster_id": "cluster",
                "issuer_url": "https://uaenorth.oic.prod-aks.azure.com/tenant/issuer/",
                "namespace": "training",
                "service_account": "jobs",
                "duty": duty,
                "bucket_ids": self.store().bucket_ids,
                "data_key_id": self.keys().key_ids["data"],
            },
            changes,
        )

    def budget(self, **changes: Any) -> Budget:
        """The budget ``money``."""
        return self._once(
            "money",
            Budget,
            lambda: {"monthly_usd": 20000, "emails": ["finance@acme.ae"]},
            changes,
        )

    def _once(self, name: str, kind: Any, wired: Any, changes: Args) -> Any:
        if name not in self._made:
            args = {**self._placed, **wired(), **changes}
            given = {key: value for key, value in args.items() if value is not None}
            self._made[name] = kind(name, given, self._opts)
        return self._made[name]
