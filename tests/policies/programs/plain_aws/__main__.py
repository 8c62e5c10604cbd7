"""A data store and a server in plain pulumi-aws; `mistakes: true` makes it as people often do."""

import json

import pulumi
import pulumi_aws as aws

mistakes = pulumi.Config().get_bool("mistakes") or False
tags = {
    "falaj:owner": "data@example.ae",
    "falaj:tenant": "shop",
    "falaj:data-class": "confidential",
    "falaj:cost-center": "data",
    "falaj:environment": "production",
}
protected = pulumi.ResourceOptions(protect=True)
account = aws.get_caller_identity_output().account_id
key = aws.kms.Key(
    "data",
    description="data of the shop",
    enable_key_rotation=True,
    deletion_window_in_days=30,
    tags=tags,
    opts=protected,
)
bucket = aws.s3.Bucket("data", tags=tags, opts=protected)
aws.s3.BucketVersioning("data", bucket=bucket.id, versioning_configuration={"status": "Enabled"})
aws.s3.BucketPublicAccessBlock(
    "data",
    bucket=bucket.id,
    block_public_acls=True,
    block_public_policy=True,
    ignore_public_acls=True,
    restrict_public_buckets=True,
)
aws.s3.BucketPolicy(
    "data",
    bucket=bucket.id,
    policy=bucket.arn.apply(
        lambda arn: json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Deny",
                        "Principal": "*",
                        "Action": "s3:*",
                        "Resource": [arn, f"{arn}/*"],
                        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                    }
                ],
            }
        )
    ),
)
if not mistakes:
    aws.s3.BucketServerSideEncryptionConfiguration(
        "data",
        bucket=bucket.id,
        rules=[
            {
                "apply_server_side_encryption_by_default": {
                    "sse_algorithm": "aws:kms",
                    "kms_master_key_id": key.arn,
                },
                "bucket_key_enabled": True,
            }
        ],
    )
aws.cloudwatch.LogGroup(
    "app", kms_key_id=key.arn, retention_in_days=365, tags=tags, opts=protected
)
network = aws.ec2.Vpc("main", cidr_block="10.20.0.0/16", tags=tags)
aws.ec2.DefaultSecurityGroup("main", vpc_id=network.id, tags=tags)
flows = aws.cloudwatch.LogGroup(
    "flows", kms_key_id=key.arn, retention_in_days=365, tags=tags, opts=protected
)
role = aws.iam.Role(
    "flows",
    assume_role_policy=account.apply(
        lambda own: json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                        "Condition": {"StringEquals": {"aws:SourceAccount": own}},
                    }
                ],
            }
        )
    ),
    tags=tags,
)
aws.ec2.FlowLog(
    "main",
    vpc_id=network.id,
    traffic_type="ALL",
    log_destination=flows.arn,
    iam_role_arn=role.arn,
    tags=tags,
)
web = aws.ec2.SecurityGroup(
    "web",
    vpc_id=network.id,
    description="inference inside the network",
    ingress=[
        {
            "protocol": "tcp",
            "from_port": 443,
            "to_port": 443,
            "cidr_blocks": ["0.0.0.0/0" if mistakes else "10.20.0.0/16"],
            "description": "clients",
        }
    ],
    tags=tags,
)
if mistakes:
    abroad = aws.Provider("abroad", region="eu-west-1")
    copy = aws.s3.Bucket("copy", opts=pulumi.ResourceOptions(provider=abroad), tags=tags)
    aws.s3.BucketReplicationConfig(
        "copy",
        bucket=bucket.id,
        role=role.arn,
        rules=[{"status": "Enabled", "destination": {"bucket": copy.arn}}],
    )
