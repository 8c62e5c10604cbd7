"""An inference service's arguments, checked: what is rendered from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes._placed import InCluster

PORT: Final = 8443
"""Of Falaj's server in the pod: one that needs no privileges."""
VARIANT_HEADER: Final = "Falaj-Variant"
SCRAPER: Final = "prometheus"
"""Common name of the certificate that Prometheus shows; it may observe, and nothing else."""


@dataclass(frozen=True)
class Version:
    """One version that is served."""

    number: int
    weight: int
    package_digest: str
    header: str
    least: int
    most: int


@dataclass(frozen=True)
class Caller:
    """A workload that may call."""

    namespace: str
    service_account: str


@dataclass(frozen=True)
class Spill:
    """Where requests go that would wait too long."""

    to: str
    version: int
    above_ms: float
    timeout_ms: float


@dataclass(frozen=True)
class Package:
    """Where the sealed packages lie."""

    kind: str
    name: str
    path: str
    model_mib: int


@dataclass(frozen=True)
class Size:
    """What a replica gets."""

    cpus: float
    memory_mib: int
    gpus: int
    gpu_resource: str
    """Such as ``nvidia.com/gpu``; empty without a GPU."""
    flavor: str
    max_batch: int


@dataclass(frozen=True)
class Scaling:
    """When replicas come and go."""

    target_queue_ms: float
    target_use_percent: int
    to_zero: bool
    hours: Mapping[str, str] | None
    prometheus: str


@dataclass(frozen=True)
class Access:
    """Who may call, and how they prove who they are."""

    token_issuer: str
    token_audience: str
    token_keys: str
    callers: tuple[Caller, ...]
    spilled_from: str
    gateway_namespace: str
    gateway_name: str
    host_names: tuple[str, ...]
    mesh: bool
    trust_domain: str
    monitoring_namespace: str
    service_account: str
    key_secret: str
    secret_store: str
    certificate_issuer: str


@dataclass(frozen=True)
class Operation:
    """How replicas start, end and keep records."""

    priority_class: str
    audit_claim: str
    start_seconds: int
    drain_seconds: int
    max_body_mib: int
    max_rows: int


@dataclass(frozen=True)
class InferenceServiceSpec:
    """The arguments of `InferenceService`, checked."""

    placed: InCluster
    name: str
    model: str
    tier: str
    versions: tuple[Version, ...]
    package: Package
    size: Size
    scaling: Scaling
    access: Access
    spill: Spill | None
    operation: Operation
    images: Mapping[str, str]

    @property
    def namespace(self) -> str:
        """The tenant's namespace for serving."""
        return f"{self.placed.tenant}-serving"

    @property
    def host(self) -> str:
        """The name in the cluster that certificates are made for."""
        return f"{self.name}.{self.namespace}.svc"

    def of(self, version: Version) -> str:
        """Name of what belongs to one version; the same for good, so that none is rewritten."""
        return f"{self.name}-v{version.number}"

    def selector(self, version: Version | None = None) -> dict[str, str]:
        """Labels that select the pods of the service, or of one version of it."""
        found = {"app.kubernetes.io/name": self.name, "app.kubernetes.io/component": "inference"}
        return found if version is None else {**found, "falaj.io/version": str(version.number)}

    def metadata(self, name: str, version: Version | None = None) -> dict[str, Any]:
        """Metadata of one of the service's objects."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {**self.placed.labels("inference-service"), **self.selector(version)},
            "annotations": self.placed.annotations(),
        }

    @property
    def leading(self) -> Version:
        """The version with the greatest share; of equals the oldest."""
        return max(self.versions, key=lambda each: (each.weight, -each.number))
