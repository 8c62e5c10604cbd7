"""What the sandbox knows of each cloud, loaded when that cloud is asked for."""

from __future__ import annotations

import importlib
from typing import Final

from falaj.engine.errors import EngineError
from falaj.sandbox.clouds.model import CloudModel

_MODULES: Final = {
    "aws": "falaj.sandbox.clouds.aws",
    "azure-native": "falaj.sandbox.clouds.azure",
    "kubernetes": "falaj.sandbox.clouds.kubernetes",
}

PACKAGES: Final = tuple(_MODULES)
"""The packages that the sandbox stands in for."""


def load(package: str) -> CloudModel:
    """The model of a package's cloud.

    Raises:
        EngineError: there is none for that package.
    """
    module = _MODULES.get(package)
    if module is None:
        raise EngineError(
            f"{package!r} is no cloud that the sandbox stands in for; "
            f"allowed: {', '.join(PACKAGES)}"
        )
    model: CloudModel = importlib.import_module(module).MODEL
    return model
