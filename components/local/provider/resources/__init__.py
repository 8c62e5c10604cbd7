"""The resource types of the provider, one handler each."""

from __future__ import annotations

from typing import Final

from falaj.components.local.provider.handler import Handler
from falaj.components.local.provider.resources.batch_inference import BatchInferenceHandler
from falaj.components.local.provider.resources.certificates import (
    CertificateAuthorityHandler,
    CertificateHandler,
)
from falaj.components.local.provider.resources.daemon import DaemonHandler
from falaj.components.local.provider.resources.dataset import DatasetHandler
from falaj.components.local.provider.resources.inference_service import InferenceServiceHandler
from falaj.components.local.provider.resources.key_ring import KeyRingHandler
from falaj.components.local.provider.resources.model_package import ModelPackageHandler
from falaj.components.local.provider.resources.training_run import TrainingRunHandler
from falaj.components.local.provider.resources.workspace import WorkspaceHandler

HANDLERS: Final[tuple[Handler, ...]] = (
    WorkspaceHandler(),
    KeyRingHandler(),
    CertificateAuthorityHandler(),
    CertificateHandler(),
    DatasetHandler(),
    TrainingRunHandler(),
    ModelPackageHandler(),
    InferenceServiceHandler(),
    DaemonHandler(),
    BatchInferenceHandler(),
)
