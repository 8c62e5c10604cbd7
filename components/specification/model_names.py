"""Names of models in registries, their versions, and what stands for one of these."""

from typing import Final

from falaj.components.specification.workload_bounds import bound, form

MODEL: Final = form("registry", "model")
"""Of any model."""
PUBLISHED_MODEL: Final = form("registry", "published")
"""Of a model whose packages are in a registry of images."""
ALIAS: Final = form("registry", "alias")
VERSION: Final = bound("registry", "version")
"""A version's number."""
RECORD: Final = bound("registry", "record")
"""The number of what an alias was said to stand for."""
SHARE: Final = bound("registry", "share")
"""Percent of the requests that a canary has, which is the smaller of two versions."""
