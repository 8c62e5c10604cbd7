"""What every component in a cluster takes: where the cluster is, and whom the component is for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components import catalogue
from falaj.components.catalogue.clusters import REGION_LABEL, TENANT_LABEL
from falaj.components.catalogue.region_names import may_be_site, place_abroad
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default, SameAs, needed_of
from falaj.components.specification.described import described
from falaj.components.specification.limits import (
    DATA_CLASS,
    DEFAULT_ENVIRONMENT,
    ENVIRONMENT,
    REGISTRY,
    SITE,
    TENANT,
    OneOf,
)
from falaj.components.specification.node_pools import PREFIX, label_value
from falaj.components.specification.placed import ZonesArgs

DISTRIBUTIONS: Final = ("eks", "aks", "existing")
"""EKS, AKS, and any other conformant cluster that stands in the country."""
CLOUDS: Final[Mapping[str, str]] = {"eks": "aws", "aks": "azure"}

COMPONENT_LABEL: Final = f"{PREFIX}component"
DATA_CLASS_LABEL: Final = f"{PREFIX}data-class"
COST_CENTER_LABEL: Final = f"{PREFIX}cost-center"
ENVIRONMENT_LABEL: Final = f"{PREFIX}environment"
OWNER_ANNOTATION: Final = f"{PREFIX}owner"
PROTECTED_LABEL: Final = f"{PREFIX}protected"
"""Marks objects that say whom a workload trusts: `Residency` lets only those change them who may
read the secrets of their namespace."""
PROTECTED: Final[Mapping[str, str]] = {PROTECTED_LABEL: "true"}
"""That label as components write it."""
HOME_PREFIX: Final = "home."
"""Beginning of the names of claims that are one person's: `Residency` lets only pods use and only
those change them that the platform's owners make. No name that a component takes has a dot."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"

#: How entries of the secret store are named after their tenant: what stands between the two, and
#: the form of the rest. No ``..`` leads elsewhere, and no tenant's name is the beginning of
#: another's: on AKS, whose vaults know no ``/``, tenants' names have no ``--``.
#: https://learn.microsoft.com/en-us/azure/key-vault/general/about-keys-secrets-certificates
_SEGMENT = r"[\w+=@-][\w+=@.-]*"
SECRET_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "eks": ("/", rf"^{_SEGMENT}(?:/{_SEGMENT})*$"),
    "aks": ("--", r"^[A-Za-z0-9](?:[A-Za-z0-9-]{0,100}[A-Za-z0-9])?$"),
    "existing": ("/", rf"^{_SEGMENT}(?:/{_SEGMENT})*$"),
}


@described
class InClusterArgs(TypedDict):
    """Arguments that all components in a cluster share: plain values, known before anything."""

    distribution: Annotated[str, OneOf(DISTRIBUTIONS)]
    """What the cluster is: the cloud's, or any other one that conforms."""
    region: str
    """Where the cluster is: the cloud's region (``me-central-1``, ``uaenorth`` …); for an
    ``existing`` cluster the name of the site in the country, which its nodes carry as the label
    ``topology.kubernetes.io/region``."""
    zones: NotRequired[Annotated[list[str], SameAs(ZonesArgs, "zones")]]
    registry: Annotated[str, REGISTRY]
    """The registry in the country that images are pulled from: host with port and path."""
    tenant: Annotated[str, TENANT]
    """Who the component is for: part of names and labels."""
    owner: str
    """Who answers for it: an e-mail address or a team's name; an annotation."""
    data_class: Annotated[str, DATA_CLASS]
    """How far its data may go; a label."""
    cost_center: str
    """Who pays; a label for charge-back."""
    environment: NotRequired[Annotated[str, ENVIRONMENT, Default(DEFAULT_ENVIRONMENT)]]
    """What it is for."""
    acknowledge_degraded: NotRequired[str]
    """Date of the region's degraded status that was read and accepted. Default: a region reported
    as degraded is refused."""


@dataclass(frozen=True, kw_only=True)
class InCluster:
    """The shared arguments, checked."""

    distribution: str
    region: str
    zones: tuple[str, ...]
    registry: str
    tenant: str
    owner: str
    data_class: str
    cost_center: str
    environment: str

    def labels(self, component: str) -> dict[str, str]:
        """Labels of everything that a component makes; ``component`` is its name."""
        return {
            MANAGED_BY: "falaj",
            TENANT_LABEL: self.tenant,
            COMPONENT_LABEL: label_value(component),
            DATA_CLASS_LABEL: self.data_class,
            COST_CENTER_LABEL: label_value(self.cost_center),
            ENVIRONMENT_LABEL: self.environment,
        }

    def annotations(self) -> dict[str, str]:
        """Annotations of everything that a component makes: what no label's value can hold."""
        return {OWNER_ANNOTATION: self.owner}

    @property
    def node_selector(self) -> dict[str, str]:
        """The label that pins a pod to the region, whatever else it asks for."""
        return {REGION_LABEL: self.region}

    @property
    def has_zones(self) -> bool:
        """Whether all nodes that pods may be on carry the label of a zone.

        Clouds set it where a region has zones; on other clusters only who names the zones says so.
        https://kubernetes.io/docs/reference/labels-annotations-taints/#topologykubernetesiozone
        """
        if self.zones:
            return True
        cloud = CLOUDS.get(self.distribution)
        return cloud is not None and bool(catalogue.place(cloud, self.region).zones)

    def image(self, reference: str) -> str:
        """An image of the in-country registry: ``name@sha256:…`` below its host and path."""
        return f"{self.registry}/{reference}"


def refuse_place_abroad(at: str, value: str, allowed: str, errors: ArgumentErrors) -> None:
    """Refuse the name of a site or its zone that is a cloud's region abroad, or begins as one."""
    if not may_be_site(value):
        place = place_abroad(value) or f"the beginning of regions abroad ({value}-…)"
        errors.add(at, value, allowed, f"that is {place}")


def checked_regions(argument: str, value: object, errors: ArgumentErrors) -> tuple[str, ...]:
    """Regions of clouds, and sites, of further clusters in the country; empty for None.

    Whether a region works is asked where its cluster is named, not where a job may be in it.
    """
    found = errors.texts(argument, value) if value is not None else ()
    for position, each in enumerate(found):
        at = f"{argument}[{position}]"
        errors.form(at, each, SITE)
        if SITE.allows(each):
            refuse_place_abroad(at, each, "regions and sites in the country", errors)
    return found


def check_in_cluster(args: Mapping[str, Any], errors: ArgumentErrors) -> InCluster | None:
    """The shared arguments of ``args``; None where ``errors`` got one that can't be used."""
    before = errors.count
    stated = errors.checked_only(args, InClusterArgs)
    needed = needed_of(InClusterArgs)
    errors.needed(args, needed)
    texts: dict[str, str] = {key: str(stated[key] or "") for key in needed}
    if texts["distribution"] == "aks" and "--" in texts["tenant"]:
        errors.add(
            "tenant",
            texts["tenant"],
            "no '--' on AKS, where it ends a tenant's name in those of its secrets",
        )
    check_place(texts["distribution"], texts["region"], args, errors)
    # What is missing was told before: `ArgumentErrors.names` does.
    if errors.count > before or "" in texts.values():
        return None
    return InCluster(
        distribution=texts["distribution"],
        region=texts["region"],
        zones=stated["zones"] or (),
        registry=texts["registry"],
        tenant=texts["tenant"],
        owner=texts["owner"],
        data_class=texts["data_class"],
        cost_center=texts["cost_center"],
        environment=stated["environment"],
    )


def check_place(
    distribution: str,
    region: str,
    args: Mapping[str, Any],
    errors: ArgumentErrors,
    *,
    at: str = "",
) -> None:
    """Refuse a cluster that isn't in the country, or whose region is degraded.

    Args:
        distribution: of the cluster.
        region: of its cloud, or the name of a site.
        args: where ``acknowledge_degraded`` may be.
        errors: gets what is wrong.
        at: path of what ``args`` are, with the dot. Default: they are a component's own.
    """
    if not region or distribution not in DISTRIBUTIONS:
        return
    cloud = CLOUDS.get(distribution)
    if cloud is None:
        errors.form(f"{at}region", region, SITE)
        if SITE.allows(region):
            refuse_place_abroad(f"{at}region", region, "sites in the country", errors)
        # A cluster of one's own may stand in a region of a cloud, and shares its fate.
        for place in catalogue.all_places():
            if place.region == region:
                _check_health(place, args, errors, at)
        return
    try:
        place = catalogue.place(cloud, region)
    except catalogue.CatalogueError as error:
        errors.say(f"{at}region", str(error))
        return
    _check_health(place, args, errors, at)


def _check_health(
    place: catalogue.Place, args: Mapping[str, Any], errors: ArgumentErrors, at: str
) -> None:
    try:
        place.require_healthy(args.get("acknowledge_degraded"))
    except catalogue.CatalogueError as error:
        stamp = OneOf((place.status.as_of.isoformat(),))
        errors.say(f"{at}acknowledge_degraded", str(error), limit=stamp)


_IMAGE: Final = re.compile(
    r"^[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?@sha256:[0-9a-f]{64}$"
)


def checked_image(argument: str, value: object, placed: InCluster, errors: ArgumentErrors) -> str:
    """The reference of an image below the registry; empty where it was refused."""
    if isinstance(value, str) and _IMAGE.match(value):
        return placed.image(value)
    errors.add(argument, value, "repository@sha256:… below the registry, in lower case")
    return ""


def check_secret_entry(
    argument: str, secret: str, placed: InCluster | None, errors: ArgumentErrors
) -> None:
    """Refuse an entry of the secret store that isn't the tenant's.

    The cluster's own admission says the same: one store has the secrets of every tenant.
    """
    if not secret or placed is None:
        return
    separator, rest = SECRET_NAMES[placed.distribution]
    own = f"{placed.tenant}{separator}"
    if not (secret.startswith(own) and re.match(rest, secret.removeprefix(own))):
        errors.add(argument, secret, f"entries of the tenant: {own}…")
