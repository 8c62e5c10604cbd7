"""The model of Azure for the sandbox's azure-native provider."""

from typing import Final

from falaj.sandbox.clouds.azure.model import AzureModel

MODEL: Final = AzureModel()

__all__ = ["MODEL", "AzureModel"]
