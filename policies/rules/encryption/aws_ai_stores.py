"""AWS's services for AI: what encrypts models, training data, agents' memories and answers.

Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import Resource, View, get, is_unknown, items, select, text
from falaj.policies.rules.encryption.table import Part, Reader, Stores, readers

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
    named = [text(get(each, "instanceType")) for each in groups if isinstance(each, Mapping)]
    kinds = [each for each in named if each]
    return bool(kinds) and all(_OWN_DISKS.fullmatch(each) for each in kinds)


def _volume(parts: str, key: str) -> Reader:
    def read(resource: Resource, view: View) -> Iterator[Part]:
        blocks = [block for _, block in select(resource.properties, parts)]
        if blocks and all(_has_own_disks(each) for each in blocks):
            return
        yield from Stores(resource.kind, key, parts=parts).read(resource, view)

    return read


def _endpoint(resource: Resource, view: View) -> Iterator[Part]:
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
    yield from Stores(_ENDPOINT, "kmsKeyArn").read(resource, view)


def _is_serverless(variant: Any) -> bool:
    return isinstance(get(variant, "serverlessConfig"), Mapping)


READERS: Final[dict[str, tuple[Reader, ...]]] = readers(AI_STORES)
for _type, _places in _VOLUMES.items():
    READERS[_type] = (
        *READERS.get(_type, ()),
        *(_volume(parts, key) for parts, key in _places),
    )
READERS[_ENDPOINT] = (_endpoint, *READERS[_ENDPOINT])
