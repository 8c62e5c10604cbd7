"""Falaj on one machine: components over a resource provider that does the work."""

from components.local.certificate import Certificate, CertificateArgs
from components.local.certificate_authority import CertificateAuthority, CertificateAuthorityArgs
from components.local.dataset import Dataset, DatasetArgs
from components.local.inference_service import InferenceService, InferenceServiceArgs
from components.local.key_ring import KeyRing, KeyRingArgs
from components.local.local_provider import LocalProvider, LocalProviderArgs
from components.local.model_package import ModelPackage, ModelPackageArgs
from components.local.training_run import TrainingRun, TrainingRunArgs
from components.local.workspace import Workspace, WorkspaceArgs

__all__ = [
    "Certificate",
    "CertificateArgs",
    "CertificateAuthority",
    "CertificateAuthorityArgs",
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
