"""What is recorded and told: the trail, findings, costs."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest

from falaj.components.aws.audit_trail import AuditTrail
from falaj.components.aws.budget import Budget
from falaj.components.aws.object_store import ObjectStore


def trail(args: dict[str, Any]) -> Any:
    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> AuditTrail:
        placed = {key: args[key] for key in args if key not in OWN}
        store = ObjectStore(
            "store",
            {
                **placed,
                "buckets": ["audit"],
                "data_key_id": keys["data"],
                "log_key_id": keys["logs"],
                "state_key_id": keys["state"],
            },
            opts,
        )
        given = {
            **args,
            "log_key_id": keys["logs"],
            "audit_bucket_name": store.bucket_names["audit"],
            "audit_store_id": store.store_ids["audit"],
        }
        return AuditTrail("audit", given, opts)

    return build


OWN = ("retention_days", "threat_detection", "detector_id", "alert_emails")


def test_alerts_without_findings_are_refused(placed: dict[str, Any]) -> None:
    args = {**placed, "log_key_id": "k", "audit_bucket_name": "b", "audit_store_id": "s"}
    with pytest.raises(pulumi.InputPropertiesError, match="no findings to tell"):
        AuditTrail("audit", {**args, "threat_detection": False, "alert_emails": ["a@b.example"]})


@pytest.fixture(scope="module")
def made(deploy: Any, placed: dict[str, Any]) -> Any:
    emails = ["security@acme.example", "ops@acme.example"]
    return deploy(trail({**placed, "alert_emails": emails}))


def test_the_trails_role_compares_nothing_that_cloudtrail_may_not_say(made: Any) -> None:
    role = made.one("aws:iam/role:Role", "audit-logs")
    (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": ["cloudtrail.amazonaws.com"]}
    assert "Condition" not in statement


def test_the_trail_is_sealed_and_here(made: Any) -> None:
    found = made.one("aws:cloudtrail/trail:Trail")
    key = made.one("aws:kms/key:Key", "keys-logs").outputs["arn"]
    assert found.inputs["kmsKeyId"] == key
    assert found.inputs["enableLogFileValidation"] is True
    assert found.inputs["includeGlobalServiceEvents"] is True
    # Only such a trail gets what IAM does; all of it is delivered to the region's bucket.
    assert found.inputs["isMultiRegionTrail"] is True
    assert found.inputs["s3BucketName"] == made.one("aws:s3/bucket:Bucket").id
    assert ":me-central-1:" in made.returned["trail_id"]
    group = made.one("aws:cloudwatch/logGroup:LogGroup")
    assert group.inputs["kmsKeyId"] == key
    assert group.inputs["retentionInDays"] == 365
    assert made.returned["log_destination_id"] == group.outputs["arn"]


def test_objects_are_recorded_but_not_the_recording(made: Any) -> None:
    (_, objects) = made.one("aws:cloudtrail/trail:Trail").inputs["advancedEventSelectors"]
    fields = {each["field"]: each for each in objects["fieldSelectors"]}
    bucket = made.one("aws:s3/bucket:Bucket").inputs["bucket"]
    assert fields["resources.ARN"]["startsWiths"] == ["arn:aws:s3:::acme-"]
    assert fields["resources.ARN"]["notStartsWiths"] == [f"arn:aws:s3:::{bucket}/"]


def test_findings_are_watched_for_and_told(made: Any) -> None:
    detector = made.one("aws:guardduty/detector:Detector")
    assert detector.inputs["enable"] is True
    features = made.of_type("aws:guardduty/detectorFeature:DetectorFeature")
    assert {each.inputs["name"] for each in features} == {"S3_DATA_EVENTS", "EKS_AUDIT_LOGS"}
    topic = made.one("aws:sns/topic:Topic")
    key = made.one("aws:kms/key:Key", "keys-logs").outputs["arn"]
    assert topic.inputs["kmsMasterKeyId"] == key
    rule = made.one("aws:cloudwatch/eventRule:EventRule")
    assert json.loads(rule.inputs["eventPattern"])["source"] == ["aws.guardduty"]
    assert (
        made.one("aws:cloudwatch/eventTarget:EventTarget").inputs["arn"] == (topic.outputs["arn"])
    )
    subscribed = made.of_type("aws:sns/topicSubscription:TopicSubscription")
    assert {each.inputs["endpoint"] for each in subscribed} == {
        "security@acme.example",
        "ops@acme.example",
    }
    allowed, refused = json.loads(made.one("aws:sns/topicPolicy:TopicPolicy").inputs["policy"])[
        "Statement"
    ]
    assert allowed["Principal"] == {"Service": ["events.amazonaws.com"]}
    # EventBridge gives SNS nothing that a condition could be about.
    assert "Condition" not in allowed
    assert refused["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_a_detector_that_exists_is_used_and_its_findings_told(
    deploy: Any, placed: dict[str, Any]
) -> None:
    given = {**placed, "detector_id": "0" * 32, "alert_emails": ["security@acme.example"]}
    made = deploy(trail(given))
    assert not made.of_type("aws:guardduty/detector:Detector")
    assert not made.of_type("aws:guardduty/detectorFeature:DetectorFeature")
    assert made.one("aws:sns/topicSubscription:TopicSubscription")


def test_detection_can_be_left_out_and_logs_kept_longer(
    deploy: Any, placed: dict[str, Any]
) -> None:
    args = {
        **placed,
        "environment": "production",
        "threat_detection": False,
        "retention_days": 731.0,
    }
    made = deploy(trail(args))
    assert not made.of_type("aws:guardduty/detector:Detector")
    assert not made.of_type("aws:sns/topic:Topic")
    assert made.one("aws:cloudwatch/logGroup:LogGroup").inputs["retentionInDays"] == 731
    assert made.kept()["aws:cloudtrail/trail:Trail audit"] == (True, True)


def test_a_budget_needs_somebody_to_tell(placed: dict[str, Any]) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="emails: given 0"):
        Budget("month", {**placed, "monthly_usd": 1, "emails": []})


def test_a_budget_counts_the_tenant_and_tells(deploy: Any, placed: dict[str, Any]) -> None:
    args = {**placed, "monthly_usd": 1234.5, "emails": ["finance@acme.example"]}
    made = deploy(lambda opts: Budget("month", args, opts))
    budget = made.one("aws:budgets/budget:Budget")
    assert budget.inputs["limitAmount"] == "1234.50"
    assert budget.inputs["timeUnit"] == "MONTHLY"
    assert budget.inputs["costFilters"] == [
        {"name": "TagKeyValue", "values": ["user:falaj:tenant$acme"]}
    ]
    told = [
        (each["notificationType"], each["threshold"]) for each in budget.inputs["notifications"]
    ]
    assert told == [("ACTUAL", 50), ("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100)]
    assert "timePeriodStart" not in budget.inputs
    assert made.returned["budget_id"] == "000000000000:acme-dev-month"


def test_a_budget_s_alerts_and_start_can_be_chosen(deploy: Any, placed: dict[str, Any]) -> None:
    args = {
        **placed,
        "monthly_usd": 10,
        "emails": ["a@b.example", "c@d.example"],
        "alert_percent": [90.0, 10],
        "start": "2026-11",
    }
    made = deploy(lambda opts: Budget("month", args, opts))
    budget = made.one("aws:budgets/budget:Budget")
    told = [each["threshold"] for each in budget.inputs["notifications"]]
    assert told == [10, 90, 100]
    assert budget.inputs["timePeriodStart"] == "2026-11-01_00:00"
    for each in budget.inputs["notifications"]:
        assert each["subscriberEmailAddresses"] == ["a@b.example", "c@d.example"]
