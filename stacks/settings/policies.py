"""Which policy packs judge a stack, and what they allow."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from falaj.components.catalogue import PLACES
from falaj.components.specification.limits import OneOf
from falaj.policies.model.settings import Host, Site
from falaj.policies.model.settings import Settings as PackSettings
from falaj.stacks.settings.section import Section

PackName = Literal["residency", "encryption", "zero_trust", "kubernetes", "governance"]
PACKS: tuple[PackName, ...] = (
    "residency",
    "encryption",
    "zero_trust",
    "kubernetes",
    "governance",
)


class PolicySettings(Section):
    """Settings of the policy packs; they are checked once more by the packs themselves."""

    described_by: ClassVar = PackSettings
    packs: Annotated[list[PackName], Field(min_length=1)] = Field(
        default_factory=lambda: list(PACKS)
    )
    """Packs that judge the stack, one at least: a stack that none judges would be called clean."""
    allowed_places: Annotated[list[Annotated[str, OneOf(PLACES)]], Field(min_length=1)] | None = (
        None
    )
    """Places where data may be. Default: all in the country."""
    allowed_sites: list[Site] | None = None
    """Sites in the country where existing clusters stand, by their nodes' region label."""
    geo_redundancy: Literal["forbidden", "paired"] | None = None
    """``paired`` allows copies in the region's pair where the pair is allowed as well. Default:
    ``forbidden``."""
    allowed_hosts: list[Host] | None = None
    """Further hosts in the country that may have data. In the stack of a platform also what its
    cluster takes, unless ``falaj:residency`` says otherwise."""
    allowed_registries: list[Host] | None = None
    """Further registries in the country that images may come from; likewise."""
    allowed_accounts: list[str] | None = None
    strict: bool | None = None
    """Whether what can't be known fails. Default: in CI and for production."""
    required_tags: list[str] | None = None
    most_gpu_machines: Annotated[int, Field(ge=0)] | None = None
    """How many machines one pool with GPUs may grow to. Default: 16."""
    rules: list[Annotated[str, Field(min_length=1)]] | None = None
    """Files with rules of one's own, from the project's folder. Default: none."""
    waivers: Annotated[str, Field(min_length=1)] | None = None
    """The file of waivers, from the project's folder. Default: none."""

    def given(self) -> dict[str, Any]:
        """What the stack says, with the names that the packs know."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"packs"})
