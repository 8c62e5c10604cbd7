"""Falaj on one machine: components over a resource provider that does the work."""

from falaj.components.local.batch_inference import BatchInference, BatchInferenceArgs
from falaj.components.local.certificates import (
    Certificate,
    CertificateArgs,
    CertificateAuthority,
    CertificateAuthorityArgs,
)
from falaj.components.local.daemon import Daemon, DaemonArgs
from falaj.components.local.dataset import Dataset, DatasetArgs
from falaj.components.local.inference_service import InferenceService, InferenceServiceArgs
from falaj.components.local.key_ring import KeyRing, KeyRingArgs
from falaj.components.local.local_provider import LocalProvider, LocalProviderArgs
from falaj.components.local.model_package import ModelPackage, ModelPackageArgs
from falaj.components.local.training_run import TrainingRun, TrainingRunArgs
from falaj.components.local.workspace import Workspace, WorkspaceArgs

__all__ = [
    "BatchInference",
    "BatchInferenceArgs",
    "Certificate",
    "CertificateArgs",
    "CertificateAuthority",
    "CertificateAuthorityArgs",
    "Daemon",
    "DaemonArgs",
    "Dataset",
    "DatasetArgs",
    "InferenceService",
    "InferenceServiceArgs",
    "KeyRing",
    "KeyRingArgs",
    "LocalProvider",
    "LocalProviderArgs",
    "ModelPackage",
    "ModelPackageArgs",
    "TrainingRun",
    "TrainingRunArgs",
    "Workspace",
    "WorkspaceArgs",
]
