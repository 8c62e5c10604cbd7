"""Policies of AWS's resources, which say who may use them: the property that holds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from falaj.policies.reading.types import aws_type

#: Which property of a type is its policy document.
RESOURCE_POLICIES: Final[Mapping[str, str]] = {
    **{
        aws_type(each): "policy"
        for each in (
            "s3/bucket", "s3/bucketV2", "s3/bucketPolicy", "s3/accessPoint",
            "s3/vectorsVectorBucketPolicy", "s3/filesFileSystemPolicy", "s3control/bucketPolicy",
            "s3control/accessPointPolicy", "s3control/objectLambdaAccessPointPolicy",
            "s3control/accessGrantsInstanceResourcePolicy", "sns/topic", "sns/topicPolicy",
            "sqs/queue", "sqs/queuePolicy", "kms/key", "kms/keyPolicy", "kms/externalKey",
            "kms/replicaKey", "kms/replicaExternalKey", "secretsmanager/secret",
            "secretsmanager/secretPolicy", "ecr/repositoryPolicy", "ecr/registryPolicy",
            "ecrpublic/repositoryPolicy", "efs/fileSystemPolicy", "backup/vaultPolicy",
            "glacier/vaultLock", "cloudwatch/eventBusPolicy", "acmpca/policy",
            "codebuild/resourcePolicy", "dynamodb/resourcePolicy", "kinesis/resourcePolicy",
            "glue/resourcePolicy", "lambda/resourcePolicy", "msk/clusterPolicy",
            "networkfirewall/resourcePolicy", "oam/sinkPolicy", "redshift/resourcePolicy",
            "redshiftserverless/resourcePolicy", "opensearchingest/resourcePolicy",
            "schemas/registryPolicy", "ses/identityPolicy", "sesv2/emailIdentityPolicy",
            "mediastore/containerPolicy", "vpclattice/authPolicy", "vpclattice/resourcePolicy",
            "dsql/clusterPolicy", "bedrock/agentcoreResourcePolicy", "apigateway/restApiPolicy",
            "apigateway/restApi", "apigateway/domainName",
        )
    },
    aws_type("elasticsearch/domain"): "accessPolicies",
    aws_type("elasticsearch/domainPolicy"): "accessPolicies",
    aws_type("opensearch/domain"): "accessPolicies",
    aws_type("opensearch/domainPolicy"): "accessPolicies",
    aws_type("cloudsearch/domainServiceAccessPolicy"): "accessPolicy",
    aws_type("glacier/vault"): "accessPolicy",
    aws_type("cloudwatch/logDestinationPolicy"): "accessPolicy",
    aws_type("cloudwatch/logDeliveryDestinationPolicy"): "deliveryDestinationPolicy",
    aws_type("cloudwatch/logResourcePolicy"): "policyDocument",
    aws_type("xray/resourcePolicy"): "policyDocument",
    aws_type("amp/resourcePolicy"): "policyDocument",
    aws_type("codeartifact/domainPermissions"): "policyDocument",
    aws_type("codeartifact/repositoryPermissionsPolicy"): "policyDocument",
    aws_type("ecr/repositoryCreationTemplate"): "repositoryPolicy",
    aws_type("s3tables/tableBucketPolicy"): "resourcePolicy",
    aws_type("s3tables/tablePolicy"): "resourcePolicy",
    aws_type("sagemaker/modelPackageGroupPolicy"): "resourcePolicy",
}  # fmt: skip
