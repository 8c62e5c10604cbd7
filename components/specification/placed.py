"""What every component takes: its place in the country, and whom it belongs to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict

from falaj.components import catalogue
from falaj.components.catalogue.tag_names import tag_name
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default, Example
from falaj.components.specification.limits import (
    DATA_CLASS,
    DEFAULT_ENVIRONMENT,
    ENVIRONMENT,
    TAG_VALUE,
    TENANT,
    UUID,
    Between,
    OneOf,
)

ENVIRONMENTS = ENVIRONMENT.values
NO_BOUNDARY = "permissions boundaries exist on AWS only; leave it out on Azure"
NO_LOG_DAYS = (
    "the workspace decides on Azure; set retention_days of AuditTrail, and leave it out here"
)
DATA_CLASSES = DATA_CLASS.values


class ZonesArgs(TypedDict):
    """Where in its region what is in a cluster may be."""

    zones: NotRequired[list[str]]
    """Values of ``topology.kubernetes.io/zone`` that pods may be in. On an ``existing`` cluster
    they say that nodes carry this label: services spread over the zones that are named. Default:
    all, and no spreading over zones on an ``existing`` cluster."""


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
        found = {
            "owner": self.owner,
            "tenant": self.tenant,
            "data-class": self.data_class,
            "cost-center": self.cost_center,
            "environment": self.environment,
            "component": component,
        }
        return {tag_name(self.place.cloud, name): value for name, value in found.items()}


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


# Which zones a component uses: named by the user, or all that are not reported as impaired.

#: Stands for the whole region where it has no zones.
REGIONAL = "regional"


def region_zones(place: catalogue.Place) -> tuple[str, ...]:
    """All zones of a region as its cloud's resources name them; `REGIONAL` where it has none.

    AWS is given zone ids (``mec1-az1``), since letters mean something else in each account; Azure
    numbers (``1``).
    """
    if place.cloud == "azure":
        names = tuple(zone.name or zone.id for zone in place.zones)
    else:
        names = tuple(zone.id for zone in place.zones)
    return names or (REGIONAL,)


def chosen_zones(
    placed: Placed, args: Mapping[str, Any], errors: ArgumentErrors
) -> tuple[str, ...]:
    """The zones of the argument ``zones``, in the region's order.

    Default: every zone that is not reported as impaired; all, where each of them is (who gets here
    has acknowledged the region's status).
    """
    known = region_zones(placed.place)
    if args.get("zones") is None:
        return sound_zones(placed.place)
    given = errors.texts("zones", args["zones"])
    for position, zone in enumerate(given):
        if zone not in known:
            errors.add(f"zones[{position}]", zone, OneOf(known))
    if not given:
        errors.add("zones", args["zones"], f"at least one of {', '.join(known)}")
    return tuple(zone for zone in known if zone in given)


def sound_zones(place: catalogue.Place) -> tuple[str, ...]:
    """Zones of a region that are not reported as impaired; all, where each of them is."""
    known = region_zones(place)
    impaired = set(place.status.impaired_zones)
    sound = tuple(zone for zone in known if zone not in impaired)
    return sound or known


# Who somebody is in a cloud: the principals that duties and keys are given to.

_AWS = re.compile(r"^arn:aws:iam::\d{12}:(?:role|user)/(?:[\x21-\x7e]{1,512}/)?[\w+=,.@-]{1,64}$")


def checked_principals(
    cloud: str,
    argument: str,
    value: object,
    errors: ArgumentErrors,
    *,
    of: str = "an Entra group, user or service principal",
) -> tuple[str, ...]:
    """A list of principals: ARNs of roles or users; object ids of Entra principals.

    Never everybody, a whole account or a session: each is somebody who can be held to account.

    Args:
        cloud: ``aws`` or ``azure``.
        argument: its name, for errors.
        value: what was given.
        errors: where refusals are added.
        of: whose object ids are taken on Azure, in words. Nobody can tell that from an id.
    """
    found: list[str] = []
    for position, given in enumerate(errors.texts(argument, value)):
        at = f"{argument}[{position}]"
        principal = given if cloud == "aws" else given.lower()
        if cloud == "aws" and ("*" in principal or not _AWS.match(principal)):
            errors.add(
                at,
                given,
                "the ARN of a role or user, such as arn:aws:iam::000000000000:role/platform",
                "name the role itself, not a session of it, an account or '*'",
            )
        elif cloud == "azure" and not UUID.allows(principal):
            errors.add(at, given, f"the object id (a GUID) of {of}")
        elif principal in found:
            errors.add(at, given, "each only once", "leave out the second")
        else:
            found.append(principal)
    return tuple(found)


# How long logs can be kept where they are searched.

#: What a CloudWatch log group takes: https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/
#: APIReference/API_PutRetentionPolicy.html
_AWS_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
#: What a Log Analytics workspace keeps for interactive use:
#: https://learn.microsoft.com/azure/azure-monitor/logs/data-retention-configure
_AZURE_DAYS = range(30, 731)
#: What one of the clouds takes at least.
LOG_DAYS = Between(min(_AWS_DAYS[0], _AZURE_DAYS[0]), max(_AWS_DAYS[-1], _AZURE_DAYS[-1]))


def log_days(cloud: str, argument: str, value: object, errors: ArgumentErrors) -> int:
    """Days of retention that the cloud's log store takes; what was given where it was refused."""
    allowed = _AWS_DAYS if cloud == "aws" else _AZURE_DAYS
    days = errors.whole(argument, value, allowed[0], allowed[-1])
    if days not in allowed:
        near = next(each for each in allowed if each >= days)
        errors.add(
            argument, value, ", ".join(map(str, allowed)), f"{near} is the next longer",
            limit=OneOf((near,)),
        )  # fmt: skip
    return days
