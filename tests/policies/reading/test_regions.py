"""Texts that name regions, in every spelling, and texts that don't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue.region_names import (
    AWS_REGIONS,
    AZURE_LOCATIONS,
    OCI_REGIONS,
    aws_region_of,
    is_azure_location,
    normalise_azure,
    place_named,
    region_in,
    regions_in,
)
from falaj.policies.rules.residency.everywhere import kind_named, kind_of_key


@pytest.mark.parametrize("region", sorted(AWS_REGIONS))
def test_every_region_of_aws_is_known_with_its_zones(region: str) -> None:
    assert aws_region_of(region) == region
    assert aws_region_of(f"{region}a") == region
    assert aws_region_of(region.upper()) == region


@pytest.mark.parametrize(
    ("said", "region"),
    [
        ("euw1-az1", "eu-west-1"),
        ("mec1-az3", "me-central-1"),
        ("apne1-az4", "ap-northeast-1"),
        ("usgw1-az1", "us-gov-west-1"),
        ("cnnw1-az2", "cn-northwest-1"),
        ("use1-bos1-az1", "us-east-1"),
        ("mec1-az1", "me-central-1"),
        ("us-east-1-bos-1a", "us-east-1-bos"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1-bos"),
        ("me-central-1-mct-1", "me-central-1-mct"),
        ("me-central-1-dxb-1a", "me-central-1"),
        ("sa-west-9", "sa-west-9"),
        (" eu-west-1 ", "eu-west-1"),
    ],
)
def test_zones_and_zone_ids(said: str, region: str) -> None:
    assert aws_region_of(said) == region


@pytest.mark.parametrize(
    "said", ["", "north", "eu-west", "eu-west-1-logs", "west-1", "me", "europe", None, 7, ["a"]]
)
def test_what_is_no_region(said: object) -> None:
    assert not aws_region_of(said)


@pytest.mark.parametrize(
    ("said", "region"),
    [
        ("arn:aws:kms:eu-west-1:123456789012:key/k", "eu-west-1"),
        ("arn:aws-cn:sqs:cn-north-1:123456789012:q", "cn-north-1"),
        ("arn:aws:bedrock:us-east-1::foundation-model/m", "us-east-1"),
        ("https://b.s3.eu-west-1.amazonaws.com/x", "eu-west-1"),
        ("s3-eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3-website-eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://s3.dualstack.eu-west-1.amazonaws.com", "eu-west-1"),
        ("x.dkr.ecr.us-east-1.amazonaws.com/app:1", "us-east-1"),
        ("x.lambda-url.eu-west-1.on.aws", "eu-west-1"),
        ("c.abc.0001.euw1.cache.amazonaws.com:6379", "eu-west-1"),
        ("ec2-1-2-3-4.compute-1.amazonaws.com", "us-east-1"),
        ("com.amazonaws.eu-west-1.s3", "eu-west-1"),
        ("com.amazonaws.vpce.eu-west-1.vpce-svc-1", "eu-west-1"),
        ("aws.sagemaker.eu-west-1.notebook", "eu-west-1"),
        ("user@d.eu-west-1.rds.amazonaws.com:5432/db", "eu-west-1"),
        ("data--use1-az4--x-s3", "us-east-1"),
        ("logs.eu-west-1.amazonaws.com.cn", "eu-west-1"),
        ("eu-west-1.s3.me-central-1.amazonaws.com", "me-central-1"),
    ],
)
def test_what_points_to_a_region(said: str, region: str) -> None:
    assert region_in(said) == region


@pytest.mark.parametrize(
    "said",
    [
        "arn:aws:s3:::eu-west-1",
        "arn:aws:iam::123456789012:role/eu-west-1",
        "ec2.amazonaws.com",
        "logs-eu-west-1.s3.amazonaws.com",
        "https://s3.eu-west-1.amazonaws.com.example.com",
        "https://example.com/eu-west-1",
        "arn:aws:logs:*:123456789012:*",
    ],
)
def test_what_points_to_none(said: str) -> None:
    assert not region_in(said)


@given(st.text(max_size=200))
def test_any_text_can_be_read(said: str) -> None:
    for region, evidence in regions_in(said):
        assert region
        assert evidence in said
    assert isinstance(place_named(said), str)


@pytest.mark.parametrize(
    "said", ["UAE North", "uaenorth", "UAENORTH", "(Middle East) UAE North", "uae-north"]
)
def test_spellings_of_a_location(said: str) -> None:
    assert normalise_azure(said) == "uaenorth"
    assert is_azure_location(said)


def test_geographies_are_locations_only_if_asked_for() -> None:
    assert not is_azure_location("global")
    assert is_azure_location("global", geographies=True)
    assert is_azure_location("Europe", geographies=True)
    assert not is_azure_location("north", geographies=True)


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("West Europe", "azure/westeurope"),
        ("europe-west4", "gcp/europe-west4"),
        ("us-central1-a", "gcp/us-central1-a"),
        ("eu-frankfurt-1", "oci/eu-frankfurt-1"),
        ("cn-hangzhou", "alibaba/cn-hangzhou"),
        ("eu-west-1b", "aws/eu-west-1"),
        ("uaenorth-2", "azure/uaenorth"),
        ("north", ""),
        ("East", ""),
    ],
)
def test_places_of_any_cloud(said: str, place: str) -> None:
    assert place_named(said) == place


def test_every_listed_place_is_one() -> None:
    assert all(place_named(each) == f"azure/{each}" for each in AZURE_LOCATIONS)
    assert all(place_named(each) == f"oci/{each}" for each in OCI_REGIONS)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("region", "region"),
        ("regionName", "region"),
        ("destinationRegion", "region"),
        ("AWS_DEFAULT_REGION", "region"),
        ("regionLists", "region"),
        ("s3_region", "region"),
        ("topology.kubernetes.io/region", "region"),
        ("availabilityZone", "zone"),
        ("availabilityZoneId", "zone"),
        ("locationName", "location"),
        ("multiRegion", ""),
        ("allRegions", ""),
        ("stateOrRegion", ""),
        ("hostedZoneId", ""),
        ("regional", ""),
        ("allocation", ""),
        ("", ""),
    ],
)
def test_keys_that_name_a_place(key: str, kind: str) -> None:
    assert kind_of_key(key) == kind


def test_the_key_above_gives_a_name_its_meaning() -> None:
    assert kind_named(("targetRegions", "name")) == "region"
    assert kind_named(("tags", "name")) == ""
    assert kind_named(()) == ""
