"""Settings of a foundation: network, keys, storage, registry, identities and audit trail."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from falaj.stacks.settings.cloud import CloudSettings, Days, Email, Name, Percent
from falaj.stacks.settings.section import Section

Duty = Literal["provisioner", "trainer", "deployer", "auditor", "key-administrator"]


class NetworkSettings(Section):
    """The private network; a key that is left out takes the component's default."""

    cidr: str | None = None
    zones: list[str] | None = None
    egress_domains: list[str] | None = None
    purpose: Literal["cluster", "serving"] | None = None
    organization_id: str | None = None
    flow_log_days: Days | None = None


class KeySettings(Section):
    """Keys, one for each purpose."""

    administrators: list[str] | None = None
    rotation_days: Annotated[int, Field(ge=90, le=2_560)] | None = None
    deletion_window_days: Annotated[int, Field(ge=7, le=30)] | None = None
    managed_hsm: bool = False


class StorageSettings(Section):
    """Object storage."""

    audit_retention_days: Days | None = None
    old_version_days: Days | None = None
    redundancy: Literal["local", "zone", "geo"] | None = None
    allowed_regions: list[str] | None = None


class RegistrySettings(Section):
    """The registry of images."""

    repositories: list[str] | None = None
    upstreams: list[str] | None = None
    keep_images: Annotated[int, Field(ge=1, le=1_000)] | None = None
    quarantine: bool | None = None


class IdentitySettings(Section):
    """Who has which duty."""

    members: dict[Duty, list[str]] | None = None
    require_mfa: bool = True
    session_minutes: Annotated[int, Field(ge=60, le=720)] | None = None


class AuditSettings(Section):
    """The trail of what was done, and who is told."""

    retention_days: Days | None = None
    threat_detection: bool = True
    detector_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    dedicated_logs: bool | None = None
    alert_emails: list[Email] | None = None


class BudgetSettings(Section):
    """A monthly limit in US dollars, and who is told when it is near: by default the owner."""

    monthly_usd: Annotated[float, Field(gt=0, le=100_000_000)]
    emails: Annotated[list[Email], Field(min_length=1, max_length=10)] | None = None
    alert_percent: Annotated[list[Percent], Field(min_length=1, max_length=4)] | None = None
    start: Annotated[str, Field(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")] | None = None


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


class OnFoundation(OwnFoundation):
    """The keys of a stack that stands on a foundation: another stack's, or its own."""

    foundation: Name | None = None
    """Stack to refer to. Without it, the stack makes a foundation of its own."""

    @property
    def beneath(self) -> str | None:
        """The foundation's stack."""
        return self.foundation
