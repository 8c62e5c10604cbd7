"""What the sandbox knows of each cloud, loaded when that cloud is asked for."""

from __future__ import annotations

import importlib
from typing import Final

from falaj.engine.errors import EngineError
from falaj.sandbox.clouds.model import CloudModel

_MODULES: Final = {
    "aws": ("falaj.sandbox.clouds.aws", "MODEL"),
    "azure-native": ("falaj.sandbox.clouds.azure", "MODEL"),
    "kubernetes": ("falaj.sandbox.clouds.kubernetes", "MODEL"),
    "random": ("falaj.sandbox.clouds.utilities", "RANDOM"),
    "tls": ("falaj.sandbox.clouds.utilities", "TLS"),
}

PACKAGES: Final = tuple(_MODULES)
"""The packages that the sandbox stands in for."""


def load(package: str) -> CloudModel:
    """The model of a package's cloud.

    Raises:
        EngineError: there is none for that package.
    """
    found = _MODULES.get(package)
    if found is None:
        raise EngineError(
            f"{package!r} is no cloud that the sandbox stands in for; "
            f"allowed: {', '.join(PACKAGES)}"
        )
    module, name = found
    model: CloudModel = getattr(importlib.import_module(module), name)
    return model
