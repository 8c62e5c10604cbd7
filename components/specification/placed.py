"""What every component takes: its place in the country, and whom it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from falaj.components import catalogue
from falaj.components.specification.forms import TAG_VALUE, TENANT
from falaj.components.specification.limits import OneOf
from falaj.components.specification.refusals import Refusals

ENVIRONMENTS = ("development", "test", "production")
DATA_CLASSES = ("public", "internal", "confidential", "restricted")


class PlacedArgs(TypedDict):
    """Arguments that all components share: plain values, known before anything runs."""

    region: str
    """Region in the country as the cloud writes it: ``me-central-1``, ``uaenorth`` …"""
    tenant: str
    """Who the infrastructure is for: part of names and tags. 2 to 20 of a-z, 0-9 and ``-``."""
    owner: str
    """Who answers for it: an e-mail address or a team's name; a tag."""
    data_class: str
    """``public``, ``internal``, ``confidential`` or ``restricted``; a tag, stricter upwards."""
    cost_center: str
    """Who pays; a tag for charge-back."""
    environment: NotRequired[str]
    """``development``, ``test`` or ``production``. Default: ``production``, whose data are
    protected and retained; those of the other two are destroyed with their stack."""
    acknowledge_degraded: NotRequired[str]
    """Date (``2026-04-30``) of the region's degraded status that was read and accepted.
    Default: a region reported as degraded is refused."""


@dataclass(frozen=True)
class Placed:
    """The shared arguments, checked."""

    place: catalogue.Place
    region: str
    tenant: str
    owner: str
    data_class: str
    cost_center: str
    environment: str

    @property
    def retained(self) -> bool:
        """Whether data outlive a mistake: protected in the stack, retained in the cloud."""
        return self.environment == "production"

    def tags(self, component: str) -> dict[str, str]:
        """Tags that everything carries; ``component`` is the name in the program."""
        return {
            "falaj:owner": self.owner,
            "falaj:tenant": self.tenant,
            "falaj:data-class": self.data_class,
            "falaj:cost-center": self.cost_center,
            "falaj:environment": self.environment,
            "falaj:component": component,
        }


def check_placed(cloud: str, args: Mapping[str, Any], refusals: Refusals) -> Placed | None:
    """The shared arguments of ``args``; None where ``refusals`` got one that can't be used.

    Args:
        cloud: ``aws`` or ``azure``.
        args: the component's arguments; names may be any mapping's keys.
        refusals: collects what is wrong.
    """
    texts = {
        key: refusals.text(args, key)
        for key in ("region", "tenant", "owner", "data_class", "cost_center")
    }
    environment = args.get("environment", "production")
    refusals.choice("environment", environment, ENVIRONMENTS)
    if texts["data_class"]:
        refusals.choice("data_class", texts["data_class"], DATA_CLASSES)
    tenant = texts["tenant"]
    if tenant:
        refusals.form("tenant", tenant, TENANT)
    for key in ("owner", "cost_center"):
        if texts[key]:
            refusals.form(key, texts[key], TAG_VALUE)
    place = _place(cloud, texts["region"], args.get("acknowledge_degraded"), refusals)
    if place is None or not all(texts.values()):
        return None
    return Placed(
        place,
        place.region,
        tenant,
        texts["owner"],
        texts["data_class"],
        texts["cost_center"],
        environment,
    )


def _place(
    cloud: str, region: str, acknowledged: str | None, refusals: Refusals
) -> catalogue.Place | None:
    if not region:
        return None
    try:
        place = catalogue.place(cloud, region)
    except catalogue.CatalogueError as error:
        refusals.say("region", str(error))
        return None
    try:
        place.require_healthy(acknowledged)
    except catalogue.CatalogueError as error:
        stamp = OneOf((place.status.as_of.isoformat(),))
        refusals.say("acknowledge_degraded", str(error), limit=stamp)
    return place
