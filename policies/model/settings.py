"""What a team may choose: allowed places, registries, hosts; how strict checks are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from falaj.components import catalogue
from falaj.components.catalogue.region_names import may_be_site, place_named
from falaj.components.catalogue.tag_names import TAGS, tag_name
from falaj.policies.choices import (
    Account,
    File,
    GeoRedundancy,
    Host,
    MostMachines,
    Reason,
    ServiceType,
    Site,
)
from falaj.policies.model.resource import kind_of


class PolicyError(Exception):
    """What can't be checked, and what to do about it."""


DEFAULT_PLACES: Final = catalogue.PLACES
#: Each form in words, by its pattern.
_FORMS: Final = {
    str(rule.pattern): field.description
    for form in (Site, Host, Account, ServiceType)
    for field in get_args(form)[1:]
    for rule in field.metadata
}
#: Packages whose types rules can place: a pattern would say more than anybody looked at.
_PLACED: Final = ("aws:", "aws-native:", "azure-native:", "kubernetes:")


class Settings(BaseModel):
    """Settings of all packs; the same keys in the stack's file and in a pack's configuration."""

    model_config = ConfigDict(
        defer_build=True,  # a stack's program names it, and never makes one
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
    )

    allowed_places: tuple[str, ...] = DEFAULT_PLACES
    """Places where data may be, as ``aws/me-central-1``; all in the country."""
    allowed_sites: tuple[Site, ...] = ()
    """One's own sites in the country: what nodes of clusters there carry as the label of their
    region. Zones of a site are called after it (``SITE-…``), or listed as well."""
    geo_redundancy: GeoRedundancy = "forbidden"
    """``paired``: copies in the region's pair are fine where the pair is allowed as well."""
    allowed_hosts: tuple[Host, ...] = ()
    """Hosts outside of the allowed regions' own that may be talked to; ``*.example.ae`` with all
    below it."""
    allowed_registries: tuple[Host, ...] = ()
    """Image registries besides the allowed regions' own; with a path, only what is below it."""
    allowed_accounts: tuple[Account, ...] = ()
    """AWS accounts and Azure subscriptions, besides one's own, that may be shared with."""
    allowed_services: dict[ServiceType, Reason] = Field(default_factory=dict[str, str])
    """Types of resources that no rule can place, and what shows that they keep no data abroad;
    what is known to serve from abroad stays refused."""
    data_class: Literal["public", "internal", "confidential", "restricted"] = "confidential"
    """Class of the data of resources that carry no tag of their own."""
    environment: Literal["development", "test", "production"] = "production"
    strict: bool = True
    """Whether what can't be known fails; False only warns."""
    required_tags: tuple[str, ...] = tuple(tag_name("aws", each) for each in TAGS)
    """Tags that everything that takes tags must carry. On Azure ``falaj-owner`` and so on: its
    private DNS zones drop tags with a colon."""
    most_gpu_machines: MostMachines = 16
    """How many machines one pool with GPUs may grow to: the ceiling of all ceilings."""
    rules: tuple[File, ...] = ()
    """Files with rules of one's own, relative to the project's folder."""
    waivers: str = ""
    """The file of waivers, relative to the project's folder. Default: none."""

    @field_validator("allowed_places")
    @classmethod
    def _in_the_country(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [each for each in value if each not in DEFAULT_PLACES]
        if wrong or not value:
            raise ValueError(
                f"{', '.join(wrong) or 'nothing'} can't be allowed: places are in the country, "
                f"which are {', '.join(DEFAULT_PLACES)}"
            )
        return value

    @field_validator("allowed_sites")
    @classmethod
    def _no_region_abroad(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [each for each in value if not may_be_site(each)]
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)} can't be one's own site: a cloud's regions or zones abroad "
                "are called so; name it after its town or its building"
            )
        return value

    @field_validator("allowed_services")
    @classmethod
    def _looked_at(cls, value: dict[str, str]) -> dict[str, str]:
        wrong = [each for each in value if "*" in each and each.startswith(_PLACED)]
        if wrong:
            package = wrong[0].partition(":")[0]
            raise ValueError(
                f"{', '.join(wrong)} can't be allowed: rules know the package {package}, so name "
                "its types one by one"
            )
        return value

    def allows_service(self, kind: str) -> bool:
        """Whether a type, in its one spelling, is among `allowed_services`."""
        return any(fnmatchcase(kind, kind_of(each)) for each in self.allowed_services)

    def is_site(self, name: str) -> bool:
        """Whether a label of a node's region or zone names one of one's own sites."""
        return not place_named(name) and any(
            name == each or name.startswith(each + "-") for each in self.allowed_sites
        )

    def regions(self, cloud: str) -> tuple[str, ...]:
        """The allowed regions of a cloud, ``aws`` or ``azure``."""
        return tuple(
            each.partition("/")[2] for each in self.allowed_places if each.startswith(cloud + "/")
        )


def _words(error: ErrorDetails) -> str:
    """What is wrong with a value, and what is allowed in its place."""
    if error["type"] == "extra_forbidden":
        return error["msg"]
    if error["type"] == "string_pattern_mismatch":
        expected = f"expected {_FORMS[error.get('ctx', {})['pattern']]}"
    else:
        expected = error["msg"].removeprefix("Value error, ")
    return f"{expected}, not {error['input']!r}"


def read_settings(given: Mapping[str, Any], source: str) -> Settings:
    """Check settings. Raises PolicyError naming the source, the key, and what is allowed."""
    try:
        return Settings.model_validate(dict(given))
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in each['loc']) or 'settings'}: {_words(each)}"
            for each in error.errors(include_url=False)
        ]
        allowed = ", ".join(sorted(to_camel(name) for name in Settings.model_fields))
        raise PolicyError(
            f"the settings of the policies in {source} can't be used: {'; '.join(problems)}; "
            f"keys are {allowed}"
        ) from None


def strict_by_default(environment: str) -> bool:
    """Checks are strict in CI and for production; elsewhere the unknown only warns."""
    return environment == "production" or bool(os.environ.get("CI"))
