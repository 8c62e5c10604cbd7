"""Where resources are, by what they, their providers and the cloud say."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.policies.model import UNKNOWN, Provider, Resource, Settings, Stack
from falaj.policies.reading.hosts import foreign_service, host_of, is_private, may_talk_to
from falaj.policies.reading.place import place_of, region_of_resource
from falaj.policies.reading.walk import walk


def resource(kind: str, provider: dict[str, Any] | None = None, **properties: Any) -> Resource:
    made = Provider("pulumi:providers:x", provider) if provider is not None else None
    return Resource(kind, "it", properties, urn=f"urn:{kind}", provider=made)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (resource("aws:s3/bucket:Bucket", region="me-central-1"), "aws/me-central-1"),
        (resource("aws:s3/bucket:Bucket", {"region": "eu-west-1"}), "aws/eu-west-1"),
        (
            resource("aws:s3/bucket:Bucket", {"region": "eu-west-1"}, region="me-central-1"),
            "aws/me-central-1",
        ),
        (resource("aws:s3/bucket:Bucket"), "unknown"),
        (resource("aws:s3/bucket:Bucket", region=UNKNOWN), "unknown"),
        (resource("aws:s3/bucket:Bucket", {}), "unknown"),
        (resource("aws:iam/role:Role", {"region": "eu-west-1"}), "global"),
        (resource("aws-native:s3:Bucket", {"region": "me-central-1"}), "aws/me-central-1"),
        (resource("azure-native:storage:StorageAccount", location="UAE North"), "azure/uaenorth"),
        (resource("azure-native:cdn:Profile", location="Global"), "global"),
        (resource("azure-native:sql:Database", {"location": "uaecentral"}), "azure/uaecentral"),
        (resource("azure-native:sql:Database"), "unknown"),
        (resource("random:index/randomId:RandomId"), "none"),
        (resource("kubernetes:core/v1:Pod"), "none"),
        (resource("falaj-aws:storage:Vault"), "none"),
        (resource("pulumi:providers:aws", region="eu-west-1"), "none"),
        (resource("gcp:storage/bucket:Bucket", location="ME"), "unknown"),
    ],
)
def test_place(given: Resource, place: str) -> None:
    assert place_of(given) == place


def test_components_are_nowhere() -> None:
    assert place_of(Resource("aws:s3/bucket:Bucket", "it", {}, custom=False)) == "none"


def test_what_the_cloud_answered_counts_where_the_program_is_silent() -> None:
    answered = Resource("aws:sqs/queue:Queue", "q", {}, outputs={"region": "eu-west-1"})
    assert place_of(answered) == "aws/eu-west-1"
    by_arn = Resource("aws:sqs/queue:Queue", "q", {}, outputs={"arn": "arn:aws:sqs:eu-west-1:1:q"})
    assert region_of_resource(by_arn) == "eu-west-1"


def test_answers_that_are_not_known_yet_say_nothing() -> None:
    outputs = {"region": UNKNOWN, "arn": UNKNOWN, "location": UNKNOWN}
    for kind in ("aws:sqs/queue:Queue", "azure-native:sql:Database"):
        assert place_of(Resource(kind, "it", {}, outputs=outputs)) == "unknown"
        hidden = {"region": UNKNOWN, "location": UNKNOWN}
        assert place_of(Resource(kind, "it", hidden, outputs=outputs)) == "unknown"


def test_a_child_of_a_group_is_where_the_group_is() -> None:
    group = Resource(
        "azure-native:resources:ResourceGroup",
        "g",
        {"resourceGroupName": "data", "location": "westeurope"},
        urn="urn:g",
    )
    child = resource("azure-native:sql:Database", resourceGroupName="DATA")
    assert place_of(child, Stack((group, child))) == "azure/westeurope"


@pytest.mark.parametrize(
    ("said", "host"),
    [
        ("https://user:secret@Example.com:8443/x?y#z", "example.com"),
        ("example.com:443/v1", "example.com"),
        ("jdbc:postgresql://db.example.com:5432/d", "db.example.com"),
        ("//example.com", "example.com"),
        ("http://[fd00::1]:80/", "fd00::1"),
        ("10.0.0.1:9092", "10.0.0.1"),
        ("someone", ""),
        ("two words.com", ""),
        (UNKNOWN, ""),
    ],
)
def test_host(said: object, host: str) -> None:
    assert host_of(said) == host


def test_hosts_that_data_may_go_to() -> None:
    settings = Settings(allowed_hosts=("*.example.ae", "one.example.com:8443"))
    for host in ("10.1.2.3", "collector.observability.svc", "localhost", "fd00::1", "a.example.ae",
                 "one.example.com", "x.s3.me-central-1.amazonaws.com"):  # fmt: skip
        assert may_talk_to(host, settings), host
    for host in ("example.com", "8.8.8.8", "x.s3.eu-west-1.amazonaws.com", "s3.amazonaws.com",
                 "example.ae", "badexample.ae", "two.example.com"):  # fmt: skip
        assert not may_talk_to(host, settings), host
    assert not is_private("8.8.8.8")


def test_services_abroad_are_known_by_the_end_of_their_hosts() -> None:
    assert foreign_service("http-intake.logs.datadoghq.eu") == "Datadog"
    assert not foreign_service("datadoghq.eu.example.ae")
    assert not foreign_service("notsentry.io.ae")
    assert not foreign_service("mysentry.io")


def leaves_of(properties: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    return {each.keys: each.value for each in walk(Resource("a:b:C", "it", properties))}


def test_a_walk_passes_by_marks_and_what_is_forbidden() -> None:
    found = leaves_of(
        {
            "tags": {"a": "b"},
            "description": "x",
            "excludedRegions": ["y"],
            "policy": '{"Statement": [{"Effect": "Deny", "Resource": "r"},'
            ' {"Effect": "Allow", "Resource": "s", "Condition": {"c": "d"}}]}',
            "env": [{"name": "REGION", "value": UNKNOWN}],
        }
    )
    assert ("policy", "Statement", "Resource") in found
    assert found["policy", "Statement", "Resource"] == "s"
    assert found["env", "REGION", "value"] is UNKNOWN
    assert not {key for keys in found for key in keys} & {"tags", "description", "Condition"}
    assert ("excludedRegions",) not in found
