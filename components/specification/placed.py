"""What every component takes: its place in the country, and whom it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict

from falaj.components import catalogue
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default, Example
from falaj.components.specification.forms import (
    DATA_CLASS,
    DEFAULT_ENVIRONMENT,
    ENVIRONMENT,
    TAG_VALUE,
    TENANT,
)
from falaj.components.specification.limits import OneOf

ENVIRONMENTS = ENVIRONMENT.values
DATA_CLASSES = DATA_CLASS.values


class PlacedArgs(TypedDict):
    """Arguments that all components share: plain values, known before anything runs."""

    region: str
    """Region in the country as the cloud writes it: ``me-central-1``, ``uaenorth`` …"""
    tenant: Annotated[str, TENANT]
    """Who the infrastructure is for: part of names and tags."""
    owner: Annotated[str, TAG_VALUE]
    """Who answers for it: an e-mail address or a team's name; a tag."""
    data_class: Annotated[str, DATA_CLASS, Example("confidential")]
    """How much harm it does if somebody else reads the data; a tag, stricter upwards."""
    cost_center: Annotated[str, TAG_VALUE, Example("it")]
    """Who pays; a tag for charge-back."""
    environment: NotRequired[Annotated[str, ENVIRONMENT, Default(DEFAULT_ENVIRONMENT)]]
    """What it is for. Data of ``production`` are protected and retained; those of the others are
    destroyed with their stack."""
    acknowledge_degraded: NotRequired[str]
    """Date (``2026-04-30``) of the region's degraded status that was read and accepted.
    Default: a region reported as degraded is refused."""


@dataclass(frozen=True, kw_only=True)
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


def check_placed(cloud: str, args: Mapping[str, Any], errors: ArgumentErrors) -> Placed | None:
    """The shared arguments of ``args``; None where ``errors`` got one that can't be used.

    Args:
        cloud: ``aws`` or ``azure``.
        args: the component's arguments; names may be any mapping's keys.
        errors: collects what is wrong.
    """
    checked = errors.checked_only(args, PlacedArgs)
    texts = {
        key: errors.text(args, key)
        for key in ("region", "tenant", "owner", "data_class", "cost_center")
    }
    place = _place(cloud, texts["region"], args.get("acknowledge_degraded"), errors)
    if place is None or not all(texts.values()):
        return None
    texts["region"] = place.region
    return Placed(place=place, environment=checked["environment"], **texts)


def _place(
    cloud: str, region: str, acknowledged: str | None, errors: ArgumentErrors
) -> catalogue.Place | None:
    if not region:
        return None
    try:
        place = catalogue.place(cloud, region)
    except catalogue.CatalogueError as error:
        errors.say("region", str(error))
        return None
    try:
        place.require_healthy(acknowledged)
    except catalogue.CatalogueError as error:
        stamp = OneOf((place.status.as_of.isoformat(),))
        errors.say("acknowledge_degraded", str(error), limit=stamp)
    return place
