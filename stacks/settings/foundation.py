"""Settings of a foundation: network, keys, storage, registry, identities and audit trail."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from falaj.components.catalogue import REGIONS
from falaj.components.specification import (
    audit_trail,
    budget,
    identity,
    key_ring,
    network,
    object_store,
    registry,
)
from falaj.components.specification.emails import MOST as MOST_EMAILS
from falaj.components.specification.forms import EMAIL
from falaj.components.specification.limits import OneOf
from falaj.components.specification.retention import LOG_DAYS
from falaj.stacks.settings.cloud import CloudSettings, Name
from falaj.stacks.settings.section import Section

Days = Annotated[int, LOG_DAYS]
Email = Annotated[str, EMAIL]
Duty = Annotated[str, OneOf(identity.DUTIES)]


class NetworkSettings(Section):
    """The private network; a key that is left out takes the component's default."""

    described_by: ClassVar = network.NetworkArgs
    cidr: str | None = None
    zones: list[str] | None = None
    egress_domains: list[Annotated[str, network.DOMAIN]] | None = None
    purpose: Annotated[str, OneOf(network.PURPOSES)] | None = None
    organization_id: Annotated[str, network.ORGANIZATION] | None = None
    flow_log_days: Days | None = None


class KeySettings(Section):
    """Keys, one for each purpose."""

    described_by: ClassVar = key_ring.KeyRingArgs
    administrators: list[str] | None = None
    rotation_days: Annotated[int, key_ring.ROTATION_DAYS] | None = None
    deletion_window_days: Annotated[int, key_ring.DELETION_WINDOW_DAYS] | None = None
    managed_hsm: bool = False


class StorageSettings(Section):
    """Object storage."""

    described_by: ClassVar = object_store.ObjectStoreArgs
    audit_retention_days: Annotated[int, object_store.AUDIT_RETENTION_DAYS] | None = None
    old_version_days: Annotated[int, object_store.OLD_VERSION_DAYS] | None = None
    redundancy: Annotated[str, OneOf(object_store.REDUNDANCIES)] | None = None
    allowed_regions: list[Annotated[str, OneOf(REGIONS)]] | None = None


class RegistrySettings(Section):
    """The registry of images."""

    described_by: ClassVar = registry.RegistryArgs
    repositories: (
        Annotated[list[Annotated[str, registry.REPOSITORY]], Field(min_length=1)] | None
    ) = None
    upstreams: list[Annotated[str, registry.UPSTREAMS]] | None = None
    keep_images: Annotated[int, registry.KEEP_IMAGES] | None = None
    quarantine: bool | None = None


class IdentitySettings(Section):
    """Who has which duty."""

    described_by: ClassVar = identity.IdentityArgs
    members: dict[Duty, list[str]] | None = None
    require_mfa: bool = True
    session_minutes: Annotated[int, identity.SESSION_MINUTES] | None = None


class AuditSettings(Section):
    """The trail of what was done, and who is told."""

    described_by: ClassVar = audit_trail.AuditTrailArgs
    retention_days: Days | None = None
    threat_detection: bool = True
    detector_id: Annotated[str, audit_trail.DETECTOR] | None = None
    dedicated_logs: bool | None = None
    alert_emails: Annotated[list[Email], Field(max_length=MOST_EMAILS)] | None = None


class BudgetSettings(Section):
    """A monthly limit in US dollars, and who is told when it is near."""

    described_by: ClassVar = budget.BudgetArgs
    monthly_usd: Annotated[float, budget.MONTHLY_USD]
    emails: Annotated[list[Email], Field(min_length=1, max_length=MOST_EMAILS)] | None = None
    """Who is told, one to ten addresses. Default: the owner."""
    alert_percent: (
        Annotated[
            list[Annotated[int, budget.PERCENT]],
            Field(min_length=1, max_length=budget.MOST_THRESHOLDS),
        ]
        | None
    ) = None
    start: Annotated[str, budget.MONTH] | None = None


class OwnFoundation(CloudSettings):
    """The keys of a foundation, for stacks that make one or bring their own."""

    network: NetworkSettings = NetworkSettings()
    keys: KeySettings = KeySettings()
    storage: StorageSettings = StorageSettings()
    registry: RegistrySettings = RegistrySettings()
    identity: IdentitySettings = IdentitySettings()
    audit: AuditSettings = AuditSettings()
    budget: BudgetSettings | None = None


class FoundationSettings(OwnFoundation):
    """Everything that a ``foundation`` stack may say."""

    blueprint: Literal["foundation"]
    """What the stack makes: here what other stacks stand on."""


class OnFoundation(OwnFoundation):
    """The keys of a stack that stands on a foundation: another stack's, or its own."""

    foundation: Name | None = None
    """Stack to stand on and refer to. Default: the stack makes a foundation of its own, as
    ``falaj:network``, ``falaj:keys`` and the like say."""

    @property
    def beneath(self) -> str | None:
        """The foundation's stack."""
        return self.foundation
