"""What keeps data in a CloudFormation template, and where it says how that is encrypted.

Types and properties are CloudFormation's own:
https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-template-resource-type-ref.html
"""

from __future__ import annotations

from typing import Final

from falaj.policies.rules.encryption.table import State, Stores

_SSE: Final[dict[str, State]] = {"aes256": "service key", "": "service key"}
_BY_DEFAULT: Final = "BucketEncryption.ServerSideEncryptionConfiguration" \
    ".ServerSideEncryptionByDefault"  # fmt: skip

TEMPLATE_STORES: Final = (
    Stores("AWS::S3::Bucket", f"{_BY_DEFAULT}.KMSMasterKeyID", mode=f"{_BY_DEFAULT}.SSEAlgorithm",
           modes=_SSE),
    Stores("AWS::EC2::Volume", "KmsKeyId", "Encrypted", "none"),
    Stores("AWS::EC2::Instance", "KmsKeyId", "Encrypted", "none", parts="BlockDeviceMappings.Ebs"),
    Stores("AWS::EC2::LaunchTemplate", "KmsKeyId", "Encrypted", "none",
           parts="LaunchTemplateData.BlockDeviceMappings.Ebs"),
    Stores("AWS::EFS::FileSystem", "KmsKeyId", "Encrypted", "none"),
    Stores("AWS::FSx::FileSystem", "KmsKeyId"),
    Stores("AWS::Backup::BackupVault", "EncryptionKeyArn"),
    Stores("AWS::RDS::DBInstance", "KmsKeyId", "StorageEncrypted", "none",
           copies=("DBClusterIdentifier", "SourceDBInstanceIdentifier", "DBSnapshotIdentifier")),
    Stores("AWS::RDS::DBCluster", "KmsKeyId", "StorageEncrypted", "none",
           copies=("SnapshotIdentifier", "SourceDBClusterIdentifier")),
    Stores("AWS::DocDB::DBCluster", "KmsKeyId", "StorageEncrypted", "none"),
    Stores("AWS::Neptune::DBCluster", "KmsKeyId", "StorageEncrypted", "none"),
    Stores("AWS::Redshift::Cluster", "KmsKeyId", "Encrypted"),
    Stores("AWS::DynamoDB::Table", "SSESpecification.KMSMasterKeyId",
           mode="SSESpecification.SSEEnabled", modes={"false": "service key"}),
    Stores("AWS::ElastiCache::ReplicationGroup", "KmsKeyId", "AtRestEncryptionEnabled", "none"),
    Stores("AWS::MemoryDB::Cluster", "KmsKeyId"),
    Stores("AWS::OpenSearchService::Domain", "EncryptionAtRestOptions.KmsKeyId",
           "EncryptionAtRestOptions.Enabled", "none"),
    Stores("AWS::Elasticsearch::Domain", "EncryptionAtRestOptions.KmsKeyId",
           "EncryptionAtRestOptions.Enabled", "none"),
    Stores("AWS::SQS::Queue", "KmsMasterKeyId", "SqsManagedSseEnabled", key_wins=True),
    Stores("AWS::SNS::Topic", "KmsMasterKeyId", default="none"),
    Stores("AWS::Kinesis::Stream", "StreamEncryption.KeyId", default="none",
           mode="StreamEncryption.EncryptionType", modes={"kms": "customer key"}),
    Stores("AWS::MSK::Cluster", "EncryptionInfo.EncryptionAtRest.DataVolumeKMSKeyId"),
    Stores("AWS::Logs::LogGroup", "KmsKeyId"),
    Stores("AWS::CloudTrail::Trail", "KMSKeyId"),
    Stores("AWS::SecretsManager::Secret", "KmsKeyId"),
    Stores("AWS::ECR::Repository", "EncryptionConfiguration.KmsKey",
           mode="EncryptionConfiguration.EncryptionType", modes=_SSE),
    Stores("AWS::EKS::Cluster", "EncryptionConfig.Provider.KeyArn"),
    Stores("AWS::Lambda::Function", "KmsKeyArn", when="Environment.Variables"),
    Stores("AWS::SageMaker::NotebookInstance", "KmsKeyId"),
    Stores("AWS::SageMaker::Domain", "KmsKeyId"),
    Stores("AWS::Bedrock::Agent", "CustomerEncryptionKeyArn"),
    Stores("AWS::WorkSpaces::Workspace", "VolumeEncryptionKey", "RootVolumeEncryptionEnabled",
           "none"),
    Stores("AWS::WorkSpaces::Workspace", "VolumeEncryptionKey", "UserVolumeEncryptionEnabled",
           "none"),
)  # fmt: skip
