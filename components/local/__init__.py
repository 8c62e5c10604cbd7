"""Falaj on one machine: components over a resource provider that does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.components.exports import lazy

if TYPE_CHECKING:
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
else:
    __getattr__ = lazy(
        __name__,
        dict.fromkeys(
            ("Certificate", "CertificateArgs", "CertificateAuthority", "CertificateAuthorityArgs"),
            "certificates",
        ),
    )

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
