"""Names of models in registries, and of what stands for one of their versions."""

from typing import Final

from falaj.components.specification.workload_bounds import form

MODEL: Final = form("registry", "model")
"""Of any model."""
PUBLISHED_MODEL: Final = form("registry", "published")
"""Of a model whose packages are in a registry of images."""
ALIAS: Final = form("registry", "alias")
