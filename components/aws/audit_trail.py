"""Who did what in the account, on AWS: recorded, sealed, watched."""

import json
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import account_of, child, named, stateful, token, written
from falaj.components.aws._iam import Statement, bucket_arn, document
from falaj.components.aws._logs import log_group, writer_role
from falaj.components.specification.audit_trail import AuditTrailArgs, AuditTrailSpec, check
from falaj.components.specification.property_names import engine_inputs

__all__ = ["AuditTrail", "AuditTrailArgs"]


class AuditTrail(pulumi.ComponentResource):
    """CloudTrail into the audit bucket and a log group, and GuardDuty with alerts.

    ::

        trail = AuditTrail("audit", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "log_key_id": keys.key_ids["logs"],
            "audit_bucket_name": store.bucket_names["audit"],
            "audit_store_id": store.store_ids["audit"],
            "alert_emails": ["security@acme.example"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes a `cloudtrail.Trail` whose home, bucket and log group are in the region, under the key
    for logs, with digests that show tampering; it records management events, and reads and writes
    of the objects in the tenant's buckets apart from the audit bucket. The trail takes in events
    of all regions, since AWS records IAM and sign-in in us-east-1 alone and delivers them to such
    trails only; what it takes in, it delivers here, and nothing leaves the country by it. With
    ``threat_detection`` also a GuardDuty detector that watches the account, objects and EKS. AWS
    refuses a second one in an account and region: where another stack has made it, name it as
    ``detector_id``, and it is used as it is. With ``alert_emails`` an encrypted SNS topic that
    tells them of findings of medium severity and above, whoever made the detector.

    The trail and its log group are protected and retained in production.
    """

    trail_id: pulumi.Output[str]
    """ARN of the trail."""
    log_destination_id: pulumi.Output[str]
    """ARN of the log group."""

    def __init__(
        self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("AuditTrail"), name, engine_inputs(args), opts)
        account = account_of(self)
        group = log_group(
            self,
            name,
            spec.placed,
            part="trail",
            days=spec.retention_days,
            key_id=args["log_key_id"],
        )
        trail = self._trail(name, spec, args, group, account)
        if spec.threat_detection and spec.detector_id is None:
            self._detector(name, spec)
        if spec.alert_emails:
            self._alerts(name, spec, args["log_key_id"])
        self.trail_id = trail.arn
        self.log_destination_id = group.arn
        outputs: dict[str, Any] = {
            "trail_id": self.trail_id,
            "log_destination_id": self.log_destination_id,
        }
        self.register_outputs(written(outputs))

    def _trail(
        self,
        name: str,
        spec: AuditTrailSpec,
        args: AuditTrailArgs,
        group: aws.cloudwatch.LogGroup,
        account: pulumi.Output[str],
    ) -> aws.cloudtrail.Trail:
        service = "cloudtrail.amazonaws.com"
        role = writer_role(
            self,
            name,
            spec.placed,
            service=service,
            group=group,
            account=account,
            # What AWS says of source accounts concerns the bucket, the topic and the key, and not
            # this role; a condition that isn't met ends in InvalidCloudWatchLogsRoleArnException:
            # docs.aws.amazon.com/awscloudtrail/latest/userguide/
            # cloudtrail-required-policy-for-cloudwatch-logs.html
            says_account=False,
        )
        # Names of the store's buckets begin like this, see `ObjectStore`.
        own_buckets = bucket_arn(f"{spec.placed.tenant}-")
        audit = pulumi.Output.concat(args["audit_store_id"], "/")
        return aws.cloudtrail.Trail(
            name,
            name=named(spec.placed, name, limit=128),
            s3_bucket_name=args["audit_bucket_name"],
            kms_key_id=args["log_key_id"],
            cloud_watch_logs_group_arn=group.arn.apply(lambda it: f"{it}:*"),
            cloud_watch_logs_role_arn=role.arn,
            is_multi_region_trail=True,
            include_global_service_events=True,
            is_organization_trail=False,
            enable_log_file_validation=True,
            enable_logging=True,
            advanced_event_selectors=[
                {
                    "name": "Management events",
                    "field_selectors": [{"field": "eventCategory", "equals": ["Management"]}],
                },
                {
                    "name": "Objects",
                    "field_selectors": [
                        {"field": "eventCategory", "equals": ["Data"]},
                        {"field": "resources.type", "equals": ["AWS::S3::Object"]},
                        {
                            "field": "resources.ARN",
                            "starts_withs": [own_buckets],
                            # The trail's own deliveries would be recorded for ever.
                            "not_starts_withs": [audit],
                        },
                    ],
                },
            ],
            tags=spec.placed.tags(name),
            opts=stateful(self, spec.placed),
        )

    def _detector(self, name: str, spec: AuditTrailSpec) -> None:
        detector = aws.guardduty.Detector(
            name,
            enable=True,
            finding_publishing_frequency="FIFTEEN_MINUTES",
            tags=spec.placed.tags(name),
            opts=child(self),
        )
        for feature in ("S3_DATA_EVENTS", "EKS_AUDIT_LOGS"):
            aws.guardduty.DetectorFeature(
                f"{name}-{feature.lower().replace('_', '-')}",
                detector_id=detector.id,
                name=feature,
                status="ENABLED",
                opts=child(self),
            )

    def _alerts(
        self,
        name: str,
        spec: AuditTrailSpec,
        log_key_id: pulumi.Input[str],
    ) -> None:
        topic = aws.sns.Topic(
            f"{name}-alerts",
            name=named(spec.placed, name, "alerts", limit=256),
            kms_master_key_id=log_key_id,
            tags=spec.placed.tags(name),
            opts=child(self),
        )
        rule = aws.cloudwatch.EventRule(
            f"{name}-findings",
            name=named(spec.placed, name, "findings", limit=64),
            description="Findings of medium severity and above",
            event_pattern=json.dumps(
                {
                    "source": ["aws.guardduty"],
                    "detail-type": ["GuardDuty Finding"],
                    # https://docs.aws.amazon.com/guardduty/latest/ug/guardduty_findings-severity.html
                    "detail": {"severity": [{"numeric": [">=", 4]}]},
                }
            ),
            tags=spec.placed.tags(name),
            opts=child(self),
        )

        def policy(topic_arn: str) -> pulumi.Output[str]:
            return document(
                # Without a condition on the rule: EventBridge tells SNS nothing of it, so that one
                # would never be met, and findings never be told: https://docs.aws.amazon.com/
                # eventbridge/latest/userguide/eb-troubleshooting.html
                Statement(
                    "RulesTell",
                    ["sns:Publish"],
                    [topic_arn],
                    principals={"Service": ["events.amazonaws.com"]},
                ),
                Statement(
                    "OnlyTls",
                    ["sns:Publish"],
                    [topic_arn],
                    effect="Deny",
                    principals={"AWS": ["*"]},
                    conditions={"Bool": {"aws:SecureTransport": "false"}},
                ),
            )

        permitted = aws.sns.TopicPolicy(
            f"{name}-alerts", arn=topic.arn, policy=topic.arn.apply(policy), opts=child(self)
        )
        aws.cloudwatch.EventTarget(
            f"{name}-findings",
            rule=rule.name,
            arn=topic.arn,
            opts=child(self, depends_on=[permitted]),
        )
        for address in spec.alert_emails:
            aws.sns.TopicSubscription(
                # By the address: one that leaves must not move the others.
                f"{name}-alerts-{address}",
                topic=topic.arn,
                protocol="email",
                endpoint=address,
                opts=child(self),
            )
