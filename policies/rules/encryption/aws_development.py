"""AWS compute and its delivery: what encrypts images, builds, clusters' secrets and functions.

Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import Resource, View, get, is_list, is_unknown, items, text
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption.table import Part, Reader, State, Stores, readers

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


def _project(resource: Resource, view: View) -> Iterator[Part]:
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
        yield from _PROJECT_KEY.read(resource, view)


def _eks(resource: Resource, view: View) -> Iterator[Part]:
    """A key encrypts only what is listed beside it, and a list may leave secrets out."""
    path = "encryptionConfig.resources"
    listed = get(resource.properties, path)
    if isinstance(listed, Unknown):
        yield Part("unknown", path, path, f"{path} {listed.reason}", surely=True)
    elif is_list(listed) and not any(text(each) == "secrets" for each in listed):
        why = "resources doesn't list secrets, which are then under a key of EKS's own"
        yield Part("service key", path, path, why)
    else:
        yield from _EKS.read(resource, view)


CLUSTERS: Final[dict[str, tuple[Reader, ...]]] = readers(CLUSTER_STORES)
CLUSTERS[_EKS.type] = (_eks,)
READERS: Final[dict[str, tuple[Reader, ...]]] = readers(DEVELOPMENT)
READERS[_PROJECT] = (_project, *READERS[_PROJECT])
#: The entry that the reader above varies, for lists of what is known.
VARIED: Final = (_PROJECT_KEY,)
