"""What the sandbox knows of each cloud, loaded when that cloud is asked for."""

from __future__ import annotations

import importlib
from typing import Final

from falaj.sandbox.clouds.model import CloudModel, GenericModel

_MODULES: Final = {
    "aws": ("falaj.sandbox.clouds.aws", "MODEL"),
    "azure-native": ("falaj.sandbox.clouds.azure", "MODEL"),
    "kubernetes": ("falaj.sandbox.clouds.kubernetes", "MODEL"),
    "random": ("falaj.sandbox.clouds.utilities", "RANDOM"),
    "tls": ("falaj.sandbox.clouds.utilities", "TLS"),
}

PACKAGES: Final = tuple(_MODULES)
"""The packages of which the sandbox knows more than the types of their SDKs."""


def load(package: str) -> CloudModel:
    """The model of a package's cloud; of any other one that takes what the SDK's types allow."""
    found = _MODULES.get(package)
    if found is None:
        return GenericModel(package)
    module, name = found
    model: CloudModel = getattr(importlib.import_module(module), name)
    return model
