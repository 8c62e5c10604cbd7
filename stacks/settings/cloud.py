"""What every stack off this machine says: where it is, whose it is, what was accepted."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from falaj.stacks.settings.policies import PolicySettings
from falaj.stacks.settings.section import DataClass, Section

#: The region that a stack is in when it names only its cloud.
DEFAULT_REGIONS: Mapping[str, str] = {"aws": "me-central-1", "azure": "uaenorth"}

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,38}[a-z0-9]$")]
#: Node pools: the shorter of the clouds' limits (12 letters and digits on Azure).
PoolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,11}$")]
Days = Annotated[int, Field(ge=1, le=3_650)]
Percent = Annotated[int, Field(ge=1, le=1_000)]
Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]


class Acknowledgement(Section):
    """That somebody read a region's degraded status, and what for they accept it."""

    region: str
    as_of: str
    """Date of the status that was read; another date means that there is news to read."""
    purpose: Annotated[Literal["sandbox", "deployment"], Field(alias="for")]
    """``sandbox`` lets nothing real be made there."""

    @field_validator("as_of", mode="before")
    @classmethod
    def _date(cls, value: Any) -> Any:
        # YAML reads an unquoted date as one.
        return value.isoformat() if isinstance(value, datetime.date) else value


class CloudSettings(Section):
    """Keys that the stacks of all blueprints share, in a cloud or in an existing cluster."""

    platform: Literal["aws", "azure", "kubernetes"] | None = None
    region: str | None = None
    """Region of the cloud; of an existing cluster the site in the country where it stands."""
    placement: list[str] = Field(default_factory=list)
    """Places in the country in order of preference, as ``azure/uaenorth``; instead of ``platform``
    and ``region``."""
    tenant: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$")]
    owner: Annotated[str, Field(pattern=r"^[A-Za-z0-9_ .:/=+@-]{1,256}$")]
    data_class: DataClass
    cost_center: Annotated[str, Field(pattern=r"^[A-Za-z0-9_ .:/=+@-]{1,256}$")]
    environment: Literal["development", "test", "production"] = "production"
    acknowledge_degraded: Acknowledgement | None = None
    sandbox: bool = False
    policies: PolicySettings = Field(default_factory=PolicySettings)
    prices: str | None = None
    """The file of prices of one's own, from the project's folder (`falaj.stacks.costs`). Default:
    the catalogue's list prices alone."""

    @property
    def places(self) -> tuple[str, ...]:
        """Where the stack may be, the first choice first."""
        if self.placement:
            return tuple(self.placement)
        cloud = str(self.platform)
        return (f"{cloud}/{self.region or DEFAULT_REGIONS.get(cloud, '')}",)

    @property
    def beneath(self) -> str | None:
        """The stack that this one stands on and refers to. None: it stands alone."""
        return None

    @property
    def acknowledged(self) -> dict[str, str]:
        """Dates of the degraded status that was accepted, by region."""
        accepted = self.acknowledge_degraded
        return {accepted.region: accepted.as_of} if accepted else {}
