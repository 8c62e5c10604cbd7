"""The resource types of the provider, one handler each."""

from __future__ import annotations

from typing import Final

from components.local.provider.handler import Handler
from components.local.provider.resources.certificate import CertificateHandler
from components.local.provider.resources.certificate_authority import CertificateAuthorityHandler
from components.local.provider.resources.dataset import DatasetHandler
from components.local.provider.resources.inference_service import InferenceServiceHandler
from components.local.provider.resources.key_ring import KeyRingHandler
from components.local.provider.resources.model_package import ModelPackageHandler
from components.local.provider.resources.training_run import TrainingRunHandler
from components.local.provider.resources.workspace import WorkspaceHandler

HANDLERS: Final[tuple[Handler, ...]] = (
    WorkspaceHandler(),
    KeyRingHandler(),
    CertificateAuthorityHandler(),
    CertificateHandler(),
    DatasetHandler(),
    TrainingRunHandler(),
    ModelPackageHandler(),
    InferenceServiceHandler(),
)
