"""What every stack off this machine says: where it is, whose it is, what was accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from falaj.components.catalogue import PLACES, REGIONS
from falaj.components.specification.limits import (
    DATA_CLASS,
    DEFAULT_ENVIRONMENT,
    ENVIRONMENT,
    NAME,
    TAG_VALUE,
    TENANT,
    OneOf,
    TextRule,
)
from falaj.stacks.settings.policies import PolicySettings
from falaj.stacks.settings.section import Section

#: The region that a stack is in when it names only its cloud.
DEFAULT_REGIONS: Mapping[str, str] = {"aws": "me-central-1", "azure": "uaenorth"}

Name = Annotated[str, NAME]
#: Node pools: the shorter of the clouds' limits (12 letters and digits on Azure).
PoolName = Annotated[
    str,
    TextRule(
        r"^[a-z][a-z0-9]{0,11}$",
        "1 to 12 lower-case letters and digits, the first a letter",
        "h200",
    ),
]
Date = Annotated[
    str,
    TextRule(r"^\d{4}-\d{2}-\d{2}$", "a date in quotes: year, month and day", "2026-04-30"),
]


class Acknowledgement(Section):
    """That somebody read a region's degraded status, and what for they accept it."""

    region: Annotated[str, OneOf(REGIONS)]
    """The region."""
    as_of: Date
    """Date of the status that was read; another date means that there is news to read."""
    purpose: Annotated[Literal["sandbox", "deployment"], Field(alias="for")]
    """What it is accepted for; ``sandbox`` lets nothing real be made there."""


class CloudSettings(Section):
    """Keys that the stacks of all blueprints share, in a cloud or in an existing cluster."""

    described_by: ClassVar = "falaj.components.specification.placed.PlacedArgs"
    platform: Literal["aws", "azure", "kubernetes"] | None = None
    """Where the stack is made: a cloud, or ``kubernetes`` for an existing cluster. Default: what
    ``falaj:placement`` names."""
    region: str | None = None
    """Region of the cloud in the country; of an existing cluster the site in the country where it
    stands. Default: ``me-central-1`` on AWS, ``uaenorth`` on Azure."""
    placement: list[Annotated[str, OneOf(PLACES)]] = Field(default_factory=list)
    """Places in the country in order of preference, as ``azure/uaenorth``: the stack is made in
    the first that is healthy and sells what is asked. Instead of ``falaj:platform`` and
    ``falaj:region``."""
    tenant: Annotated[str, TENANT]
    owner: Annotated[str, TAG_VALUE]
    data_class: Annotated[str, DATA_CLASS, Field(examples=["confidential"])]
    cost_center: Annotated[str, TAG_VALUE, Field(examples=["it"])]
    environment: Annotated[str, ENVIRONMENT] = DEFAULT_ENVIRONMENT
    acknowledge_degraded: Acknowledgement | None = None
    sandbox: bool = False
    """Whether the stack may only ever be made in the sandbox, where nothing is real."""
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
    def upstream(self) -> str | None:
        """The stack that this one stands on and refers to. None: it stands alone."""
        return None

    @property
    def acknowledged(self) -> dict[str, str]:
        """Dates of the degraded status that was accepted, by region."""
        accepted = self.acknowledge_degraded
        return {accepted.region: accepted.as_of} if accepted else {}
