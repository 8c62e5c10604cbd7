"""AWS: what each storing type says about encryption at rest, by kind of service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Resource,
    get,
    is_list,
    is_unknown,
    items,
    select,
    text,
)
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption import aws_readers
from falaj.policies.rules.encryption.stores import Part, Reader, State, Stores, readers
from falaj.wire.documents import is_mapping

# What keeps data in a CloudFormation template, and where it says how that is encrypted.
#
# Types and properties are CloudFormation's own:
# https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-template-resource-type-ref.html

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


# AWS's services for AI: what encrypts models, training data, agents' memories and answers.
#
# Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
# otherwise.

_MONITOR: Final = "monitoringScheduleConfig.monitoringJobDefinition"
_OUTPUT: Final = "outputDataConfig"

AI_STORES: Final = (
    Stores("aws:sagemaker/notebookInstance:NotebookInstance", "kmsKeyId"),
    Stores("aws:sagemaker/domain:Domain", "kmsKeyId"),
    Stores("aws:sagemaker/domain:Domain", "defaultUserSettings.sharingSettings.s3KmsKeyId",
           only=("defaultUserSettings.sharingSettings.notebookOutputOption", ("allowed",))),
    Stores("aws:sagemaker/userProfile:UserProfile", "userSettings.sharingSettings.s3KmsKeyId",
           only=("userSettings.sharingSettings.notebookOutputOption", ("allowed",))),
    Stores("aws:sagemaker/endpointConfiguration:EndpointConfiguration", "kmsKeyId",
           parts="dataCaptureConfig"),
    Stores("aws:sagemaker/endpointConfiguration:EndpointConfiguration", "outputConfig.kmsKeyId",
           parts="asyncInferenceConfig"),
    Stores("aws:sagemaker/endpointConfiguration:EndpointConfiguration", "kmsKeyId",
           parts="productionVariants.coreDumpConfig"),
    Stores("aws:sagemaker/endpointConfiguration:EndpointConfiguration", "kmsKeyId",
           parts="shadowProductionVariants.coreDumpConfig"),
    Stores("aws:sagemaker/featureGroup:FeatureGroup", "s3StorageConfig.kmsKeyId",
           parts="offlineStoreConfig"),
    Stores("aws:sagemaker/featureGroup:FeatureGroup", "securityConfig.kmsKeyId",
           parts="onlineStoreConfig", when="enableOnlineStore"),
    Stores("aws:sagemaker/trainingJob:TrainingJob", "kmsKeyId", parts=_OUTPUT),
    Stores("aws:sagemaker/hyperParameterTuningJob:HyperParameterTuningJob", "kmsKeyId",
           parts=f"trainingJobDefinition.{_OUTPUT}"),
    Stores("aws:sagemaker/hyperParameterTuningJob:HyperParameterTuningJob", "kmsKeyId",
           parts=f"trainingJobDefinitions.{_OUTPUT}"),
    Stores("aws:sagemaker/labelingJob:LabelingJob", "outputConfig.kmsKeyId"),
    Stores("aws:sagemaker/flowDefinition:FlowDefinition", "outputConfig.kmsKeyId"),
    Stores("aws:sagemaker/deviceFleet:DeviceFleet", "outputConfig.kmsKeyId"),
    Stores("aws:sagemaker/modelCard:ModelCard", "securityConfig.kmsKeyId"),
    Stores("aws:sagemaker/monitoringSchedule:MonitoringSchedule", "kmsKeyId",
           parts=f"{_MONITOR}.monitoringOutputConfig"),
    Stores("aws:sagemaker/dataQualityJobDefinition:DataQualityJobDefinition", "kmsKeyId",
           parts="dataQualityJobOutputConfig"),
    Stores("aws:bedrock/agentAgent:AgentAgent", "customerEncryptionKeyArn"),
    Stores("aws:bedrock/agentFlow:AgentFlow", "customerEncryptionKeyArn"),
    Stores("aws:bedrock/agentPrompt:AgentPrompt", "customerEncryptionKeyArn"),
    Stores("aws:bedrock/agentDataSource:AgentDataSource",
           "serverSideEncryptionConfiguration.kmsKeyArn"),
    Stores("aws:bedrock/agentKnowledgeBase:AgentKnowledgeBase",
           "serverSideEncryptionConfiguration.kmsKeyArn",
           parts="knowledgeBaseConfiguration.managedKnowledgeBaseConfiguration"),
    Stores("aws:bedrock/customModel:CustomModel", "customModelKmsKeyId"),
    Stores("aws:bedrock/evaluationJob:EvaluationJob", "customerEncryptionKeyId"),
    Stores("aws:bedrock/guardrail:Guardrail", "kmsKeyArn"),
    Stores("aws:bedrock/agentcoreEvaluator:AgentcoreEvaluator", "kmsKeyArn"),
    Stores("aws:bedrock/agentcoreGateway:AgentcoreGateway", "kmsKeyArn"),
    Stores("aws:bedrock/agentcoreMemory:AgentcoreMemory", "encryptionKeyArn"),
    Stores("aws:bedrock/agentcorePolicyEngine:AgentcorePolicyEngine", "encryptionKeyArn"),
    Stores("aws:bedrock/agentcoreHarness:AgentcoreHarness", "encryptionKeyArn",
           parts="memory.managedMemoryConfiguration"),
    Stores("aws:bedrock/agentcoreTokenVaultCmk:AgentcoreTokenVaultCmk",
           "kmsConfiguration.kmsKeyArn"),
    Stores("aws:bedrockmodel/invocationJob:InvocationJob", "s3EncryptionKeyId",
           parts="outputDataConfig.s3OutputDataConfig"),
    Stores("aws:comprehend/documentClassifier:DocumentClassifier", "modelKmsKeyId"),
    Stores("aws:comprehend/documentClassifier:DocumentClassifier", "volumeKmsKeyId"),
    Stores("aws:comprehend/documentClassifier:DocumentClassifier", "kmsKeyId", parts=_OUTPUT),
    Stores("aws:comprehend/entityRecognizer:EntityRecognizer", "modelKmsKeyId"),
    Stores("aws:comprehend/entityRecognizer:EntityRecognizer", "volumeKmsKeyId"),
    Stores("aws:kendra/index:Index", "serverSideEncryptionConfiguration.kmsKeyId"),
    Stores("aws:qbusiness/application:Application", "encryptionConfiguration.kmsKeyId"),
    Stores("aws:rekognition/streamProcessor:StreamProcessor", "kmsKeyId"),
    Stores("aws:lex/botAlias:BotAlias", "kmsKeyArn", parts="conversationLogs.logSettings",
           only=("destination", ("s3",))),
    Stores("aws:chime/sdkvoiceVoiceProfileDomain:SdkvoiceVoiceProfileDomain",
           "serverSideEncryptionConfiguration.kmsKeyArn"),
    Stores("aws:connect/instanceStorageConfig:InstanceStorageConfig", "encryptionConfig.keyId",
           parts="storageConfig.s3Config"),
    Stores("aws:connect/instanceStorageConfig:InstanceStorageConfig", "encryptionConfig.keyId",
           parts="storageConfig.kinesisVideoStreamConfig"),
    Stores("aws:devopsagent/agentSpace:AgentSpace", "kmsKeyArn"),
)  # fmt: skip

#: Instances with disks of their own, which the hardware encrypts: SageMaker then refuses a key for
#: the volume. https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/InstanceStorage.html
_OWN_DISKS: Final = re.compile(
    r"ml\.((g4dn|g4ad|g5|g6|g6e|g6f|gr6|gr6f|p3dn|p4d|p4de|p5|p5e|p5en|p6\S*|trn1|trn1n|trn2)"
    r"|(c|m|r|x)\d+[a-z]*d[a-z]*|(i|d|h|is|im)\d\w*)\..+"
)
_VOLUMES: Final = {
    # Where the key of the volume stands, with the paths that say what machines it is on.
    "aws:sagemaker/trainingJob:TrainingJob": (("resourceConfig", "volumeKmsKeyId"),),
    "aws:sagemaker/hyperParameterTuningJob:HyperParameterTuningJob": (
        ("trainingJobDefinition.resourceConfig", "volumeKmsKeyId"),
        ("trainingJobDefinition.hyperParameterTuningResourceConfig", "volumeKmsKeyId"),
        ("trainingJobDefinitions.resourceConfig", "volumeKmsKeyId"),
        ("trainingJobDefinitions.hyperParameterTuningResourceConfig", "volumeKmsKeyId"),
    ),
    "aws:sagemaker/monitoringSchedule:MonitoringSchedule": (
        (f"{_MONITOR}.monitoringResources.clusterConfig", "volumeKmsKeyId"),
    ),
    "aws:sagemaker/dataQualityJobDefinition:DataQualityJobDefinition": (
        ("jobResources.clusterConfig", "volumeKmsKeyId"),
    ),
    "aws:sagemaker/labelingJob:LabelingJob": (
        ("labelingJobAlgorithmsConfig.labelingJobResourceConfig", "volumeKmsKeyId"),
    ),
}
_ENDPOINT: Final = "aws:sagemaker/endpointConfiguration:EndpointConfiguration"


def _has_own_disks(block: Any) -> bool:
    """Whether every machine of a block keeps its data on its own disks."""
    groups = [block, *items(get(block, "instanceGroups"))]
    named = [text(get(each, "instanceType")) for each in groups if is_mapping(each)]
    kinds = [each for each in named if each]
    return bool(kinds) and all(_OWN_DISKS.fullmatch(each) for each in kinds)


def _volume(parts: str, key: str) -> Reader:
    def read(resource: Resource, context: Context) -> Iterator[Part]:
        blocks = [block for _, block in select(resource.properties, parts)]
        if blocks and all(_has_own_disks(each) for each in blocks):
            return
        yield from Stores(resource.kind, key, parts=parts).read(resource, context)

    return read


def _endpoint(resource: Resource, context: Context) -> Iterator[Part]:
    """The volumes of an endpoint's machines; serverless variants have none."""
    variants = [
        each
        for path in ("productionVariants", "shadowProductionVariants")
        for each in items(get(resource.properties, path))
    ]
    if variants and all(
        not is_unknown(each) and (_has_own_disks(each) or _is_serverless(each))
        for each in variants
    ):
        return
    yield from Stores(_ENDPOINT, "kmsKeyArn").read(resource, context)


def _is_serverless(variant: Any) -> bool:
    return is_mapping(get(variant, "serverlessConfig"))


AI_READERS: Final[dict[str, tuple[Reader, ...]]] = readers(AI_STORES)
for _type, _places in _VOLUMES.items():
    AI_READERS[_type] = (
        *AI_READERS.get(_type, ()),
        *(_volume(parts, key) for parts, key in _places),
    )
AI_READERS[_ENDPOINT] = (_endpoint, *AI_READERS[_ENDPOINT])


# AWS analytics: what encrypts query results, catalogues, jobs' bookmarks and clusters' disks.
#
# Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
# otherwise.

_RESULTS: Final[dict[str, State]] = {"sse_s3": "service key"}
_DISABLED: Final[dict[str, State]] = {
    "disabled": "none",
    "sse-s3": "service key",
    "sse-kms": "customer key",
    "cse-kms": "customer key",
    "sse-kms-with-service-role": "customer key",
}
_GLUE_CONFIGURATION: Final = frozenset({"aws:glue/securityConfiguration:SecurityConfiguration"})
_EMR_CONFIGURATION: Final = frozenset({"aws:emr/securityConfiguration:SecurityConfiguration"})
_GLUE: Final = "aws:glue/securityConfiguration:SecurityConfiguration"
_CATALOGUE: Final = "aws:glue/dataCatalogEncryptionSettings:DataCatalogEncryptionSettings"
_WITHOUT: Final = (
    "securityConfiguration isn't given, and without one a job's results, bookmarks and logs "
    "aren't encrypted by Glue"
)

ANALYTICS: Final = (
    Stores(_GLUE, "encryptionConfiguration.s3Encryption.kmsKeyArn", default="none",
           mode="encryptionConfiguration.s3Encryption.s3EncryptionMode", modes=_DISABLED),
    Stores(_GLUE, "encryptionConfiguration.cloudwatchEncryption.kmsKeyArn", default="none",
           mode="encryptionConfiguration.cloudwatchEncryption.cloudwatchEncryptionMode",
           modes=_DISABLED),
    Stores(_GLUE, "encryptionConfiguration.jobBookmarksEncryption.kmsKeyArn", default="none",
           mode="encryptionConfiguration.jobBookmarksEncryption.jobBookmarksEncryptionMode",
           modes=_DISABLED),
    Stores(_CATALOGUE, "dataCatalogEncryptionSettings.encryptionAtRest.sseAwsKmsKeyId",
           default="none", modes=_DISABLED,
           mode="dataCatalogEncryptionSettings.encryptionAtRest.catalogEncryptionMode"),
    Stores(_CATALOGUE, "dataCatalogEncryptionSettings.connectionPasswordEncryption.awsKmsKeyId",
           "dataCatalogEncryptionSettings.connectionPasswordEncryption"
           ".returnConnectionPasswordEncrypted", "none"),
    *(
        Stores(f"aws:glue/{name[0].lower()}{name[1:]}:{name}", "securityConfiguration",
               default="none", by=_GLUE_CONFIGURATION, note=_WITHOUT)
        for name in ("Job", "Crawler", "DevEndpoint")
    ),
    Stores("aws:emr/cluster:Cluster", "securityConfiguration", default="none",
           by=_EMR_CONFIGURATION,
           note="securityConfiguration isn't given, and without one EMR encrypts no disk"),
    Stores("aws:emr/cluster:Cluster", "logEncryptionKmsKeyId", when="logUri"),
    Stores("aws:emr/studio:Studio", "encryptionKeyArn"),
    Stores("aws:emrserverless/application:Application", "encryptionKeyArn",
           parts="monitoringConfiguration.managedPersistenceMonitoringConfiguration",
           when="enabled"),
    Stores("aws:emrserverless/application:Application", "encryptionKeyArn",
           parts="monitoringConfiguration.s3MonitoringConfiguration"),
    Stores("aws:emrserverless/application:Application", "encryptionKeyArn",
           parts="monitoringConfiguration.cloudwatchLoggingConfiguration", when="enabled"),
    Stores("aws:emrcontainers/jobTemplate:JobTemplate", "kmsKeyArn"),
    Stores("aws:datazone/domain:Domain", "kmsKeyIdentifier"),
    Stores("aws:quicksight/keyRegistration:KeyRegistration", "keyRegistrations.keyArn"),
    Stores("aws:securitylake/dataLake:DataLake", "encryptionConfigurations.kmsKeyId",
           parts="configuration"),
    Stores("aws:auditmanager/accountRegistration:AccountRegistration", "kmsKey"),
    Stores("aws:athena/workgroup:Workgroup",
           "configuration.managedQueryResultsConfiguration.encryptionConfiguration.kmsKey",
           when="configuration.managedQueryResultsConfiguration.enabled"),
    Stores("aws:athena/workgroup:Workgroup",
           "configuration.customerContentEncryptionConfiguration.kmsKey",
           when="configuration.customerContentEncryptionConfiguration"),
)  # fmt: skip

_ATHENA: Final = {
    "aws:athena/workgroup:Workgroup": (
        Stores("aws:athena/workgroup:Workgroup",
               "configuration.resultConfiguration.encryptionConfiguration.kmsKeyArn",
               mode="configuration.resultConfiguration.encryptionConfiguration.encryptionOption",
               modes=_RESULTS),
        "configuration.resultConfiguration.outputLocation",
    ),
    "aws:athena/database:Database": (
        Stores("aws:athena/database:Database", "encryptionConfiguration.kmsKey",
               mode="encryptionConfiguration.encryptionOption", modes=_RESULTS),
        "bucket",
    ),
}  # fmt: skip


def _athena(resource: Resource, context: Context) -> Iterator[Part]:
    """Results go to a bucket: where nothing is set, the bucket's own encryption holds."""
    if get(resource.properties, "configuration.managedQueryResultsConfiguration.enabled") is True:
        return
    entry, location = _ATHENA[resource.kind]
    for part in entry.read(resource, context):
        if not part.given and _bucket_is_judged(resource, context, location):
            continue
        if not part.given and context.stack is None:
            why = f"{part.why}, unless the bucket at {location} says otherwise"
            yield Part("unknown", part.path, part.switch, why, surely=True, given=False)
        else:
            yield part


def _bucket_is_judged(resource: Resource, context: Context, location: str) -> bool:
    """Whether results go to a bucket of the same stack, which is judged by itself."""
    if context.stack is None:
        return False
    named = text(get(resource.properties, location)).removeprefix("s3://").partition("/")[0]
    found = [*context.stack.called(named), *context.referred(resource, location)]
    return any(each.kind.startswith("aws:s3/bucket") for each in found)


ANALYTICS_READERS: Final[dict[str, tuple[Reader, ...]]] = {
    **readers(ANALYTICS),
    **aws_readers.CONFIGURED_READERS,
}
#: Types whose encryption is a document.
DOCUMENTS: Final = frozenset(aws_readers.CONFIGURED_READERS)
for _type in _ATHENA:
    ANALYTICS_READERS[_type] = (_athena, *ANALYTICS_READERS.get(_type, ()))
#: The entries that the reader above varies, for lists of what is known.
ANALYTICS_VARIED: Final = tuple(entry for entry, _ in _ATHENA.values())


# AWS databases, caches and search: where their data is encrypted, and with whose key.
#
# Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
# otherwise.

_RESTORED: Final = ("snapshotIdentifier", "restoreToPointInTime")
_INSIGHTS: Final = "performanceInsightsEnabled"
_MASTER: Final = "manageMasterUserPassword"

_RDS_CLUSTER: Final = Stores(
    "aws:rds/cluster:Cluster",
    "kmsKeyId",
    "storageEncrypted",
    "none",
    copies=(*_RESTORED, "replicationSourceIdentifier"),
)
_REPLICATION_GROUP: Final = Stores(
    "aws:elasticache/replicationGroup:ReplicationGroup",
    "kmsKeyId",
    "atRestEncryptionEnabled",
    "none",
    copies=("globalReplicationGroupId",),
)
_CACHE_CLUSTER: Final = Stores("aws:elasticache/cluster:Cluster", default="none")

DATABASES: Final = (
    Stores(
        "aws:rds/instance:Instance",
        "kmsKeyId",
        "storageEncrypted",
        "none",
        copies=("replicateSourceDb", *_RESTORED),
    ),
    Stores("aws:rds/instance:Instance", "performanceInsightsKmsKeyId", when=_INSIGHTS),
    Stores("aws:rds/instance:Instance", "masterUserSecretKmsKeyId", when=_MASTER),
    Stores("aws:rds/cluster:Cluster", "performanceInsightsKmsKeyId", when=_INSIGHTS),
    Stores("aws:rds/cluster:Cluster", "masterUserSecretKmsKeyId", when=_MASTER),
    Stores("aws:rds/clusterInstance:ClusterInstance", "performanceInsightsKmsKeyId",
           when=_INSIGHTS),
    Stores("aws:rds/globalCluster:GlobalCluster", "", "storageEncrypted", "none",
           copies=("sourceDbClusterIdentifier",)),
    Stores("aws:rds/snapshotCopy:SnapshotCopy", "kmsKeyId",
           copies=("sourceDbSnapshotIdentifier",)),
    Stores("aws:rds/clusterSnapshotCopy:ClusterSnapshotCopy", "kmsKeyId",
           copies=("sourceDbClusterSnapshotIdentifier",)),
    Stores("aws:rds/exportTask:ExportTask", "kmsKeyId"),
    Stores("aws:rds/clusterActivityStream:ClusterActivityStream", "kmsKeyId"),
    Stores("aws:rds/integration:Integration", "kmsKeyId"),
    Stores("aws:rds/instanceAutomatedBackupsReplication:InstanceAutomatedBackupsReplication",
           "kmsKeyId"),
    Stores("aws:docdb/cluster:Cluster", "kmsKeyId", "storageEncrypted", "none", copies=_RESTORED),
    Stores("aws:docdb/clusterInstance:ClusterInstance", "performanceInsightsKmsKeyId",
           when="enablePerformanceInsights"),
    Stores("aws:docdb/elasticCluster:ElasticCluster", "kmsKeyId"),
    Stores("aws:docdb/globalCluster:GlobalCluster", "", "storageEncrypted", "none",
           copies=("sourceDbClusterIdentifier",)),
    Stores("aws:neptune/cluster:Cluster", "kmsKeyArn", "storageEncrypted", "none",
           copies=("snapshotIdentifier", "replicationSourceIdentifier")),
    Stores("aws:neptune/globalCluster:GlobalCluster", "", "storageEncrypted", "none",
           copies=("sourceDbClusterIdentifier",)),
    Stores("aws:neptunegraph/graph:Graph", "kmsKeyIdentifier"),
    Stores("aws:redshift/cluster:Cluster", "kmsKeyId", "encrypted",
           copies=("snapshotIdentifier", "snapshotArn")),
    Stores("aws:redshift/cluster:Cluster", "masterPasswordSecretKmsKeyId",
           when="manageMasterPassword"),
    Stores("aws:redshift/snapshotCopyGrant:SnapshotCopyGrant", "kmsKeyId"),
    Stores("aws:redshift/integration:Integration", "kmsKeyId"),
    Stores("aws:redshiftserverless/namespace:Namespace", "kmsKeyId"),
    Stores("aws:redshiftserverless/namespace:Namespace", "adminPasswordSecretKmsKeyId",
           when="manageAdminPassword"),
    Stores("aws:dynamodb/table:Table", "serverSideEncryption.kmsKeyArn",
           mode="serverSideEncryption.enabled", modes={"false": "service key"}),
    Stores("aws:dynamodb/table:Table", "kmsKeyArn", parts="replicas"),
    Stores("aws:dynamodb/tableReplica:TableReplica", "kmsKeyArn"),
    Stores("aws:dynamodb/tableExport:TableExport", "s3SseKmsKeyId", mode="s3SseAlgorithm",
           modes={"aes256": "service key"}),
    Stores("aws:dax/cluster:Cluster", "", "serverSideEncryption.enabled", "none"),
    Stores("aws:elasticache/serverlessCache:ServerlessCache", "kmsKeyId"),
    Stores("aws:memorydb/cluster:Cluster", "kmsKeyArn"),
    Stores("aws:memorydb/snapshot:Snapshot", "kmsKeyArn", copies=("clusterName",)),
    Stores("aws:keyspaces/table:Table", "encryptionSpecification.kmsKeyIdentifier",
           mode="encryptionSpecification.type", modes={"aws_owned_kms_key": "service key"}),
    Stores("aws:timestreamwrite/database:Database", "kmsKeyId"),
    Stores("aws:timestreamquery/scheduledQuery:ScheduledQuery", "kmsKeyId"),
    # Takes no customer's key: https://docs.aws.amazon.com/timestream/latest/developerguide/
    # timestream-for-influxdb-encryption.html
    Stores("aws:timestreaminfluxdb/dbInstance:DbInstance"),
    Stores("aws:timestreaminfluxdb/dbCluster:DbCluster"),
    Stores("aws:qldb/ledger:Ledger", "kmsKey"),
    Stores("aws:dsql/cluster:Cluster", "kmsEncryptionKey"),
    Stores("aws:opensearch/domain:Domain", "encryptAtRest.kmsKeyId", "encryptAtRest.enabled",
           "none"),
    Stores("aws:elasticsearch/domain:Domain", "encryptAtRest.kmsKeyId", "encryptAtRest.enabled",
           "none"),
    Stores("aws:opensearch/application:Application", "kmsKeyArn"),
    Stores("aws:opensearchingest/pipeline:Pipeline", "encryptionAtRestOptions.kmsKeyArn"),
    Stores("aws:finspace/kxEnvironment:KxEnvironment", "kmsKeyId"),
    Stores("aws:dms/replicationInstance:ReplicationInstance", "kmsKeyArn"),
    Stores("aws:dms/replicationConfig:ReplicationConfig", "computeConfig.kmsKeyId"),
    Stores("aws:dms/instanceProfile:InstanceProfile", "kmsKeyArn"),
    Stores("aws:dms/endpoint:Endpoint", "kmsKeyArn"),
    Stores("aws:dms/endpoint:Endpoint", "redshiftSettings.serverSideEncryptionKmsKeyId",
           when="redshiftSettings", mode="redshiftSettings.encryptionMode",
           modes={"sse_s3": "service key"}),
    Stores("aws:dms/s3Endpoint:S3Endpoint", "kmsKeyArn"),
    Stores("aws:dms/s3Endpoint:S3Endpoint", "serverSideEncryptionKmsKeyId", mode="encryptionMode",
           modes={"sse_s3": "service key"}, only=("endpointType", ("target",))),
    Stores("aws:customerprofiles/domain:Domain", "defaultEncryptionKey"),
    Stores("aws:odb/autonomousDatabase:AutonomousDatabase", "kmsKeyId"),
)  # fmt: skip


def _rds_cluster(resource: Resource, context: Context) -> Iterator[Part]:
    """Aurora's serverless engine mode is encrypted unless told otherwise; others aren't."""
    mode = text(get(resource.properties, "engineMode")).lower()
    entry = _RDS_CLUSTER
    if mode == "serverless":
        entry = replace(entry, default="service key")
    yield from entry.read(resource, context)


def _replication_group(resource: Resource, context: Context) -> Iterator[Part]:
    """Valkey is encrypted unless told otherwise; Redis isn't."""
    entry = _REPLICATION_GROUP
    if text(get(resource.properties, "engine")).lower() == "valkey":
        entry = replace(entry, default="service key")
    yield from entry.read(resource, context)


def _cache_cluster(resource: Resource, context: Context) -> Iterator[Part]:
    """A cache outside of a replication group can't be encrypted at rest; Memcached keeps nothing.

    https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/at-rest-encryption.html
    """
    engine = get(resource.properties, "engine")
    if get(resource.properties, "replicationGroupId") is not ABSENT:
        return
    if isinstance(engine, Unknown):
        why = f"engine {engine.reason}, and Redis by itself can't be encrypted at rest"
        yield Part("unknown", "engine", "engine", why, given=False, takes_key=False)
    elif text(engine).lower() in {"redis", "valkey"}:
        why = f"{text(engine)} outside of a replication group can't be encrypted at rest"
        yield Part("none", "engine", "engine", why, given=False, takes_key=False)


DATABASES_READERS: Final[dict[str, tuple[Reader, ...]]] = readers(DATABASES)
DATABASES_READERS[_RDS_CLUSTER.type] = (_rds_cluster, *DATABASES_READERS[_RDS_CLUSTER.type])
DATABASES_READERS[_REPLICATION_GROUP.type] = (_replication_group,)
DATABASES_READERS[_CACHE_CLUSTER.type] = (_cache_cluster,)
#: The entries that the readers above vary, for lists of what is known.
DATABASES_VARIED: Final = (_RDS_CLUSTER, _REPLICATION_GROUP, _CACHE_CLUSTER)


# AWS compute and its delivery: what encrypts images, builds, clusters' secrets and functions.
#
# Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
# otherwise.

_PROJECT: Final = "aws:codebuild/project:Project"
_KEPT: Final = ("s3", "codepipeline")
#: Without a type, a key is left unused.
_ECR: Final[dict[str, State]] = {"": "service key", "aes256": "service key", "kms": "customer key"}
_OFF: Final[dict[str, State]] = {"true": "none"}

_EKS: Final = Stores("aws:eks/cluster:Cluster", "encryptionConfig.provider.keyArn")

CLUSTER_STORES: Final = (
    # Secrets; without a key, EKS encrypts them with a key of its own:
    # https://docs.aws.amazon.com/eks/latest/userguide/envelope-encryption.html
    _EKS,
    Stores("aws:ecs/cluster:Cluster", "kmsKeyId",
           parts="configuration.executeCommandConfiguration"),
    Stores("aws:ecs/cluster:Cluster", ("kmsKeyId", "fargateEphemeralStorageKmsKeyId"),
           parts="configuration.managedStorageConfiguration"),
    Stores("aws:ecs/service:Service", "kmsKeyId", "encrypted",
           parts="volumeConfiguration.managedEbsVolume", copies=("snapshotId",)),
    Stores("aws:ecs/service:Service", "kmsKey", parts="serviceConnectConfiguration.services.tls"),
)  # fmt: skip
DEVELOPMENT: Final = (
    Stores("aws:ecr/repository:Repository", "encryptionConfigurations.kmsKey",
           mode="encryptionConfigurations.encryptionType", modes=_ECR),
    Stores("aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate",
           "encryptionConfigurations.kmsKey", mode="encryptionConfigurations.encryptionType",
           modes=_ECR),
    Stores("aws:lambda/function:Function", "kmsKeyArn", when="environment.variables"),
    Stores("aws:lambda/capacityProvider:CapacityProvider", "kmsKeyArn"),
    Stores("aws:apprunner/service:Service", "encryptionConfiguration.kmsKey"),
    Stores(_PROJECT, "", parts="artifacts", mode="encryptionDisabled", modes=_OFF,
           only=("type", _KEPT)),
    Stores(_PROJECT, "", parts="secondaryArtifacts", mode="encryptionDisabled", modes=_OFF,
           only=("type", _KEPT)),
    Stores(_PROJECT, "", parts="logsConfig.s3Logs", mode="encryptionDisabled", modes=_OFF,
           only=("status", ("enabled",))),
    Stores("aws:codebuild/reportGroup:ReportGroup", "encryptionKey",
           parts="exportConfig.s3Destination", mode="encryptionDisabled", modes=_OFF),
    Stores("aws:codepipeline/pipeline:Pipeline", "encryptionKey.id", parts="artifactStores"),
    Stores("aws:codeartifact/domain:Domain", "encryptionKey"),
    Stores("aws:codecommit/repository:Repository", "kmsKeyId"),
    Stores("aws:codegurureviewer/repositoryAssociation:RepositoryAssociation",
           "kmsKeyDetails.kmsKeyId", mode="kmsKeyDetails.encryptionOption",
           modes={"aws_owned_cmk": "service key", "customer_managed_cmk": "customer key"}),
    Stores("aws:imagebuilder/component:Component", "kmsKeyId"),
    Stores("aws:imagebuilder/containerRecipe:ContainerRecipe", "kmsKeyId"),
    Stores("aws:imagebuilder/workflow:Workflow", "kmsKeyId"),
    Stores("aws:imagebuilder/distributionConfiguration:DistributionConfiguration", "kmsKeyId",
           parts="distributions.amiDistributionConfiguration"),
    Stores("aws:synthetics/canary:Canary", "artifactConfig.s3Encryption.kmsKeyArn",
           mode="artifactConfig.s3Encryption.encryptionMode", modes={"sse_s3": "service key"}),
    Stores("aws:appconfig/configurationProfile:ConfigurationProfile", "kmsKeyIdentifier",
           only=("locationUri", ("hosted",))),
    Stores("aws:agentregistry/registry:Registry", "encryptionConfiguration.kmsKeyArn"),
)  # fmt: skip


_PROJECT_KEY: Final = Stores(_PROJECT, "encryptionKey")


def _project(resource: Resource, context: Context) -> Iterator[Part]:
    """A project's key; one that keeps neither artifacts nor a cache has nothing to encrypt."""
    kinds = [
        get(resource.properties, "artifacts.type"),
        *(get(each, "type") for each in items(get(resource.properties, "secondaryArtifacts"))),
    ]
    cache = get(resource.properties, "cache.type")
    if (
        any(is_unknown(each) or text(each).lower() in _KEPT for each in kinds)
        or is_unknown(cache)
        or text(cache).lower() == "s3"
    ):
        yield from _PROJECT_KEY.read(resource, context)


def _eks(resource: Resource, context: Context) -> Iterator[Part]:
    """A key encrypts only what is listed beside it, and a list may leave secrets out."""
    path = "encryptionConfig.resources"
    listed = get(resource.properties, path)
    if isinstance(listed, Unknown):
        yield Part("unknown", path, path, f"{path} {listed.reason}", surely=True)
    elif is_list(listed) and not any(text(each) == "secrets" for each in listed):
        why = "resources doesn't list secrets, which are then under a key of EKS's own"
        yield Part("service key", path, path, why)
    else:
        yield from _EKS.read(resource, context)


CLUSTERS: Final[dict[str, tuple[Reader, ...]]] = readers(CLUSTER_STORES)
CLUSTERS[_EKS.type] = (_eks,)
DEVELOPMENT_READERS: Final[dict[str, tuple[Reader, ...]]] = readers(DEVELOPMENT)
DEVELOPMENT_READERS[_PROJECT] = (_project, *DEVELOPMENT_READERS[_PROJECT])
#: The entry that the reader above varies, for lists of what is known.
DEVELOPMENT_VARIED: Final = (_PROJECT_KEY,)


# AWS file systems, gateways, backups and desktops: where their data is encrypted, and by whom.
#
# Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
# otherwise.

#: Without one's own key, gateways store with the key of S3.
_GATEWAY: Final[dict[str, State]] = {"true": "customer key", "false": "service key"}
_TABLES: Final[dict[str, State]] = {"aes256": "service key", "aws:kms": "customer key"}

FILE_STORES: Final = (
    Stores("aws:efs/fileSystem:FileSystem", "kmsKeyId", "encrypted", "none"),
    Stores("aws:efs/replicationConfiguration:ReplicationConfiguration", "kmsKeyId",
           parts="destination", copies=("fileSystemId",)),
    Stores("aws:fsx/lustreFileSystem:LustreFileSystem", "kmsKeyId", copies=("backupId",)),
    Stores("aws:fsx/windowsFileSystem:WindowsFileSystem", "kmsKeyId", copies=("backupId",)),
    Stores("aws:fsx/openZfsFileSystem:OpenZfsFileSystem", "kmsKeyId", copies=("backupId",)),
    Stores("aws:fsx/ontapFileSystem:OntapFileSystem", "kmsKeyId"),
    Stores("aws:fsx/fileCache:FileCache", "kmsKeyId"),
    Stores("aws:s3/filesFileSystem:FilesFileSystem", "kmsKeyId"),
    Stores("aws:backup/vault:Vault", "kmsKeyArn"),
    Stores("aws:backup/logicallyAirGappedVault:LogicallyAirGappedVault", "encryptionKeyArn"),
    Stores("aws:storagegateway/nfsFileShare:NfsFileShare", "kmsKeyArn", mode="kmsEncrypted",
           modes=_GATEWAY),
    Stores("aws:storagegateway/smbFileShare:SmbFileShare", "kmsKeyArn", mode="kmsEncrypted",
           modes=_GATEWAY),
    Stores("aws:storagegateway/cachesIscsiVolume:CachesIscsiVolume", "kmsKey",
           mode="kmsEncrypted", modes=_GATEWAY),
    Stores("aws:storagegateway/storedIscsiVolume:StoredIscsiVolume", "kmsKey",
           mode="kmsEncrypted", modes=_GATEWAY),
    Stores("aws:s3tables/tableBucket:TableBucket", "encryptionConfiguration.kmsKeyArn",
           mode="encryptionConfiguration.sseAlgorithm", modes=_TABLES),
    # Tables take on their bucket's encryption unless they name their own.
    Stores("aws:s3tables/table:Table", "encryptionConfiguration.kmsKeyArn",
           mode="encryptionConfiguration.sseAlgorithm", modes=_TABLES,
           when="encryptionConfiguration"),
    Stores("aws:s3/vectorsVectorBucket:VectorsVectorBucket", "encryptionConfigurations.kmsKeyArn",
           mode="encryptionConfigurations.sseType", modes=_TABLES),
    Stores("aws:s3/vectorsIndex:VectorsIndex", "encryptionConfigurations.kmsKeyArn",
           mode="encryptionConfigurations.sseType", modes=_TABLES,
           when="encryptionConfigurations"),
    # Takes no customer's key, and is always encrypted:
    # https://docs.aws.amazon.com/amazonglacier/latest/dev/DataEncryption.html
    Stores("aws:glacier/vault:Vault"),
    # Takes no customer's key: https://docs.aws.amazon.com/lightsail/latest/userguide/
    # security_data-protection.html
    Stores("aws:lightsail/bucket:Bucket"),
    Stores("aws:lightsail/database:Database"),
    Stores("aws:lightsail/disk:Disk"),
    Stores("aws:drs/replicationConfigurationTemplate:ReplicationConfigurationTemplate",
           "ebsEncryptionKeyArn", mode="ebsEncryption",
           modes={"default": "service key", "none": "none"}),
    # The caches of APIs take no customer's key, only encryption, and that is off by default:
    # https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-caching.html
    Stores("aws:apigateway/methodSettings:MethodSettings", "", "settings.cacheDataEncrypted",
           "none", when="settings.cachingEnabled"),
    Stores("aws:appsync/apiCache:ApiCache", "", "atRestEncryptionEnabled", "none"),
    Stores("aws:location/geofenceCollection:GeofenceCollection", "kmsKeyId"),
    Stores("aws:location/tracker:Tracker", "kmsKeyId"),
    Stores("aws:m2/application:Application", "kmsKeyId"),
    Stores("aws:m2/environment:Environment", "kmsKeyId"),
    Stores("aws:workspaces/workspace:Workspace", "volumeEncryptionKey",
           "rootVolumeEncryptionEnabled", "none"),
    Stores("aws:workspaces/workspace:Workspace", "volumeEncryptionKey",
           "userVolumeEncryptionEnabled", "none"),
    *(
        Stores(f"aws:workspacesweb/{name[0].lower()}{name[1:]}:{name}", "customerManagedKey")
        for name in ("BrowserSettings", "DataProtectionSettings", "IpAccessSettings", "Portal",
                     "SessionLogger", "UserSettings")
    ),
)  # fmt: skip

FILE_READERS: Final[dict[str, tuple[Reader, ...]]] = readers(FILE_STORES)


# AWS queues, topics, streams, event buses and workflows: what encrypts what passes through.
#
# Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
# otherwise.

_STATES_MODES: Final[dict[str, State]] = {
    "aws_owned_key": "service key",
    "customer_managed_kms_key": "customer key",
}
_FIREHOSE: Final = Stores(
    "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream",
    "serverSideEncryption.keyArn",
    "serverSideEncryption.enabled",
    "none",
    mode="serverSideEncryption.keyType",
    modes={"aws_owned_cmk": "service key", "": "service key"},
)

MESSAGING: Final = (
    # Encryption with SQS's own key is on by default since 2022:
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-sqs-sse-queue.html
    Stores("aws:sqs/queue:Queue", "kmsMasterKeyId", "sqsManagedSseEnabled", key_wins=True),
    Stores("aws:sns/topic:Topic", "kmsMasterKeyId", default="none",
           note="kmsMasterKeyId isn't given, and without it a topic isn't encrypted by SNS"),
    Stores("aws:kinesis/stream:Stream", "kmsKeyId", default="none", mode="encryptionType",
           modes={"none": "none", "kms": "customer key"}),
    Stores("aws:kinesis/videoStream:VideoStream", "kmsKeyId"),
    Stores("aws:kinesisanalyticsv2/application:Application",
           "applicationConfiguration.applicationEncryptionConfiguration.keyId",
           mode="applicationConfiguration.applicationEncryptionConfiguration.keyType",
           modes={"aws_owned_key": "service key", "customer_managed_key": "customer key"}),
    Stores("aws:msk/cluster:Cluster", "encryptionInfo.encryptionAtRestKmsKeyArn"),
    Stores("aws:msk/channel:Channel", "encryptionConfiguration.kmsKeyArn"),
    # Takes no customer's key: https://docs.aws.amazon.com/msk/latest/developerguide/serverless.html
    Stores("aws:msk/serverlessCluster:ServerlessCluster"),
    Stores("aws:mq/broker:Broker", "encryptionOptions.kmsKeyId",
           mode="encryptionOptions.useAwsOwnedKey", modes={"true": "service key"}),
    Stores("aws:cloudwatch/eventBus:EventBus", "kmsKeyIdentifier"),
    Stores("aws:cloudwatch/eventArchive:EventArchive", "kmsKeyIdentifier"),
    Stores("aws:cloudwatch/eventConnection:EventConnection", "kmsKeyIdentifier"),
    Stores("aws:pipes/pipe:Pipe", "kmsKeyIdentifier"),
    Stores("aws:scheduler/schedule:Schedule", "kmsKeyArn"),
    Stores("aws:sfn/stateMachine:StateMachine", "encryptionConfiguration.kmsKeyId",
           mode="encryptionConfiguration.type", modes=_STATES_MODES),
    Stores("aws:sfn/activity:Activity", "encryptionConfiguration.kmsKeyId",
           mode="encryptionConfiguration.type", modes=_STATES_MODES),
    Stores("aws:mwaa/environment:Environment", "kmsKey"),
    Stores("aws:appflow/flow:Flow", "kmsArn"),
    Stores("aws:appflow/connectorProfile:ConnectorProfile", "kmsArn"),
    Stores("aws:appintegrations/dataIntegration:DataIntegration", "kmsKey"),
    Stores("aws:mailmanager/archive:Archive", "kmsKeyArn"),
    Stores("aws:workmail/organization:Organization", "kmsKeyArn"),
    # What is received is written to a bucket, whose own encryption holds unless a key is named.
    Stores("aws:ses/receiptRule:ReceiptRule", "kmsKeyArn", parts="s3Actions", when="kmsKeyArn"),
)  # fmt: skip


def _firehose(resource: Resource, context: Context) -> Iterator[Part]:
    """A delivery stream that reads from another stream keeps nothing of its own.

    https://docs.aws.amazon.com/firehose/latest/APIReference/API_StartDeliveryStreamEncryption.html
    """
    sources = ("kinesisSourceConfiguration", "mskSourceConfiguration")
    given = [get(resource.properties, each) for each in sources]
    if all(each is ABSENT or is_unknown(each) for each in given):
        yield from _FIREHOSE.read(resource, context)


MESSAGING_READERS: Final[dict[str, tuple[Reader, ...]]] = readers(MESSAGING)
MESSAGING_READERS[_FIREHOSE.type] = (_firehose,)
#: The entry that the reader above varies, for lists of what is known.
MESSAGING_VARIED: Final = (_FIREHOSE,)


# AWS secrets, logs, trails, findings and networks' own data: what encrypts them.
#
# Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
# otherwise.

_FIREWALL: Final[dict[str, State]] = {
    "aws_owned_kms_key": "service key",
    "customer_kms": "customer key",
}
_ACCESS: Final[dict[str, State]] = {"false": "service key", "true": "customer key"}

SECRET_STORES: Final = (
    Stores("aws:secretsmanager/secret:Secret", "kmsKeyId"),
    Stores("aws:secretsmanager/secret:Secret", "kmsKeyId", parts="replicas"),
    Stores("aws:ssm/parameter:Parameter", "keyId", only=("type", ("securestring",))),
)  # fmt: skip
LOG_STORES: Final = (
    Stores("aws:cloudwatch/logGroup:LogGroup", "kmsKeyId"),
    Stores("aws:cloudwatch/logAnomalyDetector:LogAnomalyDetector", "kmsKeyId"),
    Stores("aws:cloudtrail/trail:Trail", "kmsKeyId"),
    Stores("aws:cloudtrail/eventDataStore:EventDataStore", "kmsKeyId"),
    # Deliveries take on their bucket's encryption unless they name a key.
    Stores("aws:cfg/deliveryChannel:DeliveryChannel", "s3KmsKeyArn", when="s3KmsKeyArn"),
    Stores("aws:xray/encryptionConfig:EncryptionConfig", "keyId", mode="type",
           modes={"none": "service key", "kms": "customer key"}),
    Stores("aws:amp/workspace:Workspace", "kmsKeyArn"),
    Stores("aws:grafana/workspace:Workspace", "kmsKeyId"),
    Stores("aws:guardduty/publishingDestination:PublishingDestination", "kmsKeyArn"),
    Stores("aws:macie2/classificationExportConfiguration:ClassificationExportConfiguration",
           "kmsKeyArn", parts="s3Destination"),
    Stores("aws:securityhub/connectorV2:ConnectorV2", "kmsKeyArn"),
    Stores("aws:devopsguru/serviceIntegration:ServiceIntegration",
           "kmsServerSideEncryption.kmsKeyId", mode="kmsServerSideEncryption.type",
           modes={"aws_owned_kms_key": "service key", "customer_managed_key": "customer key"}),
    Stores("aws:ssm/resourceDataSync:ResourceDataSync", "kmsKeyArn", parts="s3Destination",
           copies=("bucketName",)),
    Stores("aws:ssmincidents/replicationSet:ReplicationSet", "kmsKeyArn", parts="regions"),
    Stores("aws:appfabric/appBundle:AppBundle", "customerManagedKeyArn"),
    Stores("aws:resiliencehub/v2System:V2System", "kmsKeyId"),
    Stores("aws:observabilityadmin/s3TableIntegration:S3TableIntegration",
           "encryption.kmsKeyArn", mode="encryption.sseAlgorithm",
           modes={"aes256": "service key", "aws:kms": "customer key"}),
)  # fmt: skip
NETWORK_STORES: Final = (
    *(
        Stores(f"aws:networkfirewall/{name[0].lower()}{name[1:]}:{name}",
               f"{block}.keyId", mode=f"{block}.type", modes=_FIREWALL)
        for name, block in (
            ("Firewall", "encryptionConfiguration"),
            ("FirewallPolicy", "encryptionConfiguration"),
            ("RuleGroup", "encryptionConfiguration"),
            ("TlsInspectionConfiguration", "encryptionConfigurations"),
        )
    ),
    *(
        Stores(f"aws:verifiedaccess/{name[0].lower()}{name[1:]}:{name}", f"{block}.kmsKeyArn",
               mode=f"{block}.customerManagedKeyEnabled", modes=_ACCESS)
        for name, block in (
            ("Endpoint", "sseSpecification"),
            ("Group", "sseConfiguration"),
            ("TrustProvider", "sseSpecification"),
        )
    ),
)  # fmt: skip

SECRETS: Final[dict[str, tuple[Reader, ...]]] = readers(SECRET_STORES)
LOGS: Final[dict[str, tuple[Reader, ...]]] = {
    **readers(LOG_STORES),
    **aws_readers.SESSIONS,
}
NETWORKS: Final[dict[str, tuple[Reader, ...]]] = readers(NETWORK_STORES)
#: Types of logs whose encryption is a document.
SESSIONS: Final = frozenset(aws_readers.SESSIONS)
