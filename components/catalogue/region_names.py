"""Where a text says that something is: regions, zones, hosts and ARNs of the clouds.

>>> aws_region_of("eu-west-1a"), aws_region_of("euw1-az2"), aws_region_of("north")
('eu-west-1', 'eu-west-1', '')
>>> region_in("arn:aws:kms:eu-west-1:123456789012:key/k")
'eu-west-1'
>>> place_named("UAE North"), place_named("europe-west4")
('azure/uaenorth', 'gcp/europe-west4')

Lists of regions age, so each cloud's pattern is known as well: a region of next year is a region.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from falaj.components.catalogue.place import PLACES

_DATA: Final[dict[str, Any]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)

#: Regions of AWS, of every partition.
AWS_REGIONS: Final = frozenset[str](_DATA["aws"])
#: Azure's locations, normalised: without space and in small letters.
AZURE_LOCATIONS: Final = frozenset[str](_DATA["azure"])
#: What Azure's services accept for a geography or for the world; normalised.
AZURE_GEOGRAPHIES: Final = frozenset[str](_DATA["azure_geographies"])
OCI_REGIONS: Final = frozenset[str](_DATA["oci"])

# https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html; of every
# partition: China, the American government's, the isolated ones, the European sovereign cloud.
_AREA: Final = r"(?:af|ap|ca|cn|eu|il|me|mx|sa|us|us-gov|us-iso[a-z]?|eu-iso[a-z]?|eusc-[a-z]{2})"
_SIDE: Final = r"(?:north|south|east|west|central|northeast|northwest|southeast|southwest)"
AWS_REGION: Final = rf"{_AREA}-{_SIDE}-\d{{1,2}}"
# Zones: eu-west-1a; local zones: us-east-1-bos-1a; Wavelength: us-east-1-wl1-bos-wlz-1.
_AWS_ZONE: Final = re.compile(
    rf"({AWS_REGION})(?:[a-z]|-([a-z]{{3}})-\d{{1,2}}[a-z]?|-wl\d-([a-z]{{3}})-wlz-\d{{1,2}})?"
)
#: Cities of the country, as local zones spell them. Zones in other cities belong to a region, but
#: aren't where it is.
_CITIES: Final = frozenset(("dxb", "auh"))
# https://docs.aws.amazon.com/global-infrastructure/latest/regions/az-ids.html
_ZONE_ID: Final = r"([a-z]{3,8}\d{1,2})(?:-[a-z]{2,4}\d{1,2})?-az\d{1,2}"
_AWS_ZONE_ID: Final = re.compile(_ZONE_ID)
_DIRECTORY_BUCKET: Final = re.compile(rf"--{_ZONE_ID}--x-s3\b")

_GCP: Final = re.compile(
    r"(?:africa|asia|australia|europe|me|northamerica|southamerica|us)-"
    r"(?:north|south|east|west|central|northeast|northwest|southeast|southwest)\d{1,2}(?:-[a-z])?"
)
_ALIBABA: Final = re.compile(
    r"cn-[a-z]{5,14}(?:-[a-z]|-finance-1|-gov-1)?|(?:ap|eu|me|us|na)-[a-z]+-\d"
)
_AZURE_ZONE: Final = re.compile(r"-\d$")
_AZURE_PREFIX: Final = re.compile(r"^\([^)]*\)")

_ARN: Final = re.compile(rf"\barn:aws[a-z-]*:[a-z0-9-]*:({AWS_REGION}):", re.IGNORECASE)
# Domains of AWS's services. https://docs.aws.amazon.com/general/latest/gr/rande.html
_HOST: Final = re.compile(
    r"(?<![\w.-])((?:[a-z0-9_*-]+\.)+)(?:amazonaws\.(?:com(?:\.cn)?|eu)|api\.aws|on\.aws|awsapprunner\.com"
    r"|amazoncognito\.com|elasticbeanstalk\.com|amazonworkmail\.com|amplifyapp\.com|aws\.dev"
    r"|awsapps\.com|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov"
    r"|compute\.internal|sagemaker\.aws)(?![\w.-]*\w)",
    re.IGNORECASE,
)
# Endpoint services: com.amazonaws.eu-west-1.s3, com.amazonaws.vpce.eu-west-1.vpce-svc-0,
# aws.sagemaker.eu-west-1.notebook.
_SERVICE: Final = re.compile(
    rf"\b(?:com\.amazonaws|cn\.com\.amazonaws|aws\.[a-z]+)\.(?:vpce\.)?({AWS_REGION})\.",
    re.IGNORECASE,
)
# A label is a region, or ends with one as S3's old hosts do; else it may be anybody's name.
_IN_LABEL: Final = re.compile(rf"(?:s3(?:-[a-z]+)*-)?({AWS_REGION})")
# Old names: s3-eu-west-1.amazonaws.com, and us-east-1's hosts in compute-1.amazonaws.com.
_OLD_LABELS: Final = {"compute-1": "us-east-1", "s3-1": "us-east-1", "external-1": "us-east-1"}

_SIDES: Final = {
    "northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw",
    "north": "n", "south": "s", "east": "e", "west": "w", "central": "c",
}  # fmt: skip


def _short(region: str) -> str:
    """The region as zone ids and caches' hosts spell it: ``euw1``, ``apne1``, ``usgw1``."""
    *area, side, number = region.split("-")
    first = {"gov": "g", "eusc": "eusc"}
    head = "".join(first.get(each, each) for each in area)
    return head + _SIDES[side] + number


_BY_SHORT: Final = {_short(each): each for each in AWS_REGIONS}


@lru_cache(maxsize=8192)
def _aws(value: str) -> str:
    if found := _AWS_ZONE.fullmatch(value):
        city = found[2] or found[3]
        return found[1] if not city or city in _CITIES else f"{found[1]}-{city}"
    if found := _AWS_ZONE_ID.fullmatch(value):
        return _BY_SHORT.get(found[1], found[1])
    return ""


def aws_region_of(value: object) -> str:
    """The region that a text names, and nothing but names: by id, zone, or zone id; else empty.

    A zone id whose region no list knows yields its own first part, which is no allowed region.
    """
    return _aws(value.strip().lower()) if isinstance(value, str) and len(value) < 64 else ""


def normalise_azure(value: object) -> str:
    """An Azure location in its one spelling: ``(Middle East) UAE North`` is ``uaenorth``."""
    if not isinstance(value, str):
        return ""
    return re.sub(r"[\s_-]+", "", _AZURE_PREFIX.sub("", value.strip())).lower()


def is_azure_location(value: object, *, geographies: bool = False) -> bool:
    """Whether a text is a location of Azure in some spelling; with whole geographies, if told."""
    found = normalise_azure(value)
    return found in AZURE_LOCATIONS or (geographies and found in AZURE_GEOGRAPHIES)


@lru_cache(maxsize=8192)
def _place(value: str) -> str:
    if region := _aws(value):
        return f"aws/{region}"
    if value in OCI_REGIONS:
        return f"oci/{value}"
    if _GCP.fullmatch(value):
        return f"gcp/{value}"
    if _ALIBABA.fullmatch(value):
        return f"alibaba/{value}"
    # Kubernetes calls Azure's zones uaenorth-1.
    normal = normalise_azure(_AZURE_ZONE.sub("", value))
    return f"azure/{normal}" if normal in AZURE_LOCATIONS else ""


def place_named(value: object) -> str:
    """The place of any cloud that a text names, and nothing else: ``aws/eu-west-1``; else empty.

    Regions that Alibaba names as AWS does count as AWS's. Geographies aren't places.
    """
    return _place(value.strip().lower()) if isinstance(value, str) and len(value) < 64 else ""


def regions_in(text: object) -> Iterator[tuple[str, str]]:
    """Every AWS region that ARNs, hosts, service names or zones within a text point to.

    Yields:
        The region, and the part of the text that says so (never more than an ARN's head or a
        host, so that no secret is repeated).
    """
    if not isinstance(text, str) or len(text) < 6:
        return
    if ":" in text:
        for found in _ARN.finditer(text):
            yield found[1].lower(), found[0].rstrip(":")
    if "." in text:
        for found in _HOST.finditer(text):
            if region := _region_of_labels(found[1].lower()):
                yield region, found[0]
        for found in _SERVICE.finditer(text):
            yield found[1].lower(), found[0].rstrip(".")
    if "--x-s3" in text:
        for found in _DIRECTORY_BUCKET.finditer(text):
            yield _BY_SHORT.get(found[1], found[1]), found[0]


def _region_of_labels(labels: str) -> str:
    """The region that a host's labels name, nearest to the domain first."""
    for label in reversed(labels.rstrip(".").split(".")):
        if found := _IN_LABEL.fullmatch(label):
            return found[1]
        if label in _BY_SHORT or label in _OLD_LABELS:
            return _BY_SHORT.get(label) or _OLD_LABELS[label]
    return ""


def region_in(text: object) -> str:
    """The AWS region that a text names or points to: id, zone, ARN, host; else empty."""
    return aws_region_of(text) or next((region for region, _ in regions_in(text)), "")


def place_abroad(name: object) -> str:
    """The place abroad that a text names, and nothing else; empty for the country's and no names.

    >>> place_abroad("eu-west-1a"), place_abroad("UAE North"), place_abroad("dubai-1")
    ('aws/eu-west-1', '', '')
    """
    place = place_named(name)
    return "" if place in PLACES else place


def may_be_site(name: str) -> bool:
    """Whether a name can be a site's: neither it, nor a zone ``NAME-…`` of it, is a place abroad.

    >>> may_be_site("dubai-dc1"), may_be_site("eu-west-1"), may_be_site("eu"), may_be_site("asia")
    (True, False, False, False)
    """
    zones = ("", "-1", "-1a", "-west-1", "-central-1", "-east-1", "-west1", "-southeast1", "west")
    return not any(place_abroad(name + each) for each in zones)


def host_abroad(host: str) -> str:
    """The region abroad that a host of AWS, or a label of Azure's hosts, names; else empty."""
    for region, _ in regions_in(host):
        if f"aws/{region}" not in PLACES:
            return f"aws/{region}"
    labels = [each for each in host.lower().split(".") if each in AZURE_LOCATIONS]
    return next((f"azure/{each}" for each in labels if f"azure/{each}" not in PLACES), "")
